"""OpenVLA decoded in parallel (Kim et al., 2024 and 2025): towers, projector and causal language model of transformers.

The sequence is begin, patches, proprioception, prompt, one empty slot per number of the chunk. Attention runs both
ways, and the state before each slot is read: so every number of the chunk comes out of one pass.
"""

from __future__ import annotations

from pathlib import Path

import torch
from jaxtyping import Float, Float32, Int64, UInt8
from torch import Tensor, nn

from coevo.core import kinematics
from coevo.policies import hub
from coevo.policies.backbone import Features
from coevo.policies.config import OpenVlaConfig
from coevo.records.interface import Interface

PROMPT = "In: What action should the robot take to {instruction}?\nOut:"
IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
"""Mean and standard deviation that DINOv2 was trained with, of values in [0, 1]."""


class Projector(nn.Module):
    """Patch features to the language model's size."""

    def __init__(self, read: int, width: int) -> None:
        super().__init__()
        self.fc1, self.fc2, self.fc3 = nn.Linear(read, 4 * read), nn.Linear(4 * read, width), nn.Linear(width, width)

    def forward(self, patches: Float[Tensor, "n s v"]) -> Float[Tensor, "n s e"]:
        hidden = nn.functional.gelu(self.fc1(patches))
        return self.fc3(nn.functional.gelu(self.fc2(hidden)))


class OpenVlaBackbone(hub.HubBackbone):
    """Features with slots; pooled is their mean."""

    has_slots = True

    def __init__(self, config: OpenVlaConfig, interface: Interface) -> None:
        super().__init__(interface.instruction)
        from transformers import AutoModelForCausalLM, AutoTokenizer

        self.interface, self.count = interface, config.segments * len(interface.action.names)
        if config.checkpoint is None:
            self.towers = nn.ModuleList(_tower(source) for source in config.vision)
            self.language = AutoModelForCausalLM.from_pretrained(config.language, attn_implementation="sdpa")
            folder = config.language
        else:
            folder = hub.fetched(config.checkpoint)
            settings = hub.read_json(folder / "config.json")
            self.towers = nn.ModuleList(_tower(source, settings["image_sizes"][0]) for source in config.vision)
            self.language = _language(settings)
        self.tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="left")
        self.width = self.language.config.hidden_size
        self.projector = Projector(sum(tower.config.hidden_size for tower in self.towers), self.width)
        if config.checkpoint is not None:
            _load(self, hub.read_weights(Path(folder)), str(folder))
        self.published = ("towers", "language") + (("projector",) if config.checkpoint is not None else ())
        self.proprio = nn.Sequential(
            nn.Linear(len(interface.proprio), self.width), nn.GELU(), nn.Linear(self.width, self.width)
        )
        self.freeze(self.language, config.lora_rank, config.dtype)

    def token_rows(self, bins: int) -> Float[Tensor, "bins e"]:
        """OpenVLA writes its lowest bin as the last token of the tokenizer's vocabulary, the next as the one before."""
        last = self.tokenizer.vocab_size - 1
        return self.language.get_output_embeddings().weight[last - bins + 1 : last + 1].detach().float().flip(0)

    def forward(
        self, frames: UInt8[Tensor, "n h w 3"], proprio: Float32[Tensor, "n p"], words: Int64[Tensor, "n l"],
        image_noise: Tensor | None = None,
    ) -> Features:  # fmt: skip
        n, embed = len(frames), self.language.get_input_embeddings()
        dtype = embed.weight.dtype
        patches = self.projector(self._patches(frames, image_noise).to(self.projector.fc1.weight.dtype)).to(dtype)
        pose = torch.cat([kinematics.normalised(self.interface.action, proprio[:, :4]), proprio[:, 4:]], dim=1)
        read = self.tokenizer(
            [PROMPT.format(instruction=name.lower()) for name in self.texts(words)],
            add_special_tokens=False, padding=True, return_tensors="pt",
        ).to(frames.device)  # fmt: skip
        begin = embed(torch.full((n, 1), self.tokenizer.bos_token_id, device=frames.device))
        slots = torch.zeros(n, self.count, self.width, dtype=dtype, device=frames.device)
        sequence = torch.cat(
            [begin, patches, self.proprio(pose)[:, None].to(dtype), embed(read.input_ids), slots], dim=1
        )
        shown = torch.ones(n, sequence.shape[1], dtype=torch.bool, device=frames.device)
        prompt = slice(2 + patches.shape[1], 2 + patches.shape[1] + read.input_ids.shape[1])
        shown[:, prompt] = read.attention_mask.bool()
        hidden = self.language.base_model(
            inputs_embeds=sequence, attention_mask=shown[:, None, None].expand(-1, 1, sequence.shape[1], -1),
            position_ids=shown.long().cumsum(1) - 1, use_cache=False,
        ).last_hidden_state  # fmt: skip
        read_out = hidden[:, -self.count - 1 : -1].float()
        return Features(read_out.mean(dim=1), read_out)

    def _patches(self, frames: UInt8[Tensor, "n h w 3"], image_noise: Tensor | None) -> Float[Tensor, "n s v"]:
        """Each tower's patch features one block before its last, side by side."""
        found = []
        for tower in self.towers:
            shown = hub.resized(frames, tower.config.image_size, image_noise)
            before = 0
            if tower.config.model_type.startswith("dinov2"):
                mean, std = (torch.tensor(values, device=shown.device)[:, None, None] for values in IMAGENET)
                shown = ((shown + 1.0) / 2.0 - mean) / std
                before = 1 + getattr(tower.config, "num_register_tokens", 0)
            states = tower(shown.to(tower.dtype), output_hidden_states=True).hidden_states
            found.append(states[-2][:, before:])
        return torch.cat(found, dim=2)


def _tower(source: str, size: int | None = None) -> nn.Module:
    """A vision tower with its weights; with `size`, only its shape for frames of so many pixels."""
    from transformers import AutoConfig, AutoModel, SiglipVisionModel

    config = AutoConfig.from_pretrained(source)
    config = getattr(config, "vision_config", config)  # the hub's SigLIP comes with a text tower
    siglip = config.model_type.startswith("siglip")
    if size is None:
        return (SiglipVisionModel if siglip else AutoModel).from_pretrained(source)
    config.image_size = size
    if siglip:
        config.hidden_act = "gelu"  # timm's, with which OpenVLA was trained
        config.vision_use_head = False
    return SiglipVisionModel(config) if siglip else AutoModel.from_config(config)


def _language(settings: dict) -> nn.Module:
    """The language model of an OpenVLA checkpoint, without its weights."""
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.for_model(**settings["text_config"])
    return AutoModelForCausalLM.from_config(config, attn_implementation="sdpa")


def _load(backbone: OpenVlaBackbone, state: dict[str, Tensor], where: str) -> None:
    """Weights of OpenVLA's own checkpoint, whose towers have timm's names."""
    parts: dict[str, dict[str, Tensor]] = {}
    for name, value in state.items():
        part, _, rest = name.removeprefix("vision_backbone.").partition(".")
        parts.setdefault(part, {})[rest] = value
    hub.put(backbone.language, parts["language_model"], where, optional=("lm_head.weight",))
    hub.put(backbone.projector, parts["projector"], where)
    for tower, part in zip(backbone.towers, ("featurizer", "fused_featurizer"), strict=True):
        hub.put(tower, from_timm(parts[part], tower.config.model_type), where, optional=("mask_token",))


def from_timm(state: dict[str, Tensor], model_type: str) -> dict[str, Tensor]:
    """Weights of a timm vision transformer under the names of transformers' DINOv2 (with registers) or SigLIP."""
    dino = model_type.startswith("dinov2")
    block = "encoder.layer" if dino else "encoder.layers"
    attention = "attention" if dino else "self_attn"
    renamed = {"attn.proj": "attention.o_proj", "ls1": "layer_scale1", "ls2": "layer_scale2"} if dino else {
        "attn.proj": "self_attn.out_proj", "norm1": "layer_norm1", "norm2": "layer_norm2"
    }  # fmt: skip
    found: dict[str, Tensor] = {}
    for name, value in state.items():
        if name.startswith("attn_pool."):
            continue  # pools patches into one vector, which nobody reads
        if name.startswith("blocks."):
            _, number, rest = name.split(".", 2)
            module, _, leaf = rest.rpartition(".")
            leaf = "lambda1" if leaf in ("gamma", "scale_factor") else leaf
            if module == "attn.qkv":
                for part, third in zip("qkv", value.chunk(3), strict=True):
                    found[f"{block}.{number}.{attention}.{part}_proj.{leaf}"] = third
            else:
                found[f"{block}.{number}.{renamed.get(module, module)}.{leaf}"] = value
        elif name == "pos_embed":
            # timm keeps no position for the class token: it stands in the token itself.
            found["embeddings.position_embeddings" if dino else "embeddings.position_embedding.weight"] = (
                torch.cat([torch.zeros_like(value[:, :1]), value], dim=1) if dino else value[0]
            )
        else:
            first, _, rest = name.partition(".")
            found[_STEMS[dino][first] + ("." + rest.removeprefix("proj.") if rest else "")] = value
    return found


_STEMS = {
    True: {
        "cls_token": "embeddings.cls_token", "reg_token": "embeddings.register_tokens",
        "patch_embed": "embeddings.patch_embeddings.projection", "norm": "layernorm",
    },
    False: {"patch_embed": "embeddings.patch_embedding", "norm": "post_layernorm"},
}  # fmt: skip
"""What stands outside the blocks, for DINOv2 and for SigLIP."""

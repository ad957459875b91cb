"""PaliGemma with a Gemma action expert, as pi0.5 has it (Physical Intelligence, 2025), of transformers' classes.

The VLM reads image, instruction and the discretised state once; the expert's layers attend to its keys and values and
are modulated by the flow's time (adaptive norms with gated residuals).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Float32, Int64, UInt8
from torch import Tensor, nn

from coevo.core import kinematics
from coevo.policies import hub
from coevo.policies.backbone import Features, time_waves
from coevo.policies.config import PaliGemmaConfig
from coevo.records.interface import Interface

PROMPT = "Task: {instruction}, State: {state};\nAction: "
STATE_BINS = 256


@dataclass(frozen=True)
class Memory:
    """What the expert attends to."""

    pairs: tuple[tuple[Tensor, Tensor], ...]
    """Keys and values of each layer."""
    shown: Bool[Tensor, "n s"]
    """Tokens that are no padding."""

    def update(self, key: Tensor, value: Tensor, layer: int, *_, **__) -> tuple[Tensor, Tensor]:
        """As transformers' caches answer; keeps nothing, so that each link of a chain sees the same memory."""
        keys, values = self.pairs[layer]
        return torch.cat([keys.to(key.dtype), key], dim=2), torch.cat([values.to(value.dtype), value], dim=2)


class PaliGemmaBackbone(hub.HubBackbone):
    """Pooled features are the mean of the VLM's last states; the memory is for its own expert."""

    published = ("vlm",)

    def __init__(self, config: PaliGemmaConfig, interface: Interface) -> None:
        super().__init__(interface.instruction)
        from transformers import AutoConfig, AutoTokenizer, PaliGemmaModel

        self.config, self.interface = config, interface
        self.tokenizer = AutoTokenizer.from_pretrained(config.source, padding_side="right")
        self._expert_state: dict[str, Tensor] | None = None
        if config.checkpoint is None:
            self.vlm = PaliGemmaModel.from_pretrained(config.source, attn_implementation="sdpa")
        else:
            vlm, self._expert_state = from_pi05(hub.read_weights(hub.fetched(config.checkpoint)))
            settings = AutoConfig.from_pretrained(config.source)
            # The hub's PaliGemma has a few tokens more, which pi0.5 does without.
            settings.text_config.vocab_size = len(vlm["language_model.embed_tokens.weight"])
            self.vlm = PaliGemmaModel._from_config(settings, attn_implementation="sdpa")
            hub.put(self.vlm, vlm, config.checkpoint)
        self.width = self.vlm.config.text_config.hidden_size
        self.freeze(self.vlm.language_model, config.lora_rank, config.dtype)

    def make_expert(self, width: int, size: int) -> GemmaExpert:
        """A new expert, or the checkpoint's own. `width` is not read: the configuration says `expert_width`."""
        expert = GemmaExpert(self.config, self.vlm.config.text_config, len(self.interface.action.names))
        if self._expert_state is not None:
            hub.put(expert, _cut(self._expert_state, expert.actions), self.config.checkpoint)
            self._expert_state = None
        return expert

    def forward(
        self, frames: UInt8[Tensor, "n h w 3"], proprio: Float32[Tensor, "n p"], words: Int64[Tensor, "n l"],
        image_noise: Tensor | None = None,
    ) -> Features:  # fmt: skip
        shown = hub.resized(frames, self.vlm.config.vision_config.image_size, image_noise)
        patches = self.vlm.get_image_features(shown.to(self.vlm.dtype)).pooler_output
        read = self._read(proprio, words).to(frames.device)
        prefix = torch.cat([patches, self.vlm.get_input_embeddings()(read.input_ids).to(patches.dtype)], dim=1)
        mask = torch.cat([read.attention_mask.new_ones(patches.shape[:2]), read.attention_mask], dim=1).bool()
        from transformers import DynamicCache

        found = self.vlm.language_model(
            inputs_embeds=prefix, attention_mask=mask[:, None, None].expand(-1, 1, prefix.shape[1], -1),
            position_ids=mask.long().cumsum(1) - 1, cache=DynamicCache(), use_cache=True,
        )  # fmt: skip
        share = (mask / mask.sum(dim=1, keepdim=True))[:, :, None]
        pairs = tuple((layer.keys, layer.values) for layer in found.cache.layers)
        return Features((found.last_hidden_state.float() * share).sum(dim=1), memory=Memory(pairs, mask))

    def _read(self, proprio: Float32[Tensor, "n p"], words: Int64[Tensor, "n l"]):
        """Tokens of the prompt, which holds the state as numbers of bins."""
        pose = kinematics.normalised(self.interface.action, proprio[:, :4])
        state = torch.cat([pose, proprio[:, 4:] * 2.0 - 1.0], dim=1)
        bins = ((state + 1.0) / 2.0 * STATE_BINS).floor().long().clamp(0, STATE_BINS - 1)
        prompts = [
            self.tokenizer.bos_token + PROMPT.format(instruction=name, state=" ".join(map(str, row)))
            for name, row in zip(self.texts(words), bins.tolist(), strict=True)
        ]
        return self.tokenizer(prompts, add_special_tokens=False, padding=True, return_tensors="pt")


class AdaptiveNorm(nn.Module):
    """Root-mean-square norm whose scale, shift and gate the flow's time predicts; zero at first."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.dense = nn.Linear(width, 3 * width)
        nn.init.zeros_(self.dense.weight)
        nn.init.zeros_(self.dense.bias)
        self.condition: Tensor | None = None
        self.gate: Tensor | None = None

    def forward(self, hidden: Float[Tensor, "n s w"]) -> Float[Tensor, "n s w"]:
        scale, shift, self.gate = self.dense(self.condition)[:, None].chunk(3, dim=2)
        normed = hidden * torch.rsqrt(hidden.square().mean(dim=2, keepdim=True) + self.eps)
        return normed * (1.0 + scale) + shift


class Gated(nn.Module):
    """A layer's attention or feed-forward part, its output weighed by the gate of the norm before it."""

    def __init__(self, inner: nn.Module, norm: AdaptiveNorm) -> None:
        super().__init__()
        self.inner = inner
        self._norm = (norm,)  # a tuple, so that its weights are not listed twice

    def forward(self, *given, **named):
        out = self.inner(*given, **named)
        gate = self._norm[0].gate
        return (out[0] * gate, *out[1:]) if isinstance(out, tuple) else out * gate


class GemmaExpert(nn.Module):
    """Velocity of noised actions, one token per held action."""

    def __init__(self, config: PaliGemmaConfig, text_config, actions: int) -> None:
        super().__init__()
        from transformers import GemmaConfig, GemmaModel

        self.width, self.actions = config.expert_width, actions
        w = self.width
        self.model = GemmaModel._from_config(
            GemmaConfig(
                vocab_size=1, pad_token_id=0, hidden_size=w, intermediate_size=config.expert_ffn,
                num_hidden_layers=text_config.num_hidden_layers, num_attention_heads=text_config.num_attention_heads,
                num_key_value_heads=text_config.num_key_value_heads, head_dim=text_config.head_dim,
                hidden_activation="gelu_pytorch_tanh",
            ), attn_implementation="sdpa", dtype=torch.float32,
        )  # fmt: skip
        self.model.embed_tokens = None
        eps = self.model.config.rms_norm_eps
        for layer in self.model.layers:
            layer.input_layernorm, layer.post_attention_layernorm = AdaptiveNorm(w, eps), AdaptiveNorm(w, eps)
            layer.self_attn = Gated(layer.self_attn, layer.input_layernorm)
            layer.mlp = Gated(layer.mlp, layer.post_attention_layernorm)
        self.model.norm = AdaptiveNorm(w, eps)
        self.action_in_proj, self.action_out_proj = nn.Linear(actions, w), nn.Linear(w, actions)
        self.time_mlp_in, self.time_mlp_out = nn.Linear(w, w), nn.Linear(w, w)

    def forward(
        self, noised: Float[Tensor, "n d"], time: Float[Tensor, " n"], features: Features
    ) -> tuple[Float[Tensor, "n d"], Float[Tensor, "n w"]]:
        """Velocity, and the last states meaned over the held actions."""
        memory: Memory = features.memory
        condition = self.time_mlp_out(nn.functional.silu(self.time_mlp_in(time_waves(time, self.width))))
        for module in self.model.modules():
            if isinstance(module, AdaptiveNorm):
                module.condition = nn.functional.silu(condition)
        tokens = self.action_in_proj(noised.unflatten(1, (-1, self.actions)))
        count = tokens.shape[1]
        mask = torch.cat([memory.shown, memory.shown.new_ones(len(noised), count)], dim=1)
        position = memory.shown.sum(dim=1, keepdim=True) + torch.arange(count, device=noised.device)
        hidden = self.model(
            inputs_embeds=tokens, attention_mask=mask[:, None, None].expand(-1, 1, count, -1), position_ids=position,
            cache=memory, use_cache=False,
        ).last_hidden_state  # fmt: skip
        return self.action_out_proj(hidden).flatten(1), hidden.mean(dim=1)


def from_pi05(state: dict[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Weights of the published pi0.5 (LeRobot's names) for the VLM and for the expert."""
    vlm: dict[str, Tensor] = {}
    expert: dict[str, Tensor] = {}
    for name, value in state.items():
        name = name.removeprefix("model.").removeprefix("paligemma_with_expert.")
        if name.startswith("paligemma.model."):
            short = name.removeprefix("paligemma.model.").replace("vision_tower.vision_model.", "vision_tower.")
            vlm[short] = value
        elif name == "paligemma.lm_head.weight":
            vlm.setdefault("language_model.embed_tokens.weight", value)  # the two are one
        elif name.startswith("gemma_expert.model."):
            short = name.removeprefix("gemma_expert.")
            expert[short.replace(".self_attn.", ".self_attn.inner.").replace(".mlp.", ".mlp.inner.")] = value
        elif not name.startswith("gemma_expert.lm_head."):
            expert[name] = value
    return vlm, expert


def _cut(state: dict[str, Tensor], actions: int) -> dict[str, Tensor]:
    """The published expert pads actions to 32 numbers; those past ours are zero and fall away."""
    cut = dict(state)
    cut["action_in_proj.weight"] = state["action_in_proj.weight"][:, :actions]
    for name in ("action_out_proj.weight", "action_out_proj.bias"):
        cut[name] = state[name][:actions]
    return cut

"""Tiny models of the published classes with random weights, in folders as the hub has them."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    Dinov2WithRegistersConfig,
    Dinov2WithRegistersModel,
    GemmaConfig,
    LlamaConfig,
    LlamaForCausalLM,
    PaliGemmaConfig,
    PaliGemmaModel,
    PreTrainedTokenizerFast,
    SiglipVisionConfig,
    SiglipVisionModel,
)

VOCABULARY = 280
SPREAD = 0.2
"""Of random weights: with the usual 0.02 a model of two layers looks at everything alike."""


def tokenizer(folder: Path) -> None:
    """One token per byte, and some for begin, end and padding."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    names = ["<pad>", "<bos>", "<eos>", "<unk>", *alphabet]
    names += [f"<unused{number}>" for number in range(VOCABULARY - len(names))]
    made = Tokenizer(models.BPE({name: index for index, name in enumerate(names)}, [], unk_token="<unk>"))
    made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token="<pad>", bos_token="<bos>", eos_token="<eos>", unk_token="<unk>"
    ).save_pretrained(folder)


def siglip() -> SiglipVisionConfig:
    return SiglipVisionConfig(
        hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2, image_size=16, patch_size=8,
        vision_use_head=False,
    )  # fmt: skip


def openvla_parts(folder: Path) -> dict:
    """Two towers and a language model, each in its folder; what the configuration of a policy says of them."""
    torch.manual_seed(0)
    dino = Dinov2WithRegistersConfig(
        hidden_size=24,
        num_hidden_layers=2,
        num_attention_heads=2,
        image_size=16,
        patch_size=8,
        num_register_tokens=2,
        initializer_range=SPREAD,
    )
    Dinov2WithRegistersModel(dino).save_pretrained(folder / "dino")
    SiglipVisionModel(siglip()).save_pretrained(folder / "siglip")
    llama = LlamaConfig(
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        vocab_size=VOCABULARY,
        initializer_range=SPREAD,
    )
    LlamaForCausalLM(llama).save_pretrained(folder / "llama")
    tokenizer(folder / "llama")
    return dict(
        checkpoint=None, vision=(str(folder / "dino"), str(folder / "siglip")), language=str(folder / "llama"),
        dtype="float32", lora_rank=4,
    )  # fmt: skip


def openvla_checkpoint(folder: Path, parts: dict) -> str:
    """The same weights in one folder under the names that OpenVLA published them with (towers as timm has them)."""
    dino = Dinov2WithRegistersModel.from_pretrained(parts["vision"][0]).state_dict()
    sig = SiglipVisionModel.from_pretrained(parts["vision"][1]).state_dict()
    llama = LlamaForCausalLM.from_pretrained(parts["language"])
    state = {f"language_model.{name}": value for name, value in llama.state_dict().items()}
    state |= {f"vision_backbone.featurizer.{name}": value for name, value in _timm_dino(dino).items()}
    state |= {f"vision_backbone.fused_featurizer.{name}": value for name, value in _timm_siglip(sig).items()}
    read, width = 24 + 16, 32
    for name, (out, into) in {"fc1": (4 * read, read), "fc2": (width, 4 * read), "fc3": (width, width)}.items():
        state[f"projector.{name}.weight"], state[f"projector.{name}.bias"] = torch.randn(out, into), torch.zeros(out)
    folder.mkdir()
    save_file({name: value.clone().contiguous() for name, value in state.items()}, folder / "model.safetensors")
    text = {"model_type": "llama"} | {
        name: getattr(llama.config, name)
        for name in ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "vocab_size")
    }
    (folder / "config.json").write_text(json.dumps({"image_sizes": [16, 16], "text_config": text}))
    tokenizer(folder / "tokens")
    for file in (folder / "tokens").iterdir():
        file.rename(folder / file.name)
    (folder / "config.json").write_text(
        json.dumps({"model_type": "openvla", "image_sizes": [16, 16], "text_config": text})
    )
    return str(folder)


def _timm_dino(state: dict) -> dict:
    position = state["embeddings.position_embeddings"]
    made = {
        "cls_token": state["embeddings.cls_token"] + position[:, :1], "pos_embed": position[:, 1:],
        "reg_token": state["embeddings.register_tokens"],
        "patch_embed.proj.weight": state["embeddings.patch_embeddings.projection.weight"],
        "patch_embed.proj.bias": state["embeddings.patch_embeddings.projection.bias"],
        "norm.weight": state["layernorm.weight"], "norm.bias": state["layernorm.bias"],
    }  # fmt: skip
    for number in range(2):
        old, new = f"encoder.layer.{number}.", f"blocks.{number}."
        made |= _timm_block(state, old, new, "attention", "attention.o_proj", ("norm1", "norm2"))
        for scale in (1, 2):
            made[f"{new}ls{scale}.scale_factor"] = state[f"{old}layer_scale{scale}.lambda1"]
    return made


def _timm_siglip(state: dict) -> dict:
    made = {
        "pos_embed": state["embeddings.position_embedding.weight"][None], "attn_pool.q.weight": torch.zeros(2, 2),
        "patch_embed.proj.weight": state["embeddings.patch_embedding.weight"],
        "patch_embed.proj.bias": state["embeddings.patch_embedding.bias"],
        "norm.weight": state["post_layernorm.weight"], "norm.bias": state["post_layernorm.bias"],
    }  # fmt: skip
    for number in range(2):
        old, new = f"encoder.layers.{number}.", f"blocks.{number}."
        made |= _timm_block(state, old, new, "self_attn", "self_attn.out_proj", ("layer_norm1", "layer_norm2"))
    return made


def _timm_block(state: dict, old: str, new: str, attention: str, out: str, norms: tuple[str, str]) -> dict:
    made = {}
    for leaf in ("weight", "bias"):
        made[f"{new}attn.qkv.{leaf}"] = torch.cat([state[f"{old}{attention}.{part}_proj.{leaf}"] for part in "qkv"])
        made[f"{new}attn.proj.{leaf}"] = state[f"{old}{out}.{leaf}"]
        for number, norm in enumerate(norms, 1):
            made[f"{new}norm{number}.{leaf}"] = state[f"{old}{norm}.{leaf}"]
            made[f"{new}mlp.fc{number}.{leaf}"] = state[f"{old}mlp.fc{number}.{leaf}"]
    return made


def paligemma(folder: Path) -> dict:
    """PaliGemma in a folder; what the configuration of a policy says of it."""
    torch.manual_seed(0)
    text = GemmaConfig(
        hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
        head_dim=16, vocab_size=VOCABULARY, initializer_range=SPREAD,
    )  # fmt: skip
    config = PaliGemmaConfig(vision_config=siglip(), text_config=text, projection_dim=32, image_token_id=VOCABULARY - 1)
    PaliGemmaModel(config).save_pretrained(folder / "paligemma")
    tokenizer(folder / "paligemma")
    return dict(
        source=str(folder / "paligemma"), checkpoint=None, expert_width=24, expert_ffn=48, dtype="float32", lora_rank=4
    )

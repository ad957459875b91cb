"""What backbones on published weights share: instructions as text, LoRA, resized frames, weights out of a folder."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64, UInt8
from safetensors.torch import load_file
from torch import Tensor, nn

from coevo.core import frames as pixels
from coevo.core import text
from coevo.policies.backbone import Backbone

LINEAR = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
"""Linear layers of a block of Llama and Gemma."""


class HubBackbone(Backbone):
    """A backbone whose published modules stay as they are but for LoRA, in a number format of their own."""

    published: tuple[str, ...]
    """Names of its modules with published weights."""

    def __init__(self, instruction: str) -> None:
        super().__init__()
        self._texts: dict[tuple[int, ...], str] = {}
        self.remember((instruction,))

    def remember(self, instructions: Sequence[str]) -> None:
        """ValueError when two instructions begin with the same words, by which they are known in an update."""
        for name in dict.fromkeys(instructions):
            row = tuple(text.words([name])[0].tolist())
            if (other := self._texts.setdefault(row, name)) != name:
                raise ValueError(f"{name!r} and {other!r} begin with the same {text.LENGTH} words; reword one of them")

    def texts(self, words: Int64[Tensor, "n l"]) -> list[str]:
        """Instructions behind rows of hashed words; ValueError if one was never shown."""
        rows = [tuple(row) for row in words.tolist()]
        if unknown := [row for row in rows if row not in self._texts]:
            raise ValueError(
                f"the words {unknown[0]} are of no instruction that this policy was shown, which are "
                f"{list(self._texts.values())}; call 'remember' with it first"
            )
        return [self._texts[row] for row in rows]

    def freeze(self, language: nn.Module, rank: int | None, dtype: str) -> None:
        """Freeze all published modules in `dtype`; then add LoRA of `rank` to the language model's blocks."""
        from peft import LoraConfig, inject_adapter_in_model

        for name in self.published:
            getattr(self, name).requires_grad_(False).to(getattr(torch, dtype))
        if rank is not None:
            inject_adapter_in_model(LoraConfig(r=rank, lora_alpha=rank, target_modules=LINEAR), language)
            for name, weight in language.named_parameters():
                if "lora_" in name:
                    weight.data = weight.data.float()

    def frozen_names(self) -> set[str]:
        trained = {name for name, weight in self.named_parameters() if weight.requires_grad}
        return {name for name in self.state_dict() if name.split(".")[0] in self.published and name not in trained}


def resized(frames: UInt8[Tensor, "n h w 3"], size: int, image_noise: Tensor | None) -> Float[Tensor, "n 3 s s"]:
    """Frames as squares of `size` pixels in [-1, 1]."""
    shown = pixels.to_float(frames)
    if image_noise is not None:
        shown = shown + image_noise
    return F.interpolate(shown, size=(size, size), mode="bilinear", antialias=True, align_corners=False)


def fetched(source: str) -> Path:
    """The folder of a hub id, downloaded if it is not here, or the local folder itself."""
    if Path(source).is_dir():
        return Path(source)
    from huggingface_hub import snapshot_download

    return Path(snapshot_download(source, allow_patterns=["*.json", "*.safetensors", "*.model"]))


def read_weights(folder: Path) -> dict[str, Tensor]:
    """All tensors of a folder's safetensors files; ValueError if there is none."""
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise ValueError(f"{folder} holds no *.safetensors; give a hub id or a folder with published weights")
    return {name: value for file in files for name, value in load_file(file).items()}


def read_json(file: Path) -> dict[str, Any]:
    """A published configuration."""
    return json.loads(file.read_text())


def put(module: nn.Module, state: dict[str, Tensor], where: str, optional: Sequence[str] = ()) -> None:
    """Load weights; ValueError names what is missing (but for `optional` endings) or unknown."""
    wrong = module.load_state_dict(state, strict=False)
    missing = [name for name in wrong.missing_keys if not name.endswith(tuple(optional))]
    if missing or wrong.unexpected_keys:
        raise ValueError(
            f"{where}: weights missing {missing[:4]}, unknown {wrong.unexpected_keys[:4]}; is it the published model?"
        )

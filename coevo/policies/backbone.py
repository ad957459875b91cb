"""What a backbone gives to the heads: image, proprioception and instruction to features."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Float32, Int64, UInt8
from torch import Tensor, nn


@dataclass(frozen=True)
class Features:
    """Of a batch. Letters as in `core/types.py`; e features, d = segments * a numbers of the held actions."""

    pooled: Float[Tensor, "n e"]
    """One vector per row: what critics read, and heads where there is nothing finer."""
    slots: Float[Tensor, "n d e"] | None = None
    """One vector per number of the chunk, where a language model decodes them side by side."""
    memory: Any = None
    """What the backbone's own action expert attends to."""


class Backbone(nn.Module):
    """Base of the backbones. `width` is e; `has_slots` says whether the features come with slots."""

    width: int
    has_slots: bool = False

    def forward(
        self, frames: UInt8[Tensor, "n h w 3"], proprio: Float32[Tensor, "n p"], words: Int64[Tensor, "n l"],
        image_noise: Tensor | None = None,
    ) -> Features:  # fmt: skip
        """`words` are of `core.text`; `image_noise` f32[n 3 h w] is added to the frames in [-1, 1]."""
        raise NotImplementedError

    def remember(self, instructions: Sequence[str]) -> None:
        """Learn the instructions behind hashed words; only a backbone with a tokenizer needs them."""

    def make_expert(self, width: int, size: int) -> nn.Module:
        """The velocity network of a flow head over `size` = d numbers."""
        return MlpExpert(self.width, size, width)

    def token_rows(self, bins: int) -> Float[Tensor, "bins e"] | None:
        """Output embeddings of the action tokens, lowest bin first, where the language model has them."""
        return None

    def frozen_names(self) -> set[str]:
        """Names of published weights that training never moves: an artifact leaves them out."""
        return set()


class Readout(nn.Linear):
    """`out` numbers for every number of the held actions, from the pooled features."""

    def __init__(self, backbone: Backbone, size: int, out: int = 1) -> None:
        super().__init__(backbone.width, size * out)
        self.size = size

    def forward(self, features: Features) -> Float[Tensor, "n d *out"]:
        read = super().forward(features.pooled)
        return read if self.out_features == self.size else read.unflatten(1, (self.size, -1))


class SlotReadout(nn.Linear):
    """`out` numbers for every number of the held actions, each from its own slot; one matrix for all."""

    def __init__(self, backbone: Backbone, out: int) -> None:
        super().__init__(backbone.width, out, bias=False)
        if (rows := backbone.token_rows(out)) is not None:
            self.weight.data.copy_(rows)

    def forward(self, features: Features) -> Float[Tensor, "n d out"]:
        return super().forward(features.slots)


class SlotMlp(nn.Module):
    """One number per number of the held actions, each action from its own slots (the action head of OpenVLA-OFT)."""

    def __init__(self, backbone: Backbone, actions: int, blocks: int = 2) -> None:
        super().__init__()
        w, read = backbone.width, backbone.width * actions
        self.actions = actions
        self.enter = nn.Sequential(nn.LayerNorm(read), nn.Linear(read, w), nn.ReLU())
        self.blocks = nn.ModuleList(nn.Sequential(nn.LayerNorm(w), nn.Linear(w, w), nn.ReLU()) for _ in range(blocks))
        self.leave = nn.Sequential(nn.LayerNorm(w), nn.Linear(w, actions))

    def forward(self, features: Features) -> Float[Tensor, "n d"]:
        hidden = self.enter(features.slots.unflatten(1, (-1, self.actions)).flatten(2))
        for block in self.blocks:
            hidden = hidden + block(hidden)
        return self.leave(hidden).flatten(1)


def continuous_readout(backbone: Backbone, size: int, actions: int) -> nn.Module:
    """One number per number of the held actions, as the backbone's features come."""
    return SlotMlp(backbone, actions) if backbone.has_slots else Readout(backbone, size)


class MlpExpert(nn.Module):
    """Velocity of noised actions from pooled features."""

    def __init__(self, read: int, size: int, width: int) -> None:
        super().__init__()
        self.width = width
        self.hidden = nn.Sequential(nn.Linear(read + size + TIME, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU())
        self.velocity = nn.Linear(width, size)

    def forward(
        self, noised: Float[Tensor, "n d"], time: Float[Tensor, " n"], features: Features
    ) -> tuple[Float[Tensor, "n d"], Float[Tensor, "n w"]]:
        """Velocity and hidden state."""
        hidden = self.hidden(torch.cat([noised, time_waves(time, TIME), features.pooled], dim=1))
        return self.velocity(hidden), hidden


TIME = 32
"""Size of the small expert's time embedding."""


def time_waves(time: Float[Tensor, " n"], size: int, shortest: float = 4e-3, longest: float = 4.0) -> Tensor:
    """Sines and cosines of times in [0, 1], at `size` / 2 periods between two (as pi0 has them)."""
    share = torch.linspace(0.0, 1.0, size // 2, device=time.device)
    angle = time[:, None] * 2.0 * torch.pi / (shortest * (longest / shortest) ** share)
    return torch.cat([angle.sin(), angle.cos()], dim=1)

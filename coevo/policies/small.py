"""The small backbone: convolutions over the current frame, commanded pose, words of the instruction."""

from __future__ import annotations

import torch
from jaxtyping import Float32, Int64, UInt8
from torch import Tensor, nn

from coevo.core import frames as pixels
from coevo.core import kinematics, text
from coevo.core.layers import strided_convolutions
from coevo.policies.backbone import Backbone, Features
from coevo.policies.config import SmallPolicyConfig
from coevo.records.interface import Interface


class SmallBackbone(Backbone):
    """Pooled features only."""

    def __init__(self, config: SmallPolicyConfig, interface: Interface) -> None:
        super().__init__()
        self.interface, self.width = interface, config.width
        layers, features = strided_convolutions(config.channels, interface.camera)
        self.encoder = nn.Sequential(*layers)
        w = config.width
        self.image = nn.Sequential(nn.Linear(features, w), nn.SiLU())
        self.instruction = nn.EmbeddingBag(text.VOCABULARY, 16, mode="mean", padding_idx=0)
        self.trunk = nn.Sequential(nn.Linear(w + len(interface.proprio) + 16, w), nn.SiLU())

    def forward(
        self, frames: UInt8[Tensor, "n h w 3"], proprio: Float32[Tensor, "n p"], words: Int64[Tensor, "n l"],
        image_noise: Tensor | None = None,
    ) -> Features:  # fmt: skip
        shown = pixels.to_float(frames)
        if image_noise is not None:
            shown = shown + image_noise
        pose = kinematics.normalised(self.interface.action, proprio[:, :4])
        return Features(
            self.trunk(
                torch.cat([self.image(self.encoder(shown)), pose, proprio[:, 4:], self.instruction(words)], dim=1)
            )
        )

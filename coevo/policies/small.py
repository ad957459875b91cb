"""The small policy: one convolutional encoder, a fixed-scale head over held actions, an optional critic."""

from __future__ import annotations

import torch
from jaxtyping import Float, Float32, Int64, UInt8
from torch import Tensor, nn
from torch.distributions import Distribution, Laplace, Normal

from coevo.core import frames as pixels
from coevo.core import kinematics, random, text
from coevo.core.layers import strided_convolutions
from coevo.core.types import ActionChunk, Observation, Sampling
from coevo.policies.config import FixedGaussian, SmallPolicyConfig
from coevo.records.interface import Interface


class SmallPolicy(nn.Module):
    """Policy protocol. `draw` is the held actions before clipping, flattened: d = segments * a."""

    def __init__(self, config: SmallPolicyConfig, interface: Interface, id: str = "policy") -> None:
        super().__init__()
        if interface.chunk % config.segments:
            raise ValueError(
                f"segments = {config.segments} does not divide the chunk of {interface.chunk} control steps; "
                "choose 'segments' in the policy's file to fit the simulator's"
            )
        self.config, self.interface, self.id = config, interface, id
        layers, features = strided_convolutions(config.channels, interface.camera)
        self.encoder = nn.Sequential(*layers)
        w = config.width
        self.image = nn.Sequential(nn.Linear(features, w), nn.SiLU())
        self.instruction = nn.EmbeddingBag(text.VOCABULARY, 16, mode="mean", padding_idx=0)
        self.trunk = nn.Sequential(nn.Linear(w + len(interface.proprio) + 16, w), nn.SiLU())
        self.mean = nn.Linear(w, config.segments * len(interface.action.names))
        read = w if config.critic_input == "features" else self.mean.out_features
        self.critic = nn.Sequential(nn.Linear(read, w), nn.SiLU(), nn.Linear(w, 1)) if config.critic else None

    def act(self, observation: Observation, keys: Int64[Tensor, " n"], sampling: Sampling) -> ActionChunk:
        """Sampled by the rows' keys, or the most likely action (greedy)."""
        device = self.mean.weight.device
        words = text.words(observation.instructions).to(device)
        features = self.features(observation.frames[:, -1].to(device), observation.proprio[:, -1].to(device), words)
        spread = self.distribution(features)
        draw = spread.mean
        if sampling == "sampled":
            levels = random.uniform(keys.to(device), draw.shape[1])
            draw = spread.icdf(levels)
        value = self.value(features, draw) if self.critic is not None else None
        return ActionChunk(self.actions(draw), draw, spread.log_prob(draw), value)

    def features(
        self, frames: UInt8[Tensor, "n h w 3"], proprio: Float32[Tensor, "n p"], words: Int64[Tensor, "n l"],
        image_noise: Tensor | None = None,
    ) -> Float[Tensor, "n e"]:  # fmt: skip
        """Features before the heads. `image_noise` is added to the frames in [-1, 1]."""
        shown = pixels.to_float(frames)
        if image_noise is not None:
            shown = shown + image_noise
        pose = kinematics.normalised(self.interface.action, proprio[:, :4])
        return self.trunk(
            torch.cat([self.image(self.encoder(shown)), pose, proprio[:, 4:], self.instruction(words)], dim=1)
        )

    def distribution(self, features: Float[Tensor, "n e"]) -> Distribution:
        """Over the held actions, one independent dimension per scored term."""
        mean, head = self.mean(features), self.config.head
        if isinstance(head, FixedGaussian):
            return Normal(mean, torch.full_like(mean, head.std))
        return Laplace(mean, torch.full_like(mean, head.scale))

    def value(self, features: Float[Tensor, "n e"], draw: Float[Tensor, "n d"]) -> Float[Tensor, " n"]:
        """Expected return. What the critic reads is detached, so learning it never moves the policy."""
        return self.critic((features if self.config.critic_input == "features" else draw).detach())[:, 0]

    def evaluate(
        self, frames: UInt8[Tensor, "n h w 3"], proprio: Float32[Tensor, "n p"], words: Int64[Tensor, "n l"],
        draw: Float32[Tensor, "n d"],
    ) -> tuple[Float[Tensor, "n m"], Float[Tensor, " n"] | None]:  # fmt: skip
        """Log-probability of a draw, one term per dimension (m = d), and the value where there is a critic."""
        features = self.features(frames, proprio, words)
        value = self.value(features, draw) if self.critic is not None else None
        return self.distribution(features).log_prob(draw), value

    def actions(self, draw: Float32[Tensor, "n d"]) -> Float32[Tensor, "n k a"]:
        """Held actions spread over the control steps of the chunk, clipped to what the simulator takes."""
        held = draw.view(len(draw), self.config.segments, -1).clamp(-1.0, 1.0)
        return held.repeat_interleave(self.interface.chunk // self.config.segments, dim=1)

    def targets(self, label: Float32[Tensor, "n k a"]) -> Float32[Tensor, "n d"]:
        """The held actions nearest to per-step actions: the mean over each segment."""
        return label.unflatten(1, (self.config.segments, -1)).mean(dim=2).flatten(1)

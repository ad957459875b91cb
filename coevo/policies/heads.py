"""Action heads with exact log-probabilities. A head draws, scores a draw, and says what a draw does.

Letters: n rows, d = segments * a numbers of the held actions, c numbers of a draw, m scored terms. Terms are ordered
by held action first, so that the terms of one action stand together whatever the head.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Float32, Int64
from torch import Tensor, nn
from torch.distributions import Distribution, Laplace, Normal

from coevo.core import random
from coevo.policies.backbone import Backbone, Features, Readout, SlotReadout, continuous_readout
from coevo.policies.config import FixedGaussian, FixedLaplace, LaplaceScale, Tokens


@dataclass(frozen=True)
class Score:
    """A draw under the present weights."""

    log_prob: Float[Tensor, "n m"]
    expert: Float[Tensor, "n w"] | None = None
    """Hidden state of the action expert, of a head that has one."""


class Head(nn.Module):
    """Base of the heads."""

    def draw(self, features: Features, keys: Int64[Tensor, " n"] | None) -> Float32[Tensor, "n c"]:
        """A draw by the rows' keys; without keys the most likely one."""
        raise NotImplementedError

    def score(self, features: Features, draw: Float32[Tensor, "n c"]) -> Score:
        """The draw's log-probability."""
        raise NotImplementedError

    def held(self, draw: Float32[Tensor, "n c"]) -> Float32[Tensor, "n d"]:
        """The held actions of a draw, before clipping."""
        return draw

    def loss(self, features: Features, target: Float32[Tensor, "n d"], source: torch.Generator) -> Tensor:
        """What behaviour cloning minimises; `source` is the randomness of this step."""
        raise NotImplementedError


class ContinuousHead(Head):
    """An independent distribution per number around a predicted mean: c = m = d."""

    def __init__(self, backbone: Backbone, size: int, actions: int) -> None:
        super().__init__()
        self.mean = continuous_readout(backbone, size, actions)

    def distribution(self, features: Features) -> Distribution:
        """Over the held actions."""
        raise NotImplementedError

    def draw(self, features: Features, keys: Int64[Tensor, " n"] | None) -> Float32[Tensor, "n c"]:
        spread = self.distribution(features)
        return spread.mean if keys is None else spread.icdf(random.uniform(keys, spread.mean.shape[1]))

    def score(self, features: Features, draw: Float32[Tensor, "n c"]) -> Score:
        return Score(self.distribution(features).log_prob(draw))


class FixedHead(ContinuousHead):
    """Normal or Laplace of fixed width."""

    def __init__(self, settings: FixedGaussian | FixedLaplace, backbone: Backbone, size: int, actions: int) -> None:
        super().__init__(backbone, size, actions)
        self.settings = settings

    def distribution(self, features: Features) -> Distribution:
        mean = self.mean(features)
        if isinstance(self.settings, FixedGaussian):
            return Normal(mean, torch.full_like(mean, self.settings.std))
        return Laplace(mean, torch.full_like(mean, self.settings.scale))

    def loss(self, features: Features, target: Float32[Tensor, "n d"], source: torch.Generator) -> Tensor:
        """The likelihood of a fixed-scale head, divided by its curvature so that losses compare between scales."""
        error = self.mean(features) - target
        return error.square().mean() if isinstance(self.settings, FixedGaussian) else error.abs().mean()


class LaplaceScaleHead(ContinuousHead):
    """Laplace whose scale a second head of the same architecture predicts (World-Env, 9.1)."""

    START = 0.07
    """Scale before any training, where the bounds allow it."""

    def __init__(self, settings: LaplaceScale, backbone: Backbone, size: int, actions: int) -> None:
        super().__init__(backbone, size, actions)
        self.settings = settings
        self.scale = continuous_readout(backbone, size, actions)
        low, high = math.log(settings.low), math.log(settings.high)
        share = min(max((math.log(self.START) - low) / (high - low), 0.1), 0.9)
        self.offset = math.log(share / (1.0 - share))

    def log_scale(self, features: Features) -> Float[Tensor, "n d"]:
        """Logarithm of the scale, squashed between the bounds."""
        low, high = math.log(self.settings.low), math.log(self.settings.high)
        return low + (high - low) * torch.sigmoid(self.scale(features) + self.offset)

    def distribution(self, features: Features) -> Distribution:
        return Laplace(self.mean(features), self.log_scale(features).exp())

    def loss(self, features: Features, target: Float32[Tensor, "n d"], source: torch.Generator) -> Tensor:
        """Negative log-likelihood; where the mean learns by the absolute error, it moves the scale head alone."""
        mean = self.mean(features)
        if self.settings.mean_loss == "likelihood":
            return -Laplace(mean, self.log_scale(features).exp()).log_prob(target).mean()
        scale = self.log_scale(detached(features)).exp()
        return (mean - target).abs().mean() - Laplace(mean.detach(), scale).log_prob(target).mean()


class TokenHead(Head):
    """One token per number, all read in one pass: a draw is token ids as floats, c = m = d."""

    def __init__(self, settings: Tokens, backbone: Backbone, size: int) -> None:
        super().__init__()
        self.bins = settings.bins
        has_slots = backbone.has_slots
        self.logits = SlotReadout(backbone, self.bins) if has_slots else Readout(backbone, size, self.bins)

    def log_probs(self, features: Features) -> Float[Tensor, "n d bins"]:
        """Of every token."""
        return self.logits(features).log_softmax(dim=2)

    def draw(self, features: Features, keys: Int64[Tensor, " n"] | None) -> Float32[Tensor, "n c"]:
        log_probs = self.log_probs(features)
        if keys is None:
            return log_probs.argmax(dim=2).float()
        below = log_probs.exp().cumsum(dim=2)
        level = random.uniform(keys, below.shape[1]) * below[:, :, -1]  # the last sum is 1 up to rounding
        return (below <= level[:, :, None]).sum(dim=2).clamp(max=self.bins - 1).float()

    def score(self, features: Features, draw: Float32[Tensor, "n c"]) -> Score:
        return Score(self.log_probs(features).gather(2, draw.long()[:, :, None])[:, :, 0])

    def held(self, draw: Float32[Tensor, "n c"]) -> Float32[Tensor, "n d"]:
        """Centres of the bins."""
        return (2.0 * draw + 1.0) / self.bins - 1.0

    def tokens(self, target: Float32[Tensor, "n d"]) -> Int64[Tensor, "n d"]:
        """Bins in which actions lie; those outside [-1, 1] lie in the outermost."""
        return ((target + 1.0) / 2.0 * self.bins).floor().long().clamp(0, self.bins - 1)

    def loss(self, features: Features, target: Float32[Tensor, "n d"], source: torch.Generator) -> Tensor:
        """Cross-entropy."""
        return -self.log_probs(features).gather(2, self.tokens(target)[:, :, None]).mean()


def detached(features: Features) -> Features:
    """The same features, through which no gradient flows."""
    slots = None if features.slots is None else features.slots.detach()
    return Features(features.pooled.detach(), slots, features.memory)

"""The flow-matching head: a chain of normal transitions from noise to actions, scored transition by transition.

Time runs from 1 (noise) to 0 (actions) and x_t = t noise + (1 - t) action, so the velocity is noise minus action (pi0;
Black et al., 2024). The deterministic sampler has no density that can be had cheaply; each Euler step is made a normal
transition, and the chain is the action of the update (pi-RL; Chen et al., 2025).
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float, Float32, Int64
from torch import Tensor, nn
from torch.distributions import Normal

from coevo.core import random
from coevo.policies.backbone import Backbone, Features
from coevo.policies.config import Flow, LearnedNoise, SdeNoise
from coevo.policies.heads import Head, Score


class FlowHead(Head):
    """A draw is the chain x_1 .. x_0: c = (steps + 1) d. Scored are the transitions: m = steps d.

    The density of x_1 is left out: no weight moves it, so it falls out of every ratio.
    """

    def __init__(self, settings: Flow, backbone: Backbone, size: int, segments: int) -> None:
        super().__init__()
        self.settings, self.size, self.segments = settings, size, segments
        self.expert = backbone.make_expert(settings.width, size)
        self.noise = nn.Linear(self.expert.width, size) if isinstance(settings.noise, LearnedNoise) else None

    def transition(
        self, features: Features, noised: Float[Tensor, "n d"], step: int
    ) -> tuple[Normal, Float[Tensor, "n w"]]:
        """The distribution of the chain's next link after link number `step`, and the expert's hidden state."""
        steps = self.settings.steps
        time, after = 1.0 - step / steps, 1.0 - (step + 1) / steps
        velocity, hidden = self.expert(noised, noised.new_full((len(noised),), time), features)
        clean, noise = noised - time * velocity, noised + (1.0 - time) * velocity
        match self.settings.noise:
            case SdeNoise(level=level):
                # The strength is infinite at t = 1; the next time stands in for it there, as in RLinf.
                finite = time if step else after
                variance = level**2 * finite / (1.0 - finite) / steps
                mean = (1.0 - after) * clean + (after - variance / (2.0 * time)) * noise
                std = torch.full_like(mean, math.sqrt(variance))
            case LearnedNoise(low=low, high=high):
                mean = (1.0 - after) * clean + after * noise
                share = torch.sigmoid(self.noise(hidden))
                std = (math.log(low) + (math.log(high) - math.log(low)) * share).exp()
        return Normal(mean, std), hidden

    def draw(self, features: Features, keys: Int64[Tensor, " n"] | None) -> Float32[Tensor, "n c"]:
        """Without keys: Euler steps of the flow itself from the most likely noise, zero."""
        n, steps = len(features.pooled), self.settings.steps
        noised = features.pooled.new_zeros(n, self.size) if keys is None else random.normal(keys, self.size)
        chain = [noised]
        for step in range(steps):
            if keys is None:
                time = noised.new_full((n,), 1.0 - step / steps)
                noised = noised - self.expert(noised, time, features)[0] / steps
            else:
                next_link, _ = self.transition(features, noised, step)
                noised = next_link.mean + next_link.stddev * random.normal(random.fold(keys, step), self.size)
            chain.append(noised)
        return torch.cat(chain, dim=1)

    def score(self, features: Features, draw: Float32[Tensor, "n c"]) -> Score:
        chain = self.chain(draw)
        terms, hidden = [], []
        for step in range(self.settings.steps):
            next_link, state = self.transition(features, chain[:, step], step)
            terms.append(next_link.log_prob(chain[:, step + 1]).unflatten(1, (self.segments, -1)))
            hidden.append(state)
        return Score(torch.stack(terms, dim=2).flatten(1), torch.stack(hidden).mean(dim=0))

    def chain(self, draw: Float32[Tensor, "n c"]) -> Float32[Tensor, "n k1 d"]:
        """The links of a draw, noise first."""
        return draw.unflatten(1, (-1, self.size))

    def held(self, draw: Float32[Tensor, "n c"]) -> Float32[Tensor, "n d"]:
        """The chain's last link."""
        return self.chain(draw)[:, -1]

    def loss(self, features: Features, target: Float32[Tensor, "n d"], source: torch.Generator) -> Tensor:
        """Flow matching at times of a Beta(1.5, 1) law, which prefers noise (pi0)."""
        level = torch.rand(len(target), generator=source, device=target.device)
        noise = torch.randn(target.shape, generator=source, device=target.device)
        time = 0.999 * level ** (1.0 / 1.5) + 0.001
        noised = time[:, None] * noise + (1.0 - time[:, None]) * target
        return (self.expert(noised, time, features)[0] - (noise - target)).square().mean()

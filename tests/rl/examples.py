"""A tiny policy and its episodes on the dot, for the tests of learning."""

from __future__ import annotations

import torch

from coevo.core.types import Trajectories, Verdicts
from coevo.policies import build
from coevo.policies.config import FixedGaussian, SmallPolicyConfig
from coevo.rl.config import Algorithm
from coevo.rollout import rollout
from tests.doubles import TOY, ToyDream, ToyReward, toy_state


def make_policy(seed: int = 0, critic: bool = False, std: float = 0.4):
    config = SmallPolicyConfig(
        channels=(16, 16, 32, 64), width=32, critic=critic, head=FixedGaussian(std=std), segments=2
    )
    return build.build(config, TOY, seed).eval()


def dream_roll(policy, seed: int = 0, fakes=()):
    """A Roll in a toy dream, judged by the toy reward."""

    def roll(starts, key):
        episodes = rollout(ToyDream(fakes=fakes), policy, starts, stream=(seed, *key), source="dream")
        return episodes, ToyReward().verdicts(episodes.frames, [start.instruction for start in starts])

    return roll


def grouped(columns, group: int = 4):
    return [toy_state(column) for column in columns for _ in range(group)]


def small(**choices) -> Algorithm:
    defaults = dict(updates=2, states=2, group=4, epochs=1, minibatch=64, learning_rate=1e-3)
    return Algorithm(**(defaults | choices))


def judged(episodes: Trajectories, first: list[int]) -> Verdicts:
    """Verdicts with the first success at these frames; 5 means none."""
    found = torch.tensor(first)
    return Verdicts(torch.zeros(len(found), 5), found < 5, found, 0.5, "hand")


def weights_of(policy) -> dict[str, torch.Tensor]:
    return {name: weight.detach().clone() for name, weight in policy.state_dict().items()}


def changed(before: dict[str, torch.Tensor], policy) -> set[str]:
    return {name for name, weight in policy.state_dict().items() if not torch.equal(weight, before[name])}

"""A tiny policy with each head, and what it sees on the dot."""

from __future__ import annotations

import torch

from coevo.core import random, text
from coevo.core.types import Observation
from coevo.policies import build
from coevo.policies.backbone import Features
from coevo.policies.config import FixedGaussian, Flow, LaplaceScale, LearnedNoise, SdeNoise, SmallPolicyConfig, Tokens
from tests.doubles import TOY, toy_state

HEADS = {
    "gaussian": FixedGaussian(std=0.2),
    "tokens": Tokens(bins=9),
    "laplace_scale": LaplaceScale(low=0.02, high=0.4),
    "flow_sde": Flow(steps=3, noise=SdeNoise(level=0.4), width=32),
    "flow_learned": Flow(steps=3, noise=LearnedNoise(low=0.1, high=0.3), width=32),
}


def make(head="gaussian", seed: int = 0, **choices):
    settings = HEADS[head] if isinstance(head, str) else head
    config = SmallPolicyConfig(channels=(16, 16, 32, 64), width=32, head=settings, **choices)
    return build.build(config, TOY, seed).eval()


def seen(columns=(0.0, 3.0, 6.0, 9.0)) -> Observation:
    states = [toy_state(column) for column in columns]
    return Observation(
        torch.stack([state.frames for state in states]), torch.stack([state.proprio for state in states]),
        tuple(state.instruction for state in states),
    )  # fmt: skip


def keys(count: int, *stream) -> torch.Tensor:
    return random.row_keys(0, *stream, rows=range(count))


def evaluate(policy, observation, draw):
    words = text.words(observation.instructions)
    return policy.evaluate(observation.frames[:, -1], observation.proprio[:, -1], words, draw)


def features_of(policy, observation) -> Features:
    words = text.words(observation.instructions)
    return policy.backbone(observation.frames[:, -1], observation.proprio[:, -1], words)


def demonstrations(informative: bool = False):
    """The expert moves by a tenth of the columns that are missing; the image alone says where the dot is.

    So does the proprioception, where it is `informative`. Standing still errs by 0.35.
    """
    columns = torch.arange(0, 14.0)
    states = [toy_state(column) for column in columns.tolist()]
    label = torch.zeros(14, 4, 4)
    label[:, :, 0] = ((7 - columns) / 10)[:, None]
    frames = torch.stack([state.frames[-1] for state in states])
    proprio = torch.tensor([[0.0, 7.0, 0.0, -1.0, 0.0]]).expand(14, -1)  # says nothing
    if informative:
        proprio = torch.stack([state.proprio[-1] for state in states])
    words = text.words([state.instruction for state in states])
    observation = Observation(frames[:, None], proprio[:, None], tuple(state.instruction for state in states))
    return (frames, proprio, words, label), observation

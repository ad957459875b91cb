"""Whether stored episodes happen again: the same start and actions must give the same frames, to the bit."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from coevo.core.protocols import Environment
from coevo.core.types import Episode


@torch.no_grad()
def reproduces(environment: Environment, episodes: Sequence[Episode]) -> list[bool]:
    """For each episode of equal length, whether frames, proprioception and success come out identical when replayed."""
    chunk = environment.interface.chunk
    actions = torch.stack([episode.actions for episode in episodes])
    environment.reset([episode.start for episode in episodes], torch.zeros(len(episodes), dtype=torch.int64))
    steps = [environment.step(actions[:, at : at + chunk]) for at in range(0, actions.shape[1], chunk)]
    frames = torch.cat([step.frames for step in steps], dim=1)
    proprio = torch.cat([step.proprio for step in steps], dim=1)
    success = torch.cat([step.truth.success for step in steps], dim=1)
    return [
        torch.equal(frames[row], episode.frames[1:])
        and torch.equal(proprio[row], episode.proprio[1:])
        and torch.equal(success[row], episode.success)
        for row, episode in enumerate(episodes)
    ]

"""From a rollout's padded rows to episodes cut at their length."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from coevo.core.types import Episode, Trajectories, Verdicts


def from_trajectories(
    trajectories: Trajectories, pair: Sequence[str] | None = None, verdicts: Verdicts | None = None
) -> list[Episode]:
    """One episode per row, cut where the row ended.

    Args:
        pair: id of the pair that each row belongs to, '' for none; none for all when left out.
        verdicts: a reward model's reading to store. Left out, the world model's own head is stored where there is
            one; it does not read the first frame, which gets NaN.
    """
    decisions = trajectories.draw.shape[1]
    chunk = trajectories.actions.shape[1] // decisions
    per_decision = (trajectories.frames.shape[1] - 1) // decisions
    if any(start.decision for start in trajectories.starts):
        raise ValueError("episodes that go on from the middle of others are trained on, not stored; begin at resets")
    if pair is not None and len(pair) != len(trajectories):
        raise ValueError(f"{len(pair)} pair ids for {len(trajectories)} trajectories; give one per row")
    probability = verdicts.probability if verdicts is not None else _with_first(trajectories.probability)
    episodes = []
    for row, start in enumerate(trajectories.starts):
        length = int(trajectories.length[row])
        frames, truth = length * per_decision, trajectories.truth
        episodes.append(
            Episode(
                actions=_cut(trajectories.actions, row, length * chunk),
                frames=_cut(trajectories.frames, row, frames + 1),
                proprio=_cut(trajectories.proprio, row, frames + 1),
                success=_cut(truth.success, row, frames) if truth is not None else None,
                progress=_cut(truth.progress, row, frames) if truth is not None else None,
                probability=_cut(probability, row, frames + 1) if probability is not None else None,
                start=start,
                sample=trajectories.sample[row],
                policy=trajectories.policy,
                source=trajectories.source,
                perturbation=trajectories.perturbation[row],
                pair=pair[row] if pair is not None else "",
            )
        )
    return episodes


def _cut(values: Tensor, row: int, end: int) -> Tensor:
    """A copy on the CPU: a view would keep, and between processes send, the whole batch."""
    return values[row, :end].cpu().clone()


def _with_first(probability: Tensor | None) -> Tensor | None:
    if probability is None:
        return None
    first = torch.full_like(probability[:, :1], torch.nan)
    return torch.cat([first, probability], dim=1)

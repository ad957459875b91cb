"""Recorded actions driven through an environment, simulator or dream: the same commands, whatever follows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float32, Int64, UInt8
from torch import Tensor

from coevo.core.protocols import Environment
from coevo.core.types import InitialState


@dataclass(frozen=True)
class Driven:
    """What followed the recorded actions."""

    frames: UInt8[Tensor, "n f1 h w 3"]
    """The start's own present frame, then what the environment showed."""
    success: Bool[Tensor, "n f"] | None
    """Simulator truth per frame after the first; none from a dream."""


@torch.no_grad()
def drive(
    environment: Environment,
    starts: Sequence[InitialState],
    actions: Float32[Tensor, "n t a"],
    keys: Int64[Tensor, " n"],
    *,
    batch: int = 64,
    progress: Callable[[int, int], None] | None = None,
) -> Driven:
    """Reset row i to starts[i] and apply its actions chunk by chunk, to the last one recorded.

    Args:
        keys: randomness of each row (row_keys of what it is for and of its episode), so that the batch size does not
            change what is drawn.
        batch: rows driven at once.

    Raises ValueError if the actions are no whole number of the environment's chunks.
    """
    chunk = environment.interface.chunk
    if actions.shape[1] % chunk:
        raise ValueError(
            f"{actions.shape[1]} recorded control steps are no whole number of chunks of {chunk}; "
            "were they recorded with another 'chunk' in configs/simulator?"
        )
    frames, success = [], []
    for first in range(0, len(starts), batch):
        rows = slice(first, first + batch)
        observation = environment.reset(starts[rows], keys[rows])
        steps = [environment.step(actions[rows, at : at + chunk]) for at in range(0, actions.shape[1], chunk)]
        frames.append(torch.cat([observation.frames[:, -1:], *(step.frames for step in steps)], dim=1).cpu())
        if steps[0].truth is not None:
            success.append(torch.cat([step.truth.success for step in steps], dim=1).cpu())
        if progress is not None:
            progress(min(first + batch, len(starts)), len(starts))
    return Driven(torch.cat(frames), torch.cat(success) if success else None)


def reached(success: Bool[Tensor, "n f"], success_from: int) -> Bool[Tensor, " n"]:
    """Whether an episode counts as a success: true at any frame from `success_from` on (frame 0 is the start)."""
    return success[:, success_from - 1 :].any(dim=1)


def hold_last(frames: UInt8[Tensor, "n f1 h w 3"], length: Int64[Tensor, " n"]) -> UInt8[Tensor, "n f1 h w 3"]:
    """The frames with all after an episode's `length` replaced by its last one, as recorded episodes are padded."""
    index = torch.minimum(torch.arange(frames.shape[1])[None], length[:, None])
    return frames[torch.arange(len(frames))[:, None], index]

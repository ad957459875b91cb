"""Recorded actions driven through an environment, simulator or dream: the same commands, whatever follows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float32, Int64, Shaped, UInt8
from torch import Tensor

from coevo.core.protocols import Environment
from coevo.core.types import InitialState, Seen


@runtime_checkable
class Forceable(Protocol):
    """A dream whose history can be put right between chunks."""

    def hold(self, frames: UInt8[Tensor, "n f h w 3"]) -> None:
        """Let the history be these frames, from the start to the present, in place of what was drawn."""
        ...


@dataclass(frozen=True)
class Driven:
    """What followed the recorded actions."""

    frames: UInt8[Tensor, "n f1 h w 3"]
    """The start's own present frame, then what the environment showed."""
    success: Bool[Tensor, "n f"] | None
    """Simulator truth per frame after the first; none from a dream."""
    probability: Float32[Tensor, "n f"] | None = None
    """What a world model's own head said of each frame after the first; none where it has none."""


@torch.no_grad()
def drive(
    environment: Environment,
    starts: Sequence[InitialState],
    actions: Float32[Tensor, "n t a"],
    keys: Int64[Tensor, " n"],
    *,
    batch: int = 64,
    progress: Callable[[int, int], None] | None = None,
    history: UInt8[Tensor, "n f1 h w 3"] | None = None,
) -> Driven:
    """Reset row i to starts[i] and apply its actions chunk by chunk, to the last one recorded.

    Args:
        keys: randomness of each row (row_keys of what it is for and of its episode), so that the batch size does not
            change what is drawn.
        batch: rows driven at once.
        history: recorded frames that take the place of the dream's own after each chunk (teacher forcing): each chunk
            is then drawn from what really came before it, and no error of an earlier chunk can be carried on.

    Raises ValueError if the actions are no whole number of the environment's chunks, or if its history is fixed.
    """
    chunk, frames_per_chunk = environment.interface.chunk, environment.interface.chunk_frames
    if history is not None and not isinstance(environment, Forceable):
        raise ValueError(
            f"{type(environment).__name__} has no 'hold', so its history cannot be set to the recorded frames; "
            "leave recorded_history out for this world model"
        )
    if actions.shape[1] % chunk:
        raise ValueError(
            f"{actions.shape[1]} recorded control steps are no whole number of chunks of {chunk}; "
            "were they recorded with another 'chunk' in configs/simulator?"
        )
    frames, success, probability = [], [], []
    for first in range(0, len(starts), batch):
        rows = slice(first, first + batch)
        observation = environment.reset(starts[rows], keys[rows])
        steps = []
        for decision, at in enumerate(range(0, actions.shape[1], chunk), start=1):
            steps.append(environment.step(actions[rows, at : at + chunk]))
            if history is not None:
                environment.hold(history[rows, : 1 + decision * frames_per_chunk])
        frames.append(torch.cat([observation.frames[:, -1:], *(step.frames for step in steps)], dim=1).cpu())
        if steps[0].truth is not None:
            success.append(torch.cat([step.truth.success for step in steps], dim=1).cpu())
        if steps[0].probability is not None:
            probability.append(torch.cat([step.probability for step in steps], dim=1).cpu())
        if progress is not None:
            progress(min(first + batch, len(starts)), len(starts))
    return Driven(
        torch.cat(frames), torch.cat(success) if success else None, torch.cat(probability) if probability else None
    )


def reached(success: Bool[Tensor, "n f"], success_from: int) -> Bool[Tensor, " n"]:
    """Whether an episode counts as a success: true at any frame from `success_from` on (frame 0 is the start)."""
    return success[:, success_from - 1 :].any(dim=1)


def hold_last(frames: UInt8[Tensor, "n f1 h w 3"], length: Int64[Tensor, " n"]) -> UInt8[Tensor, "n f1 h w 3"]:
    """The frames with all after an episode's `length` replaced by its last one, as recorded episodes are padded."""
    return _hold(frames, length)


def held(driven: Driven, recorded: Seen, length: Int64[Tensor, " n"]) -> Seen:
    """What followed the recorded actions as a reward model reads it, held still after an episode's `length`."""
    probability = None
    if driven.probability is not None:
        start = torch.zeros_like(driven.probability[:, :1])
        probability = _hold(torch.cat([start, driven.probability], dim=1), length)[:, 1:]
    return replace(recorded, frames=hold_last(driven.frames, length), probability=probability)


def _hold(values: Shaped[Tensor, "n f1 ..."], length: Int64[Tensor, " n"]) -> Shaped[Tensor, "n f1 ..."]:
    index = torch.minimum(torch.arange(values.shape[1])[None], length[:, None])
    return values[torch.arange(len(values))[:, None], index]

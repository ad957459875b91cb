"""What an episode came to, from the simulator's per-frame truth."""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Bool, Float32
from torch import Tensor

from coevo.core.types import Episode
from coevo.records.interface import Interface

Outcome = Literal["success", "near", "failure", "unknown"]
NEAR = 0.5
"""Progress from which a failure counts as a near success."""


def outcome(
    success: Bool[Tensor, " f"], progress: Float32[Tensor, " f"], success_from: int, near: float = NEAR
) -> Outcome:
    """Success if any frame from number `success_from` on is one; else near success by the largest progress.

    Entry i of both speaks of frame i + 1: the first frame has no truth, since nothing was done yet.
    """
    if bool(success[success_from - 1 :].any()):
        return "success"
    return "near" if len(progress) and float(progress.max()) >= near else "failure"


def episode_outcome(episode: Episode, interface: Interface, near: float = NEAR) -> Outcome:
    """The outcome of an episode; 'unknown' where no simulator watched (a dream)."""
    if episode.success is None:
        return "unknown"
    progress = episode.progress if episode.progress is not None else torch.zeros(len(episode.success))
    return outcome(episode.success, progress, interface.success_from, near)

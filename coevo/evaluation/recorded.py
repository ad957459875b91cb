"""Simulator episodes as evaluation reads them: what was done, what was seen, what came of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float32, Int64, UInt8
from torch import Tensor

from coevo.core import random
from coevo.core.types import InitialState, Seen


@dataclass(frozen=True)
class Recorded:
    """Episodes side by side, padded to one length by their last frame."""

    starts: tuple[InitialState, ...]
    actions: Float32[Tensor, "n t a"]
    frames: UInt8[Tensor, "n f1 h w 3"]
    success: Bool[Tensor, "n f"]
    """Simulator truth per frame after the first."""
    length: Int64[Tensor, " n"]
    """Frames after the first before the padding."""
    names: tuple[str, ...]
    """Of each episode, unlike all others: what its noise is keyed by."""
    perturbation: tuple[str, ...]
    near: Bool[np.ndarray, " n"]
    """Failures that came near to success."""
    pair: tuple[str, ...]
    """Id shared by paired counterfactuals; '' where an episode is not paired."""
    success_from: int
    """Index of the first frame at which success counts."""

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def states(self) -> tuple[str, ...]:
        """Initial state of each episode."""
        return tuple(start.id for start in self.starts)

    @property
    def instructions(self) -> tuple[str, ...]:
        """What a reader is told that each episode should achieve."""
        return tuple(start.instruction for start in self.starts)

    @property
    def seen(self) -> Seen:
        """The recorded frames as a reader gets them."""
        proprio = torch.stack([start.proprio[-1] for start in self.starts])
        return Seen(self.frames, self.instructions, proprio, self.actions)

    @property
    def first_success(self) -> Int64[np.ndarray, " n"]:
        """Index of the frame at which each episode succeeds; one past the last frame if it never does."""
        return first_true(self.success.numpy(), self.success_from)

    @property
    def truth(self) -> Bool[np.ndarray, " n"]:
        """Whether each episode succeeds."""
        return self.first_success < self.frames.shape[1]

    def keys(self, seed: int, draw: int = 0) -> Int64[Tensor, " n"]:
        """The noise of each episode's dream; another `draw` differs in nothing else."""
        purpose = ("open loop",) if draw == 0 else ("open loop", draw)
        return random.row_keys(seed, *purpose, rows=self.names)


def first_true(success: Bool[np.ndarray, "n f"], success_from: int) -> Int64[np.ndarray, " n"]:
    """Index (from 1; 0 is the start) of the first true frame from `success_from` on; f + 1 where there is none."""
    counts = success.copy()
    counts[:, : success_from - 1] = False
    return np.where(counts.any(axis=1), counts.argmax(axis=1) + 1, success.shape[1] + 1)


"""Ends dreamed episodes where they read as a success: what follows would be dreamed, and paid, for nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float32, Int64, UInt8
from torch import Tensor

from coevo.core.types import InitialState, Observation, Step, Verdicts
from coevo.records.interface import Interface
from coevo.records.outcomes import Calibration
from coevo.rewards.classifier import read_peak


@runtime_checkable
class FrameReader(Protocol):
    """A reward model that reads single frames, so that an episode can be judged while it goes on."""

    id: str
    interface: Interface
    calibration: Calibration

    def probabilities(self, frames: UInt8[Tensor, "n f h w 3"]) -> Float32[Tensor, "n f"]:
        """Of success, per frame."""
        ...


class FirstSuccess:
    """Monitor of one rollout: ends rows at their first frame of success, and keeps what was read.

    Frames are read once, when they are drawn; the verdicts are those of reading whole episodes.
    """

    def __init__(self, reward: FrameReader) -> None:
        self.reward, self.interface = reward, reward.interface

    def begin(self, observation: Observation, starts: Sequence[InitialState]) -> None:
        """A rollout begins."""
        device = observation.frames.device
        self.rows, self.decision = torch.arange(len(starts), device=device), 0
        self.probability = torch.zeros(len(starts), self.interface.frames + 1, device=device)

    def ended(self, step: Step) -> Bool[Tensor, " n"]:
        """Which of the present rows have succeeded by now."""
        per = self.interface.chunk_frames
        first = 1 + self.decision * per
        read = self.reward.probabilities(step.frames).to(self.rows.device)
        self.probability[self.rows, first : first + per] = read
        self.decision += 1
        counts = torch.arange(first, first + per, device=read.device) >= self.interface.success_from
        return ((read >= self.reward.calibration.threshold) & counts).any(dim=1)

    def keep(self, rows: Int64[Tensor, " m"]) -> None:
        """Drop all other rows."""
        self.rows = self.rows[rows.to(self.rows.device)]

    def verdicts(self) -> Verdicts:
        """Of all rows; frames that were never drawn count as no success."""
        return read_peak(
            self.probability, self.reward.calibration.threshold, self.interface.success_from, self.reward.id
        )

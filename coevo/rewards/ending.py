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
    """A reward model whose reading of a frame needs none that follow, so that an episode is judged while it goes on."""

    id: str
    interface: Interface
    calibration: Calibration

    def probabilities(self, frames: UInt8[Tensor, "n f h w 3"]) -> Float32[Tensor, "n f"]:
        """Of success, per frame."""
        ...


@runtime_checkable
class HistoryReader(FrameReader, Protocol):
    """A FrameReader whose reading of a frame needs those before it."""

    def continued(
        self, frames: UInt8[Tensor, "n g h w 3"], new: int, instructions: Sequence[str] | None = None
    ) -> Float32[Tensor, "n new"]:
        """Of the last `new` of the frames so far, the start's frame being the first."""
        ...


class Ending:
    """Monitor of one rollout: ends rows at their first frame of success, and keeps what was read.

    Frames are read once, when they are drawn; the verdicts are those of reading whole episodes. Subclasses say where
    the reading of a step comes from.
    """

    def __init__(self, interface: Interface, threshold: float, id: str) -> None:
        self.interface, self.threshold, self.id = interface, threshold, id

    def read(self, step: Step) -> Float32[Tensor, "n kf"]:
        """Readings of the frames of a step, of the rows that are present."""
        raise NotImplementedError

    def begin(self, observation: Observation, starts: Sequence[InitialState]) -> None:
        """A rollout begins."""
        device = observation.frames.device
        self.rows, self.decision = torch.arange(len(starts), device=device), starts[0].decision
        self.probability = torch.zeros(len(starts), self.interface.frames + 1, device=device)

    def ended(self, step: Step) -> Bool[Tensor, " n"]:
        """Which of the present rows have succeeded by now."""
        per = self.interface.chunk_frames
        first = 1 + self.decision * per
        read = self.read(step).to(self.rows.device)
        self.probability[self.rows, first : first + per] = read
        self.decision += 1
        counts = torch.arange(first, first + per, device=read.device) >= self.interface.success_from
        return ((read >= self.threshold) & counts).any(dim=1)

    def keep(self, rows: Int64[Tensor, " m"]) -> None:
        """Drop all other rows."""
        self.rows = self.rows[rows.to(self.rows.device)]

    def verdicts(self) -> Verdicts:
        """Of all rows; frames that were never drawn count as no success."""
        return read_peak(self.probability, self.threshold, self.interface.success_from, self.id)


class FirstSuccess(Ending):
    """Judges by a frozen reward model that reads the frames."""

    def __init__(self, reward: FrameReader) -> None:
        super().__init__(reward.interface, reward.calibration.threshold_as_probability, reward.id)
        self.reward = reward

    def begin(self, observation: Observation, starts: Sequence[InitialState]) -> None:
        """A rollout begins."""
        super().begin(observation, starts)
        self.instructions = [start.instruction for start in starts]
        self.history = None
        if isinstance(self.reward, HistoryReader):
            count = 1 + self.decision * self.interface.chunk_frames
            self.history = torch.stack([start.up_to_now(count)[0] for start in starts]).to(observation.frames.device)

    def read(self, step: Step) -> Float32[Tensor, "n kf"]:
        """By the reward model, which gets the frames so far if it needs them."""
        if self.history is None:
            return self.reward.probabilities(step.frames)
        self.history = torch.cat([self.history, step.frames], dim=1)
        own = [self.instructions[row] for row in self.rows.tolist()]
        return self.reward.continued(self.history, step.frames.shape[1], own)

    def keep(self, rows: Int64[Tensor, " m"]) -> None:
        """Drop all other rows."""
        super().keep(rows)
        if self.history is not None:
            self.history = self.history[rows.to(self.history.device)]


class OwnHead(Ending):
    """Judges by the world model's own head, whose reading comes with each step."""

    def __init__(self, interface: Interface, calibration: Calibration, id: str) -> None:
        super().__init__(interface, calibration.threshold_as_probability, id)

    def read(self, step: Step) -> Float32[Tensor, "n kf"]:
        """What the step carries; ValueError if the world model has no head."""
        if step.probability is None:
            raise ValueError(f"{self.id} is to judge by its own head, and its steps carry no probability")
        return step.probability

"""Rows that end at their first frame of success, and the same verdicts as from whole episodes."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from coevo.core.protocols import Monitor
from coevo.rewards.calibration import measure
from coevo.rewards.classifier import read_peak
from coevo.rewards.ending import FirstSuccess, FrameReader, OwnHead
from coevo.rollout import rollout
from tests.doubles import GOAL, TOY, ToyDream, ToyPolicy, ToyReward, toy_state

CALIBRATED = measure(torch.tensor([0.0, 1.0]), torch.tensor([False, True]), TOY, 0.75, "")


class Reader(ToyReward):
    """Reads single frames."""

    calibration = CALIBRATED

    def __init__(self):
        super().__init__()
        self.frames_read = 0

    def probabilities(self, frames):
        self.frames_read += frames.shape[0] * frames.shape[1]
        column = frames[..., 0].amax(dim=2).float().argmax(dim=-1)
        return torch.where(column >= GOAL, 1.0, column / (2 * GOAL))


def test_rows_end_at_their_first_success_with_the_verdicts_of_whole_episodes():
    starts = [toy_state(column) for column in (0, 3, 5, 8, 9)]
    reader = Reader()
    monitor = FirstSuccess(reader)
    roll = dict(stream=(0,), source="dream")
    ended = rollout(ToyDream(), ToyPolicy(), starts, monitor=monitor, **roll)
    found, frames_read = monitor.verdicts(), reader.frames_read
    whole = rollout(ToyDream(), ToyPolicy(), starts, **roll)
    expected = read_peak(reader.probabilities(whole.frames), 0.75, TOY.success_from, "toy/reward")
    assert found.success.tolist() == expected.success.tolist() == [False, True, True, True, True]
    assert found.first_success.tolist() == expected.first_success.tolist()
    # From columns 8 and 9 the line is reached within the first decision (frame 1 does not count yet, frame 2 does).
    assert ended.length.tolist() == [2, 2, 2, 1, 1] and frames_read == 5 * 2 + 3 * 2
    assert isinstance(monitor, Monitor) and isinstance(reader, FrameReader) and not isinstance(ToyReward(), FrameReader)


def test_a_success_before_it_counts_ends_nothing():
    monitor = FirstSuccess(Reader())
    late = TOY.model_copy(update=dict(success_from=4))
    monitor.interface = late
    made = rollout(ToyDream(), ToyPolicy(), [toy_state(9)], stream=(0,), source="dream", monitor=monitor)
    assert made.length.tolist() == [2] and monitor.verdicts().first_success.tolist() == [4]


def test_rows_begun_in_the_middle_are_read_from_there_with_the_frames_before():
    class Remembering(Reader):
        def continued(self, frames, new, instructions=None):
            self.given = frames
            return self.probabilities(frames[:, -new:])

    reader, start = Remembering(), replace(toy_state(6), decision=1)
    monitor = FirstSuccess(reader)
    made = rollout(ToyDream(), ToyPolicy(), [start], stream=(0,), source="dream", monitor=monitor)
    assert reader.given.shape[1] == 5 and torch.equal(reader.given, made.frames)
    assert monitor.verdicts().first_success.tolist() == [4]  # from column 6, two columns a frame: 8, 10


class HeadedDream(ToyDream):
    """A world model with a head of its own, which reads the dot's column."""

    def step(self, actions):
        step = super().step(actions)
        return replace(step, probability=Reader().probabilities(step.frames))


def test_a_world_models_own_head_ends_rows_as_a_reader_of_its_frames_does():
    starts, roll = [toy_state(column) for column in (0, 3, 8)], dict(stream=(0,), source="dream")
    own = OwnHead(TOY, CALIBRATED, "toy/dream")
    ended = rollout(HeadedDream(), ToyPolicy(), starts, monitor=own, **roll)
    reader = FirstSuccess(Reader())
    expected = rollout(ToyDream(), ToyPolicy(), starts, monitor=reader, **roll)
    assert ended.length.tolist() == expected.length.tolist() == [2, 2, 1]
    assert torch.equal(own.verdicts().probability, reader.verdicts().probability)
    assert own.verdicts().reward_model == "toy/dream"


def test_a_world_model_without_a_head_cannot_judge_itself():
    with pytest.raises(ValueError, match="its steps carry no probability"):
        rollout(
            ToyDream(), ToyPolicy(), [toy_state(9)], stream=(0,), source="dream",
            monitor=OwnHead(TOY, CALIBRATED, "toy/dream"),
        )  # fmt: skip

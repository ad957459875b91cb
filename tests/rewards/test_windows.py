"""Which frames a reading looks at, by hand."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from coevo.rewards.windows import per_frame, reading_frames, spread, tail
from tests.doubles import TOY


def test_a_window_is_the_last_frames_and_begins_at_rest():
    assert tail([2, 5], 4).tolist() == [[0, 0, 1, 2], [2, 3, 4, 5]]
    assert tail([5], 3, step=2).tolist() == [[1, 3, 5]]


def test_frames_are_spread_over_the_episode_so_far():
    assert spread([8], 5).tolist() == [[0, 2, 4, 6, 8]]
    assert spread([2], 5).tolist() == [[0, 1, 1, 2, 2]]  # half frames go up: some stand twice


@given(st.integers(1, 200), st.integers(2, 40))
def test_windows_hold_no_frame_that_is_not_there_yet_and_end_at_the_last(end, window):
    for frames in (tail([end], window)[0], spread([end], window)[0]):
        assert len(frames) == window and frames[-1] == end and frames.min() >= 0
        assert (frames.diff() >= 0).all()


def test_readings_are_taken_after_each_decision_or_at_each_frame():
    assert reading_frames(TOY, "chunk") == [2, 4] and reading_frames(TOY, "frame") == [1, 2, 3, 4]
    assert reading_frames(TOY, "chunk", first=3) == [4] and reading_frames(TOY, "chunk", first=1, last=2) == [2]


def test_a_reading_stands_for_all_frames_since_the_one_before():
    assert per_frame(torch.tensor([[0.5, 0.25]]), [2, 4], 5).tolist() == [[0, 0.5, 0.5, 0.25, 0.25]]
    assert per_frame(torch.tensor([[0.5]]), [2], 4).tolist() == [[0, 0.5, 0.5, 0]]

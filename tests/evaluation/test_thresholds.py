"""What another threshold would read."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from coevo.core.types import Verdicts
from coevo.evaluation.thresholds import other_threshold, peaks

WHO = dict(arm="world", reader="reward", stream=(0,))


def found(peak, truth, states, recall):
    return other_threshold(np.array(peak), np.array(truth, dtype=bool), states, recall, **WHO)


def test_the_threshold_is_lowered_until_enough_successes_are_read():
    """Successes peak at 0.9, 0.6, 0.4 and 0.2, failures at 0.7, 0.5, 0.3 and 0.1."""
    peak, truth, states = [0.9, 0.6, 0.4, 0.2, 0.7, 0.5, 0.3, 0.1], [1, 1, 1, 1, 0, 0, 0, 0], list("abcdabcd")
    half, most, whole = (found(peak, truth, states, recall) for recall in (0.5, 0.75, 1.0))
    assert [made.threshold for made in (half, most, whole)] == [0.6, 0.4, 0.2]
    assert [made.fidelity[0].fake_success.value for made in (half, most, whole)] == [0.25, 0.5, 0.75]
    assert [made.fidelity[0].recall.value for made in (half, most, whole)] == [0.5, 0.75, 1.0]
    # 4 + 3 + 2 + 1 of the 16 pairs have the success on top.
    assert half.ranked_right.value == pytest.approx(10 / 16) and half.ranked_right.n == 8
    assert half.ranked_right.low <= 10 / 16 < half.ranked_right.high


def test_dreams_that_tell_all_apart_rank_all_right_and_ties_count_half():
    apart = found([0.9, 0.8, 0.1, 0.2], [1, 1, 0, 0], list("abab"), 0.95)
    assert apart.ranked_right.value == 1.0 and apart.fidelity[0].fake_success.value == 0.0 and apart.threshold == 0.8
    assert found([0.5] * 4, [1, 1, 0, 0], list("abab"), 0.95).ranked_right.value == 0.5


def test_with_one_outcome_alone_there_is_nothing_to_tell_apart():
    assert found([0.1, 0.9], [1, 1], list("ab"), 0.9) is None and found([0.1, 0.9], [0, 0], list("ab"), 0.9) is None
    # A floor that no threshold reaches, or that any does, is a criterion's business.
    assert found([0.1, 0.9], [0, 1], list("ab"), 1.1) is None and found([0.1, 0.9], [0, 1], list("ab"), 0.0) is None


def test_states_that_hold_all_pairs_between_them_are_resampled_whole():
    """State a ended in success, b in failure: half of the draws of two states hold no pair."""
    made = found([0.9, 0.2, 0.6, 0.1], [1, 1, 0, 0], list("aabb"), 1.0)
    assert made.ranked_right.value == 0.75 and made.ranked_right.low == made.ranked_right.high == 0.75


@given(
    st.lists(st.tuples(st.integers(0, 8), st.booleans(), st.sampled_from("abc")), min_size=2, max_size=24),
    st.floats(0.05, 1.0),
)
def test_it_is_the_area_under_the_curve_and_the_highest_threshold_that_reaches(episodes, recall):
    peak, truth, states = (np.array(column) for column in zip(*episodes, strict=True))
    made = found(peak / 8, truth, states.tolist(), recall)
    if made is None:
        assert truth.all() or not truth.any()
        return
    won, lost = peak[truth], peak[~truth]
    area = stats.mannwhitneyu(won, lost).statistic / (len(won) * len(lost))
    assert made.ranked_right.value == pytest.approx(area)
    assert made.fidelity[0].recall.value >= recall - 1e-9
    assert (won / 8 > made.threshold).mean() < recall


def test_a_peak_counts_from_where_success_counts():
    verdicts = Verdicts(torch.tensor([[0.9, 0.1, 0.4]]), torch.tensor([False]), torch.tensor([3]), 0.5, "reward")
    assert peaks(verdicts, 1).tolist() == pytest.approx([0.4]) and peaks(verdicts, 0).tolist() == pytest.approx([0.9])

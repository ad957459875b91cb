"""Where infidelity comes from."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from coevo.core import random
from coevo.evaluation.breakdown import NEAR_SUCCESS, by_horizon, by_kind, by_state, noise_spread, pairs_told_apart
from coevo.evaluation.drive import drive
from coevo.evaluation.recorded import first_true
from coevo.evaluation.truth import metres_per_pixel, shifted_starts
from tests.doubles import TOY, ToyDream, ToySimulator, toy_state

WHO = dict(arm="w", reader="r", stream=(0,))


def bools(*values):
    return np.array(values, dtype=bool)


def test_first_true_counts_frames_from_one_and_ignores_those_before_success_counts():
    success = bools([1, 0, 0, 0], [0, 0, 1, 1], [1, 1, 0, 0])
    assert first_true(success, success_from=2).tolist() == [5, 3, 2]


def test_each_kind_has_its_own_share_and_near_successes_theirs():
    read, truth = bools(1, 0, 1, 1), bools(0, 0, 0, 1)
    rows = by_kind(read, truth, list("abcd"), ("slip", "none", "none", "none"), bools(0, 0, 1, 0), **WHO)
    assert {row.kind: row.fake_success.value for row in rows} == {"none": 0.5, "slip": 1.0, NEAR_SUCCESS: 1.0}
    assert all(row.slice == "kind" and row.subset == "all" for row in rows)
    assert {row.kind: row.recall and row.recall.n for row in rows} == {"none": 1, "slip": None, NEAR_SUCCESS: None}


def test_the_curve_over_decisions_shows_when_a_false_success_appears():
    # Decisions end at frames 2 and 4. Failures: read at 2, at 4, never. Successes: at 4, read at 4; at 2, read never.
    read_at, true_at = np.array([2, 4, 5, 4, 5]), np.array([5, 5, 5, 4, 2])
    first, second = by_horizon(read_at, true_at, list("abcde"), TOY, **WHO)
    assert (first.decision, second.decision) == (1, 2)
    assert first.fake_success.value == pytest.approx(1 / 3) and second.fake_success.value == pytest.approx(2 / 3)
    assert first.recall.value == 0.0 and first.recall.n == 1 and second.recall.value == 0.5
    assert (first.first_disagreements, second.first_disagreements) == (2, 1)


@given(st.lists(st.tuples(st.integers(2, 5), st.integers(2, 5)), min_size=1, max_size=12))
def test_fake_success_never_falls_along_the_horizon_and_disagreements_are_counted_once(rows):
    read_at, true_at = (np.array(column) for column in zip(*rows, strict=True))
    points = by_horizon(read_at, true_at, [str(row) for row in range(len(rows))], TOY, **WHO)
    fakes = [point.fake_success.value for point in points if point.fake_success]
    assert fakes == sorted(fakes)
    assert sum(point.first_disagreements for point in points) <= len(rows)


def test_states_that_got_worse_come_first_and_then_those_that_are_worst():
    states = ["a", "a", "b", "b", "c", "c"]
    truth = bools(0, 1, 0, 0, 1, 0)
    now, before = bools(1, 1, 1, 1, 0, 0), bools(0, 1, 1, 1, 1, 1)
    rows = by_state(now, truth, states, before)
    assert [(row.state, row.wrong, row.wrong_before) for row in rows] == [("a", 1, 0), ("b", 2, 2), ("c", 1, 1)]
    assert (rows[1].failures, rows[1].faked, rows[2].successes, rows[2].missed) == (2, 2, 1, 1)
    assert by_state(now, truth, states, None)[0].wrong_before is None


def test_an_episode_flips_if_any_draw_reads_it_otherwise():
    truth = bools(0, 0, 1, 1)
    found = noise_spread([bools(0, 1, 1, 1), bools(0, 0, 1, 1), bools(0, 0, 1, 0)], truth, list("abca"), **WHO)
    assert found.flipped.value == 0.5 and found.flipped.n == 4 and found.draws == 3
    assert found.fake_success == (0.5, 0.0, 0.0) and found.recall == (1.0, 1.0, 0.5)
    assert found.flipped_mixed.value == 0.5  # state a: its success flips, its failure does not


def test_a_pair_counts_only_if_both_members_are_read_as_what_they_are():
    truth, read = bools(1, 0, 0, 1, 0, 0), bools(1, 0, 1, 1, 1, 1)
    found = pairs_told_apart(read, truth, ("p", "p", "p", "q", "q", ""), stream=(0,))
    assert found.value == pytest.approx(1 / 3) and found.n == 3
    assert pairs_told_apart(read, truth, ("",) * 6, stream=(0,)) is None


class Drifting(ToyDream):
    """Draws the dot a column too far per chunk; the error is carried on unless the history is put right."""

    def reset(self, starts, keys):
        self.error = 0.0
        return super().reset(starts, keys)

    def step(self, actions):
        self.error += 1.0
        return super().step(actions)

    def shown(self, dots):
        return dots + torch.tensor([self.error, 0.0])

    def hold(self, frames):
        self.error = 0.0


def test_recorded_history_takes_the_drift_away_and_leaves_the_error_of_one_chunk():
    starts = [toy_state(0), toy_state(1)]
    actions = torch.tensor(TOY.action.null).repeat(2, TOY.horizon, 1)
    actions[:, :, 0] = 0.5
    keys = random.row_keys("test", rows=[start.id for start in starts])
    real = drive(ToySimulator(), starts, actions, keys).frames
    own = drive(Drifting(), starts, actions, keys).frames
    forced = drive(Drifting(), starts, actions, keys, history=real).frames
    column = lambda frames: frames[..., 0].amax(dim=2).float().argmax(dim=-1)  # noqa: E731
    assert (column(own) - column(real)).tolist() == [[0, 1, 1, 2, 2]] * 2
    assert (column(forced) - column(real)).tolist() == [[0, 1, 1, 1, 1]] * 2


def test_a_world_whose_history_is_fixed_is_refused():
    actions, keys = torch.zeros(1, TOY.horizon, 4), torch.zeros(1, dtype=torch.int64)
    with pytest.raises(ValueError, match="ToyDream has no 'hold'"):
        drive(ToyDream(), [toy_state(0)], actions, keys, history=torch.zeros(1, 5, 16, 16, 3, dtype=torch.uint8))


def test_shifts_are_as_long_as_asked_and_one_per_state_and_rerun():
    starts = [toy_state(0), toy_state(0), toy_state(3)]
    moved = shifted_starts(starts, lambda state, offset: state + offset, 0.25, 0, (0,))
    again = shifted_starts(starts, lambda state, offset: state + offset, 0.25, 1, (0,))
    away = np.stack([new.simulator_state - old.simulator_state for new, old in zip(moved, starts, strict=True)])
    assert np.linalg.norm(away, axis=1) == pytest.approx([0.25] * 3)
    assert np.array_equal(away[0], away[1]) and not np.allclose(away[0], away[2])
    assert not np.allclose(moved[0].simulator_state, again[0].simulator_state)


def test_a_pixel_of_the_default_camera_is_eight_millimetres():
    # distance 0.62 m, 45 degrees, 64 pixels: 2 * 0.62 * tan(22.5 degrees) / 64
    camera = TOY.camera.model_copy(update=dict(distance=0.62, height=64))
    assert metres_per_pixel(camera) == pytest.approx(0.00803, abs=1e-5)

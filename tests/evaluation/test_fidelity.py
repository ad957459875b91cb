import numpy as np
import pytest
import torch

from coevo.core import random
from coevo.evaluation.drive import drive, reached
from coevo.evaluation.fidelity import agreement, faults, fidelity, pixel_figures, subsets
from coevo.records.outcomes import Criterion, Fidelity, Interval
from tests.doubles import TOY, ToyDream, ToyReward, ToySimulator, toy_state

CRITERION = Criterion(recall_floor=0.8, fake_success_ceiling=0.3, fake_success_mixed_ceiling=0.3, mismatch_ceiling=0.4)


def full_speed(count, speed=1.0):
    actions = torch.tensor(TOY.action.null).repeat(count, TOY.horizon, 1)
    actions[:, :, 0] = speed
    return actions


def keys(starts):
    return random.row_keys("test", rows=[start.id for start in starts])


def test_recorded_actions_move_the_dot_eight_columns_in_simulator_and_dream():
    starts = [toy_state(column) for column in (0, 1, 2, 3)]
    real = drive(ToySimulator(), starts, full_speed(4), keys(starts))
    dream = drive(ToyDream(), starts, full_speed(4), keys(starts), batch=3)
    assert real.frames.shape == (4, 5, 16, 16, 3) and torch.equal(real.frames, dream.frames)
    assert reached(real.success, TOY.success_from).tolist() == [False, False, True, True]
    assert dream.success is None


def test_a_dream_that_fakes_two_of_three_failures_is_found_out():
    starts = [toy_state(column) for column in (0, 0, 1, 2, 3, 4)]
    speeds = full_speed(6)
    speeds[0, :, 0] = 0.5
    truth = reached(drive(ToySimulator(), starts, speeds, keys(starts)).success, TOY.success_from)
    drawn = drive(ToyDream(fakes={"dot-0-7"}, misses={"dot-4-7"}), starts, speeds, keys(starts)).frames
    read = ToyReward().verdicts(drawn, [TOY.instruction] * 6).success
    everything = fidelity(read, truth, [s.id for s in starts], arm="dream", reader="toy", stream=(0,))[0]
    assert everything.fake_success.value == pytest.approx(2 / 3) and everything.fake_success.n == 3
    assert everything.recall.value == pytest.approx(2 / 3) and everything.recall.n == 3


def test_mixed_states_are_those_with_both_outcomes():
    members = subsets(["a", "b", "a", "b", "c"], np.array([1, 1, 0, 1, 0], dtype=bool))
    assert members["mixed"].tolist() == [True, False, True, False, False]
    assert members["same"].tolist() == [False, True, False, True, True]


def test_fidelity_on_forks_is_apart_from_the_rest():
    states = ["a", "a", "b", "b", "c", "c"]
    truth = torch.tensor([1, 0, 0, 0, 1, 1], dtype=torch.bool)
    read = torch.tensor([1, 1, 0, 0, 1, 0], dtype=torch.bool)
    rows = {row.subset: row for row in fidelity(read, truth, states, arm="w", reader="r", stream=(0,))}
    assert rows["mixed"].fake_success.value == 1.0 and rows["mixed"].fake_success.n == 1
    assert rows["same"].fake_success.value == 0.0 and rows["same"].fake_success.n == 2
    assert rows["same"].recall.value == 0.5 and rows["all"].recall.value == pytest.approx(2 / 3)


def test_a_subset_without_failures_has_no_fake_success():
    rows = fidelity(
        torch.ones(2, dtype=torch.bool), torch.ones(2, dtype=torch.bool), ["a", "b"], arm="w", reader="r", stream=()
    )
    assert rows[0].fake_success is None and rows[1].recall is None


def interval(value, n=100):
    return Interval(value=value, low=value, high=value, n=n)


def test_each_number_that_fails_gets_a_sentence_that_says_by_how_much():
    states, truth = ["a"] * 5 + ["b"] * 5, torch.tensor([0, 0, 0, 0, 1] * 2, dtype=torch.bool)
    read = torch.tensor([1, 1, 0, 0, 1] * 2, dtype=torch.bool)
    rows = fidelity(read, truth, states, arm="w", reader="r", stream=(0,))
    said = faults(rows, interval(0.62, 45), CRITERION)
    assert said[0] == "fake success is 0.500 (n=8), 0.200 above its ceiling of 0.300"
    assert said[-1] == "replay mismatch is 0.620 (n=45), 0.220 above its ceiling of 0.400"
    assert len(said) == 3
    assert "could not be measured" in faults(rows, None, CRITERION)[-1]


def test_equal_frames_have_the_highest_ratio_and_a_missing_dot_is_seen_by_both_metrics():
    starts = [toy_state(0), toy_state(3)]
    real = drive(ToySimulator(), starts, full_speed(2), keys(starts)).frames.numpy()
    drawn = real.copy()
    drawn[0, 1:] = 0
    figures = {f.metric: f.value for f in pixel_figures(real, drawn, np.array([False, True]), arm="w", task="dot")}
    assert figures["psnr_successes"] == 60.0 and figures["ssim_successes"] == pytest.approx(1.0)
    # 4 white pixels (or 4 + 16 blue of 256 with the line) are gone
    assert figures["psnr_failures"] < 15.0 and figures["ssim_failures"] < 0.9


def test_an_episode_of_another_chunk_length_is_refused():
    with pytest.raises(ValueError, match="no whole number of chunks"):
        drive(ToySimulator(), [toy_state(0)], full_speed(1)[:, :7], torch.zeros(1, dtype=torch.int64))


def test_alignment_is_the_share_of_episodes_read_as_the_simulator_has_them():
    def share(value, n):
        return Interval(value=value, low=0.0, high=1.0, n=n)

    row = Fidelity(arm="w", reader="r", subset="all", fake_success=share(0.25, 8), recall=share(0.5, 2))
    assert agreement(row) == ((0.75 * 8 + 0.5 * 2) / 10, 10)
    assert agreement(row.model_copy(update={"recall": None})) is None

"""How a reading becomes reward, against numbers worked by hand: three decisions of two frames each."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from coevo.core.types import Verdicts
from coevo.rewards.classifier import read_peak
from coevo.rl.config import Algorithm, Continuous, Differences, LeaveOneOut, Peak
from coevo.rl.packing import pack
from coevo.rl.payment import levels, rewards
from tests.doubles import TOY
from tests.rl.examples import dream_roll, grouped, judged, make_policy, small
from tests.rl.test_packing import PER

READ = Verdicts(
    probability=torch.tensor([
        [0.1, 0.2, 0.3, 0.5, 0.4, 0.9, 0.6],  # levels 0.3, 0.5, 0.9: reaches 0.8 at frame 5
        [0.1, 0.4, 0.2, 0.1, 0.1, 0.2, 0.3],  # levels 0.4, 0.1, 0.3
    ]),
    success=torch.tensor([True, False]), first_success=torch.tensor([5, 7]), threshold=0.8, reward_model="hand",
)  # fmt: skip
ALL = torch.ones(2, 3, dtype=torch.bool)
CUT = torch.tensor([[True, True, True], [True, True, False]])


def test_a_decision_is_as_good_as_the_best_of_the_frames_it_led_to():
    assert levels(READ, 2).tolist() == [pytest.approx([0.3, 0.5, 0.9]), pytest.approx([0.4, 0.1, 0.3])]


def test_a_success_is_paid_once_where_it_was_reached():
    assert rewards(READ, CUT, 2, Peak()).tolist() == [[0, 0, 1], [0, 0, 0]]


def test_differences_are_what_each_decision_added():
    paid = rewards(READ, CUT, 2, Differences())
    assert paid[0].tolist() == pytest.approx([0.2, 0.2, 0.4]) and paid[1].tolist() == pytest.approx([0.3, -0.3, 0])


def test_the_continuous_return_is_the_reading_where_the_episode_ended():
    assert rewards(READ, CUT, 2, Continuous()).tolist() == [pytest.approx([0, 0, 0.9]), pytest.approx([0, 0.1, 0])]
    assert rewards(READ, ALL, 2, Continuous())[1].tolist() == pytest.approx([0, 0, 0.3])


@given(st.lists(st.floats(0, 1, width=32), min_size=7, max_size=7), st.integers(1, 3))
def test_differences_sum_to_the_continuous_return_minus_the_start(read, taken):
    verdicts = Verdicts(torch.tensor([read]), torch.tensor([False]), torch.tensor([7]), 2.0, "drawn")
    valid = torch.arange(3)[None] < taken
    total = rewards(verdicts, valid, 2, Differences()).sum().item()
    assert total == pytest.approx(rewards(verdicts, valid, 2, Continuous()).sum().item() - read[0], abs=1e-5)


@given(st.lists(st.booleans(), min_size=6, max_size=6))
def test_differences_of_a_reading_cut_to_0_or_1_are_the_peak(read):
    """WorldLoop's rule: the reading is cut at the threshold, differenced, and ends the episode."""
    probability = torch.tensor([[0.0, *map(float, read)]])
    verdicts = read_peak(probability, 0.5, 1, "drawn")
    valid = torch.arange(3)[None] * 2 < verdicts.first_success[:, None]
    assert torch.equal(rewards(verdicts, valid, 2, Differences()), rewards(verdicts, valid, 2, Peak()))


def test_groups_that_all_lost_carry_gradient_where_their_readings_differ():
    made = dream_roll(make_policy())(grouped((0,)), (1,))[0]
    lost = judged(made, [5, 5, 5, 5])
    lost.probability[:, -1] = torch.tensor([0.1, 0.2, 0.3, 0.4])
    none, _ = pack(made, lost, small(estimator=LeaveOneOut()), PER)
    some, useful = pack(made, lost, small(estimator=LeaveOneOut(), payment=Continuous()), PER)
    assert len(none) == 0 and len(some) == 4 * TOY.decisions and useful.groups == 1
    assert some.advantage[::2].tolist() == pytest.approx([-0.2, -0.2 / 3, 0.2 / 3, 0.2])


def test_what_would_drop_groups_that_ended_alike_is_refused():
    with pytest.raises(ValueError, match="'scouts' and 'refill' would drop"):
        Algorithm(payment=Continuous(), refill=4)

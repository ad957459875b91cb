"""Advantage estimators against numbers worked by hand."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from coevo.rl import advantages

GROUP = torch.tensor([0, 0, 0, 0, 1, 1])


def test_group_relative_is_the_return_minus_its_groups_mean_over_its_deviation():
    returns = torch.tensor([1.0, 0, 0, 0, 1, 0])
    expected = [0.75, -0.25, -0.25, -0.25, 0.5, -0.5]
    assert advantages.group_relative(returns, GROUP, normalise=False).tolist() == pytest.approx(expected)
    deviation = 0.1875**0.5  # of one success in four
    normalised = [0.75 / deviation, *[-0.25 / deviation] * 3, 1.0, -1.0]
    assert advantages.group_relative(returns, GROUP).tolist() == pytest.approx(normalised)


@pytest.mark.parametrize("value", [0.0, 1.0, 0.1])
def test_a_group_with_equal_returns_gives_zeros(value):
    returns = torch.full((6,), value)
    for normalise in (True, False):
        assert advantages.group_relative(returns, GROUP, normalise).abs().max() < 1e-6
    assert advantages.leave_one_out(returns, GROUP).abs().max() < 1e-6


def test_leave_one_out_compares_with_the_others():
    returns = torch.tensor([1.0, 0, 0, 0, 1, 0])
    expected = [1.0, -1 / 3, -1 / 3, -1 / 3, 1.0, -1.0]
    assert advantages.leave_one_out(returns, GROUP).tolist() == pytest.approx(expected)
    with pytest.raises(ValueError, match="at least two episodes from every start"):
        advantages.leave_one_out(torch.ones(3), torch.tensor([0, 0, 1]))


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.floats(-5, 5, width=32)), min_size=1, max_size=20))
def test_advantages_of_a_group_add_up_to_nothing(rows):
    numbers = {old: new for new, old in enumerate(dict.fromkeys(number for number, _ in rows))}
    group = torch.tensor([numbers[number] for number, _ in rows])
    returns = torch.tensor([value for _, value in rows])
    found = advantages.group_relative(returns, group)
    for number in range(len(numbers)):
        assert found[group == number].sum().abs() < 1e-2


VALUES = torch.tensor([[0.5, 0.6, 0.7]])
TAKEN = torch.ones(1, 3, dtype=torch.bool)


def generalised(rewards, values=VALUES, valid=TAKEN, final=0.0, discount=1.0, gae_lambda=1.0):
    final = torch.full((len(values),), final)
    advantage, returns = advantages.generalised(
        torch.tensor([rewards]), values, valid, final, discount, gae_lambda
    )
    return advantage[0].tolist(), returns[0].tolist()


@pytest.mark.parametrize(
    ("gae_lambda", "expected"),
    [
        (0.0, [0.1, 0.1, 0.3]),  # one-step errors: 0.6 - 0.5, 0.7 - 0.6, 1 - 0.7
        (0.5, [0.225, 0.25, 0.3]),  # 0.1 + 0.5 x 0.25, 0.1 + 0.5 x 0.3, 0.3
        (1.0, [0.5, 0.4, 0.3]),  # the return 1 minus the value
    ],
)
def test_generalised_advantages_worked_by_hand(gae_lambda, expected):
    advantage, returns = generalised([0.0, 0.0, 1.0], gae_lambda=gae_lambda)
    assert advantage == pytest.approx(expected)
    assert returns == pytest.approx([a + v for a, v in zip(expected, [0.5, 0.6, 0.7], strict=True)])


def test_a_discount_shrinks_what_comes_later():
    advantage, _ = generalised([0.0, 0.0, 1.0], discount=0.5)
    assert advantage == pytest.approx([0.25 - 0.5, 0.5 - 0.6, 1.0 - 0.7])


def test_a_horizon_that_terminates_pays_nothing_more_and_one_that_truncates_pays_the_critics_guess():
    terminated, _ = generalised([0.0, 0.0, 0.0], final=0.0)
    truncated, returns = generalised([0.0, 0.0, 0.0], final=0.9)
    assert terminated == pytest.approx([-0.5, -0.6, -0.7])
    assert truncated == pytest.approx([0.4, 0.3, 0.2]) and returns == pytest.approx([0.9, 0.9, 0.9])


def test_decisions_that_were_not_taken_carry_nothing_and_change_nothing():
    valid = torch.tensor([[True, True, False]])
    advantage, returns = generalised([0.0, 1.0, 7.0], valid=valid, gae_lambda=0.5)
    # errors 0.6 - 0.5 and 1 - 0.6: 0.1 + 0.5 x 0.4, 0.4
    assert advantage == pytest.approx([0.3, 0.4, 0.0]) and returns == pytest.approx([0.8, 1.0, 0.0])


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 6), st.integers(0, 2**31))
def test_with_lambda_1_the_return_does_not_depend_on_the_critic(count, seed):
    source = torch.Generator().manual_seed(seed)
    rewards, values = torch.rand(2, count, generator=source), torch.randn(2, count, generator=source)
    valid = torch.ones(2, count, dtype=torch.bool)
    _, returns = advantages.generalised(rewards, values, valid, torch.zeros(2), 1.0, 1.0)
    torch.testing.assert_close(returns, rewards.flip(1).cumsum(1).flip(1), atol=1e-5, rtol=1e-5)

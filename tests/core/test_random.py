"""Randomness keyed by the work item."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from coevo.core import random

KEYS = random.row_keys(3, "dream", rows=[f"state-{number}" for number in range(4000)])


@settings(max_examples=40, deadline=None)
@given(st.permutations(range(6)), st.integers(1, 6), st.integers(1, 9))
def test_a_row_has_the_same_noise_in_any_batch(order, count, size):
    rows = [f"state-{number}" for number in order[:count]]
    noise = random.normal(random.row_keys(0, rows=rows), size)
    for row, found in zip(rows, noise, strict=True):
        assert torch.equal(random.normal(random.row_keys(0, rows=[row]), size)[0], found)


def test_normal_draws_have_the_moments_of_a_standard_normal():
    draws = random.normal(KEYS, 50).double().flatten()  # 200,000 draws: standard errors 0.002, 0.003, 0.005, 0.011
    assert draws.mean().abs() < 0.01
    assert abs(draws.var() - 1) < 0.015
    assert (draws**3).mean().abs() < 0.025
    assert abs((draws**4).mean() - 3) < 0.06


def test_noise_does_not_correlate_between_rows_decisions_or_places():
    first = random.normal(KEYS, 8)
    for second in (random.normal(random.fold(KEYS, 1), 8), first.roll(1, 0), first.roll(1, 1)):
        assert (first * second).mean().abs() < 0.025  # 32,000 products: standard error 0.006


def test_uniform_draws_fill_the_open_interval_evenly():
    draws = random.uniform(KEYS, 50)
    assert 0 < draws.min() and draws.max() < 1
    shares = torch.histc(draws, 10, 0, 1) / draws.numel()
    assert (shares - 0.1).abs().max() < 0.004


@pytest.mark.parametrize(("bits", "level"), [(-1, 1 - 2.0**-24), (0, 2.0**-25)])
def test_the_extreme_draws_have_finite_quantiles(bits, level):
    """A float32 has no room for the half step below 1: unguarded, one draw in 16 million would be infinite noise."""
    draw = random.uniform(_key(bits), 1)
    assert draw.item() == level
    assert torch.distributions.Normal(0.0, 1.0).icdf(draw).isfinite().all()
    assert torch.distributions.Laplace(0.0, 1.0).icdf(draw).isfinite().all()


def test_folding_keys_is_no_common_shift():
    folded = [random.fold(KEYS[:100], decision) for decision in range(20)]
    assert len(torch.unique(torch.cat(folded))) == 2000
    assert torch.equal(random.fold(KEYS[:2], torch.tensor([4, 5])), torch.stack([folded[4][0], folded[5][1]]))


def test_streams_differ_by_every_part_and_not_by_the_kind_of_integer():
    draws = [random.stream(*parts).random() for parts in ((0, "a", 1), (1, "a", 1), (0, "b", 1), (0, "a", 2), (0, "a"))]
    assert len(set(draws)) == 5
    assert random.key(0, "a", 1) == random.key(np.int64(0), "a", np.int32(1))
    assert random.key(1) != random.key("1")
    with pytest.raises(TypeError):
        random.key(0.5)


def test_a_torch_generator_repeats_itself():
    assert torch.equal(
        torch.rand(3, generator=random.generator(7, "x")), torch.rand(3, generator=random.generator(7, "x"))
    )


def _key(bits: int) -> torch.Tensor:
    """The key whose first counter mixes to `bits`: the mixing function turned back, modulo 2**64."""
    mask = 2**64 - 1

    def unshift(x: int, by: int) -> int:
        found = x
        for _ in range(64 // by + 1):
            found = x ^ (found >> by)
        return found

    x = unshift(bits & mask, 31)
    x = unshift(x * pow(random._MIX2, -1, 2**64) & mask, 27)
    x = unshift(x * pow(random._MIX1, -1, 2**64) & mask, 30)
    x = (x - random._GOLDEN) & mask
    return torch.tensor([x - 2**64 if x >= 2**63 else x])

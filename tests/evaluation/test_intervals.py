import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coevo.core import random
from coevo.evaluation.intervals import counts_per_state, mean_interval, seed_interval, share_interval


def rng(*parts):
    return random.stream("test", *parts)


def test_mean_over_states_of_one_half_is_centred_and_matches_the_normal_width():
    found = mean_interval(np.array([0.0, 1.0] * 50), rng())
    assert found.value == 0.5 and found.n == 100
    # standard error 0.05, 90% half width 1.645 * 0.05
    assert found.low == pytest.approx(0.418, abs=0.01) and found.high == pytest.approx(0.582, abs=0.01)


def test_share_of_episodes_weighs_episodes_and_resamples_states():
    # 3 of 4 failures of state a, 0 of 1 of state b: 3 / 5, and a resample holds a alone, b alone or both.
    found = share_interval(np.array([3, 0]), np.array([4, 1]), rng())
    assert (found.value, found.low, found.high, found.n) == (0.6, 0.0, 0.75, 5)


def test_states_without_such_episodes_do_not_count():
    alone = share_interval(np.array([1, 2, 0]), np.array([2, 3, 4]), rng())
    padded = share_interval(np.array([1, 0, 2, 0]), np.array([2, 0, 3, 4]), rng())
    assert alone == padded and alone.n == 9


def test_all_states_alike_gives_wilson_and_not_certainty():
    # Wilson, 10 of 10 at 90%: low = 1 / (1 + z^2 / 10), z = 1.6449
    found = share_interval(np.full(10, 3), np.full(10, 3), rng())
    assert found.value == 1.0 and found.high == 1.0 and found.n == 30
    assert found.low == pytest.approx(1 / (1 + 1.6449**2 / 10), abs=1e-3)
    assert mean_interval(np.zeros(10), rng()).high == pytest.approx(1 - found.low, abs=1e-6)


def test_equal_gains_have_an_interval_without_width():
    found = mean_interval(np.full(5, 0.25), rng(), fractions=False)
    assert (found.low, found.value, found.high) == (0.25, 0.25, 0.25)


def test_nothing_to_measure_is_none_or_an_error_that_says_so():
    assert share_interval(np.zeros(3), np.zeros(3), rng()) is None
    with pytest.raises(ValueError, match="no initial states"):
        mean_interval(np.array([]), rng())
    with pytest.raises(ValueError, match="single initial state"):
        mean_interval(np.array([0.5]), rng(), fractions=False)
    lone = mean_interval(np.array([0.5]), rng())
    assert (lone.low, lone.high) == (0.0, 1.0)


def test_same_stream_gives_the_same_interval():
    values = np.linspace(0, 1, 17)
    assert mean_interval(values, rng(1)) == mean_interval(values, rng(1))
    assert mean_interval(values, rng(1)) != mean_interval(values, rng(2))


def test_counts_are_taken_per_state():
    hits, episodes = counts_per_state(("b", "a", "b", "c"), np.array([1, 1, 0, 1]), np.array([1, 1, 1, 0]))
    assert hits.tolist() == [1, 1, 0] and episodes.tolist() == [1, 2, 0]


def test_mean_gain_over_five_published_seeds_matches_students_interval():
    found = seed_interval((0.116, 0.111, 0.074, 0.144, 0.039))
    # sd 0.0405, standard error 0.0181, t(0.95, 4) = 2.132
    assert found.value == pytest.approx(0.0968) and found.n == 5
    assert found.low == pytest.approx(0.0968 - 2.132 * 0.0181, abs=1e-3)
    assert seed_interval((0.1,)) is None
    assert seed_interval((0.1, 0.1)).low == 0.1


def test_nine_in_ten_intervals_cover_the_truth():
    draw, covered = rng("coverage"), 0
    for trial in range(100):
        rate = draw.beta(2, 2, size=60)
        found = mean_interval(draw.binomial(3, rate) / 3, rng("coverage", trial))
        covered += found.low <= 0.5 <= found.high
    assert 82 <= covered <= 97


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=12))
def test_an_interval_holds_its_estimate_and_stays_a_fraction(counts):
    episodes = np.array([hit + more for hit, more in counts])
    found = share_interval(np.array([hit for hit, _ in counts]), episodes, rng())
    if found is None:
        assert episodes.sum() == 0
    else:
        assert 0.0 <= found.low <= found.value + 1e-9 and found.value - 1e-9 <= found.high <= 1.0

"""Intervals: bootstrap over initial states, and the mean over training seeds.

Episodes from one initial state resemble one another, so whole states are resampled and never single episodes.
"""

from __future__ import annotations

import math
import warnings

import numpy as np
from jaxtyping import Float, Int
from scipy import stats

from coevo.records.outcomes import Interval

CONFIDENCE = 0.9
RESAMPLES = 9999


def mean_interval(values: Float[np.ndarray, " n"], rng: np.random.Generator, fractions: bool = True) -> Interval:
    """Mean of one number per initial state, with the percentile bootstrap over states.

    Args:
        values: for example the success fraction of each state, or its gain over another policy.
        fractions: the values lie in [0, 1]. Where all of them are 0 or all are 1 the bootstrap cannot vary and would
            claim certainty; Wilson's interval over the n states stands in then.

    Raises ValueError if there are no values, or a single one that is not a fraction.
    """
    values = np.asarray(values, dtype=np.float64)
    if not len(values):
        raise ValueError("an interval over no initial states was asked for; evaluate on at least one")
    value = float(values.mean())
    if fractions and (len(values) == 1 or value in (0.0, 1.0)):
        return _few(value, len(values), len(values))
    if len(values) == 1:
        raise ValueError(f"the gain on a single initial state ({value:+.2f}) has no interval; evaluate on more states")
    low, high = _bootstrap((values,), lambda x, axis: x.mean(axis=axis), rng)
    return Interval(value=value, low=low, high=high, n=len(values), confidence=CONFIDENCE)


def share_interval(
    hits: Int[np.ndarray, " n"], episodes: Int[np.ndarray, " n"], rng: np.random.Generator
) -> Interval | None:
    """Share of episodes that are hits, from counts per initial state; whole states are resampled.

    None if there are no episodes. With one state, or where all or no episodes are hits, Wilson's interval over the
    states (not the episodes, which are not independent) stands in for a bootstrap that cannot vary.
    """
    hits, episodes = np.asarray(hits, dtype=np.float64), np.asarray(episodes, dtype=np.float64)
    present = episodes > 0
    hits, episodes = hits[present], episodes[present]
    total = int(episodes.sum())
    if not total:
        return None
    value = float(hits.sum() / total)
    if len(hits) == 1 or value in (0.0, 1.0):
        return _few(value, len(hits), total)
    low, high = _bootstrap((hits, episodes), lambda h, e, axis: h.sum(axis=axis) / e.sum(axis=axis), rng)
    return Interval(value=value, low=low, high=high, n=total, confidence=CONFIDENCE)


def pairs_interval(
    hits: Float[np.ndarray, "s s"], pairs: Float[np.ndarray, "s s"], episodes: int, rng: np.random.Generator
) -> Interval:
    """Share of pairs that are hits, from counts per pair of initial states; whole states are resampled.

    With one state, or where all or no pairs are hits, Wilson's interval over the states stands in. `n` is `episodes`.
    """
    count, value = len(hits), float(hits.sum() / pairs.sum())
    if count == 1 or value in (0.0, 1.0):
        return _few(value, count, episodes)

    def share(index: np.ndarray, axis: int) -> np.ndarray:
        rows = index.reshape(-1, count)
        place = rows + count * np.arange(len(rows))[:, None]
        drawn = np.bincount(place.ravel(), minlength=rows.size).reshape(rows.shape).astype(np.float64)
        total = ((drawn @ pairs) * drawn).sum(axis=1)
        # A draw of states that all ended alike has no pair; it says nothing, and the share stands in.
        found = np.divide(((drawn @ hits) * drawn).sum(axis=1), total, out=np.full(len(rows), value), where=total > 0)
        return found.reshape(index.shape[:-1])

    low, high = _bootstrap((np.arange(count),), share, rng)
    return Interval(value=value, low=low, high=high, n=episodes, confidence=CONFIDENCE)


def counts_per_state(
    states: tuple[str, ...], hit: np.ndarray, among: np.ndarray
) -> tuple[Int[np.ndarray, " n"], Int[np.ndarray, " n"]]:
    """Hits and episodes of each distinct state, counting only the episodes `among`, for `share_interval`."""
    _, index = np.unique(np.asarray(states), return_inverse=True)
    count = int(index.max()) + 1 if len(index) else 0
    hit, among = np.asarray(hit, dtype=bool), np.asarray(among, dtype=bool)
    return np.bincount(index[hit & among], minlength=count), np.bincount(index[among], minlength=count)


def seed_interval(values: tuple[float, ...]) -> Interval | None:
    """Mean over training seeds with Student's interval; none for fewer than two seeds."""
    if len(values) < 2:
        return None
    mean, spread = float(np.mean(values)), float(stats.sem(values))
    if spread == 0.0:
        return Interval(value=mean, low=mean, high=mean, n=len(values), confidence=CONFIDENCE)
    low, high = stats.t.interval(CONFIDENCE, df=len(values) - 1, loc=mean, scale=spread)
    return Interval(value=mean, low=float(low), high=float(high), n=len(values), confidence=CONFIDENCE)


def _bootstrap(samples: tuple[np.ndarray, ...], statistic, rng: np.random.Generator) -> tuple[float, float]:
    with warnings.catch_warnings():
        # All states alike but neither 0 nor 1: the interval has no width, and SciPy says so in a warning.
        warnings.simplefilter("ignore", stats.DegenerateDataWarning)
        found = stats.bootstrap(
            samples, statistic, paired=True, vectorized=True, method="percentile", n_resamples=RESAMPLES,
            confidence_level=CONFIDENCE, rng=rng, batch=max(1, 2_000_000 // len(samples[0])),
        ).confidence_interval
    return float(found.low), float(found.high)


def _few(value: float, states: int, n: int) -> Interval:
    """Wilson's interval over `states`, where a bootstrap cannot vary; a lone fraction may lie anywhere."""
    if value not in (0.0, 1.0):
        return Interval(value=value, low=0.0, high=1.0, n=n, confidence=CONFIDENCE)
    wilson = stats.binomtest(math.floor(value) * states, states).proportion_ci(CONFIDENCE, method="wilson")
    return Interval(value=value, low=float(wilson.low), high=float(wilson.high), n=n, confidence=CONFIDENCE)

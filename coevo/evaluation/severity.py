"""Whether a family of perturbations does what its severity says: the harder, the fewer successes.

Counterfactuals teach a world model what a fault leads to. A family whose success does not fall is no fault (the task
forgives it) or is mislabelled (something else decides), and either teaches it nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from jaxtyping import Bool, Float

from coevo.core import random
from coevo.evaluation.intervals import mean_interval
from coevo.records.outcomes import Interval


@dataclass(frozen=True)
class Screen:
    """Success of one family by severity, and what is wrong with it."""

    family: str
    severities: tuple[float, ...]
    success: tuple[Interval, ...]
    """At each severity, over initial states."""
    faults: tuple[str, ...]
    """One sentence each; empty if success falls with severity."""

    @property
    def passes(self) -> bool:
        """Whether success falls, and nowhere rises by more than chance."""
        return not self.faults


def screen(
    family: str, severities: Sequence[float], won: Bool[np.ndarray, "l n"], stream: Sequence[int | str]
) -> Screen:
    """Judge a family from one episode per severity and initial state.

    It passes if the least severe level wins more often than the most severe one, and no level more often than a less
    severe one, both with the 90% bootstrap interval of the difference over states, paired.

    Args:
        severities: increasing, two at least.
        won: outcome by severity and state; the same states and the same draws of direction in every row.

    Raises ValueError if the severities do not increase or do not match the rows.
    """
    if len(severities) < 2 or list(severities) != sorted(set(severities)) or len(severities) != len(won):
        raise ValueError(f"'{family}': severities {list(severities)} must increase, one per row of {len(won)}")
    success = won.astype(np.float64)
    levels = tuple(
        mean_interval(row, random.stream(*stream, "severity", family, level)) for level, row in enumerate(success)
    )
    faults = [
        f"success rises from {levels[i].value:.2f} at severity {severities[i]:g} to {levels[j].value:.2f} at "
        f"{severities[j]:g} (n={won.shape[1]})"
        for i, j in combinations(range(len(won)), 2)
        if _difference(success[j] - success[i], (*stream, "rise", family, i, j)).low > 0
    ]
    if _difference(success[0] - success[-1], (*stream, "fall", family)).low <= 0:
        faults.append(
            f"success does not fall from severity {severities[0]:g} ({levels[0].value:.2f}) to {severities[-1]:g} "
            f"({levels[-1].value:.2f}, n={won.shape[1]})"
        )
    return Screen(family, tuple(severities), levels, tuple(faults))


def _difference(values: Float[np.ndarray, " n"], stream: Sequence[int | str]) -> Interval:
    return mean_interval(values, random.stream(*stream), fractions=False)

"""Whether a reading is wrong because of its threshold or because of what was drawn.

Where a world model stands on the curve of recall against fake success is a matter of the reward's threshold; how far
that curve lies from the corner is not. Two models at different points are told apart by the latter alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float

from coevo.core import random
from coevo.core.types import Verdicts
from coevo.evaluation.fidelity import fidelity
from coevo.evaluation.intervals import pairs_interval
from coevo.records.outcomes import OtherThreshold


def peaks(verdicts: Verdicts, success_from: int) -> Float[np.ndarray, " n"]:
    """The highest probability of each episode from frame `success_from` on, which is held against the threshold."""
    return verdicts.probability[:, success_from:].amax(dim=1).cpu().numpy()


def other_threshold(
    peak: Float[np.ndarray, " n"],
    truth: Bool[np.ndarray, " n"],
    states: Sequence[str],
    recall: float,
    *,
    arm: str,
    reader: str,
    stream: Sequence[int | str],
) -> OtherThreshold | None:
    """The highest threshold that brings so much recall, and what is faked there.

    None where there is a single outcome, or where no recall (0) or more than all is asked for.

    Args:
        peak: as of `peaks`.
        truth: the simulator's outcomes.
        states: initial state of each episode; whole states are resampled for intervals.
    """
    peak, truth = np.asarray(peak, dtype=np.float64), np.asarray(truth, dtype=bool)
    if truth.all() or not truth.any() or not 0.0 < recall <= 1.0:
        return None
    kept = max(1, math.ceil(recall * int(truth.sum()) - 1e-9))
    threshold = float(np.sort(peak[truth])[-kept])
    rows = fidelity(peak >= threshold, truth, states, arm=arm, reader=reader, stream=stream)
    return OtherThreshold(
        arm=arm, reader=reader, recall=recall, threshold=threshold, fidelity=rows,
        ranked_right=pairs_interval(
            *_wins_per_state(peak, truth, states), len(truth), random.stream(*stream, "ranked right", arm, reader)
        ),
    )


def _wins_per_state(
    peak: np.ndarray, truth: np.ndarray, states: Sequence[str]
) -> tuple[Float[np.ndarray, "s s"], Float[np.ndarray, "s s"]]:
    """For successes of one state against failures of another: how often they peak higher (ties half), and of how many.

    Their sums give the area under the ROC curve, as Mann and Whitney's statistic does.
    """
    _, index = np.unique(np.asarray(states), return_inverse=True)
    count = int(index.max()) + 1
    higher = np.sign(peak[truth][:, None] - peak[~truth][None])
    wins, pairs = np.zeros((count, count)), np.zeros((count, count))
    rows, columns = np.broadcast_arrays(index[truth][:, None], index[~truth][None])
    np.add.at(wins, (rows, columns), 0.5 * (higher + 1.0))
    np.add.at(pairs, (rows, columns), 1.0)
    return wins, pairs

"""Choosing the threshold at which a reward model is read, on simulator episodes that it was not trained on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from jaxtyping import Bool, Float32
from pydantic import Field
from scipy.stats import spearmanr
from torch import Tensor

from coevo.records.base import Config
from coevo.records.interface import Interface
from coevo.records.outcomes import Calibration, Unit, as_probability


class Fitted(Config):
    """The threshold of best balanced accuracy on the simulator's outcomes."""

    kind: Literal["fitted"] = "fitted"


class Given(Config):
    """A threshold that is known beforehand."""

    kind: Literal["given"] = "given"
    value: float
    """In the reward model's own unit."""


class Quantile(Config):
    """The threshold that as large a share of readings reaches as on the task where another was chosen.

    Needs no outcome: with it a threshold moves to a task that has none yet.
    """

    kind: Literal["quantile"] = "quantile"
    rate: Annotated[float, Field(gt=0, lt=1)]
    """`trigger_rate` of the calibration that it comes from."""


Threshold = Annotated[Fitted | Given | Quantile, Field(discriminator="kind")]


@dataclass(frozen=True)
class Looked:
    """What stood in front of the model when it was read."""

    frames_given: int
    frames_read: int
    fps: float
    window: int = 1
    token: str | None = None
    unit: Unit = "probability"

    def in_unit(self, probability: float) -> float:
        """A threshold on [0, 1], in the unit that is stored."""
        match self.unit:
            case "probability":
                return probability
            case "log_probability":
                return math.log(probability)
            case "progress":
                return 10.0 * probability


def single_frames(interface: Interface) -> Looked:
    """A model of single frames looks at every frame in which success counts."""
    frames = interface.frames + 1 - interface.success_from
    return Looked(frames, frames, interface.fps)


def calibrate(
    peak: Float32[Tensor, " n"],
    truth: Bool[Tensor, " n"],
    interface: Interface,
    weights_sha256: str,
    looked: Looked | None = None,
    choice: Threshold | None = None,
    readings: Float32[Tensor, " r"] | None = None,
) -> Calibration:
    """A threshold and how well it separates these episodes.

    Args:
        peak: largest reading of each episode, in [0, 1].
        looked: what a reading looks at; single frames when left out.
        choice: how the threshold is found; fitted when left out.
        readings: of all frames in which success counts, for the share that triggers; the peaks when left out.

    Raises ValueError when the episodes hold one outcome only.
    """
    looked = looked or single_frames(interface)
    readings = peak if readings is None else readings
    match choice:
        case Given(value=value):
            threshold = value
        case Quantile(rate=rate):
            threshold = looked.in_unit(quantile_threshold(readings, rate))
        case _:
            threshold = looked.in_unit(best_threshold(peak, truth))
    kind = choice.kind if choice else "fitted"
    return measure(peak, truth, interface, threshold, weights_sha256, looked, kind, readings)


def best_threshold(peak: Float32[Tensor, " n"], truth: Bool[Tensor, " n"]) -> float:
    """The threshold of best balanced accuracy; within the range of equally good ones, three quarters up.

    The upper part of the range is taken because a world model's blur lowers probabilities less than its fakes raise
    them. Raises ValueError when the episodes hold one outcome only.
    """
    _require_both(truth)
    grid = torch.linspace(0.01, 0.99, 99)
    scores = torch.stack([_balanced(peak, truth, level) for level in grid.tolist()])
    best = (scores >= scores.max() - 1e-6).nonzero().flatten()
    return round(grid[best[(3 * len(best)) // 4]].item(), 4)


def quantile_threshold(readings: Float32[Tensor, " r"], rate: float) -> float:
    """The reading that the share `rate` of all readings reaches, one of them at the least."""
    ordered = readings.flatten().sort(descending=True).values
    return ordered[max(round(rate * len(ordered)), 1) - 1].item()


def measure(
    peak: Float32[Tensor, " n"],
    truth: Bool[Tensor, " n"],
    interface: Interface,
    threshold: float,
    weights_sha256: str,
    looked: Looked | None = None,
    threshold_from: str = "fitted",
    readings: Float32[Tensor, " r"] | None = None,
) -> Calibration:
    """How well a threshold separates these episodes. Raises ValueError when they hold one outcome only."""
    _require_both(truth)
    looked = looked or single_frames(interface)
    at = as_probability(threshold, looked.unit)
    score = scores(peak, truth, at)
    return Calibration(
        threshold=threshold, unit=looked.unit, threshold_from=threshold_from,
        trigger_rate=None if readings is None else (readings >= at).float().mean().item(), token=looked.token,
        window=looked.window, frames_given=looked.frames_given, frames_read=looked.frames_read, fps=looked.fps,
        precision=score["precision"], recall=score["recall"], false_positive_rate=score["false_positive_rate"],
        balanced_accuracy=(score["recall"] + 1.0 - score["false_positive_rate"]) / 2.0, n=len(truth),
        weights_sha256=weights_sha256,
    )  # fmt: skip


def scores(peak: Float32[Tensor, " n"], truth: Bool[Tensor, " n"], threshold: float) -> dict[str, float]:
    """Accuracy, precision, recall, F1 and false positive rate of calling success from `threshold` on.

    What divides by nothing is 0.
    """
    called = peak >= threshold
    hits, calls, successes = int((called & truth).sum()), int(called.sum()), int(truth.sum())
    return {
        "threshold": threshold,
        "accuracy": (called == truth).float().mean().item(),
        "precision": hits / max(calls, 1),
        "recall": hits / max(successes, 1),
        "f1": 2 * hits / max(calls + successes, 1),
        "false_positive_rate": (calls - hits) / max(len(truth) - successes, 1),
    }


def sweep(
    peak: Float32[Tensor, " n"], truth: Bool[Tensor, " n"], thresholds: Sequence[float]
) -> list[dict[str, float]]:
    """`scores` at each of these thresholds on [0, 1]: how much the choice matters (World-Env, section 10)."""
    return [scores(peak, truth, threshold) for threshold in thresholds]


def value_order(readings: Float32[Tensor, "n f"]) -> float:
    """Mean rank correlation of an episode's readings with time: 1 where they only rise (value-order correlation).

    Of episodes that succeed. Readings that are all the same count as 0.
    """
    time = range(readings.shape[1])
    found = [spearmanr(time, row).statistic if len(set(row)) > 1 else 0.0 for row in readings.tolist()]
    return float(sum(found) / len(found))


def _balanced(peak: Tensor, truth: Tensor, threshold: float) -> Tensor:
    called = peak >= threshold
    return (called[truth].float().mean() + (~called[~truth]).float().mean()) / 2.0


def _require_both(truth: Tensor) -> None:
    if not truth.any() or truth.all():
        raise ValueError(
            f"of {len(truth)} episodes {int(truth.sum())} succeeded; measuring a reward model needs both outcomes: "
            "collect more rollouts, or hold out more states where it is trained"
        )

"""Choosing the threshold at which a reward model is read, on simulator episodes that it was not trained on."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float32
from torch import Tensor

from coevo.records.interface import Interface
from coevo.records.outcomes import Calibration


def calibrate(
    peak: Float32[Tensor, " n"], truth: Bool[Tensor, " n"], interface: Interface, weights_sha256: str
) -> Calibration:
    """The threshold of best balanced accuracy; within the range of equally good ones, three quarters up.

    The upper part of the range is taken because a world model's blur lowers probabilities less than its fakes raise
    them. Raises ValueError when the episodes hold one outcome only.
    """
    grid = torch.linspace(0.01, 0.99, 99)
    scores = torch.stack([_balanced(peak, truth, level) for level in grid.tolist()])
    best = (scores >= scores.max() - 1e-6).nonzero().flatten()
    threshold = round(grid[best[(3 * len(best)) // 4]].item(), 4)
    return measure(peak, truth, interface, threshold, weights_sha256)


def measure(
    peak: Float32[Tensor, " n"], truth: Bool[Tensor, " n"], interface: Interface, threshold: float, weights_sha256: str
) -> Calibration:
    """How well a threshold separates these episodes. Raises ValueError when they hold one outcome only."""
    _require_both(truth)
    frames = interface.frames + 1 - interface.success_from
    called = peak >= threshold
    hits = int((called & truth).sum())
    recall = hits / int(truth.sum())
    false = int((called & ~truth).sum()) / int((~truth).sum())
    return Calibration(
        threshold=threshold, frames_given=frames, frames_read=frames, fps=interface.fps,
        precision=hits / max(int(called.sum()), 1), recall=recall, false_positive_rate=false,
        balanced_accuracy=(recall + 1.0 - false) / 2.0, n=len(truth), weights_sha256=weights_sha256,
    )  # fmt: skip


def _balanced(peak: Tensor, truth: Tensor, threshold: float) -> Tensor:
    _require_both(truth)
    called = peak >= threshold
    return (called[truth].float().mean() + (~called[~truth]).float().mean()) / 2.0


def _require_both(truth: Tensor) -> None:
    if not truth.any() or truth.all():
        raise ValueError(
            f"of {len(truth)} episodes {int(truth.sum())} succeeded; measuring a reward model needs both outcomes: "
            "collect more rollouts, or hold out more states where it is trained"
        )

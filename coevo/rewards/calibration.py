"""Choosing the threshold at which a reward model is read, on simulator episodes that it was not trained on."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float32
from torch import Tensor

from coevo.records.interface import Interface
from coevo.records.outcomes import Calibration


def calibrate(
    peak: Float32[Tensor, " n"], truth: Bool[Tensor, " n"], interface: Interface, frames_read: int, weights_sha256: str
) -> Calibration:
    """The threshold of best balanced accuracy; within the range of equally good ones, the middle of its top half.

    The upper part of the range is taken because a world model's blur lowers probabilities less than its fakes raise
    them. Raises ValueError when the episodes hold one outcome only.
    """
    if not truth.any() or truth.all():
        raise ValueError(
            f"of {len(truth)} held-out episodes {int(truth.sum())} succeeded; calibration needs both outcomes: "
            "collect more rollouts or hold out more states"
        )
    frames_given = interface.frames + 1 - interface.success_from
    if frames_read != frames_given:
        raise ValueError(f"the reward model was given {frames_given} frames and read {frames_read}; mend its sampling")
    grid = torch.linspace(0.01, 0.99, 99)
    called = peak.cpu()[None] >= grid[:, None]
    truth = truth.cpu()
    recall = called[:, truth].float().mean(dim=1)
    false = called[:, ~truth].float().mean(dim=1)
    balanced = (recall + 1.0 - false) / 2.0
    best = (balanced >= balanced.max() - 1e-6).nonzero().flatten()
    place = best[(3 * len(best)) // 4]
    chosen = called[place]
    positives = int(chosen.sum())
    return Calibration(
        threshold=round(grid[place].item(), 4), frames_given=frames_given, frames_read=frames_read, fps=interface.fps,
        precision=float((chosen & truth).sum() / positives) if positives else 0.0, recall=recall[place].item(),
        false_positive_rate=false[place].item(), balanced_accuracy=balanced[place].item(), n=len(truth),
        weights_sha256=weights_sha256,
    )  # fmt: skip

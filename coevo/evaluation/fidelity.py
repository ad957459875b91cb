"""Outcome fidelity: the same actions in simulator and world model, read by the same frozen reward.

Pixel metrics stand beside it because they are what people look at, and they hide the fault: a world model that draws
a lift after a missed grasp loses about one decibel. LPIPS and FVD are not among them: every library that offers them
(lpips, torchmetrics, piq, and the FVD packages) fetches the weights of a classifier on its first call, which a machine
without a network cannot do, and a network of random weights would give a number that no paper's can be compared with.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float
from torch import Tensor

from coevo.core import random
from coevo.evaluation.intervals import counts_per_state, share_interval
from coevo.records.outcomes import Criterion, Fidelity, Figure, Interval

SUBSETS = ("all", "mixed", "same")
PSNR_OF_EQUAL_FRAMES = 60.0
"""Stands for the infinite ratio of equal frames, which would swallow a mean, dB."""


def fidelity(
    read: Bool[Tensor, " n"],
    truth: Bool[Tensor, " n"],
    states: Sequence[str],
    *,
    arm: str,
    reader: str,
    stream: Sequence[int | str],
) -> tuple[Fidelity, ...]:
    """Fake success and recall on all episodes, on those from mixed-outcome states, and on the rest.

    Args:
        read: what the reader says of each episode's frames in this arm.
        truth: the simulator's outcome of each episode.
        states: the initial state of each episode; intervals resample whole states.
        stream: what the randomness of the intervals is for.
    """
    read, truth = np.asarray(read, dtype=bool), np.asarray(truth, dtype=bool)
    members = subsets(states, truth)

    def share(among: np.ndarray, *name: str) -> Interval | None:
        rng = random.stream(*stream, "fidelity", arm, reader, *name)
        return share_interval(*counts_per_state(tuple(states), read, among), rng)

    return tuple(
        Fidelity(
            arm=arm, reader=reader, subset=subset,
            fake_success=share(members[subset] & ~truth, subset, "fake"),
            recall=share(members[subset] & truth, subset, "recall"),
        )
        for subset in SUBSETS
    )


def subsets(states: Sequence[str], truth: Bool[np.ndarray, " n"]) -> dict[str, Bool[np.ndarray, " n"]]:
    """Which episodes belong to each subset. Mixed: their state led to both outcomes, so the actions decided."""
    _, index = np.unique(np.asarray(states), return_inverse=True)
    episodes, wins = np.bincount(index), np.bincount(index, weights=truth)
    mixed = ((wins > 0) & (wins < episodes))[index]
    return {"all": np.ones(len(mixed), dtype=bool), "mixed": mixed, "same": ~mixed}


def agreement(row: Fidelity) -> tuple[float, int] | None:
    """Share of episodes whose reading agrees with the simulator's outcome, and their number: alignment, as
    World-VLA-Loop reports it. None where a row lacks one of the outcomes."""
    if row.fake_success is None or row.recall is None:
        return None
    failures, successes = row.fake_success.n, row.recall.n
    right = row.recall.value * successes + (1.0 - row.fake_success.value) * failures
    return right / (failures + successes), failures + successes


def faults(rows: Sequence[Fidelity], mismatch: Interval | None, criterion: Criterion) -> tuple[str, ...]:
    """One sentence for each number that fails the criterion. A number that could not be measured fails too."""
    by_subset = {row.subset: row for row in rows}
    whole, mixed = by_subset["all"], by_subset["mixed"]
    limits = [
        ("fake success", whole.fake_success, criterion.fake_success_ceiling, "above"),
        ("fake success on mixed-outcome states", mixed.fake_success, criterion.fake_success_mixed_ceiling, "above"),
        ("recall", whole.recall, criterion.recall_floor, "below"),
        ("replay mismatch", mismatch, criterion.mismatch_ceiling, "above"),
    ]
    said = []
    for name, found, limit, wrong_side in limits:
        bound = "ceiling" if wrong_side == "above" else "floor"
        if found is None:
            said.append(f"{name} could not be measured for want of such episodes (collect more per admission state)")
        elif (found.value > limit) if wrong_side == "above" else (found.value < limit):
            said.append(
                f"{name} is {found.value:.3f} (n={found.n}), {abs(found.value - limit):.3f} {wrong_side} "
                f"its {bound} of {limit:.3f}"
            )
    return tuple(said)


def pixel_figures(
    simulator: Sequence[np.ndarray],
    drawn: Sequence[np.ndarray],
    truth: Bool[np.ndarray, " n"],
    *,
    arm: str,
    task: str,
) -> list[Figure]:
    """Mean PSNR (dB) and SSIM of the frames after the first, apart for failures and successes.

    Args:
        simulator, drawn: per episode u8[f1 h w 3].
    """
    scores = np.array([_pixels(real, dream) for real, dream in zip(simulator, drawn, strict=True)]).reshape(-1, 2)
    figures = []
    for outcome, members in (("failures", ~np.asarray(truth)), ("successes", np.asarray(truth))):
        for column, (metric, unit) in enumerate((("psnr", "dB"), ("ssim", "index"))):
            if members.any():
                figures.append(
                    Figure(
                        metric=f"{metric}_{outcome}", arm=arm, task=task, unit=unit, n=int(members.sum()),
                        value=float(scores[members, column].mean()),
                    )
                )
    return figures


def _pixels(real: np.ndarray, drawn: np.ndarray) -> Float[np.ndarray, 2]:
    """Mean PSNR and SSIM over an episode's frames after the first."""
    from skimage.metrics import peak_signal_noise_ratio, structural_similarity

    psnr, ssim = [], []
    for one, other in zip(real[1:], drawn[1:], strict=True):
        with np.errstate(divide="ignore"):
            psnr.append(min(peak_signal_noise_ratio(one, other), PSNR_OF_EQUAL_FRAMES))
        ssim.append(structural_similarity(one, other, channel_axis=-1))
    return np.array([np.mean(psnr), np.mean(ssim)])

"""Measures of published claims that no stage needs, for `benchmarks.claim_checks`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from coevo.core import random
from coevo.core.types import InitialState, Verdicts
from coevo.rewards.windowed import TopReward
from coevo.rewards.windows import per_frame, reading_frames
from coevo.rl import payment
from coevo.rl.config import Payment


def useful_samples(verdicts: Verdicts, group: Int64[Tensor, " n"], per: int, how: Payment) -> tuple[float, float]:
    """Share of decisions in groups whose returns differ, and share of groups whose returns are all the same.

    Decisions behind the first success count as samples that carry nothing. `per` is frames per decision.
    """
    decision = torch.arange((verdicts.probability.shape[1] - 1) // per, device=group.device)
    valid = decision[None] * per < verdicts.first_success.to(group.device)[:, None]
    returns = payment.rewards(verdicts, valid, per, how).sum(dim=1)
    spread = torch.stack([returns[group == number].max() - returns[group == number].min() for number in group.unique()])
    useful = valid & (spread[group] > 1e-6)[:, None]
    return useful.float().mean().item(), (spread <= 1e-6).float().mean().item()


def kept_success(
    success: Bool[Tensor, "n f"], ended: Int64[Tensor, " n"], success_from: int
) -> tuple[float, float, float]:
    """Of episodes that end at frame `ended`: shares that ever succeed, that do at their end, and of the first the share
    that no longer do: damage after the success. Entry i of `success` speaks of frame i + 1."""
    frame = torch.arange(1, success.shape[1] + 1)
    counts = success & (frame >= success_from) & (frame[None] <= ended[:, None])
    once, at_end = counts.any(dim=1), success.gather(1, (ended - 1)[:, None])[:, 0]
    damaged = (once & ~at_end).sum().item() / max(int(once.sum()), 1)
    return once.float().mean().item(), at_end.float().mean().item(), damaged


def linear_probe(
    features: Float[np.ndarray, "n e"], outcome: Float[np.ndarray, " n"], states: Sequence[str], seed: int = 0,
    folds: int = 5, ridge: float = 1.0,
) -> float:  # fmt: skip
    """R2 of ridge regression on episodes from states that it was not fitted on: 0 is the mean, 1 is all of it."""
    names = sorted(set(states))
    fold = dict(zip(names, random.stream(seed, "probe").permutation(len(names)) % folds, strict=True))
    own = np.array([fold[state] for state in states])
    guessed = np.empty(len(outcome))
    for number in range(folds):
        train, test = own != number, own == number
        mean, scale = features[train].mean(axis=0), features[train].std(axis=0) + 1e-6
        rows = (features - mean) / scale
        centre = outcome[train].mean()
        weight = np.linalg.solve(
            rows[train].T @ rows[train] + ridge * train.sum() * np.eye(rows.shape[1]) / rows.shape[1],
            rows[train].T @ (outcome[train] - centre),
        )
        guessed[test] = centre + rows[test] @ weight
    return float(1.0 - np.square(outcome - guessed).sum() / np.square(outcome - outcome.mean()).sum())


def frames_handed_on(window: int, fps: float) -> dict[str, int]:
    """Frames of a window that the published video processor keeps: told nothing, and told the rate."""
    from transformers.models.qwen3_vl.video_processing_qwen3_vl import Qwen3VLVideoProcessor
    from transformers.video_utils import VideoMetadata

    processor = Qwen3VLVideoProcessor()
    told = {"without_metadata": None, "told_the_rate": fps, "told_its_own_rate": float(processor.fps)}
    return {
        name: len(processor.sample_frames(VideoMetadata(total_num_frames=window, fps=rate)))
        for name, rate in told.items()
    }


def spoilt(start: InitialState, noise: float, colour: float, seed: int = 0) -> InitialState:
    """The start with Gaussian noise (levels, standard deviation) and each colour channel scaled by up to `colour`."""
    source = random.generator(seed, "spoilt", start.id)
    levels = start.frames.float() + noise * torch.randn(start.frames.shape, generator=source)
    levels = levels * (1.0 + colour * (2.0 * torch.rand(3, generator=source) - 1.0))
    return replace(start, frames=levels.round().clamp(0, 255).to(torch.uint8))


@torch.no_grad()
def generated(model: TopReward, frames: Tensor, instructions: Sequence[str]) -> Float[Tensor, "n f1"]:
    """1 where the model, asked to write, would write its token first, read as `probabilities` reads it."""
    ends = reading_frames(model.interface, model.config.every, 0, frames.shape[1] - 1)
    taken = model.look(frames, model.windows(ends), instructions)
    written = model.reader.model.lm_head(taken).argmax(dim=-1) == model.answers[0]
    return per_frame(written.float(), ends, frames.shape[1])

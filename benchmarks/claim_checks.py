"""Checks of published claims that no stage measures, in the laboratory of a finished `benchmarks.four_systems`.

Every reward model there reads the same simulator episodes, eight from each of some states: how many of its readings lie
below 0.01; how many samples carry gradient when it is paid as 0 or 1, by differences, or by the continuous reading; what
is left of a success where episodes end at its reading and where they do not; how its readings, and where it reads a
token the verdict that it would write, rise along successes; milliseconds a decision. Beside these: how much of the
outcome a linear probe finds in what a critic reads, and how many frames a video processor hands on.

    python -m benchmarks.claim_checks --lab .local/four_systems --out docs/results
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from benchmarks.experiment import TASKS, Collection
from coevo import judges
from coevo.core import random, text
from coevo.core.artifacts import Artifact, read
from coevo.core.device import best_device
from coevo.core.judging import judge
from coevo.core.types import Seen, Verdicts, to_device
from coevo.episodes.arrays import EpisodeArrays
from coevo.episodes.store import read_episodes
from coevo.policies import build as policies
from coevo.records.outcomes import Figure, StateScore
from coevo.rewards.calibration import sweep, value_order
from coevo.rewards.windowed import TopReward
from coevo.rewards.windows import per_frame, reading_frames
from coevo.rl import payment
from coevo.rl.config import Continuous, Differences, Payment, Peak
from coevo.rl.packing import groups_of
from coevo.rl.seeds import split
from coevo.simulators.build import read_config_file
from coevo.workers.simulation import kept_pools
from scripts.laboratory import Laboratory

PAYMENTS: dict[str, Payment] = {"peak": Peak(), "differences": Differences(), "continuous": Continuous()}
ETAS = (0.2, 0.3, 0.4, 0.5, 0.6)
LOW = 0.01


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


class Checks:
    """Figures of one laboratory."""

    def __init__(self, lab: Laboratory, work: Collection) -> None:
        self.lab, self.work, self.figures = lab, work, []
        self.task = work.task.name

    def add(self, metric: str, arm: str, value: float, n: int, unit: str = "fraction") -> None:
        """A figure."""
        self.figures.append(Figure(metric=metric, arm=arm, task=self.task, value=value, n=n, unit=unit))

    def episodes(self) -> EpisodeArrays:
        """Eight of the plain start policy's episodes from each of 32 train states."""
        work = self.work
        params = dict(states=work.count(32), repeats=8, workers=work.workers, batch=256, device=work.device)
        made = self.lab.make(
            "collect_rollouts", "rollouts_groups", params, policy=work.policy(20), starts=work.states("train", 1280),
            simulator=work.task.simulator,
        )  # fmt: skip
        return read_episodes(made.path).arrays()

    def reward(self, name: str, artifact: Artifact, episodes: EpisodeArrays) -> None:
        """One reward model on the episodes."""
        model = judges.load(artifact, best_device())
        interface = model.interface
        seen = to_device(
            Seen(episodes.frames, episodes.instructions, episodes.proprio[:, 0], episodes.actions), best_device()
        )
        truth = episodes.success[:, interface.success_from - 1 :].any(dim=1)
        began = time.monotonic()
        verdicts = judge(model, seen)
        probability = verdicts.probability.cpu()
        self.add("milliseconds_a_decision", name, 1000 * (time.monotonic() - began) / len(truth) / interface.decisions,
                 len(truth), "ms")  # fmt: skip
        verdicts = Verdicts(probability, verdicts.success.cpu(), verdicts.first_success.cpu(), verdicts.threshold, name)
        counted = probability[:, interface.success_from :]
        self.add("readings_below_0.01", name, (counted < LOW).float().mean().item(), counted.numel())
        group = groups_of(episodes.states, "cpu")
        for kind, how in PAYMENTS.items():
            useful, dull = useful_samples(verdicts, group, interface.chunk_frames, how)
            self.add(f"samples_with_gradient_{kind}", name, useful, len(group) * interface.decisions)
            self.add(f"groups_without_gradient_{kind}", name, dull, int(group.max()) + 1)
        for row in sweep(counted.amax(dim=1), truth, ETAS):
            for metric in ("accuracy", "precision", "recall", "f1"):
                self.add(f"{metric}_at_{row['threshold']}", name, row[metric], len(truth))
        self.add("value_order", name, value_order(probability[truth][:, 1:]), int(truth.sum()), "correlation")
        if isinstance(model, TopReward):
            written = generated(model, seen.frames, seen.instructions).cpu()
            self.add("value_order_generated", name, value_order(written[truth][:, 1:]), int(truth.sum()), "correlation")
        self.ends(name, episodes, verdicts.first_success.clamp_max(interface.frames), interface.success_from)

    def ends(self, name: str, episodes: EpisodeArrays, ended: Tensor, success_from: int) -> None:
        """What is left of a success where episodes end at these frames."""
        found = kept_success(episodes.success, ended, success_from)
        for metric, value in zip(("success_once", "success_at_end", "damaged"), found, strict=True):
            self.add(metric, name, value, len(episodes))

    def critic(self, name: str, artifact: Artifact, episodes: EpisodeArrays) -> None:
        """What a linear probe finds in the features of the first frame, and the most that any critic could there."""
        policy = policies.load(artifact, best_device())
        with torch.no_grad():
            features = policy.backbone(
                episodes.frames[:, 0].to(best_device()), episodes.proprio[:, 0].to(best_device()),
                text.words(list(episodes.instructions)).to(best_device()),
            ).pooled  # fmt: skip
        outcome = episodes.success[:, policy.interface.success_from - 1 :].any(dim=1).double().numpy()
        r2 = linear_probe(features.double().cpu().numpy(), outcome, episodes.states)
        self.add("linear_probe_r2", name, r2, len(outcome))
        names = sorted(set(episodes.states))
        states = np.array(episodes.states)
        scores = [
            StateScore(state=state, successes=int(outcome[states == state].sum()), episodes=int((states == state).sum()))
            for state in names
        ]
        variance = split(scores)
        if variance is not None:
            self.add("between_state_share_of_variance", name, variance.share_between, len(names))


@torch.no_grad()
def generated(model: TopReward, frames: Tensor, instructions: Sequence[str]) -> Float[Tensor, "n f1"]:
    """1 where the model, asked to write, would write its token first, read as `probabilities` reads it."""
    ends = reading_frames(model.interface, model.config.every, 0, frames.shape[1] - 1)
    taken = model.look(frames, model.windows(ends), instructions)
    written = model.reader.model.lm_head(taken).argmax(dim=-1) == model.answers[0]
    return per_frame(written.float(), ends, frames.shape[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", default="pick_place", choices=TASKS)
    parser.add_argument("--lab", type=Path, default=Path(".local/four_systems"))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--workers", type=int, default=16)
    parser.add_argument("--scale", type=float, default=1.0, help="that of the laboratory")
    args = parser.parse_args()
    lab = Laboratory(args.lab)
    checks = Checks(lab, Collection(lab, TASKS[args.task], args.workers, args.scale))
    episodes, interface = checks.episodes(), read_config_file(checks.work.task.simulator).interface
    found: Callable[[str], list[Path]] = lambda pattern: sorted((lab.folder / "data").glob(pattern))  # noqa: E731
    for folder in [*found("reward_*"), *found("referee")]:
        checks.reward(folder.name.removeprefix("reward_"), read(folder), episodes)
    horizon = torch.full((len(episodes),), interface.frames)
    checks.ends("to the horizon", episodes, horizon, interface.success_from)
    for folder in found("policy_*_start"):
        checks.critic(folder.name, read(folder), episodes)
    for name, frames in frames_handed_on(16, interface.fps).items():
        checks.add("frames_read_of_16", name, frames, 1, "count")
    args.out.mkdir(parents=True, exist_ok=True)
    rows = [figure.model_dump() for figure in checks.figures]
    (args.out / "claim-checks.json").write_text(json.dumps(rows, indent=1) + "\n")
    for figure in checks.figures:
        lab.say(f"{figure.arm}: {figure.metric} {figure.value:.3f} (n={figure.n})")


if __name__ == "__main__":
    with kept_pools():
        main()

"""Checks of published claims that no stage measures, in the laboratory of a finished `benchmarks.four_systems`.

Every reward model there reads the same simulator episodes, eight from each of some states: how many of its readings lie
below 0.01; how many samples carry gradient when it is paid as 0 or 1, by differences, or by the continuous reading;
what is left of a success where episodes end at its reading and where they do not; how its readings, and where it reads
a token the verdict that it would write, rise along successes; milliseconds a decision. Beside these: how much of the
outcome a linear probe finds in what a critic reads, how many frames a video processor hands on, how a world model's
verdicts stand noise and colour in the frame that it begins with, and, with --second-task, where a threshold stands on
another task when it is kept as it is and when it is moved by quantile.

    python -m benchmarks.claim_checks --lab .local/four_systems --out OUT
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from benchmarks.claim_measures import (
    frames_handed_on,
    generated,
    kept_success,
    linear_probe,
    spoilt,
    useful_samples,
)
from benchmarks.experiment import TASKS, Collection
from coevo import judges
from coevo.core import text
from coevo.core.artifacts import Artifact, read
from coevo.core.device import best_device
from coevo.core.judging import judge
from coevo.core.types import Seen, Verdicts, to_device
from coevo.episodes.arrays import EpisodeArrays
from coevo.episodes.store import read_episodes
from coevo.evaluation.judged import open_loop, read_as_success
from coevo.policies import build as policies
from coevo.records.outcomes import Figure, StateScore
from coevo.rewards.calibration import quantile_threshold, scores, sweep, value_order
from coevo.rewards.windowed import TopReward
from coevo.rl.config import Continuous, Differences, Payment, Peak
from coevo.rl.packing import groups_of
from coevo.rl.seeds import split
from coevo.simulators.build import read_config_file
from coevo.workers.simulation import kept_pools
from coevo.worlds import build as worlds
from scripts.laboratory import Laboratory
from tasks.admit_world_model import recorded_episodes

PAYMENTS: dict[str, Payment] = {"peak": Peak(), "differences": Differences(), "continuous": Continuous()}
ETAS = (0.2, 0.3, 0.4, 0.5, 0.6)
LOW = 0.01
SPOILT = {"as_it_is": (0.0, 0.0), "noise": (12.0, 0.0), "colour": (0.0, 0.15)}
"""Noise (standard deviation, levels of 255) and largest change of a colour channel, share."""


class Checks:
    """Figures of one laboratory."""

    def __init__(self, lab: Laboratory, work: Collection, demonstrations: int = 20) -> None:
        self.lab, self.work, self.figures, self.demonstrations = lab, work, [], demonstrations
        self.task = work.task.name

    def add(self, metric: str, arm: str, value: float, n: int, unit: str = "fraction") -> None:
        """A figure."""
        self.figures.append(Figure(metric=metric, arm=arm, task=self.task, value=value, n=n, unit=unit))

    def episodes(self) -> EpisodeArrays:
        """Eight of the plain start policy's episodes from each of 32 train states."""
        work = self.work
        params = dict(states=work.count(32), repeats=8, workers=work.workers, batch=256, device=work.device)
        made = self.lab.make(
            "collect_rollouts", "rollouts_groups", params, policy=work.policy(self.demonstrations),
            starts=work.states("train", 1280), simulator=work.task.simulator,
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

    def robustness(self, name: str, world: Artifact, episodes: Artifact, reader: Artifact) -> None:
        """Agreement of a world model's verdicts with the simulator, from starts as they are and spoilt."""
        reward, dream = judges.load(reader, best_device()), worlds.dream(world, best_device())
        recorded = recorded_episodes(episodes, reward.interface)
        for kind, (noise, colour) in SPOILT.items():
            starts = tuple(spoilt(start, noise, colour) for start in recorded.starts)
            drawn = open_loop(dream, replace(recorded, starts=starts), recorded.keys(0))
            read = read_as_success(reward, drawn)
            self.add(f"agreement_{kind}", name, float((read == recorded.truth).mean()), len(read))

    def transfer(self, name: str, artifact: Artifact, other: Checks) -> None:
        """A threshold on another task's episodes, as it stands and moved so that as many frames trigger."""
        model = judges.load(artifact, best_device())
        episodes, interface = other.episodes(), read_config_file(other.work.task.simulator).interface
        seen = to_device(Seen(episodes.frames, episodes.instructions, episodes.proprio[:, 0], episodes.actions),
                         best_device())  # fmt: skip
        counted = judge(model, seen).probability.cpu()[:, interface.success_from :]
        truth = episodes.success[:, interface.success_from - 1 :].any(dim=1)
        kept = model.calibration.threshold_as_probability
        self.add("trigger_rate_first_task", name, model.calibration.trigger_rate, model.calibration.n)
        for how, level in (("kept", kept), ("moved", quantile_threshold(counted, model.calibration.trigger_rate))):
            self.add(f"trigger_rate_{how}", name, (counted >= level).float().mean().item(), counted.numel())
            found = scores(counted.amax(dim=1), truth, level)
            for metric in ("threshold", "accuracy", "precision", "recall"):
                self.add(f"{metric}_{how}_on_{other.task}", name, found[metric], len(truth))

    def critic(self, name: str, artifact: Artifact, rollouts: Artifact) -> None:
        """What a linear probe finds of a policy's own outcomes in what its critic reads: at the start of an episode,
        and at all decisions before it succeeds; and the most that any critic could find at the start."""
        policy, recorded = policies.load(artifact, best_device()), read_episodes(rollouts.path)
        interface = policy.interface
        episodes = recorded.arrays([row.index for row in recorded.rows if row.policy != "expert"])
        first = episodes.success[:, interface.success_from - 1 :].long().argmax(dim=1) + interface.success_from
        won = episodes.success[:, interface.success_from - 1 :].any(dim=1)
        first = torch.where(won, first, interface.frames + 1)
        if won.all() or not won.any():
            self.lab.say(f"{name}: all {len(won)} of its episodes ended alike; there is nothing for a critic to tell")
            return
        features, outcome, states = [], [], []
        for decision in range(interface.decisions):
            frame = decision * interface.chunk_frames
            rows = (first > frame).nonzero().flatten()
            features.append(self._read(policy, episodes, rows, frame))
            outcome.append(won[rows].double().numpy())
            states += [episodes.states[row] for row in rows.tolist()]
        start = len(outcome[0])
        self.add("linear_probe_r2_start", name, linear_probe(features[0], outcome[0], states[:start]), start)
        whole = linear_probe(np.concatenate(features), np.concatenate(outcome), states)
        self.add("linear_probe_r2", name, whole, len(states))
        counted = Counter(episodes.states)
        wins = Counter(state for state, success in zip(episodes.states, won.tolist(), strict=True) if success)
        variance = split([StateScore(state=s, successes=wins[s], episodes=n) for s, n in sorted(counted.items())])
        if variance is not None and variance.share_between is not None:
            self.add("between_state_share_of_variance", name, variance.share_between, len(counted))

    @torch.no_grad()
    def _read(self, policy, episodes: EpisodeArrays, rows: Tensor, frame: int) -> np.ndarray:
        """Features at one frame of these rows."""
        device, found = best_device(), []
        for part in rows.split(512):
            words = text.words([episodes.instructions[row] for row in part.tolist()])
            seen = (episodes.frames[part, frame], episodes.proprio[part, frame], words)
            found.append(policy.backbone(*(item.to(device) for item in seen)).pooled.double().cpu())
        return torch.cat(found).numpy()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", default="pick_place", choices=TASKS)
    parser.add_argument("--lab", type=Path, default=Path(".local/four_systems"))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--workers", type=int, default=16)
    parser.add_argument("--scale", type=float, default=1.0, help="that of the laboratory")
    parser.add_argument("--second-task", choices=TASKS, help="whose episodes a threshold is moved to")
    args = parser.parse_args()
    lab = Laboratory(args.lab / args.task)
    checks = Checks(lab, Collection(lab, TASKS[args.task], args.workers, args.scale))
    episodes, interface = checks.episodes(), read_config_file(checks.work.task.simulator).interface
    found: Callable[[str], list[Path]] = lambda pattern: sorted((lab.folder / "data").glob(pattern))  # noqa: E731
    for folder in [*found("reward_*"), *found("referee")]:
        checks.reward(folder.name.removeprefix("reward_"), read(folder), episodes)
    horizon = torch.full((len(episodes),), interface.frames)
    checks.ends("to the horizon", episodes, horizon, interface.success_from)
    for folder in found("world_[!b]*"):
        name = folder.name.removeprefix("world_")
        admission = lab.folder / "data" / f"admission_rollouts_{name}"
        if admission.exists():
            checks.robustness(name, read(folder), read(admission), read(lab.folder / "data/referee"))
    if args.second_task:
        place = Laboratory(args.lab / args.second_task)
        other = Checks(place, Collection(place, TASKS[args.second_task], args.workers, args.scale), demonstrations=40)
        for folder in found("reward_worldloop*"):
            checks.transfer(folder.name.removeprefix("reward_"), read(folder), other)
    for folder in found("policy_*_start"):
        name = folder.name.removeprefix("policy_").removesuffix("_start")
        checks.critic(name, read(folder), read(lab.folder / f"data/rollouts_{name}"))
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

"""What the experiments on training share: the first round of `benchmarks.one_gpu` by its names, and groups of seeds.

In the laboratory of a finished `benchmarks.one_gpu` nothing of the first round is made again.
"""

from __future__ import annotations

import argparse
import json
import time
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from benchmarks.experiment import TASKS, Collection, shared_arguments
from benchmarks.one_gpu import Experiment
from coevo.core.artifacts import Artifact, file_sha256, simulator_episodes
from coevo.evaluation.intervals import seed_interval
from coevo.records.base import read_yaml
from coevo.records.outcomes import Criterion, Evaluation, Mismatch
from coevo.records.seeds import SeedGroup
from coevo.rl.seeds import judge
from scripts.laboratory import Laboratory

CRITERION = Path("criterion.yaml")


def arguments(about: str) -> argparse.ArgumentParser:
    """The options that these experiments share."""
    parser = shared_arguments(about)
    parser.add_argument("--updates", type=int, default=16, help="policy updates in a dream")
    parser.add_argument("--states", type=int, default=32, help="initial states of an update")
    parser.add_argument(
        "--whole-episodes", action="store_true",
        help="dream every row to the horizon; rows that leave the batch change its size, and sizes cost compilations",
    )  # fmt: skip
    return parser


class Trials(Experiment):
    """Arms trained over seeds, each group judged by the criterion that stood in the repository before the runs."""

    def __init__(self, args: argparse.Namespace, name: str) -> None:
        lab = Laboratory(args.lab / args.task)
        super().__init__(Collection(lab, TASKS[args.task], args.workers, args.scale), args)
        self.name = name
        self.algorithm = dict(updates=args.updates, states=args.states, group=8, ratio="chunk")
        self.criterion = Criterion.parse(read_yaml(CRITERION), str(CRITERION)).seeds
        self.starts: dict[str, Artifact] = {}
        self.groups: dict[str, list[Evaluation]] = {}

    @cached_property
    def world_base(self) -> Artifact:
        """The base that all world models begin with."""
        return self.base()

    @cached_property
    def mix(self) -> Artifact:
        """The world model of the first round; with no steps for a base, trained from nothing."""
        if self.args.base_steps or self.args.start_weights:
            return self.lab.make(
                "train_world_model", "world_mix", self.fine_tuning(self.args.steps), dataset=self.first_data,
                world_model=self.world_base,
            )  # fmt: skip
        return self.from_nothing("world_mix", self.first_data, codec=self.codec)

    def from_nothing(self, name: str, dataset: Artifact, seed: int = 0, **codec: Artifact) -> Artifact:
        """A world model without a base; it trains a codec of its own where none is given."""
        config = self.lab.folder / f"{name}.yaml"
        config.write_text(yaml.safe_dump(read_yaml(self.args.config) | self.args.world_form))
        training = self.training(self.args.steps, 5e-4) | self.args.world_training
        return self.lab.make(
            "pretrain_world_model", name, dict(training=training), seed=seed, dataset=dataset, config=config, **codec
        )

    def is_over(self, what: str) -> bool:
        """Whether the time is up; says before what."""
        over = time.monotonic() - self.lab.began > self.args.seconds
        if over:
            self.lab.say(f"time is up before {what}; run the same command again")
        return over

    def trained(
        self, name: str, seed: int, policy: Artifact, params: dict[str, Any], starts: Artifact | None = None,
        **world: Artifact,
    ) -> Artifact:  # fmt: skip
        """One training run, in the simulator if no world is given; its costs and the medians of its curves."""
        work = self.work
        defaults = dict(
            algorithm=self.algorithm, validate_every=0, workers=work.workers, requires_admission=False,
            environment="dream" if world else "simulator", end_at_success=not self.args.whole_episodes,
        )  # fmt: skip
        made = self.lab.make(
            "train_policy", f"policy_{name}", defaults | params, seed=seed, policy=policy,
            starts=starts or self.train_states, validation=work.states("validation", 64),
            simulator=work.task.simulator, **world,
        )  # fmt: skip
        rows = [json.loads(line) for line in (made.path / "metrics.jsonl").read_text().splitlines()]
        for key in ("explained_variance", "value_clipped", "kl", "clipped"):
            values = sorted(row[f"train_policy/{key}"] for row in rows if f"train_policy/{key}" in row)
            if values:
                self.add_plain(f"median_{key}", name, values[len(values) // 2], "nat" if key == "kl" else "fraction")
        self.add_plain("useful_frames", name, made.manifest.metrics["useful_frames"])
        self.add_plain("dreamed_episodes", name, made.manifest.metrics["dreamed_episodes"], "count")
        return made

    def scored(self, name: str, arm: str, policy: Artifact, start: Artifact | None = None) -> Evaluation:
        """Success on sealed states, paired with the policy it set out from, and the gain per simulator episode."""
        start = start or self.start
        made = self._evaluation(f"evaluation_{name}", policy, start_evaluation=self._start_evaluation(start))
        record = Evaluation.model_validate_json((made.path / "evaluation.json").read_text())
        self.add("success", name, record.success)
        self.add("gain", name, record.gain)
        episodes, uncounted = simulator_episodes([policy], start)
        self.add_plain("simulator_episodes", name, episodes, "count")
        if uncounted:
            self.lab.say(f"{name}: {uncounted} sources do not say how many episodes they hold, and are not counted")
        if episodes:
            self.add_plain("gain_per_1000_simulator_episodes", name, 1000 * record.gain.value / episodes)
        self.groups.setdefault(arm, []).append(record)
        self.lab.say(f"{name}: gain {record.gain.value:+.3f} [{record.gain.low:+.3f}, {record.gain.high:+.3f}]")
        return record

    def replayed(self, name: str, seed: int, policy: Artifact, model: Artifact, reward: Artifact) -> None:
        """Mismatch on sealed states."""
        work = self.work
        made = self.lab.make(
            "replay_dreams", f"replay_{name}", dict(workers=work.workers, strips=0), seed=seed, policy=policy,
            world_model=model, reward=reward, states=work.states("sealed", 144), simulator=work.task.simulator,
        )  # fmt: skip
        record = Mismatch.model_validate_json((made.path / "replay.json").read_text())
        self.add("mismatch", name, record.mismatch)
        self.add_plain("dreamed_success", name, record.dreamed_success)

    def judged(self) -> dict[str, SeedGroup]:
        """Every arm's seeds together."""
        sha256 = file_sha256(CRITERION)
        return {
            arm: judge(found, self.criterion, sha256, seed_interval(tuple(each.gain.value for each in found)))
            for arm, found in self.groups.items()
        }

    def write(self) -> None:
        """All figures so far, and the verdict on every group."""
        groups, task = self.judged(), self.work.task.name
        figures = [figure for arm, group in groups.items() for figure in group.figures(arm, task)]
        self.args.out.mkdir(parents=True, exist_ok=True)
        self._save(f"{self.name}_{task}", [figure.model_dump() for figure in (*figures, *self.figures)])
        self._save(f"{self.name}_{task}_seeds", {arm: group.model_dump() for arm, group in groups.items()})

    def say(self) -> None:
        """The verdicts in words."""
        for arm, group in self.judged().items():
            self.lab.say(f"{arm}: {group.sentence()}")

    def _save(self, name: str, values: Any) -> None:
        (self.args.out / f"{name}.json").write_text(json.dumps(values, indent=1) + "\n")

    def _start_evaluation(self, start: Artifact) -> Artifact:
        """The start policy's own score, and its noise from two further ones."""
        if start.id not in self.starts:
            name = f"evaluation_again_{start.path.name}"
            self.starts[start.id] = made = self._evaluation(name, start, reruns=2)
            record = Evaluation.model_validate_json((made.path / "evaluation.json").read_text())
            self.add("success", start.path.name, record.success)
            self.add_plain("rerun_noise", start.path.name, record.rerun_noise)
        return self.starts[start.id]

    def _evaluation(self, name: str, policy: Artifact, reruns: int = 0, **inputs: Artifact) -> Artifact:
        work = self.work
        params = dict(role="sealed", repeats=2, workers=work.workers, batch=256, reruns=reruns)
        return self.lab.make(
            "evaluate_policy", name, params, policy=policy, states=work.states("sealed", 144),
            simulator=work.task.simulator, **inputs,
        )  # fmt: skip

    def rollouts(
        self, name: str, policy: Artifact, starts: Artifact, states: int, repeats: int, seed: int = 0, **more: Any
    ) -> Artifact:
        """Simulator episodes of a policy from the first so many states."""
        work = self.work
        params = dict(states=max(states, 1), repeats=repeats, workers=work.workers, batch=512, device=work.device)
        return self.lab.make(
            "collect_rollouts", name, params | more, seed=seed, policy=policy, starts=starts,
            simulator=work.task.simulator,
        )  # fmt: skip



"""The experiment that one GPU runs in minutes: four world models, training in each over seeds, a simulator control.

Arms: base (expert successes only), success_only (the control at equal steps), mix (the failures mixed in), pairs
(paired counterfactuals as well). Every world model is held against the same admission episodes; policies are trained in
them by the same algorithm, evaluated on sealed states against the start policy, and their dreamed successes replayed.

    python -m benchmarks.one_gpu --task pick_place --out OUT

Results are written after every step; what is made already is not made again, so a stopped call goes on where it was.
"""

from __future__ import annotations

import argparse
import json
import shutil
import time
from functools import cached_property
from typing import Any

import numpy as np
import torch

from benchmarks.experiment import (
    EXPERT_ONLY,
    FAILURE_MIX,
    SUCCESS_ONLY,
    TASKS,
    WITH_PAIRS,
    Collection,
    fidelity_figures,
    shared_arguments,
)
from coevo.core.artifacts import Artifact
from coevo.evaluation import strips
from coevo.evaluation.intervals import seed_interval
from coevo.evaluation.judged import SIMULATOR
from coevo.evaluation.report.data import TRUTH_FLIPPED, of_breakdown
from coevo.records.outcomes import Admission, Evaluation, Figure, Interval, Mismatch
from coevo.workers.simulation import kept_pools
from scripts.laboratory import Laboratory

ALGORITHM = dict(updates=16, states=32, group=8, ratio="chunk")
CURVES = ("success", "useful_frames", "validation_success", "kl")


class Experiment:
    """One task's arms and what was measured of them."""

    def __init__(self, work: Collection, args: argparse.Namespace) -> None:
        self.work, self.lab, self.args = work, work.lab, args
        self.figures: list[Figure] = []
        self.replays: dict[str, Interval] = {}

    def run(self) -> None:
        """Data, world models, admission, then seeds in the order in which they matter."""
        work, lab = self.work, self.lab
        base = self.base()
        models = {"base": base}
        sources = [self.expert, *self.own_rollouts]
        for arm, data in (
            ("mix", self.first_data),
            ("success_only", work.dataset("data_success_only", SUCCESS_ONLY, sources)),
            ("pairs", work.dataset("data_pairs", WITH_PAIRS, [*sources, work.pairs()])),
        ):
            models[arm] = lab.make(
                "train_world_model", f"world_{arm}", self.fine_tuning(self.args.steps), dataset=data, world_model=base
            )
        self.evaluated: dict[str, Artifact] = {"start": self.evaluate("start", self.start)}
        for arm in models:
            self.admit(arm, models[arm])
            self.write()
        seeds = self.args.seeds
        plan = [("mix", seed) for seed in range(seeds)] + [(SIMULATOR, 0)]
        plan += [("pairs", seed) for seed in range(seeds)] + [("base", seed) for seed in range(min(2, seeds))]
        plan += [("success_only", seed) for seed in range(min(2, seeds))] + [(SIMULATOR, 1)]
        for arm, seed in plan:
            if time.monotonic() - lab.began > self.args.seconds:
                lab.say(f"time is up before {arm} seed {seed}")
                break
            self.train(arm, seed, models.get(arm))
            self.write()

    @cached_property
    def train_states(self) -> Artifact:
        """What is collected and trained from."""
        return self.work.states("train", 1280)

    @cached_property
    def start(self) -> Artifact:
        """The policy that all begins with."""
        return self.work.policy(self.args.demonstrations)

    @cached_property
    def expert(self) -> Artifact:
        """Episodes of the scripted expert."""
        return self.work.expert("expert", [self.work.noisy(1200, 0.0, 0.3)])

    @cached_property
    def own_rollouts(self) -> list[Artifact]:
        """The start policy's rollouts, and those of a weaker one."""
        work, weaker = self.work, self.work.policy(self.args.demonstrations // 2, 4)
        further = range(1, self.args.own_rollouts)
        made = [
            work.rollouts("rollouts_own", self.start, self.train_states, 2),
            work.rollouts("rollouts_weak", weaker, self.train_states, 1),
            *(work.rollouts(f"rollouts_own_seed_{n}", self.start, self.train_states, 2, n) for n in further),
        ]
        if self.args.more_states:
            states = work.states("train", self.args.more_states, "more_states")
            made.append(work.rollouts("rollouts_more", self.start, states, 2, 1))
        return made

    @cached_property
    def reward(self) -> Artifact:
        """The frame classifier."""
        return self.work.reward(self.own_rollouts)

    @cached_property
    def admission_rollouts(self) -> Artifact:
        """What world models are held against."""
        return self.work.rollouts("admission_rollouts", self.start, self.work.states("admission", 144), 4)

    @cached_property
    def first_data(self) -> Artifact:
        """The failure mix: what the codec learns from, and the first round's world model."""
        return self.work.dataset("data_mix", FAILURE_MIX, [self.expert, *self.own_rollouts])

    def training(self, steps: int, rate: float = 4e-4) -> dict[str, Any]:
        """Settings of a world model's training."""
        return dict(steps=steps, batch=self.args.batch, learning_rate=rate, checkpoint_every=1000)

    def fine_tuning(self, steps: int, **form: Any) -> dict[str, Any]:
        """Parameters of train_world_model: settings and changes of the form."""
        form = self.args.world_form | form
        return dict(training=self.training(steps) | self.args.world_training) | (dict(form=form) if form else {})

    def base(self) -> Artifact:
        """Trained on expert successes alone; its codec has seen every kind of frame."""
        if self.args.start_weights:
            return self.work.shipped_base(self.args.start_weights)
        if not self.args.base_steps:
            raise ValueError("--base-steps 0 leaves no base, and this arm begins with one; give it steps")
        return self.lab.make(
            "pretrain_world_model", "world_base", dict(training=self.training(self.args.base_steps, 5e-4)),
            dataset=self.work.dataset("data_expert", EXPERT_ONLY, [self.expert]), config=self.args.config,
            codec=self.codec,
        )  # fmt: skip

    @cached_property
    def codec(self) -> Artifact:
        """It serves all world models here."""
        return self.lab.make(
            "pretrain_world_model", "codec", dict(training=self.training(1, 5e-4)), dataset=self.first_data,
            config=self.args.config,
        )  # fmt: skip

    def admit(self, arm: str, model: Artifact) -> None:
        """Fidelity on the admission episodes, and the start policy's replay mismatch."""
        work = self.work
        # Where the truth turns over within a pixel is the simulator's matter, and the same for every arm.
        depth = dict(recorded_history=True, reseeds=3, recall=0.95, shifts=4 if arm == "mix" else 0)
        made = self.lab.make(
            "admit_world_model", f"admission_{arm}", depth | dict(strips=6, workers=work.workers, pixel_episodes=64),
            world_model=model, reward=self.reward, episodes=self.admission_rollouts, policy=self.start,
            states=work.states("admission", 144), simulator=work.task.simulator, criterion="criterion.yaml",
            seen_episodes=self.own_rollouts[0],
        )  # fmt: skip
        record = Admission.model_validate_json((made.path / "admission.json").read_text())
        # The simulator's own frames read the same beside every arm.
        said = any(figure.arm == SIMULATOR and figure.metric == "fake_success_all" for figure in self.figures)
        for row in record.fidelity:
            if row.arm != SIMULATOR or not said:
                name = SIMULATOR if row.arm == SIMULATOR else arm
                self.figures += fidelity_figures(name, work.task.name, [row])
        for metric, who, value in of_breakdown(record):
            if who == record.world_model:
                self.add(metric, arm, value)
            elif metric == TRUTH_FLIPPED:
                self.add(metric, SIMULATOR, value)
        self.add("mismatch_start_policy", arm, record.mismatch)
        for row in json.loads((made.path / "pixels.json").read_text()):
            self.figures.append(Figure.model_validate(row | {"arm": arm, "task": work.task.name}))
        for name in (strips.FILE, strips.FRAMES):
            if (made.path / name).exists():
                (self.args.out / "films").mkdir(parents=True, exist_ok=True)
                shutil.copyfile(made.path / name, self.args.out / "films" / f"{arm}_{name}")
        found = ", ".join(f"{f.metric} {f.value:.3f}" for f in self.figures if f.arm == arm)
        self.lab.say(f"{arm}: admitted {record.admitted}; {found}")

    def train(self, arm: str, seed: int, model: Artifact | None) -> None:
        """One training seed: train, evaluate on sealed states, replay."""
        work, params = self.work, dict(algorithm=ALGORITHM, validate_every=4, workers=self.work.workers)
        inputs = dict(
            policy=self.start, starts=self.train_states, validation=work.states("validation", 64),
            simulator=work.task.simulator,
        )  # fmt: skip
        if arm == SIMULATOR:
            params["environment"] = "simulator"
        else:
            params["requires_admission"] = False  # the control arms are bad on purpose
            inputs |= dict(world_model=model, reward=self.reward)
        name = f"{arm}_{seed}"
        policy = self.lab.make("train_policy", f"policy_{name}", params, seed=seed, **inputs)
        rows = [json.loads(line) for line in (policy.path / "metrics.jsonl").read_text().splitlines()]
        for row in rows:
            for key, value in row.items():
                if key.removeprefix("train_policy/") in CURVES:
                    self.add_plain(f"{key.split('/')[1]}_at_{row['update']}", name, value)
        self.evaluated[name] = self.evaluate(name, policy)
        for metric in ("simulator_episodes", "dreamed_episodes", "best_update"):
            self.add_plain(metric, name, float(policy.manifest.metrics[metric]), "count")
        if arm != SIMULATOR:
            made = self.lab.make(
                "replay_dreams", f"replay_{name}", dict(workers=work.workers, strips=0), seed=seed, policy=policy,
                world_model=model, reward=self.reward, states=work.states("sealed", 144), simulator=work.task.simulator,
            )  # fmt: skip
            record = Mismatch.model_validate_json((made.path / "replay.json").read_text())
            self.add("mismatch", name, record.mismatch)
            self.add_plain("dreamed_success", name, record.dreamed_success)

    def evaluate(self, name: str, policy: Artifact) -> Artifact:
        """Two episodes from each sealed state, paired with the start policy's."""
        work = self.work
        inputs = dict(policy=policy, states=work.states("sealed", 144), simulator=work.task.simulator)
        if name != "start":
            inputs["start_evaluation"] = self.evaluated["start"]
        made = self.lab.make(
            "evaluate_policy", f"evaluation_{name}", dict(role="sealed", repeats=2, workers=work.workers, batch=256),
            **inputs,
        )  # fmt: skip
        record = Evaluation.model_validate_json((made.path / "evaluation.json").read_text())
        self.add("success", name, record.success)
        if record.gain is not None:
            self.add("gain", name, record.gain)
        return made

    def add(self, metric: str, arm: str, interval: Interval | None) -> None:
        """A figure with its interval; nothing where there was nothing to measure."""
        if interval is not None:
            self.figures.append(Figure.of(interval, metric, arm, self.work.task.name))

    def add_plain(self, metric: str, arm: str, value: float, unit: str = "fraction", n: int = 1) -> None:
        """A figure without an interval."""
        self.figures.append(Figure(metric=metric, arm=arm, task=self.work.task.name, value=value, n=n, unit=unit))

    def summaries(self) -> list[Figure]:
        """Per arm: mean gain over seeds with Student's interval, and its standard deviation."""
        gains: dict[str, list[float]] = {}
        for figure in self.figures:
            if figure.metric == "gain":
                gains.setdefault(figure.arm.rsplit("_", 1)[0], []).append(figure.value)
        made = []
        for arm, values in gains.items():
            interval = seed_interval(tuple(values))
            if interval is not None:
                common = dict(arm=arm, task=self.work.task.name)
                spread = float(np.std(values, ddof=1))
                made.append(Figure.of(interval, "mean_gain", **common))
                made.append(Figure(metric="sd_of_gain", value=spread, n=len(values), **common))
        return made

    def write(self) -> None:
        """All figures so far."""
        rows = [figure.model_dump() for figure in [*self.summaries(), *self.figures]]
        self.args.out.mkdir(parents=True, exist_ok=True)
        (self.args.out / f"one_gpu_{self.work.task.name}.json").write_text(json.dumps(rows, indent=1) + "\n")
        for figure in self.summaries():
            self.lab.say(f"{figure.arm} {figure.metric} {figure.value:.3f} (n={figure.n})")


def main() -> None:
    args = shared_arguments(__doc__).parse_args()
    lab = Laboratory(args.lab / args.task)
    lab.say(f"device {torch.cuda.get_device_name() if torch.cuda.is_available() else 'cpu'}")
    Experiment(Collection(lab, TASKS[args.task], args.workers, args.scale), args).run()


if __name__ == "__main__":
    with kept_pools():
        main()

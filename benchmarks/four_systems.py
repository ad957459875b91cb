"""The four published systems side by side on one machine: the same states, demonstrations and simulator budget for all.

A system is what its file in configs/system/ says: policy head, world model, what it learns from, reward, algorithm. All
begin with the same demonstrations and the same base world model (expert successes alone), and each collects the same
number of simulator episodes from its own start policy. Its world model is held against the simulator by its own reward
and by one referee that is the same for all; it is trained in whether or not it would be admitted, over the same
training seeds; policies are evaluated on the same sealed states, and their dreamed successes replayed.

    python -m benchmarks.four_systems --out OUT
    python -m benchmarks.four_systems --out OUT --systems worldloop world_env     some of them, or variants:
                                                                                           benchmarks/system_variants.py
    python -m benchmarks.four_systems --out OUT --scale 0.02 --base-steps 20 --steps 10    to try it on a CPU

What is made already is not made again, so a call that stopped goes on where it was. Two processes may share a GPU, once
a call with an empty --systems has made what all systems share. OUT/four-systems.json and .md hold what there is so far.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import four_systems_page, system_variants
from benchmarks.first_round import Trials, arguments
from benchmarks.system_variants import Variant
from coevo.core.artifacts import Artifact
from coevo.evaluation.fidelity import agreement
from coevo.records.base import read_yaml
from coevo.records.outcomes import Admission, Figure
from coevo.records.system import System, laid_over
from coevo.rl.config import Algorithm
from coevo.workers.simulation import kept_pools

CONFIGS = Path("configs")
REFEREE = "frame_classifier"
BEFORE, AFTER, SIMULATOR = "before", "after", "simulator"
START, PARENT, TRAINED = "start policy", "parent policy", "trained policy"


class Shared(Trials):
    """What all systems begin with: states, demonstrations, experts, the base world model, the referee."""

    def begin(self) -> None:
        """Made once, by whichever call comes first."""
        work = self.work
        self.shown = work.expert("demonstrations", [work.noisy(60, 0.1, 0.1) | dict(count=60)])
        self.referee = self.lab.make(
            "calibrate_reward", "referee", self.fitting({}), episodes=[self.expert, *self.own_rollouts],
            config=CONFIGS / f"reward/{REFEREE}.yaml",
        )  # fmt: skip
        self.world_base = self.base()

    @cached_property
    def own_rollouts(self) -> list[Artifact]:
        """Episodes of a policy of the common kind, for the referee and the codec."""
        cloned = self.work.policy(self.args.demonstrations)
        return [self.work.rollouts("rollouts_referee", cloned, self.train_states, 1)]

    def fitting(self, params: dict[str, Any]) -> dict[str, Any]:
        """Parameters of calibrate_reward; few steps where the script is only tried."""
        if self.args.scale < 0.5:
            return laid_over(params, dict(training=dict(steps=20), windows=dict(steps=10)))
        return laid_over(params, dict(windows=dict(steps=self.args.reward_steps, batch=64)))


class Trial(Shared):
    """One system, or a variant of one; what a variant has in common with the system as it is, is made once."""

    def __init__(self, args: argparse.Namespace, name: str, variant: Variant) -> None:
        super().__init__(args, "four_systems")
        self.of, self.variant = name, variant
        self.system = system_variants.system(variant)
        self.plain = system_variants.system(Variant(variant.system, ""))
        self.part = self.lab.folder / "figures"

    def run(self) -> None:
        """Its data, its world model, then a policy per seed."""
        if self.is_over(self.of):
            return
        self.begin()
        system, args = self.system, self.args
        self.start = self._start()
        own = self._collected()
        reward_file = system.reward.file or REFEREE
        world = self._world(own)
        reward = self._reward(reward_file, own, world)
        self._admitted(world, reward)
        file = CONFIGS / f"algorithm/{system.algorithm.file}.yaml"
        states = self._in_order(file)
        for seed in range(args.seeds):
            if self.is_over(f"{self.of} seed {seed}"):
                break
            name = f"{self.of}_{seed}"
            changes = dict(updates=args.updates, states=args.states) | system.algorithm.changes
            params = dict(validate_every=args.validate_every) | system.training | dict(algorithm=changes)
            policy = self.trained(
                name, seed, self.start, params, states, world_model=world, reward=reward, algorithm=file
            )
            self.scored(name, self.of, policy)
            self.replayed(name, seed, policy, world, reward)
            self.write()
        self.write()

    def _start(self) -> Artifact:
        """Cloned from the demonstrations that all systems see."""
        own, args = self.system.policy.pretraining, self.args
        params = own | dict(
            episodes=self.variant.demonstrations or args.demonstrations,
            cloning=laid_over(own.get("cloning", {}), dict(steps=args.clone_steps)),
        )
        return self.lab.make(
            "pretrain_policy", f"policy_{self._named('policy')}_start", params, seed=0,
            demonstrations=self.shown, config=CONFIGS / f"policy/{self.system.policy.file}.yaml",
        )  # fmt: skip

    def _collected(self) -> Artifact:
        """The budget's episodes, as the system collects them: planned faults, and the policy's own for the rest."""
        work, section = self.work, dict(self.system.data.rollouts)
        repeats, budget = section.pop("repeats", 2), work.count(self.args.budget)
        section.pop("states", None)
        if self.args.scale < 1:
            for kind, count in (("near_success", "count"), ("pairs", "states")):
                if kind in section:
                    section[kind] = [part | {count: work.count(part[count])} for part in section[kind]]
        planned = sum(part["count"] for part in section.get("near_success", ()))
        planned += sum(part["states"] * (1 + part.get("per_state", 1)) for part in section.get("pairs", ()))
        states = min(max((budget - planned) // repeats, 8), work.count(1280))
        name = f"rollouts_{self._named('policy', 'rollouts')}"
        return self.rollouts(name, self.start, self.train_states, states, repeats, **section)

    def _world(self, own: Artifact) -> Artifact:
        """The shared base in the system's form, fine-tuned on its mixture."""
        section, args = self.system.data.dataset, self.args
        if args.scale < 1:  # a tiny set may lack a class
            section = section | dict(optional=list(section.get("mixture", {})))
        name = self._named("policy", "rollouts", "dataset")
        dataset = self.lab.make("build_dataset", f"data_{name}", section, sources=[self.expert, own])
        params = self.fine_tuning(args.steps, **self.system.world_model.form)
        params["training"] = laid_over(self.system.world_model.training, params["training"])
        name = self._named("policy", "rollouts", "dataset", "world_model")
        return self.lab.make(
            "train_world_model", f"world_{name}", params, dataset=dataset, world_model=self.world_base
        )

    def _reward(self, file: str, own: Artifact, world: Artifact) -> Artifact:
        """Trained where there is something to train, calibrated and frozen."""
        more = dict(world_model=world) if self.system.reward.own_head else {}
        name = self._named("policy", "rollouts", "reward", *(("dataset", "world_model") if more else ()))
        return self.lab.make(
            "calibrate_reward", f"reward_{name}", self.fitting(self.system.reward.calibration),
            episodes=[self.expert, own], config=CONFIGS / f"reward/{file}.yaml", **more,
        )  # fmt: skip

    def _in_order(self, algorithm: Path) -> Artifact:
        """The train states; shortest tasks first where the algorithm has a curriculum."""
        if Algorithm.parse(read_yaml(algorithm), str(algorithm)).curriculum is None:
            return self.train_states
        return self.lab.make(
            "select_states", "states_in_order", dict(outcomes="any", order="length"), states=self.train_states,
            episodes=self.expert,
        )  # fmt: skip

    def _admitted(self, world: Artifact, reward: Artifact) -> None:
        """Fidelity by the system's reward and by the referee, and its start policy's replay mismatch."""
        work = self.work
        states = work.states("admission", 144)
        name = self._named("policy")
        episodes = self.rollouts(f"admission_rollouts_{name}", self.start, states, work.count(144), 2)
        name = self._named("policy", "rollouts", "dataset", "world_model", "reward", "checks")
        more = {} if self.system.reward.file in (None, REFEREE) else dict(referee=self.referee)
        params = dict(strips=0, workers=work.workers, pixel_episodes=64) | self.system.checks.admission
        made = self.lab.make(
            "admit_world_model", f"admission_{name}", params, world_model=world, reward=reward, episodes=episodes,
            policy=self.start, states=states, simulator=work.task.simulator, criterion=self._criterion(),
            base_world_models=[self.world_base], **more,
        )  # fmt: skip
        record = Admission.model_validate_json((made.path / "admission.json").read_text())
        arms = {world.id: AFTER, self.world_base.id: BEFORE, SIMULATOR: SIMULATOR}
        for row in record.fidelity:
            reader = "" if row.reader == reward.id else "_referee"
            subset = "" if row.subset == "all" else f"_{row.subset}"
            for metric in ("fake_success", "recall"):
                self.add(f"{metric}{subset}{reader}", self._arm(arms[row.arm]), getattr(row, metric))
            if row.subset == "all" and (found := agreement(row)) is not None:
                metric = "visual_alignment" if reader else "reward_alignment"
                self.add_plain(metric, self._arm(arms[row.arm]), found[0], n=found[1])
        self.add("mismatch", self._arm(PARENT), record.mismatch)
        self.add_plain("admitted", self._arm(AFTER), float(record.admitted))
        for metric in ("precision", "recall", "false_positive_rate", "trigger_rate", "value_order"):
            if reward.manifest.metrics.get(metric) is not None:
                self.add_plain(f"reward_{metric}", self._arm(AFTER), reward.manifest.metrics[metric])

    def _named(self, *parts: str) -> str:
        """Of the system as it is where these parts of it are unchanged, else of the variant."""

        def of(system: System) -> list[Any]:
            data = dict(rollouts=system.data.rollouts, dataset=system.data.dataset)
            return [data.get(part, getattr(system, part, None)) for part in parts]

        alike = of(self.system) == of(self.plain) and not ("policy" in parts and self.variant.demonstrations)
        return self.variant.system if alike else self.of

    def _criterion(self) -> Path:
        file = self.part / f"{self.of}_criterion.yaml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(self.system.checks.criterion.model_dump(mode="json")))
        return file

    def _arm(self, which: str) -> str:
        return f"{self.of}, {which}"

    def write(self) -> None:
        """The system's figures so far, and the page of all systems."""
        groups, task = self.judged(), self.work.task.name
        common = dict(arm=self._arm(TRAINED), task=task)
        summary: list[Figure] = []
        for group in groups.values():
            gains = [gain.value for gain in group.gains]
            interval = dict(low=group.mean_gain.low, high=group.mean_gain.high) if group.mean_gain else {}
            summary.append(Figure(metric="gain", value=float(np.mean(gains)), n=len(gains), **interval, **common))
            if group.sd is not None:
                summary.append(Figure(metric="gain_sd", value=group.sd, n=len(gains), **common))
        renamed = {self.start.path.name: self._arm(START)}
        figures = [figure.model_copy(update=dict(arm=renamed.get(figure.arm, figure.arm))) for figure in self.figures]
        summary += four_systems_page.means(figures, self.of, task)
        seconds = dict(arm=self.of, task=task, n=1, unit="s")
        summary.append(Figure(metric="seconds", value=self.lab.seconds(self._own), **seconds))
        self.part.mkdir(parents=True, exist_ok=True)
        rows = [figure.model_dump() for figure in (*summary, *figures)]
        (self.part / f"{self.of}.json").write_text(json.dumps(rows, indent=1) + "\n")
        four_systems_page.write(self.part, self.args.out, system_variants.everything())

    def _own(self, name: str) -> bool:
        """Whether an artifact was made for this system alone: the longest of the names that it bears is its own."""
        return max((known for known in system_variants.everything() if known in name), key=len, default="") == self.of


def chosen(args: argparse.Namespace) -> Sequence[str]:
    """Systems and variants of this call; ValueError for one that there is not."""
    known = system_variants.everything()
    unknown = [name for name in args.systems or () if name not in known]
    if unknown:
        raise ValueError(f"there is no system {', '.join(unknown)}; there is: {', '.join(known)}")
    return list(system_variants.plain()) if args.systems is None else args.systems


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--systems", nargs="*", help="files of configs/system, or variants; none makes what all share")
    parser.add_argument("--budget", type=int, default=1000, help="simulator episodes of a system's own")
    parser.add_argument("--reward-steps", type=int, default=3000, help="of a vision-language model, batches of 64")
    parser.add_argument("--clone-steps", type=int, default=1500)
    parser.add_argument("--validate-every", type=int, default=4, help="updates between checks on validation states")
    parser.set_defaults(lab=Path(".local/four_systems"), seeds=3)
    args = parser.parse_args()
    names = chosen(args)
    if not names:
        Shared(args, "four_systems").begin()
    began = time.monotonic()
    for name in names:
        trial = Trial(args, name, system_variants.everything()[name])
        trial.lab.began = began  # --seconds holds for the whole call
        trial.run()


if __name__ == "__main__":
    with kept_pools():
        main()

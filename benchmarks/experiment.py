"""The data that experiments on one GPU begin with: states, demonstrations, policies, rollouts, pairs, a reward."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from coevo.core.artifacts import Artifact
from coevo.records.outcomes import Fidelity, FidelitySlice, Figure
from scripts.laboratory import Laboratory

EXPERT_ONLY = {"expert": 1.0}
SUCCESS_ONLY = {"expert": 0.3, "rollout_success": 0.7}
FAILURE_MIX = {"expert": 0.15, "rollout_success": 0.35, "rollout_failure": 0.5}
WITH_PAIRS = {
    "expert": 0.1, "rollout_success": 0.25, "rollout_failure": 0.35, "nominal": 0.1,
    "offset_failure": 0.15, "offset_success": 0.05,
}  # fmt: skip
OFFSET = dict(kind="perception", severity=[0.01, 0.04])
"""The expert sees the object 1 to 4 cm away from where it is: about half of the grasps fail."""


@dataclass(frozen=True)
class Task:
    """A simulator file and the expert fault that makes about half of its episodes fail."""

    name: str
    offset: dict[str, Any]

    @property
    def simulator(self) -> Path:
        """The simulator's file."""
        return Path("configs/simulator") / f"{self.name}.yaml"


TASKS = {
    "pick_place": Task("pick_place", OFFSET),
    "push": Task("push", OFFSET),
    "drawer_open": Task("drawer_open", dict(kind="perception", severity=[0.03, 0.07])),
}


def json_object(text: str) -> dict[str, Any]:
    """A JSON object from the command line."""
    try:
        found = json.loads(text)
    except json.JSONDecodeError:
        found = None
    if not isinstance(found, dict):
        raise argparse.ArgumentTypeError(f"{text!r} is no JSON object, as '{{\"noise\": 0.0}}' is")
    return found


def shared_arguments(about: str) -> argparse.ArgumentParser:
    """The options of all experiments that begin with this data."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", default="pick_place", choices=TASKS)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--lab", type=Path, default=Path(".local/one_gpu"))
    parser.add_argument("--config", type=Path, default=Path("configs/world_model/wan_gpu.yaml"), help="world model")
    parser.add_argument("--demonstrations", type=int, default=20, help="from which the start policy is cloned")
    parser.add_argument("--own-rollouts", type=int, default=1, help="times two episodes from every train state")
    parser.add_argument("--more-states", type=int, default=0, help="two further rollouts from so many train states")
    parser.add_argument("--start-weights", type=Path, help="take the base from here (made by make_start_weights)")
    parser.add_argument("--workers", type=int, default=16)
    parser.add_argument("--scale", type=float, default=1.0, help="share of the episodes; below 1 to try the script")
    parser.add_argument("--base-steps", type=int, default=4000, help="0: the first world model is trained from nothing")
    parser.add_argument("--steps", type=int, default=2500, help="of fine-tuning from the base")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument(
        "--world-training", type=json_object, default={}, metavar="JSON",
        help="settings that differ after the base, for example '{\"pure_noise\": 1.0}'",
    )  # fmt: skip
    parser.add_argument(
        "--world-form", type=json_object, default={}, metavar="JSON",
        help="changes of the world model's form after the base, for example '{\"sampling_steps\": 4}'",
    )  # fmt: skip
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=540.0, help="begin nothing further after this long")
    return parser


def fidelity_figures(arm: str, task: str, rows: Sequence[Fidelity | FidelitySlice], suffix: str = "") -> list[Figure]:
    """Fake success and recall, by subset or by `suffix`; nothing where there was nothing to measure."""
    return [
        Figure.of(found, f"{metric}_{suffix or row.subset}", arm, task)
        for row in rows
        for metric in ("fake_success", "recall")
        if (found := getattr(row, metric)) is not None
    ]


class Collection:
    """Collects for one task, in one laboratory. `scale` below 1 shrinks every count, to try a script."""

    def __init__(self, lab: Laboratory, task: Task, workers: int, scale: float = 1.0) -> None:
        self.lab, self.task, self.workers, self.scale = lab, task, workers, scale
        self.device = "cuda" if torch.cuda.is_available() else "cpu"

    def count(self, full: int) -> int:
        """A count at this scale."""
        return max(8, int(full * self.scale))

    def states(self, role: str, full: int, name: str = "", seed: int | None = None) -> Artifact:
        """One set of initial states. Those of a role and seed are the first ones of any larger set."""
        params = dict(role=role, count=self.count(full), workers=self.workers)
        return self.lab.make(
            "make_initial_states", name or f"{role}_states", params, seed=seed, simulator=self.task.simulator
        )

    def expert(self, name: str, episodes: Sequence[dict], pairs: Sequence[dict] = ()) -> Artifact:
        """Episodes of the scripted expert on the train states."""
        params = dict(episodes=list(episodes), pairs=list(pairs), workers=self.workers)
        return self.lab.make(
            "collect_demonstrations", name, params, simulator=self.task.simulator, starts=self.states("train", 1280)
        )

    def noisy(self, full: int, low: float, high: float) -> dict:
        """Expert episodes with action noise, its size drawn per episode."""
        return dict(name="noise", perturbation=dict(kind="noise", severity=[low, high]), count=self.count(full))

    def pairs(self) -> Artifact:
        """From each of 400 starts one undisturbed expert episode and two with an offset."""
        pair = dict(name="offset", perturbation=self.task.offset, states=self.count(400), per_state=2)
        return self.expert("pairs", [], [pair])

    def policy(self, demonstrations: int, seed: int = 0) -> Artifact:
        """A policy cloned from so many demonstrations."""
        clean = self.expert("demonstrations", [self.noisy(60, 0.1, 0.1) | dict(count=60)])
        params = dict(episodes=demonstrations, cloning=dict(steps=1500 if self.scale >= 0.5 else 250))
        return self.lab.make(
            "pretrain_policy", f"policy_{demonstrations}_{seed}", params, seed=seed,
            demonstrations=clean, config="configs/policy/small.yaml",
        )  # fmt: skip

    def rollouts(self, name: str, policy: Artifact, starts: Artifact, repeats: int, seed: int = 0) -> Artifact:
        """Simulator episodes of a policy."""
        params = dict(repeats=repeats, workers=self.workers, batch=512, device=self.device)
        return self.lab.make(
            "collect_rollouts", name, params, seed=seed, policy=policy, starts=starts, simulator=self.task.simulator
        )

    def shipped_base(self, weights: Path) -> Artifact:
        """The world model of expert successes from a folder that make_start_weights wrote."""
        return self.lab.make("import_start", "world_base", {}, world_model=weights / "world_model_expert")

    def reward(self, episodes: Sequence[Artifact]) -> Artifact:
        """The frame classifier, trained, calibrated and frozen."""
        return self.lab.make(
            "calibrate_reward", "reward", {}, episodes=list(episodes), config="configs/reward/frame_classifier.yaml"
        )

    def dataset(self, name: str, mixture: dict[str, float], sources: Sequence[Artifact]) -> Artifact:
        """Episodes and how they are drawn."""
        return self.lab.make("build_dataset", name, dict(mixture=mixture), sources=list(sources))

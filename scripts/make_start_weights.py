"""Make the weights that a loop starts from, on a GPU. Those that ship with the project, and those of another task:

    python -m scripts.make_start_weights --out weights
    python -m scripts.make_start_weights --task push --out weights

- policy: cloned from 20 demonstrations; succeeds in about half of its episodes.
- reward: the frame classifier, frozen.
- world_model_expert: trained on the expert's successes alone, the honest "before".
- world_model: trained on more kinds of failure: other policies cloned from more or fewer demonstrations, checkpoints of
  one of them along reinforcement learning in the simulator, and experts with planted faults. It has seen no episode of
  the shipped policy: those are what a round collects.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Iterable
from pathlib import Path

from benchmarks.experiment import EXPERT_ONLY, OFFSET, TASKS, Collection, Task
from coevo.core.artifacts import Artifact
from coevo.workers.simulation import kept_pools
from scripts.laboratory import Laboratory

BROAD_MIX = {
    "expert": 0.1, "rollout_success": 0.3, "rollout_failure": 0.35, "paired_success": 0.1, "paired_failure": 0.1,
    "expert_failure": 0.05,
}  # fmt: skip
FAULTS = {
    "strong_noise": dict(kind="noise", severity=[0.3, 0.8]),
    "goal": dict(kind="goal", severity=[0.02, 0.12]),
    "overshoot": dict(kind="overshoot", severity=[0.1, 0.6]),
    "slow": dict(kind="slow", severity=[0.2, 0.6]),
    "early_release": dict(kind="early_release", severity=[0.1, 0.9]),
    "weak_grip": dict(kind="weak_grip", severity=[0.2, 1.0]),
    "slip": dict(kind="slip", severity=[0.2, 1.0]),
}
CONFIG = "configs/world_model/wan_laptop.yaml"


def collect(work: Collection) -> tuple[Artifact, list[Artifact]]:
    """Expert successes, and the broad set of everything else."""
    train = work.states("train", 1280)
    expert = work.expert("expert", [work.noisy(1200, 0.0, 0.3)])
    faults = work.expert(
        "faults", [dict(name=name, perturbation=fault, count=work.count(150)) for name, fault in FAULTS.items()]
    )
    others = [(20, 1), (40, 3), (10, 4)]
    rollouts = [
        work.rollouts(f"rollouts_{count}_{seed}", work.policy(count, seed), train, 1) for count, seed in others
    ]
    improved = work.lab.make(
        "train_policy", "improved", dict(
            environment="simulator", validate_every=0, workers=work.workers,
            algorithm=dict(updates=8, states=work.count(32), group=8, ratio="chunk"),
        ), policy=work.policy(20, 1), starts=train, validation=work.states("validation", 64),
        simulator=work.task.simulator,
    )  # fmt: skip
    rollouts.append(work.rollouts("rollouts_improved", improved, train, 1))
    return expert, [expert, faults, work.pairs(), *rollouts]


def arguments(about: str | None, steps: int, batch: int, tasks: Iterable[str] | None = None) -> argparse.ArgumentParser:
    """The options of the scripts that make what ships; `tasks` are those that may be chosen, none for any."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--task", default="pick_place", choices=tasks, help="name of a file in configs/simulator")
    parser.add_argument("--lab", type=Path, help="where everything on the way lies; default: .local/start_weights/TASK")
    parser.add_argument("--workers", type=int, default=16)
    parser.add_argument("--scale", type=float, default=1.0, help="share of the episodes; below 1 to try the script")
    parser.add_argument("--steps", type=int, default=steps)
    parser.add_argument("--batch", type=int, default=batch)
    return parser


def collection(args: argparse.Namespace) -> Collection:
    """What collects for the task, in its laboratory."""
    lab = Laboratory(args.lab or Path(".local/start_weights") / args.task)
    return Collection(lab, TASKS.get(args.task, Task(args.task, OFFSET)), args.workers, args.scale)


def main() -> None:
    args = arguments(__doc__, steps=8000, batch=256).parse_args()
    work = collection(args)
    lab = work.lab
    expert, everything = collect(work)
    training = dict(steps=args.steps, batch=args.batch, learning_rate=8e-4, checkpoint_every=10**6)
    stored = dict(half_precision=True)
    made = {
        "policy": work.policy(20),
        "reward": lab.make(
            "calibrate_reward", "reward_start", {}, episodes=everything[1:],
            config="configs/reward/frame_classifier.yaml",
        ),
        "world_model": lab.make(
            "pretrain_world_model", "world_model", stored | dict(training=training),
            dataset=work.dataset("broad", BROAD_MIX, everything), config=CONFIG,
        ),
    }  # fmt: skip
    made["world_model_expert"] = lab.make(
        "pretrain_world_model", "world_model_expert", stored | dict(training=training | dict(steps=args.steps // 2)),
        dataset=work.dataset("expert_only", EXPERT_ONLY, [expert]), config=CONFIG, codec=made["world_model"],
    )  # fmt: skip
    for name, artifact in made.items():
        shutil.copytree(artifact.path, args.out / name, dirs_exist_ok=True)
    lab.say(f"weights in {args.out}: {', '.join(made)}")


if __name__ == "__main__":
    with kept_pools():
        main()

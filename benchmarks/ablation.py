"""What moves outcome fidelity: one change at a time from one shared base, every world model read on the same episodes.

The reference is fine-tuned from a base that has seen expert successes only, on the failure mix. Each arm changes one
thing of it. What gives the model other weights (maps, size, history, codec) cannot start from that base, so such an arm
trains a base of its own with the same steps. With `--start-weights` all begin with the base that ships, maps and
history laid over it, and arms of another size are left out. Two more training seeds of the reference say how large
chance is. A history of the model's own is drawn in one Euler step, which all arms can do.

    python -m benchmarks.ablation --task pick_place --out OUT

On one GPU in minutes: what is made or read already is not made again, so a run that stopped goes on where it
was. Arms come in the order in which they matter; results are written after each. Try it with --scale 0.01 on a CPU.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from benchmarks.experiment import EXPERT_ONLY, FAILURE_MIX, SUCCESS_ONLY, TASKS, Collection
from benchmarks.outcome_reader import Reader
from coevo.core.artifacts import Artifact
from coevo.records.base import read_yaml
from coevo.workers.simulation import kept_pools
from coevo.worlds.config import Form
from scripts.laboratory import Laboratory

WITH_FAMILIES = {
    "expert": 0.1, "rollout_success": 0.25, "rollout_failure": 0.4, "paired_success": 0.1, "paired_failure": 0.15,
}  # fmt: skip
"""The failure mix with a quarter of its draws from paired counterfactuals of all families."""
NEAR = {"expert": 0.15, "rollout_success": 0.35, "rollout_near": 0.25, "rollout_failure": 0.25}
"""Half of the failures drawn are the policy's near successes."""
SEVERITIES = {
    "approach_offset": [0.015, 0.04], "early_release": [0.3, 0.6], "weak_grip": [0.5, 0.8], "overshoot": [0.6, 1.5],
    "lateral_slip": [0.4, 1.0],
}  # fmt: skip
"""Where success falls from nearly 1 to nearly 0 (benchmarks/perturbation_families.py)."""
NO_NOISE = dict(noise=0.0, sampling_steps=1)
KINDS = {"approach_offset": "perception", "lateral_slip": "slip"}
"""Kind of perturbation where it does not bear the family's name."""


@dataclass(frozen=True)
class Arm:
    """One change. What is not given is as in the reference."""

    lever: str
    """What is changed, for the table."""
    training: dict[str, Any] = field(default_factory=dict)
    model: dict[str, Any] = field(default_factory=dict)
    """Changes of the model's form that give it other weights: the arm trains a base of its own."""
    form: dict[str, Any] = field(default_factory=dict)
    """Changes of the model's form with which the shared base can go on."""
    mixture: dict[str, float] = field(default_factory=dict)
    pairs: bool = False
    rollouts: float = 1.0
    """Below 1 the share of the train states whose rollouts are used; above 1 so many times the episodes from all."""
    longer: float = 1.0
    """Fine-tuning steps, as a multiple of the reference's."""
    seed: int = 0
    sampling: int | None = None
    """Euler steps when it is read; nothing is trained for it."""


ARMS = {
    "reference": Arm("-"),
    "success_only": Arm("failure mix", mixture=SUCCESS_ONLY),
    "pairs": Arm("paired counterfactuals", mixture=WITH_FAMILIES, pairs=True),
    "twins": Arm("opposite outcomes drawn together", training=dict(together=0.5)),
    "own_from_start": Arm("self-rollout", training=dict(self_rollout_from="start")),
    "pure_noise": Arm("noise level", training=dict(pure_noise=1.0)),
    "no_noise": Arm("noise", training=dict(pure_noise=1.0), form=NO_NOISE),
    "no_noise_from_start": Arm(
        "noise and self-rollout", training=dict(pure_noise=1.0, self_rollout_from="start"), form=NO_NOISE
    ),
    "no_self_rollout": Arm("self-rollout", training=dict(self_rollout=0.0)),
    "rollouts_double": Arm("data size", rollouts=2.0),
    "reference_seed_1": Arm("training seed", seed=1),
    "loss_weight_1": Arm("loss weight on what moves", training=dict(moved_weight=1.0)),
    "codec_32": Arm("codec", model=dict(codec=dict(kind="conv", channels=32, width=32))),
    "rollouts_quarter": Arm("data size", rollouts=0.25),
    "no_action_maps": Arm("action maps", model=dict(action_maps=False)),
    "steps_double": Arm("training steps", longer=2.0),
    "small_model": Arm("model size", model=dict(layers=4, heads=4, head_dim=32, ffn_dim=512)),
    "large_model": Arm("model size", model=dict(layers=10, heads=8, head_dim=64, ffn_dim=2048)),
    "history_4": Arm("history form", model=dict(history=4)),
    "near_successes": Arm("near successes", mixture=NEAR),
    "self_rollout_all": Arm("self-rollout", training=dict(self_rollout=1.0)),
    "loss_weight_20": Arm("loss weight on what moves", training=dict(moved_weight=20.0)),
    "history_1": Arm("history form", model=dict(history=1)),
    "no_history_noise": Arm("history form", training=dict(history_noise=0.0)),
    "failure_share_0.7": Arm("failure mix", mixture={"expert": 0.1, "rollout_success": 0.2, "rollout_failure": 0.7}),
    "reference_seed_2": Arm("training seed", seed=2),
    "sampling_2": Arm("sampling steps", sampling=2),
    "sampling_4": Arm("sampling steps", sampling=4),
    "sampling_8": Arm("sampling steps", sampling=8),
}
SAID = ("fake_success_all", "fake_success_mixed", "recall_all", "pairs_told_apart")
TRANSFORMER = ("layers", "heads", "head_dim", "ffn_dim")


class Ablation:
    """One task's shared data, bases and arms."""

    def __init__(self, work: Collection, args: argparse.Namespace) -> None:
        self.work, self.lab, self.args = work, work.lab, args
        self.train, self.admission = work.states("train", 1280), work.states("admission", 144)
        self.start = work.policy(20)
        self.weak = work.policy(10, 4)
        self.expert = work.expert("expert", [work.noisy(1200, 0.0, 0.3)])
        self.sources = [self.expert, *self.rollouts(1.0)]
        self.reward = work.reward(self.sources[1:])
        self.evaluated = work.rollouts("admission_rollouts", self.start, self.admission, 4)
        self.counterfactuals = self.families("counterfactuals", self.admission, 64)

    def rollouts(self, share: float) -> list[Artifact]:
        """The cloned policy's episodes and a weaker one's, from so many of the train states; of all of them once, they
        are those of the other experiments."""
        work, made = self.work, []
        for name, policy, repeats in (("own", self.start, 2), ("weak", self.weak, 1)):
            if share == 1.0:
                made.append(work.rollouts(f"rollouts_{name}", policy, self.train, repeats))
                continue
            params = dict(
                repeats=repeats * max(1, int(share)), states=max(8, int(min(share, 1.0) * work.count(1280))),
                workers=work.workers, batch=512, device=work.device,
            )  # fmt: skip
            made.append(
                self.lab.make(
                    "collect_rollouts", f"rollouts_{name}_{share:g}", params, policy=policy, starts=self.train,
                    simulator=work.task.simulator,
                )  # fmt: skip
            )
        return made

    def families(self, name: str, states: Artifact, count: int) -> Artifact:
        """From each of the first states the undisturbed expert and one episode of every family."""
        pairs = [
            dict(
                name=family, states=self.work.count(count),
                perturbation=dict(kind=KINDS.get(family, family), severity=self.severity(family)),
            )
            for family in SEVERITIES
        ]
        return self.lab.make(
            "collect_demonstrations", name, dict(episodes=[], pairs=pairs, workers=self.work.workers),
            simulator=self.work.task.simulator, starts=states,
        )  # fmt: skip

    def severity(self, family: str) -> list[float]:
        """The task's own offset; the other families are alike for all tasks."""
        return self.work.task.offset["severity"] if family == "approach_offset" else SEVERITIES[family]

    def dataset(self, arm: Arm) -> Artifact:
        """The arm's episodes and how they are drawn. The same mixture of the same episodes is made once."""
        sources = self.sources if arm.rollouts == 1.0 else [self.expert, *self.rollouts(arm.rollouts)]
        if arm.pairs:
            sources = [*sources, self.families("families", self.train, 400)]
        mixture = arm.mixture or FAILURE_MIX
        name = "-".join(f"{who}{share:g}" for who, share in mixture.items())
        # At a tiny --scale a policy may have no near success at all.
        optional = [who for who in mixture if who.endswith("_near")] if self.args.scale < 1 else []
        return self.lab.make(
            "build_dataset", f"data_{name}_{arm.rollouts:g}", dict(mixture=mixture, optional=optional), sources=sources
        )

    def model(self, name: str, arm: Arm) -> Artifact:
        """The arm's world model, fine-tuned from the shared base or from one of its own form."""
        args = self.args
        settings = dict(
            steps=int(args.steps * arm.longer), batch=args.batch, learning_rate=args.rate, ema=args.ema,
            checkpoint_every=1000, self_rollout_steps=1,
        )  # fmt: skip
        params: dict[str, Any] = dict(training=settings | arm.training)
        form = arm.form
        if args.start_weights:
            base, form = self.work.shipped_base(args.start_weights), form | arm.model
        else:
            base = self.base(name if arm.model else "shared", arm.model)
        params |= dict(form=form) if form else {}
        return self.lab.make(
            "train_world_model", f"world_{name}", params, seed=arm.seed, dataset=self.dataset(arm), world_model=base
        )

    def codec(self, name: str, config: Path) -> Artifact:
        """It has seen every kind of frame, and serves all arms that do not change its form."""
        settings = dict(batch=self.args.batch, learning_rate=5e-4, checkpoint_every=1000, steps=1)
        return self.lab.make(
            "pretrain_world_model", name, dict(training=settings), dataset=self.dataset(Arm("-")), config=config
        )

    def base(self, name: str, changes: dict[str, Any]) -> Artifact:
        """Trained on expert successes alone."""
        config = read_yaml(self.args.config)
        form = {key: value for key, value in changes.items() if key in TRANSFORMER}
        config |= {key: value for key, value in changes.items() if key not in TRANSFORMER}
        config["transformer"] = config["transformer"] | form
        file = self.args.lab / f"model_{name}.yaml"
        file.write_text(yaml.safe_dump(config))
        settings = dict(steps=self.args.base_steps, batch=self.args.batch, learning_rate=5e-4, checkpoint_every=1000)
        return self.lab.make(
            "pretrain_world_model", f"base_{name}", dict(training=settings), config=file,
            codec=self.codec(f"codec_{name}", file) if "codec" in changes else self.codec("codec", self.args.config),
            dataset=self.lab.make("build_dataset", "data_expert", dict(mixture=EXPERT_ONLY), sources=[self.expert]),
        )  # fmt: skip


def arguments(about: str | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", default="pick_place", choices=TASKS)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--lab", type=Path, default=Path(".local/ablation"))
    parser.add_argument("--config", type=Path, default=Path("configs/world_model/wan_gpu.yaml"), help="world model")
    parser.add_argument(
        "--start-weights", type=Path, help="the base from here, in place of a new one (scripts.make_start_weights)"
    )
    parser.add_argument("--rate", type=float, default=4e-4, help="learning rate of each arm")
    parser.add_argument("--ema", type=float, default=0.998, help="of each arm's weights; 0.99 for a few hundred steps")
    parser.add_argument("--workers", type=int, default=16)
    parser.add_argument("--scale", type=float, default=1.0, help="share of the episodes; below 1 to try the script")
    parser.add_argument("--base-steps", type=int, default=2500)
    parser.add_argument("--steps", type=int, default=1500, help="of each arm, from its base")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--only", nargs="*", choices=ARMS, help="arms")
    parser.add_argument("--seconds", type=float, default=480.0, help="begin no further arm after this long")
    return parser.parse_args()


def main() -> None:
    args = arguments(__doc__)
    lab = Laboratory(args.lab / args.task)
    args.lab = lab.folder
    ablation = Ablation(Collection(lab, TASKS[args.task], args.workers, args.scale), args)
    reader = Reader(lab, args.task, ablation.reward, ablation.evaluated, ablation.counterfactuals)
    figures = reader.floor()
    for name in args.only or ARMS:
        arm = ARMS[name]
        if args.start_weights and not arm.model.keys() <= Form.model_fields.keys():
            lab.say(f"{name} is left out: the base that ships has one {arm.lever}")
            continue
        if time.monotonic() - lab.began > args.seconds:
            lab.say(f"time is up before {name}; call again to go on")
            break
        trained = ablation.model(*(("reference", ARMS["reference"]) if arm.sampling else (name, arm)))
        found = reader.arm(name, trained, arm.sampling)
        figures += found
        lab.say(f"{name} ({arm.lever}): " + ", ".join(f"{f.metric} {f.value:.3f}" for f in found if f.metric in SAID))
        args.out.mkdir(parents=True, exist_ok=True)
        rows = [figure.model_dump() for figure in figures]
        (args.out / f"ablation_{args.task}.json").write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    with kept_pools():
        main()

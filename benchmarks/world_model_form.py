"""Which form of a small world model is how faithful: codec, tokens, levers, size, step time.

One set of rollouts, one reward model; every variant is trained from nothing on the same failure mix for the same number
of steps and read on the same admission episodes. On one GPU: python -m benchmarks.world_model_form --out OUT
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import yaml

from benchmarks.experiment import FAILURE_MIX, TASKS, Collection
from coevo.core import random
from coevo.core.artifacts import Artifact
from coevo.core.device import best_device
from coevo.episodes.store import read_episodes
from coevo.evaluation.drive import drive, reached
from coevo.evaluation.fidelity import fidelity
from coevo.rewards import build as rewards
from coevo.workers.simulation import kept_pools
from coevo.worlds import build as worlds
from coevo.worlds.dream import Dream
from scripts.laboratory import Laboratory

GPU = dict(kind="new", layers=6, heads=6, head_dim=64, ffn_dim=1536)
SMALL = dict(kind="new", layers=4, heads=4, head_dim=32, ffn_dim=512)
CONV = dict(kind="conv", channels=16, width=32)

VARIANTS: dict[str, tuple[dict, dict]] = {
    # name: (changes to the model's configuration, changes to its training)
    "conv codec, 16 tokens a frame": (dict(transformer=GPU | dict(patch=2), codec=CONV), {}),
    "pixels, 16 tokens a frame": (dict(transformer=GPU | dict(patch=16), codec=dict(kind="pixels")), {}),
    "conv, small": (dict(transformer=SMALL | dict(patch=2), codec=CONV), {}),
    "conv, no self-rollout": (dict(transformer=GPU | dict(patch=2), codec=CONV), dict(self_rollout=0.0)),
    "conv, no action maps": (dict(transformer=GPU | dict(patch=2), codec=CONV, action_maps=False), {}),
    "conv, velocity": (dict(transformer=GPU | dict(patch=2), codec=CONV, prediction="velocity"), {}),
}


def collect(lab: Laboratory, task: str, scale: float, workers: int) -> dict[str, Artifact]:
    """Rollouts of two cloned policies, a reward model, the failure mix, and episodes on admission states."""
    work = Collection(lab, TASKS[task], workers, scale)
    train, admission = work.states("train", 1280), work.states("admission", 144)
    expert = work.expert("expert", [work.noisy(1200, 0.0, 0.3)])
    rollouts = [
        work.rollouts("rollouts_20", work.policy(20), train, 2), work.rollouts("rollouts_10", work.policy(10), train, 1)
    ]  # fmt: skip
    return dict(
        admission=work.rollouts("admission_rollouts", work.policy(20), admission, 4),
        reward=work.reward(rollouts), mix=work.dataset("mix", FAILURE_MIX, [expert, *rollouts]),
    )  # fmt: skip


def read(made: Artifact, data: dict[str, Artifact], name: str, steps: int) -> dict:
    """Fake success and recall of a world model on the admission episodes, overall and on mixed-outcome states."""
    recorded = read_episodes(data["admission"].path)
    arrays = recorded.arrays()
    device = best_device()
    dream, reward = Dream(worlds.load(made, device), steps=steps), rewards.load(data["reward"], device)
    starts = [recorded.episode(index).start for index in range(len(recorded))]
    keys = random.row_keys(0, "open loop", rows=[f"{row.state}#{row.sample}" for row in recorded.rows])
    drive(dream, starts[:64], arrays.actions[:64], keys[:64])  # capture before timing
    began = time.monotonic()
    drawn = drive(dream, starts, arrays.actions, keys, batch=512).frames
    seconds = time.monotonic() - began
    truth = reached(arrays.success, recorded.interface.success_from)
    success = reward.verdicts(drawn, arrays.instructions).success.cpu()
    rows = {row.subset: row for row in fidelity(success, truth, arrays.states, arm=name, reader="reward", stream=(0,))}
    found = dict(variant=name, sampling_steps=steps, frames_per_second=drawn[:, 1:].shape[0] * drawn.shape[1] / seconds)
    for subset, row in rows.items():
        for metric in ("fake_success", "recall"):
            interval = getattr(row, metric)
            found[f"{metric}_{subset}"] = interval and interval.model_dump()
    return found


def simulator_floor(data: dict[str, Artifact]) -> dict:
    """The reward model on the simulator's own frames."""
    recorded = read_episodes(data["admission"].path)
    arrays = recorded.arrays()
    truth = reached(arrays.success, recorded.interface.success_from)
    success = rewards.load(data["reward"], best_device()).verdicts(arrays.frames, arrays.instructions).success.cpu()
    row = fidelity(success, truth, arrays.states, arm="simulator", reader="reward", stream=(0,))[0]
    found = dict(fake_success_all=row.fake_success.model_dump(), recall_all=row.recall.model_dump())
    return dict(variant="simulator frames") | found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--lab", type=Path, default=Path(".local/world_model_form"))
    parser.add_argument("--task", default="pick_place", choices=TASKS)
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--scale", type=float, default=1.0, help="share of the episodes; below 1 to try the script")
    parser.add_argument("--workers", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=520.0, help="begin no further variant after this long")
    parser.add_argument("--only", nargs="*", help="names of variants")
    args = parser.parse_args()
    lab = Laboratory(args.lab)
    data = collect(lab, args.task, args.scale, args.workers)
    results = [simulator_floor(data)]
    lab.say(json.dumps(results[0]))
    codec: Artifact | None = None  # trained with the first variant that has one, then the same for all
    for name, (model, training) in VARIANTS.items():
        if (args.only and name not in args.only) or time.monotonic() - lab.began > args.seconds:
            continue
        file = args.lab / "model.yaml"
        file.write_text(yaml.safe_dump(dict(kind="wan", history=2, prediction="clean", sampling_steps=4) | model))
        settings = dict(steps=args.steps, batch=args.batch, checkpoint_every=10**6) | training
        began = time.monotonic()
        shared = dict(codec=codec) if codec is not None and model["codec"] == CONV else {}
        made = lab.make(
            "pretrain_world_model", f"world_{len(results)}", dict(training=settings),
            dataset=data["mix"], config=file, **shared,
        )  # fmt: skip
        codec = made if codec is None and model["codec"] == CONV else codec
        seconds = time.monotonic() - began
        for steps in (4, 2):
            results.append(read(made, data, name, steps) | dict(training_seconds=seconds, training_steps=args.steps))
            lab.say(summary(results[-1]))
        args.out.mkdir(parents=True, exist_ok=True)
        (args.out / "world_model_form.json").write_text(json.dumps(results, indent=1) + "\n")


def summary(found: dict) -> str:
    """One line of a variant."""
    values = " ".join(
        f"{key}={found[key]['value']:.3f}(n={found[key]['n']})" for key in found if isinstance(found[key], dict)
    )
    return f"{found['variant']} @{found['sampling_steps']}: {values} {found['frames_per_second']:.0f} frames/s"


if __name__ == "__main__":
    with kept_pools():
        main()

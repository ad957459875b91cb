"""Make the small vision-language model that laptops read dreams with, on a GPU, as others take Qwen3-VL from the hub.

    python -m scripts.make_tiny_vlm --out weights/vlm

It is trained to answer by one token whether the task is done, on experts with planted faults and on policies that no loop
begins with: the collection of scripts/make_start_weights.py, at the same seeds. In a loop it is frozen. The folder is in
the hub's layout, in bfloat16.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from benchmarks.experiment import TASKS, Collection
from coevo.rewards import build
from coevo.rewards.tiny import write_tokenizer
from coevo.workers.simulation import kept_pools
from scripts.laboratory import Laboratory
from scripts.make_start_weights import collect

CONFIG = "configs/reward/topreward_tiny.yaml"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--task", default="pick_place", choices=TASKS)
    parser.add_argument("--lab", type=Path, help="where everything on the way lies; default: .local/start_weights/TASK")
    parser.add_argument("--workers", type=int, default=16)
    parser.add_argument("--scale", type=float, default=1.0, help="share of the episodes; below 1 to try the script")
    parser.add_argument("--steps", type=int, default=6000)
    parser.add_argument("--batch", type=int, default=64)
    args = parser.parse_args()
    lab = Laboratory(args.lab or Path(".local/start_weights") / args.task)
    _, everything = collect(Collection(lab, TASKS[args.task], args.workers, args.scale))
    training = dict(windows=dict(steps=args.steps, batch=args.batch))
    made = lab.make("calibrate_reward", "vlm", training, episodes=everything, config=CONFIG)
    args.out.mkdir(parents=True, exist_ok=True)
    build.load(made).reader.model.to(torch.bfloat16).save_pretrained(args.out)
    write_tokenizer(args.out)
    lab.say(f"vision-language model in {args.out}; held out: {made.manifest.metrics}")


if __name__ == "__main__":
    with kept_pools():
        main()

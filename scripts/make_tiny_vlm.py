"""Make the small vision-language model that stands in for Qwen3-VL on a laptop where one is frozen: weights/vlm.

    python -m scripts.make_tiny_vlm --reward ARTIFACT --out weights/vlm    of a reward that learned to answer
    python -m scripts.make_tiny_vlm --out weights/vlm                      on a GPU, of far more episodes

A tiny model of random weights sees nothing that a head could use. This one was trained to answer by one token whether
the task is done. The one that ships was made the first way, on one core in three minutes: ARTIFACT was calibrate_reward
with configs/reward/topreward_tiny.yaml and `windows: {steps: 300}`, on the start's 160 demonstrations and 240 episodes
of a policy of tokens cloned from them. The second way takes the collection of make_start_weights.py: experts with
planted faults, and policies that no loop begins with. The folder is in the hub's layout, in bfloat16.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from benchmarks.experiment import TASKS
from coevo.core import artifacts
from coevo.core.artifacts import Artifact
from coevo.rewards import build
from coevo.rewards.tiny import write_tokenizer
from coevo.workers.simulation import kept_pools
from scripts.make_start_weights import arguments, collect, collection

CONFIG = "configs/reward/topreward_tiny.yaml"


def trained(args: argparse.Namespace) -> Artifact:
    """The reward model that answers by a token, from many episodes."""
    work = collection(args)
    _, everything = collect(work)
    training = dict(windows=dict(steps=args.steps, batch=args.batch))
    return work.lab.make("calibrate_reward", "vlm", training, episodes=everything, config=CONFIG)


def main() -> None:
    parser = arguments(__doc__, steps=6000, batch=64, tasks=TASKS)
    parser.add_argument("--reward", type=Path, help="artifact of a topreward model whose weights were trained")
    args = parser.parse_args()
    made = artifacts.read(args.reward, "reward_model") if args.reward else trained(args)
    args.out.mkdir(parents=True, exist_ok=True)
    build.load(made).reader.model.to(torch.bfloat16).save_pretrained(args.out)
    write_tokenizer(args.out)
    print(f"vision-language model in {args.out}; held out, its reward read: {made.manifest.metrics}")


if __name__ == "__main__":
    with kept_pools():
        main()

"""Milliseconds per training step and dreamed frames per second: compiled blocks, one CUDA graph, plain calls.

On one GPU: python -m benchmarks.world_model_speed --out OUT. On a CPU nothing is captured and the ratio is 1.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np
import torch

from coevo.core import random
from coevo.core.capture import Captured
from coevo.core.device import best_device
from coevo.core.types import InitialState
from coevo.records.base import read_yaml
from coevo.simulators.build import read_config_file
from coevo.worlds.clips import prepare
from coevo.worlds.config import WorldModelConfig, WorldTraining
from coevo.worlds.dream import Dream
from coevo.worlds.training import WorldTrainer
from coevo.worlds.world_model import WorldModel


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--models", nargs="*", default=["wan_gpu", "wan_laptop"])
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    interface = read_config_file(Path("configs/simulator/pick_place.yaml")).interface
    results = []
    for name in args.models:
        config = WorldModelConfig.parse(read_yaml(Path(f"configs/world_model/{name}.yaml")), name)
        for captured, compiled in ((True, True), (True, False), (False, False)):
            variant = config.model_copy(update=dict(compile=compiled))
            found = measure(variant, interface, args.batch, args.steps, captured)
            results.append(dict(model=name, captured=captured, compiled=compiled, batch=args.batch) | found)
            print(json.dumps(results[-1]), flush=True)
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "world_model_speed.json").write_text(json.dumps(results, indent=1) + "\n")


def measure(config: WorldModelConfig, interface, batch: int, steps: int, captured: bool) -> dict[str, float]:
    """Medians over `steps` training steps, and over one episode of `batch` dreamed rows."""
    device = best_device()
    model = WorldModel(config, interface).on(device)
    n, f, t = 64, interface.frames, interface.horizon
    source = random.generator(0, "speed")
    frames = torch.randint(0, 256, (n, f + 1, 64, 64, 3), dtype=torch.uint8, generator=source)
    actions = torch.rand(n, t, 4, generator=source) * 2 - 1
    proprio = torch.zeros(n, f + 1, 5) + torch.tensor([0.0, 0.6, 0.2, -1.0, 0.0])
    clips = prepare(model, frames, actions, proprio[:, 0], torch.full((n,), f), ["pick"] * n, torch.ones(n), device)
    trainer = WorldTrainer(model, clips, WorldTraining(steps=10**6, batch=batch), 0)
    if not captured:
        trainer._update = trainer._update_once
    times = timed(trainer._advance, steps)
    starts = [
        InitialState(str(i), "t", "pick", 0, np.zeros(1), frames[i % n, :1], actions[i % n, :0], proprio[i % n, :1])
        for i in range(batch)
    ]
    model.eval()
    dream = Dream(model, batch=batch)
    if not captured:
        dream._draw = dream._draw.function if isinstance(dream._draw, Captured) else dream._draw
    keys = random.row_keys(0, "speed", rows=range(batch))
    dream.reset(starts, keys)
    chunk = torch.zeros(batch, interface.chunk, 4)
    dreams = timed(lambda: dream.step(chunk), interface.decisions)
    return dict(
        training_ms=times * 1000, dream_frames_per_second=batch * interface.chunk_frames / dreams,
        sampling_steps=dream.steps, parameters=sum(p.numel() for p in model.parameters()),
    )  # fmt: skip


def timed(call, repeats: int) -> float:
    """Median seconds of a call, device work included, after two calls that are not counted."""
    seconds = []
    for index in range(repeats + 2):
        began = time.perf_counter()
        call()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        if index >= 2:
            seconds.append(time.perf_counter() - began)
    return float(np.median(seconds))


if __name__ == "__main__":
    main()

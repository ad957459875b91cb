"""Speed of a simulator: control steps/s without drawing, frames/s with it, and what more processes bring.

    python benchmarks/simulator.py configs/simulator/pick_place.yaml --workers 2

Numbers mean something on an idle machine only; the load average is printed beside them.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import numpy as np

from coevo.simulators.build import SimulatorConfig, build, read_config_file
from coevo.workers.simulation import ParallelSimulator


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("simulator", type=Path, nargs="?", default=Path("configs/simulator/pick_place.yaml"))
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--rows", type=int, default=32, help="episodes side by side")
    args = parser.parse_args()
    config = read_config_file(args.simulator)
    print(f"{config.interface.task}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    undrawn(config, args.rows)
    one = spread(config, 1, args.rows)
    if args.workers > 1:
        many = spread(config, args.workers, args.rows)
        print(f"  {many / one:.2f} times one process")


def undrawn(config: SimulatorConfig, rows: int) -> None:
    """Physics alone: chunks that end before the first frame is due."""
    simulator = build(config)
    states = np.stack([simulator.initial_state(0, "train", index).simulator_state for index in range(rows)])
    steps = config.interface.stride - 1
    actions = random_actions(rows, steps)
    began = time.perf_counter()
    for _ in range(20):
        states = simulator.advance(states, actions).states
    print(f"  {20 * rows * steps / (time.perf_counter() - began):.0f} control steps/s without frames, one process")
    simulator.close()


def spread(config: SimulatorConfig, workers: int, rows: int) -> float:
    """Frames/s of whole chunks over `workers` processes."""
    with ParallelSimulator(config, workers) as simulator:
        states = np.stack([s.simulator_state for s in simulator.initial_states(0, "train", range(rows))])
        actions = random_actions(rows, config.interface.chunk)
        simulator.advance(states, actions)  # the first call pays for the workers' start
        began = time.perf_counter()
        for _ in range(config.interface.decisions):
            states = simulator.advance(states, actions).states
        seconds = time.perf_counter() - began
    frames = rows * config.interface.frames / seconds
    steps = rows * config.interface.horizon / seconds
    print(f"  {frames:.0f} frames/s, {steps:.0f} control steps/s with frames, {workers} processes")
    return frames


def random_actions(rows: int, steps: int) -> np.ndarray:
    """Actions f32[rows, steps, 4], uniform."""
    return np.random.default_rng(0).uniform(-1.0, 1.0, (rows, steps, 4)).astype(np.float32)


if __name__ == "__main__":
    main()

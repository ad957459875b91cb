"""Screen the families that paired counterfactuals are made of: does success fall as severity rises?

The scripted expert acts from the same initial states at every severity, the direction of each fault drawn once per
state, so levels are compared in pairs. Needs no GPU:

    python -m benchmarks.perturbation_families --task pick_place --out docs/results

A family that fails is named with the level at which it does, and the command ends with status 1.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import numpy as np

from coevo.core.types import InitialState
from coevo.evaluation.drive import reached
from coevo.evaluation.severity import Screen, screen
from coevo.records.outcomes import Figure
from coevo.simulators.build import read_config_file
from coevo.simulators.perturbations import FAMILIES, Perturbation
from coevo.workers.simulation import ParallelSimulator, expert_streams

LEVELS = {
    "approach_offset": (0.005, 0.015, 0.025, 0.04, 0.06),  # metres
    "early_release": (0.05, 0.2, 0.35, 0.6, 0.9),  # share of the way still left
    "weak_grip": (0.2, 0.5, 0.7, 0.85, 1.0),  # share of the closing command that is lacking
    "overshoot": (0.1, 0.3, 0.6, 1.0, 1.5),  # share of the way
    "lateral_slip": (0.1, 0.3, 0.5, 0.75, 1.0),  # 1 lets go
}
"""Severities screened, by family; what a number means is said at `Perturbation`."""


def screened(
    simulator: ParallelSimulator, starts: list[InitialState], family: str, levels: tuple[float, ...], seed: int
) -> Screen:
    """Run one family at every level from every start."""
    interface = simulator.interface
    streams = expert_streams(starts, [family] * len(starts), (seed, "severity"))
    won = []
    for level in levels:
        fault = Perturbation(kind=FAMILIES[family], severity=(level, level))
        episodes = simulator.demonstrate(starts, [fault] * len(starts), streams)
        won.append([bool(reached(episode.success[None], interface.success_from)[0]) for episode in episodes])
    return screen(family, levels, np.array(won), (seed,))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", default="pick_place", help="a file of configs/simulator")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--states", type=int, default=48)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="*", choices=LEVELS, help="families")
    args = parser.parse_args()
    config = read_config_file(Path(f"configs/simulator/{args.task}.yaml"))
    figures, failed = [], False
    with ParallelSimulator(config, args.workers) as simulator:
        starts = simulator.initial_states(args.seed, "train", range(args.states))
        for family in args.only or LEVELS:
            found = screened(simulator, starts, family, LEVELS[family], args.seed)
            shares = ", ".join(f"{s:g}: {i.value:.2f}" for s, i in zip(found.severities, found.success, strict=True))
            print(f"{family}: {shares}; {'passes' if found.passes else '; '.join(found.faults)}", flush=True)
            failed |= not found.passes
            figures += [
                Figure.of(share, f"success_at_{severity:g}", family, args.task).model_dump()
                for severity, share in zip(found.severities, found.success, strict=True)
            ]
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / f"perturbation_families_{args.task}.json").write_text(json.dumps(figures, indent=1) + "\n")
    sys.exit(int(failed))


if __name__ == "__main__":
    main()

"""What DVC and the flow add to a stage, and what a round with nothing to do takes, on toy stages.

    python -m benchmarks.overhead --out docs/results/overhead.json

Each repeat runs the same graph by `python -m` alone, by `dvc repro` and by `coevo run`, one after the other in fresh
repositories, once with few training seeds and once with many: what a further stage takes is the difference, and the
rest is what starting takes. Numbers mean something on an idle machine only; the load average is printed beside them.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

from coevo.evaluation.intervals import seed_interval
from coevo.records.outcomes import Figure
from flows import graph
from tests.flows import toys

FEW, MANY = 2, 12
"""Training seeds, each of which is a stage."""
FILES = ("start/dvc.yaml", "dvc.yaml")
ARMS = {"python -m": (), "dvc repro": ("dvc", "repro", "--quiet"), "coevo run": ("flows.cli", "run")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="where to write the figures")
    parser.add_argument("--repeats", type=int, default=3, help="at least two, for the intervals")
    args = parser.parse_args()
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    for repeat in range(args.repeats):
        print(f"repeat {repeat + 1} of {args.repeats}, load {os.getloadavg()[0]:.1f}", flush=True)
        for key, seconds in measure().items():
            found[key].append(seconds)
            print(f"  {key[1]}, {key[0]}: {seconds:.2f} s", flush=True)
    args.out.write_text(json.dumps([figure(*key, values) for key, values in found.items()], indent=1) + "\n")


def measure() -> dict[tuple[str, str], float]:
    """Seconds by (metric, arm)."""
    numbers = {}
    for arm in ARMS:
        with tempfile.TemporaryDirectory() as few, tempfile.TemporaryDirectory() as many:
            short, long = run(repository(Path(few), FEW), arm), run(repository(Path(many), MANY), arm)
            numbers["seconds_per_stage", arm] = (long - short) / (MANY - FEW)
            if arm != "python -m":
                numbers["seconds_with_nothing_to_do", arm] = run(Path(many), arm)
            if arm == "coevo run":
                numbers["seconds_to_start", arm] = short - (FEW + 2) * numbers["seconds_per_stage", arm]
    for arm in list(ARMS)[1:]:
        added = numbers["seconds_per_stage", arm] - numbers["seconds_per_stage", "python -m"]
        numbers["seconds_added_per_stage", arm] = added
    return numbers


def repository(root: Path, seeds: int) -> Path:
    """A toy repository with so many training seeds."""
    toys.make(root)
    file = root / "params.yaml"
    file.write_text(file.read_text().replace("seeds: [0, 1]", f"seeds: {list(range(seeds))}"))
    return root


def run(root: Path, arm: str) -> float:
    """Seconds for all stages of a repository that are not made yet."""
    stages = graph.read(root, FILES)
    commands = [[sys.executable, "-m", *ARMS[arm]]] if ARMS[arm] else [stage.command for stage in stages]
    began = time.perf_counter()
    for command in commands:
        subprocess.run(
            command, cwd=root, env=toys.environment(), shell=isinstance(command, str), check=True, capture_output=True
        )
    return time.perf_counter() - began


def figure(metric: str, arm: str, values: list[float]) -> dict:
    """A row of the results: the mean over repeats."""
    mean = seed_interval(tuple(values))
    row = Figure(
        metric=metric, arm=arm, task="toy stages", value=mean.value, n=mean.n, low=mean.low, high=mean.high, unit="s"
    )
    return row.model_dump(mode="json")


if __name__ == "__main__":
    main()

"""What DVC and the flow add to a stage, and what a round with nothing to do takes, on toy stages.

    python -m benchmarks.overhead --out docs/results/overhead.json

Each repeat runs the same graph by `python -m` alone, by `dvc repro` and by `coevo run`, one after the other in fresh
repositories. What a stage takes is read between the first and the last of them, so that starting stays apart. Numbers
mean something on an idle machine only; the load average is printed beside them.
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

SEEDS = 12
"""Training seeds, each of which is a stage."""
FILES = ("start/dvc.yaml", "dvc.yaml")
ARMS = {"python -m": (), "dvc repro": ("dvc", "repro"), "coevo run": ("flows.cli", "run")}
MARKS = {"dvc repro": "Running stage", "coevo run": "  done  "}
"""What a line holds that tells of one stage."""


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
        with tempfile.TemporaryDirectory() as folder:
            root = repository(Path(folder))
            times = alone(root) if arm == "python -m" else told(root, arm)
            numbers["seconds_per_stage", arm] = (times[-1] - times[0]) / (len(times) - 1)
            if arm != "python -m":
                added = numbers["seconds_per_stage", arm] - numbers["seconds_per_stage", "python -m"]
                numbers["seconds_added_per_stage", arm] = added
                began = time.perf_counter()
                told(root, arm)
                numbers["seconds_with_nothing_to_do", arm] = time.perf_counter() - began
            if arm == "coevo run":
                numbers["seconds_to_start", arm] = times[0] - numbers["seconds_per_stage", arm]
    return numbers


def repository(root: Path) -> Path:
    """A toy repository with many training seeds."""
    toys.make(root)
    file = root / "params.yaml"
    file.write_text(file.read_text().replace("seeds: [0, 1]", f"seeds: {list(range(SEEDS))}"))
    return root


def alone(root: Path) -> list[float]:
    """Seconds from the beginning to the end of each stage, run by its command alone."""
    began, times = time.perf_counter(), []
    for stage in graph.read(root, FILES):
        subprocess.run(stage.command, shell=True, cwd=root, env=toys.environment(), check=True, capture_output=True)
        times.append(time.perf_counter() - began)
    return times


def told(root: Path, arm: str) -> list[float]:
    """Seconds from the beginning to each line that tells of a stage."""
    began, times = time.perf_counter(), []
    environment = toys.environment(PYTHONUNBUFFERED="1")
    command = [sys.executable, "-m", *ARMS[arm]]
    with subprocess.Popen(command, cwd=root, env=environment, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            if MARKS[arm] in line:
                times.append(time.perf_counter() - began)
    if process.returncode:
        raise RuntimeError(f"'{' '.join(ARMS[arm])}' ended with status {process.returncode} in {root}")
    return times


def figure(metric: str, arm: str, values: list[float]) -> dict:
    """A row of the results: the mean over repeats."""
    mean = seed_interval(tuple(values))
    row = Figure(
        metric=metric, arm=arm, task="toy stages", value=mean.value, n=mean.n, low=mean.low, high=mean.high, unit="s"
    )
    return row.model_dump(mode="json")


if __name__ == "__main__":
    main()

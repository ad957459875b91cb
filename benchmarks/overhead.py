"""What DVC and the flow add to a stage, and what a round with nothing to do takes, on toy stages.

    python -m benchmarks.overhead --out docs/results/overhead.json

Each repeat runs the same round by `python -m` alone, by `dvc repro` and by `coevo run`, one after the other in fresh
repositories that hold 1, 10 and 50 closed rounds. What a stage takes is read between the first and the last of them, so
that starting stays apart. Numbers mean something on an idle machine only; the load average is printed and kept beside
them.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

from coevo.evaluation.intervals import seed_interval
from coevo.records.outcomes import Figure
from flows import graph, rounds
from flows.loops import Loop, round_id
from tests.flows import toys

SEEDS = 8
"""Training seeds, each of which is a stage."""
CLOSED = (1, 10, 50)
"""Closed rounds that the repository holds."""
ARMS = {"python -m": (), "dvc repro": ("dvc", "repro"), "coevo run": ("flows.cli", "run")}
MARKS = {"dvc repro": "Running stage", "coevo run": "  done  "}
"""What a line holds that tells of one stage."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="where to write the figures")
    parser.add_argument("--repeats", type=int, default=3, help="at least two, for the intervals")
    args = parser.parse_args()
    found: dict[tuple[str, str, int], list[float]] = defaultdict(list)
    loads = []
    for repeat in range(args.repeats):
        for closed in CLOSED:
            loads.append(os.getloadavg()[0])
            print(f"repeat {repeat + 1} of {args.repeats}, {closed} closed rounds, load {loads[-1]:.1f}", flush=True)
            for (metric, arm), seconds in measure(closed).items():
                found[metric, arm, closed].append(seconds)
                print(f"  {arm}, {metric}: {seconds:.2f} s", flush=True)
    rows = [figure(*key, values) for key, values in found.items()]
    rows.append(figure("load_average", "machine", None, loads))
    args.out.write_text(json.dumps(rows, indent=1) + "\n")


def measure(closed: int) -> dict[tuple[str, str], float]:
    """Seconds by (metric, arm)."""
    numbers = {}
    for arm in ARMS:
        with tempfile.TemporaryDirectory() as folder:
            root = repository(Path(folder), closed)
            times = alone(root) if arm == "python -m" else told(root, arm)
            numbers["seconds_per_stage", arm] = (times[-1] - times[0]) / (len(times) - 1)
            if arm != "python -m":
                added = numbers["seconds_per_stage", arm] - numbers["seconds_per_stage", "python -m"]
                numbers["seconds_added_per_stage", arm] = added
                began, worked = time.perf_counter(), cpu_seconds()
                told(root, arm)
                numbers["seconds_with_nothing_to_do", arm] = time.perf_counter() - began
                numbers["cpu_seconds_with_nothing_to_do", arm] = cpu_seconds() - worked
            if arm == "coevo run":
                numbers["seconds_to_start", arm] = times[0] - numbers["seconds_per_stage", arm]
    return numbers


def repository(root: Path, closed: int) -> Path:
    """A toy repository with many training seeds whose open round, not run yet, follows `closed` ones.

    The first of these is run and sealed; the others are copies of it under their own names, data included.
    """
    os.environ["PYTHONPATH"] = str(toys.PROJECT)  # DVC is asked by a module of ours, in the toy's own folder
    loop = Loop(root=toys.make(root))
    file = root / "params.yaml"
    file.write_text(file.read_text().replace("seeds: [0, 1]", f"seeds: {list(range(SEEDS))}"))
    dvc = [sys.executable, "-m", "dvc"]
    subprocess.run([*dvc, "repro"], cwd=root, env=toys.environment(), check=True, capture_output=True)
    rounds.open_next(loop)
    sealed = []
    for number in range(2, closed + 1):
        shutil.copytree(loop.rounds / "i001", loop.rounds / round_id(number))
        sealed.append(loop.rounds / round_id(number) / "sealed.dvc")
        sealed[-1].write_text(sealed[-1].read_text().replace("/i001/", f"/{round_id(number)}/"))
    if sealed:
        checkout = [*dvc, "checkout", "--quiet", *map(str, sealed)]
        subprocess.run(checkout, cwd=root, env=toys.environment(), check=True, capture_output=True)
    loop.write_open_round(loop.open_round().model_copy(update=dict(round=round_id(closed + 1))))
    return root


def alone(root: Path) -> list[float]:
    """Seconds from the beginning to the end of each stage, run by its command alone."""
    began, times = time.perf_counter(), []
    for stage in graph.read(root, ["dvc.yaml"]):
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


def cpu_seconds() -> float:
    """Of all processes that were started here and have ended: on a busy machine it says more than the clock."""
    return os.times().children_user + os.times().children_system


def figure(metric: str, arm: str, closed: int | None, values: list[float]) -> dict:
    """A row of the results: the mean over repeats."""
    mean = seed_interval(tuple(values))
    task = "toy stages" if closed is None else f"toy stages, closed rounds: {closed}"
    unit = "processes" if closed is None else "s"
    return Figure.of(mean, metric, arm, task, unit).model_dump(mode="json")


if __name__ == "__main__":
    main()

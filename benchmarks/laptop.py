"""The laptop's loop over several seeds: python -m benchmarks.laptop --seeds 5

Each seed is a round of the default loop in a clone of its own, with `seed` and the one training seed set to it: start
and sealed states are the same; collection, world model, admission, training and evaluation all differ. Writes
docs/results/laptop.json and the page beside it. Seeds that are finished already are read, not run again.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import yaml

from benchmarks.results_page import cell
from coevo.evaluation.intervals import seed_interval
from coevo.records.outcomes import Figure

ROOT = Path(__file__).resolve().parents[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--work", type=Path, default=ROOT / ".local" / "laptop")
    parser.add_argument("--at-once", type=int, default=1, help="seeds side by side; each then has its share of cores")
    args = parser.parse_args()
    with ThreadPoolExecutor(args.at_once) as pool:
        rows = list(pool.map(lambda seed: one(args, seed), range(args.seeds)))
    figures = [figure for row in rows for figure in row]
    figures = [*summary(figures), *figures]
    out = ROOT / "docs" / "results" / "laptop.json"
    out.write_text(json.dumps([figure.model_dump() for figure in figures], indent=1) + "\n")
    out.with_suffix(".md").write_text(page(figures, args.seeds))
    for figure in figures[:2]:
        print(f"{figure.metric}: {figure.value:+.3f} [{figure.low}, {figure.high}] n={figure.n}")


def one(args: argparse.Namespace, seed: int) -> list[Figure]:
    """One seed's round in a clone; what it made already is not made again."""
    place = args.work / str(seed)
    if not place.exists():
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(place)], check=True)
        params = yaml.safe_load((place / "params.yaml").read_text())
        params |= dict(seed=seed, seeds=[seed], promoted_seed=seed)
        (place / "params.yaml").write_text(yaml.safe_dump(params))
    environment = os.environ | {"OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // args.at_once))}
    began = time.monotonic()
    with (args.work / f"{seed}.log").open("a") as log:
        subprocess.run(
            [sys.executable, "scripts/run_stages.py"], cwd=place, env=environment, check=True, stdout=log, stderr=log
        )
    print(f"seed {seed}: {time.monotonic() - began:.0f} s", flush=True)
    return read(place, seed)


def read(place: Path, seed: int) -> list[Figure]:
    """The figures of a seed's report, its arms named after the seed. A policy that was kept gains exactly nothing."""
    file = place / "data" / "default" / "i001" / "report" / "figures.json"
    figures = [Figure.model_validate(row) for row in json.loads(file.read_text())]
    figures = [figure for figure in figures if not figure.arm.startswith("seed ")]
    if not any(figure.metric == "gain" for figure in figures):
        (start,) = [figure for figure in figures if (figure.metric, figure.arm) == ("policy_success", "start policy")]
        figures.append(start.model_copy(update=dict(metric="gain", arm="trained policy", value=0.0, low=0.0, high=0.0)))
    return [figure.model_copy(update=dict(arm=f"seed {seed}, {figure.arm}")) for figure in figures]


def summary(figures: list[Figure]) -> list[Figure]:
    """Mean gain over seeds on sealed states with Student's interval, and its standard deviation."""
    gains = tuple(figure.value for figure in figures if figure.metric == "gain")
    interval = seed_interval(gains)
    common = dict(arm="laptop loop", task="pick-place")
    return [
        Figure.of(interval, "mean_gain", **common),
        Figure(metric="sd_of_gain", value=float(np.std(gains, ddof=1)), n=len(gains), **common),
    ]


COLUMNS = {
    "fake success, expert successes alone": ("before", "fake_success"),
    "fake success, fine-tuned": ("after", "fake_success"),
    "recall, fine-tuned": ("after", "recall"),
    "fake on forks, fine-tuned": ("after", "fake_success_mixed"),
    "success before": ("start policy", "policy_success"),
    "success after": ("trained policy", "policy_success"),
    "gain": ("trained policy", "gain"),
    "mismatch before": ("parent policy", "mismatch"),
    "mismatch after": ("trained policy", "mismatch"),
}


def page(figures: Sequence[Figure], seeds: int) -> str:
    """The results page: the mean, then a row per seed."""
    mean, spread = figures[:2]
    cells = {(figure.arm, figure.metric): figure for figure in figures}
    lines = [
        (ROOT / "docs" / "results" / "laptop.intro.md").read_text().strip(),
        f"Mean gain on sealed states: **{mean.value:+.3f} [{mean.low:+.3f}, {mean.high:+.3f}]** over {mean.n} seeds, "
        f"standard deviation {spread.value:.3f}.",
        "\n".join([
            "| seed | " + " | ".join(COLUMNS) + " |",
            "|---" * (len(COLUMNS) + 1) + "|",
            *(
                f"| {seed} | " + " | ".join(cell(cells.get((f"seed {seed}, {arm}", metric)))
                                            for arm, metric in COLUMNS.values()) + " |"
                for seed in range(seeds)
            ),
        ]),
        "Made by `python -m benchmarks.laptop` from `laptop.json`.",
    ]  # fmt: skip
    return "\n\n".join(lines) + "\n"


if __name__ == "__main__":
    main()

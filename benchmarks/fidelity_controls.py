"""Repairs on the reward's side, as negative controls: read the same dreamed frames more strictly, or not at all.

Readers: the frozen reward; the reward asking for k positive frames in a row; a classifier of commanded poses alone,
which is the same for every world model because it sees nothing that one draws. Each reads the simulator's frames and
those of the world model that saw expert successes alone and of a round's own, on the round's admission episodes. If a
repair did what failure data do, it would bring the first one's fake success down without its recall. After a round:

    python -m benchmarks.fidelity_controls --round default/i001 --out docs/results
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

from benchmarks.experiment import fidelity_figures
from coevo.core import artifacts
from coevo.core.device import best_device
from coevo.episodes.store import read_episodes
from coevo.evaluation.controls import Consecutive, fit_geometry
from coevo.evaluation.fidelity import fidelity
from coevo.evaluation.judged import SIMULATOR, open_loop, read_as_success
from coevo.records.outcomes import Figure
from coevo.rewards import build as rewards
from coevo.worlds import build as worlds
from tasks.admit_world_model import recorded_episodes

IN_A_ROW = (2, 3, 5)


def geometry_reading(learned_on: Path, read_on: Path) -> np.ndarray:
    """The verdicts of action geometry on one artifact's episodes, learned on another's: bool [n]."""
    found = read_episodes(learned_on)
    arrays = found.arrays()
    truth = arrays.success[:, found.interface.success_from - 1 :].any(dim=1)
    model = fit_geometry(arrays.proprio[..., :4], truth, seed=0)
    return model.success(read_episodes(read_on).arrays().proprio[..., :4]).numpy()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("data"))
    parser.add_argument("--round", default="default/i001", help="folder below --data of a round that was admitted")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    made = args.data / args.round
    reward = rewards.load(artifacts.read(made / "reward"), best_device())
    recorded = recorded_episodes(artifacts.read(made / "admission_rollouts"), reward.interface)
    drawn = {SIMULATOR: recorded.seen}
    for name, folder in {
        "expert successes alone": args.data / "start/world_model_expert",
        "failure mix": made / "world_model",
    }.items():
        dream = worlds.dream(artifacts.read(folder), best_device())
        drawn[name] = open_loop(dream, recorded, recorded.keys(0))
    readings = {
        f"{arm}, {label}": read_as_success(by, seen)
        for arm, seen in drawn.items()
        for label, by in (
            ("reward", reward),
            *((f"{k} frames in a row", Consecutive(reward, k)) for k in IN_A_ROW),
        )
    }
    readings["any, action geometry alone"] = geometry_reading(made / "rollouts", made / "admission_rollouts")
    figures: list[Figure] = []
    for arm, read in readings.items():
        rows = fidelity(read, recorded.truth, recorded.states, arm=arm, reader="control", stream=(0,))
        figures += fidelity_figures(arm, reward.interface.task, rows)
    args.out.mkdir(parents=True, exist_ok=True)
    written = json.dumps([figure.model_dump() for figure in figures], indent=1) + "\n"
    (args.out / "fidelity_controls.json").write_text(written)
    for figure in figures:
        if figure.metric.endswith("_all"):
            interval = f"[{figure.low:.3f}, {figure.high:.3f}]"
            print(f"{figure.arm}: {figure.metric} {figure.value:.3f} {interval} n={figure.n}")


if __name__ == "__main__":
    main()

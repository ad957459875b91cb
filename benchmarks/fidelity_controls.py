"""Repairs on the reward's side, as negative controls: read the same dreamed frames more strictly, or not at all.

Readers: the frozen reward; the reward asking for k positive frames in a row; a classifier of commanded poses alone,
which is the same for every world model because it sees nothing that one draws. Each reads the simulator's frames and
those of two world models of the laboratory of `benchmarks.ablation`, success-only and failure mix. If a repair did what
failure data do, it would bring the first one's fake success down without its recall:

    python -m benchmarks.fidelity_controls --task pick_place --lab .local/ablation --out OUT
"""

from __future__ import annotations

import json

import numpy as np
import torch

from benchmarks.ablation import ARMS, Ablation, Reader, arguments
from benchmarks.experiment import TASKS, Collection
from coevo.core.device import best_device
from coevo.episodes.store import read_episodes
from coevo.evaluation.controls import Consecutive, fit_geometry
from coevo.evaluation.fidelity import fidelity
from coevo.evaluation.judged import SIMULATOR, open_loop, read_first
from coevo.records.outcomes import Figure
from coevo.workers.simulation import kept_pools
from coevo.worlds import build as worlds
from coevo.worlds.dream import Dream
from scripts.laboratory import Laboratory

IN_A_ROW = (2, 3, 5)
READ = ("success_only", "reference")
"""Arms of the ablation whose frames are read."""


def geometry_reading(ablation: Ablation) -> np.ndarray:
    """The verdicts of action geometry on the admission episodes, learned on the policy's training rollouts."""
    poses, truth = [], []
    for source in ablation.sources[1:]:
        found = read_episodes(source.path)
        arrays = found.arrays()
        poses.append(arrays.proprio[..., :4])
        truth.append(arrays.success[:, found.interface.success_from - 1 :].any(dim=1))
    model = fit_geometry(torch.cat(poses), torch.cat(truth), seed=0)
    return model.success(read_episodes(ablation.evaluated.path).arrays().proprio[..., :4]).numpy()


def main() -> None:
    args = arguments(__doc__)
    lab = Laboratory(args.lab / args.task)
    args.lab = lab.folder
    ablation = Ablation(Collection(lab, TASKS[args.task], args.workers, args.scale), args)
    reader = Reader(ablation)
    recorded = reader.recorded
    drawn = {SIMULATOR: recorded.seen}
    for name in READ:
        model = ablation.model(name, ARMS[name])
        drawn[name] = open_loop(Dream(worlds.load(model, best_device())), recorded, recorded.keys(0))
    readings = {
        f"{arm}, {label}": read_first(by, seen) < recorded.frames.shape[1]
        for arm, seen in drawn.items()
        for label, by in (
            ("reward", reader.reward),
            *((f"{k} frames in a row", Consecutive(reader.reward, k)) for k in IN_A_ROW),
        )
    }
    readings["any, action geometry alone"] = geometry_reading(ablation)
    figures: list[Figure] = []
    for arm, read in readings.items():
        rows = fidelity(read, recorded.truth, recorded.states, arm=arm, reader="control", stream=(0,))
        figures += reader.rows(arm, rows)
        whole = rows[0]
        if whole.fake_success and whole.recall:
            lab.say(f"{arm}: fake success {whole.fake_success.value:.3f}, recall {whole.recall.value:.3f}")
    args.out.mkdir(parents=True, exist_ok=True)
    rows = [figure.model_dump() for figure in figures]
    (args.out / f"fidelity_controls_{args.task}.json").write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    with kept_pools():
        main()

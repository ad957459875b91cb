"""Reads world models on the same episodes with the same reward, for `benchmarks.ablation`."""

from __future__ import annotations

import json

from benchmarks.experiment import fidelity_figures
from coevo.core.artifacts import Artifact
from coevo.core.device import best_device
from coevo.core.judging import judge
from coevo.core.types import Verdicts
from coevo.evaluation.fidelity import fidelity, pixel_figures
from coevo.evaluation.judged import SIMULATOR, Judged, open_loop
from coevo.evaluation.report.data import at_other_threshold, figure_name
from coevo.records.outcomes import Figure
from coevo.rewards import build as rewards
from coevo.worlds import build as worlds
from coevo.worlds.dream import Dream
from scripts.laboratory import Laboratory
from tasks.admit_world_model import recorded_episodes

RECALL = 0.95
"""At which arms are compared, wherever their threshold puts them."""


class Reader:
    """The policy's own episodes and counterfactuals, and a reward; what was read once is kept in the laboratory."""

    def __init__(self, lab: Laboratory, task: str, reward: Artifact, own: Artifact, counterfactuals: Artifact) -> None:
        self.lab, self.task = lab, task
        self.reward = rewards.load(reward, best_device())
        self.interface = self.reward.interface
        self.recorded = recorded_episodes(own, self.interface)
        self.pairs = recorded_episodes(counterfactuals, self.interface)
        self.on_simulator = judge(self.reward, self.recorded.seen)

    def floor(self) -> list[Figure]:
        """The reward on the simulator's own frames."""
        return self._fidelity(SIMULATOR, self.on_simulator)

    def arm(self, name: str, model: Artifact, sampling: int | None = None) -> list[Figure]:
        """Everything that is said of one arm."""
        kept = self.lab.folder / "figures" / f"{name}.json"
        if kept.exists():
            return [Figure.model_validate(row) for row in json.loads(kept.read_text())]
        dream = Dream(worlds.load(model, best_device()), steps=sampling)
        drawn = open_loop(dream, self.recorded, self.recorded.keys(0))
        verdicts = {SIMULATOR: self.on_simulator, name: judge(self.reward, drawn)}
        judged = Judged(name, "reward", dream, self.reward, self.recorded, self.interface, verdicts, 0)
        figures = self._fidelity(name, verdicts[name])
        silent = lambda done, total: None  # noqa: E731
        slices, told_apart = judged.counterfactuals(self.pairs, silent)
        for row in (*slices, *judged.recorded_history(silent)):
            if row.arm == name:
                figures += fidelity_figures(name, self.task, [row], figure_name(row))
        for metric, found in (
            *at_other_threshold(judged.threshold(RECALL)), ("pairs_told_apart", told_apart),
            ("verdicts_flipped_by_noise", judged.noise(1, silent).flipped),
        ):  # fmt: skip
            figures += [Figure.of(found, metric, name, self.task)] if found is not None else []
        figures += pixel_figures(
            self.recorded.frames.numpy()[:64], drawn.frames.numpy()[:64], self.recorded.truth[:64], arm=name,
            task=self.task,
        )
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(json.dumps([figure.model_dump() for figure in figures], indent=1) + "\n")
        return figures

    def _fidelity(self, arm: str, found: Verdicts) -> list[Figure]:
        read, recorded = found.success.cpu().numpy(), self.recorded
        rows = fidelity(read, recorded.truth, recorded.states, arm=arm, reader="reward", stream=(0,))
        return fidelity_figures(arm, self.task, rows)

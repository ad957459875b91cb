"""A second round for the world model (PACE): a small budget of the evolved policy's rollouts, ended at its peak.

Longer training makes a world model pessimistic: successes are then drawn as failures too. So discrimination, recall
minus fake success, is watched on held-out rollouts of the evolved policy, and the weights of its peak are kept, those
of the world model that it began with included.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Float64
from pydantic import PositiveFloat, PositiveInt, model_validator

from coevo import judges
from coevo.core import judging, random, stage
from coevo.core.artifacts import Artifact
from coevo.core.device import best_device
from coevo.core.stage import Result, Run
from coevo.core.types import Seen
from coevo.episodes import dataset as datasets
from coevo.episodes.composition import Composition, composition
from coevo.episodes.dataset import DatasetRow
from coevo.episodes.store import read_episodes
from coevo.evaluation.drive import drive, hold_last, reached
from coevo.records.base import Config
from coevo.records.interface import require_same
from coevo.worlds import build, fitting
from coevo.worlds.config import WorldTraining
from coevo.worlds.dream import Dream
from coevo.worlds.training import WorldTrainer

REPORTED_EVERY = 50
"""Steps between two reports of the trainer, when there is a chance to look."""


@dataclass(frozen=True)
class Inputs:
    dataset: Artifact = stage.artifact("dataset", "the evolved policy's rollouts, and what is replayed beside them")
    world_model: Artifact = stage.artifact("world_model", "the world model to refine")
    reward: Artifact = stage.artifact("reward_model", "frozen reward that reads what is drawn")
    held_out: Artifact = stage.artifact("episodes", "rollouts of the evolved policy that nothing was trained on")


class Params(Config):
    """How far the world model is refined."""

    training: WorldTraining
    watch_every: PositiveInt = REPORTED_EVERY
    """Steps between looks at the held-out rollouts."""
    patience: PositiveInt = 3
    """Looks in a row below the best one after which training stops."""
    recall_floor: float = 0.0
    """A look below it is not chosen, whatever its discrimination."""
    mixed_weight: PositiveFloat = 1.0
    """Factor on how often episodes are drawn from states that ended both ways in the newest rollouts."""

    @model_validator(mode="after")
    def _looks_come_at_reports(self) -> Params:
        if self.watch_every % REPORTED_EVERY:
            raise ValueError(f"watch_every = {self.watch_every} is no multiple of {REPORTED_EVERY} steps")
        return self


@dataclass(frozen=True)
class Look:
    """What the held-out rollouts said after so many steps."""

    step: int
    recall: float
    fake_success: float

    @property
    def discrimination(self) -> float:
        """Recall minus fake success: 1 tells every outcome apart, 0 none."""
        return self.recall - self.fake_success


class PeakPassed(Exception):
    """Training is ended from within its own report."""


@dataclass
class Peak:
    """The looks of one run and the weights of the best; ties go to the earlier one."""

    params: Params
    looks: list[Look] = field(default_factory=list)
    best: Look | None = None
    weights: dict[str, torch.Tensor] = field(default_factory=dict)
    _worse: int = 0

    def add(self, look: Look, model: torch.nn.Module) -> bool:
        """Take a look into account; whether the peak has passed."""
        self.looks.append(look)
        # Below the floor only the model that training began with may stand, until something better does.
        allowed = look.recall >= self.params.recall_floor or self.best is None
        if allowed and (self.best is None or look.discrimination > self.best.discrimination):
            self.best, self.weights, self._worse = look, copy.deepcopy(model.state_dict()), 0
        else:
            self._worse += 1
        return self._worse >= self.params.patience


def refine_world_model(inputs: Inputs, params: Params, run: Run) -> Result:
    """Fine-tune on the mixture, look at held-out rollouts, keep the peak."""
    data = datasets.read_dataset(inputs.dataset)
    device = best_device()
    model = build.load(inputs.world_model, device)
    require_same(model.interface, inputs.world_model.id, data.interface, inputs.dataset.id)
    model.id = run.id
    arrays, rows = data.arrays("train"), data.chosen("train")
    newest = newest_composition(rows)
    weights = preferring(data.weights("train"), rows, newest.mixed, params.mixed_weight)
    judge = _Judge(inputs, Dream(model), run)
    peak = Peak(params)
    trainer = WorldTrainer(model, fitting.clips_of(model, arrays, weights), params.training, run.seed)

    def report(step: int, loss: float | None) -> None:
        numbers = {} if loss is None else {"world_model/loss": loss}
        watched = step % params.watch_every == 0 or step == params.training.steps
        if watched:
            seen = judge.look(step)
            passed = peak.add(seen, model)
            numbers |= {
                "world_model/discrimination": seen.discrimination, "world_model/recall": seen.recall,
                "world_model/fake_success": seen.fake_success,
            }  # fmt: skip
        run.log(step=step, **numbers)
        run.progress("world model", step, params.training.steps, "" if loss is None else f"loss {loss:.4f}")
        if watched and passed:
            raise PeakPassed

    report(0, None)
    try:
        trainer.run(lambda step, loss: _with_average(trainer, report, step, loss))
    except PeakPassed:
        pass
    model.load_state_dict(peak.weights)
    build.save(model, run.folder)
    return Result("world_model", _metrics(peak, newest, trainer.step), sorted(set(arrays.states)))


def _with_average(trainer: WorldTrainer, report, step: int, loss: float) -> None:
    """Report with the averaged weights in place, which are what is kept; then put the trained ones back."""
    own = [parameter.detach().clone() for parameter in trainer.parameters]
    with torch.no_grad():
        for parameter, mean in zip(trainer.parameters, trainer.average, strict=True):
            parameter.copy_(mean)
    report(step, loss)
    with torch.no_grad():
        for parameter, trained in zip(trainer.parameters, own, strict=True):
            parameter.copy_(trained)
    trainer.model.train()


class _Judge:
    """Draws the held-out actions and reads what was drawn."""

    def __init__(self, inputs: Inputs, dream: Dream, run: Run) -> None:
        self.dream = dream
        recorded = read_episodes(inputs.held_out.path)
        self.arrays = recorded.arrays()
        self.arrays.require_truth(inputs.held_out.id)
        self.reward = judges.load(inputs.reward, best_device())
        require_same(self.reward.interface, inputs.reward.id, recorded.interface, inputs.held_out.id)
        self.truth = reached(self.arrays.success, recorded.interface.success_from)
        if not self.truth.any() or self.truth.all():
            raise ValueError(
                f"{inputs.held_out.id} holds {int(self.truth.sum())} successes among {len(self.truth)} episodes; both "
                "outcomes are needed to watch discrimination"
            )
        self.starts = [recorded.episode(index).start for index in range(len(recorded))]
        names = [f"{row.state}#{row.sample}" for row in recorded.rows]
        self.keys = random.row_keys(run.seed, "held out", rows=names)

    def look(self, step: int) -> Look:
        """What is seen of the dream's world model as it is now; the same noise at every look."""
        self.dream.model.eval()
        driven = drive(self.dream, self.starts, self.arrays.actions, self.keys)
        arrays = self.arrays
        frames = hold_last(driven.frames, arrays.length)
        # A reward that is a world model's head reads with its frozen copy, not with the one in training.
        seen = Seen(frames, arrays.instructions, arrays.proprio[:, 0], arrays.actions)
        read = judging.judge(self.reward, seen).success.cpu()
        recall, fake = read[self.truth].float().mean(), read[~self.truth].float().mean()
        return Look(step, recall.item(), fake.item())


def newest_composition(rows: Sequence[DatasetRow]) -> Composition:
    """Outcomes per state of the policies' own episodes that came in last."""
    own = [row for row in rows if row.policy != "expert" and not row.pair]
    youngest = min((row.age for row in own), default=0)
    newest = [row for row in own if row.age == youngest]
    return composition([row.state for row in newest], [row.outcome == "success" for row in newest])


def preferring(
    weights: Float64[np.ndarray, " n"], rows: Sequence[DatasetRow], states: frozenset[str], factor: float
) -> Float64[np.ndarray, " n"]:
    """The weights with those of episodes from `states` times `factor`, scaled to sum to 1 again."""
    scaled = weights * np.array([factor if row.state in states else 1.0 for row in rows])
    return scaled / scaled.sum()


def _metrics(peak: Peak, newest: Composition, steps: int) -> dict:
    began, best = peak.looks[0], peak.best
    return {
        "steps": steps, "best_step": best.step,
        "discrimination_before": began.discrimination, "discrimination": best.discrimination,
        "recall_before": began.recall, "recall": best.recall,
        "fake_success_before": began.fake_success, "fake_success": best.fake_success,
    } | newest.shares("newest_")  # fmt: skip


if __name__ == "__main__":
    stage.main(refine_world_model)

"""Train the reward model once, calibrate it on held-out simulator episodes, and freeze it by hash.

A model that has nothing to train (a frozen vision-language model) is calibrated on all episodes, and a world model's
own head on those from initial states that the world model was not trained on. Later rounds hand in the frozen model
instead of a configuration: its weights and threshold stay, and its precision and recall are measured again on the new
rollouts.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from coevo import judges
from coevo.core import random, stage
from coevo.core.artifacts import Artifact
from coevo.core.checkpoints import Checkpoint
from coevo.core.device import best_device
from coevo.core.stage import Result, Run
from coevo.core.types import Seen
from coevo.episodes import store
from coevo.evaluation.drive import reached
from coevo.records.base import Config, read_yaml
from coevo.records.interface import Interface, require_same
from coevo.records.outcomes import Calibration
from coevo.rewards import build, classifier
from coevo.rewards.calibration import Given, Looked, Threshold, calibrate, scores, single_frames, sweep, value_order
from coevo.rewards.config import ClassifierTraining, WindowConfig, WindowTraining, WorldModelHeadConfig
from coevo.rewards.own_head import OwnHeadReward


@dataclass(frozen=True)
class Inputs:
    episodes: tuple[Artifact, ...] = stage.artifact_list("episodes", "simulator episodes with their truth")
    config: Path | None = stage.config_file("reward configuration, a file of configs/reward", optional=True)
    reward: Artifact | None = stage.artifact("reward_model", "a frozen reward model to measure again", optional=True)
    world_model: Artifact | None = stage.artifact("world_model", "whose head is to be calibrated", optional=True)


class Params(Config):
    """How the reward model is trained and calibrated."""

    training: ClassifierTraining = ClassifierTraining()
    windows: WindowTraining = WindowTraining()
    """Training of reward models of windows."""
    threshold: Threshold | None = None
    """How the threshold is found. None takes the configuration's and fits one where it has none; a frozen model keeps
    its own."""
    sweep: tuple[float, ...] = (0.2, 0.3, 0.4, 0.5, 0.6)
    """Readings, on the scale of 0 to 1, at which accuracy, precision, recall and F1 are written too."""


TENSORS = ("frames", "actions", "proprio", "success", "progress")


@dataclass(frozen=True)
class _Episodes:
    """All episodes, one after the other."""

    interface: Interface
    frames: Tensor
    actions: Tensor
    proprio: Tensor
    success: Tensor
    progress: Tensor
    states: list[str]
    instructions: list[str]

    def of(self, rows: Tensor) -> _Episodes:
        """Some of them."""
        index = rows.nonzero().flatten().tolist()
        picked = [[values[row] for row in index] for values in (self.states, self.instructions)]
        return _Episodes(self.interface, *(getattr(self, name)[rows] for name in TENSORS), *picked)

    @property
    def seen(self) -> Seen:
        """What a reward model reads."""
        return Seen(self.frames, tuple(self.instructions), self.proprio[:, 0], self.actions)


def calibrate_reward(inputs: Inputs, params: Params, run: Run) -> Result:
    """Fit on one part of the initial states, calibrate on the rest; or measure a frozen model on all of them."""
    if (inputs.config is None) == (inputs.reward is None):
        raise ValueError("give either --config (train a reward model) or --reward (measure a frozen one again)")
    if inputs.reward is not None and inputs.world_model is not None:
        raise ValueError("--world-model goes with --config: a frozen reward keeps the world model whose head it is")
    episodes = _read(inputs)
    if inputs.reward is not None:
        model, judged, seen = judges.load(inputs.reward, best_device()), episodes, []
        require_same(model.interface, inputs.reward.id, episodes.interface, inputs.episodes[0].id)
        choice = params.threshold or Given(value=model.calibration.threshold)
    else:
        config = build.read_config(read_yaml(inputs.config), str(inputs.config))
        if isinstance(config, WorldModelHeadConfig):
            model = _own_head(inputs, config, episodes)
            judged = _unseen(episodes, inputs.world_model)
            seen = sorted(set(judged.states))
        else:
            model = build.build(config, episodes.interface, run.seed).to(best_device())
            judged, seen = _fit(model, episodes, params, run)
        given = getattr(config, "threshold", None)
        choice = params.threshold or (None if given is None else Given(value=given))
    weights = judges.save(model, run.folder, inputs.reward or inputs.world_model)
    calibration, order = _calibrate(model, judged, choice, weights, params.sweep, run.folder)
    if inputs.reward is not None and params.threshold is None:
        calibration = calibration.model_copy(update={"threshold_from": model.calibration.threshold_from})
    (run.folder / build.CALIBRATION).write_text(calibration.model_dump_json(indent=1) + "\n")
    named = ("threshold", "trigger_rate", "precision", "recall", "false_positive_rate", "n")
    metrics = {name: getattr(calibration, name) for name in named} | {"value_order": order}
    return Result("reward_model", metrics, seen)


def _read(inputs: Inputs) -> _Episodes:
    sets = [store.read_episodes(item.path) for item in inputs.episodes]
    if not sets:
        raise ValueError("no episodes were given; name at least one artifact of simulator episodes after --episodes")
    interface = sets[0].interface
    for item, episodes in zip(inputs.episodes, sets, strict=True):
        require_same(interface, inputs.episodes[0].id, episodes.interface, item.id)
    arrays = [episodes.arrays() for episodes in sets]
    for item, part in zip(inputs.episodes, arrays, strict=True):
        part.require_truth(item.id)
    return _Episodes(
        interface, *(torch.cat([getattr(part, name) for part in arrays]) for name in TENSORS),
        *([value for part in arrays for value in getattr(part, name)] for name in ("states", "instructions")),
    )  # fmt: skip


def _own_head(inputs: Inputs, config: WorldModelHeadConfig, episodes: _Episodes) -> OwnHeadReward:
    if inputs.world_model is None:
        raise ValueError(f"{inputs.config} is a world model's own head: give that world model with --world-model")
    model = judges.own_head(inputs.world_model, config, best_device())
    require_same(model.interface, inputs.world_model.id, episodes.interface, inputs.episodes[0].id)
    return model


def _unseen(episodes: _Episodes, world_model: Artifact) -> _Episodes:
    """Those from initial states that neither the world model nor one before it was trained on."""
    lineage = world_model.lineage().values()
    trained_on = {state for node in lineage if node["kind"] == "world_model" for state in node["states"]}
    unseen = torch.tensor([state not in trained_on for state in episodes.states])
    if not unseen.any():
        raise ValueError(
            f"{world_model.id} was trained on all {len(set(episodes.states))} initial states of these episodes; "
            "calibrate its head on others: raise 'validation_share' of build_dataset, or collect more states"
        )
    return episodes.of(unseen)


def _fit(model: nn.Module, episodes: _Episodes, params: Params, run: Run) -> tuple[_Episodes, list[str]]:
    """Train what there is to train; returns the episodes to calibrate on, and the states that were seen."""
    if not any(weight.requires_grad for weight in model.parameters()):
        return episodes, sorted(set(episodes.states))
    held = torch.tensor([_held_out(state, run.seed, params.training.held_out) for state in episodes.states])
    part = episodes.of(~held)
    windowed = isinstance(model.config, WindowConfig)
    steps = params.windows.steps if windowed else params.training.steps

    def report(step: int, loss: float) -> None:
        run.log(step=step, **{"reward/loss": loss})
        run.progress("reward", step, steps, f"loss {loss:.4f}")

    checkpoint = Checkpoint(run.scratch / "reward.pt")
    if windowed:
        from coevo.rewards import fitting  # takes seconds to import, which a classifier need not wait for

        fitting.fit(
            model, params.windows, part.frames, part.success, part.progress, part.instructions, run.seed, report,
            checkpoint,
        )  # fmt: skip
    else:
        classifier.fit(model, params.training, part.frames, part.success, run.seed, report, checkpoint)
    return episodes.of(held), sorted(set(episodes.states))


def _calibrate(
    model: nn.Module | OwnHeadReward, episodes: _Episodes, choice: Threshold | None, weights: str,
    levels: Sequence[float], folder: Path,
) -> tuple[Calibration, float]:  # fmt: skip
    """The calibration, and how well readings of successes rise with time; sweep.json has the scores at all `levels`."""
    interface = episodes.interface
    readings = read(model, episodes.seen).cpu()
    counted, truth = readings[:, interface.success_from :], reached(episodes.success, interface.success_from)
    peak = counted.amax(dim=1)
    looked: Looked = model.looked() if hasattr(model, "looked") else single_frames(interface)
    found = calibrate(peak, truth, interface, weights, looked, choice, counted.flatten())
    rows = [*sweep(peak, truth, levels), scores(peak, truth, found.threshold_as_probability)]
    (folder / "sweep.json").write_text(json.dumps(rows, indent=1) + "\n")
    return found, value_order(readings[truth][:, 1:])


def read(model: nn.Module | OwnHeadReward, seen: Seen) -> Tensor:
    """Probability per frame, float32 [n f1]."""
    if isinstance(model, OwnHeadReward):
        return model.readings(seen)
    if isinstance(model.config, WindowConfig):
        return model.probabilities(seen.frames, seen.instructions)
    return model.probabilities(seen.frames)


def _held_out(state: str, seed: int, share: float) -> bool:
    """Whether an initial state is kept for calibration: by its own id, so more data never moves it across."""
    return random.stream(seed, "reward held out", state).random() < share


if __name__ == "__main__":
    stage.main(calibrate_reward)

"""Train the reward model once, calibrate it on held-out simulator episodes, and freeze it by hash.

Later rounds hand in the frozen model instead of a configuration: its weights and threshold stay, and its precision and
recall are measured again on the new rollouts.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from coevo.core import random, stage
from coevo.core.artifacts import Artifact
from coevo.core.checkpoints import Checkpoint
from coevo.core.device import best_device
from coevo.core.stage import Result, Run
from coevo.episodes import store
from coevo.evaluation.drive import reached
from coevo.records.base import Config, read_yaml
from coevo.records.interface import Interface, require_same
from coevo.rewards import build, classifier
from coevo.rewards.calibration import calibrate, measure
from coevo.rewards.config import ClassifierTraining, FrameClassifierConfig


@dataclass(frozen=True)
class Inputs:
    episodes: tuple[Artifact, ...] = stage.artifact_list("episodes", "simulator episodes with their truth")
    config: Path | None = stage.config_file("reward configuration, a file of configs/reward", optional=True)
    reward: Artifact | None = stage.artifact("reward_model", "a frozen reward model to measure again", optional=True)


class Params(Config):
    """How the reward model is trained and calibrated."""

    training: ClassifierTraining = ClassifierTraining()


def calibrate_reward(inputs: Inputs, params: Params, run: Run) -> Result:
    """Fit on one part of the initial states, calibrate on the rest; or measure a frozen model on all of them."""
    if (inputs.config is None) == (inputs.reward is None):
        raise ValueError("give either --config (train a reward model) or --reward (measure a frozen one again)")
    sets = [store.read_episodes(item.path) for item in inputs.episodes]
    if not sets:
        raise ValueError("no episodes were given; name at least one artifact of simulator episodes after --episodes")
    interface = sets[0].interface
    for item, episodes in zip(inputs.episodes, sets, strict=True):
        require_same(interface, inputs.episodes[0].id, episodes.interface, item.id)
    arrays = [episodes.arrays() for episodes in sets]
    for item, part in zip(inputs.episodes, arrays, strict=True):
        part.require_truth(item.id)
    frames = torch.cat([part.frames for part in arrays])
    success = torch.cat([part.success for part in arrays])
    states = [state for part in arrays for state in part.states]
    truth = reached(success, interface.success_from)
    device = best_device()
    if inputs.reward is not None:
        model = build.load(inputs.reward, device)
        require_same(model.interface, inputs.reward.id, interface, inputs.episodes[0].id)
        weights = build.save_weights(model, run.folder)
        peak = peaks(model, frames, interface)
        calibration = measure(peak, truth, interface, model.calibration.threshold, weights)
        seen: list[str] = []
    else:
        config = FrameClassifierConfig.parse(read_yaml(inputs.config), str(inputs.config))
        model = build.build(config, interface, run.seed).to(device)
        held = torch.tensor([_held_out(state, run.seed, params.training.held_out) for state in states])

        def report(step: int, loss: float) -> None:
            run.log(step=step, **{"reward/loss": loss})
            run.progress("reward", step, params.training.steps, f"loss {loss:.4f}")

        checkpoint = Checkpoint(run.scratch / "reward.pt")
        classifier.fit(model, params.training, frames[~held], success[~held], run.seed, report, checkpoint)
        weights = build.save_weights(model, run.folder)
        calibration = calibrate(peaks(model, frames[held], interface), truth[held], interface, weights)
        seen = sorted(set(states))
    (run.folder / "calibration.json").write_text(calibration.model_dump_json(indent=1) + "\n")
    named = ("threshold", "precision", "recall", "false_positive_rate", "n")
    metrics = {name: getattr(calibration, name) for name in named}
    return Result("reward_model", metrics, seen)


def peaks(model: classifier.FrameClassifier, frames: torch.Tensor, interface: Interface) -> torch.Tensor:
    """Largest probability of each episode over the frames in which success counts."""
    return model.probabilities(frames)[:, interface.success_from :].amax(dim=1).cpu()


def _held_out(state: str, seed: int, share: float) -> bool:
    """Whether an initial state is kept for calibration: by its own id, so more data never moves it across."""
    return random.stream(seed, "reward held out", state).random() < share


if __name__ == "__main__":
    stage.main(calibrate_reward)

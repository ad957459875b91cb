"""What the two stages that train world models share: from episode arrays to a trained model, with checkpoints."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float64
from torch import Tensor

from coevo.core.stage import Run
from coevo.worlds.clips import Clips, prepare
from coevo.worlds.config import WorldTraining
from coevo.worlds.features import Geometry
from coevo.worlds.features_training import Labelled, train_geometry
from coevo.worlds.training import WorldTrainer
from coevo.worlds.twins import twins
from coevo.worlds.world_model import WorldModel


@runtime_checkable
class Arrays(Protocol):
    """The fields of episode arrays that training reads."""

    frames: Tensor
    actions: Tensor
    proprio: Tensor
    length: Tensor
    instructions: tuple[str, ...]
    states: tuple[str, ...]
    outcome: tuple[str, ...]
    success: Tensor
    progress: Tensor
    has_truth: Tensor

    def require_truth(self, where: str) -> None:
        """Raise ValueError unless every episode's outcome is known."""
        ...


def fit(
    model: WorldModel, arrays: Arrays, weights: Float64[np.ndarray, " n"], training: WorldTraining, run: Run
) -> None:
    """Train `model` in place; a checkpoint in the stage's scratch folder lets a killed stage go on to the same end.

    A geometry encoder that is new to the model is trained first, from the start again where the stage was killed.
    """
    _train_features(model, arrays, run)
    clips = clips_of(model, arrays, weights)

    def report(step: int, loss: float) -> None:
        run.log(step=step, **{"world_model/loss": loss})
        run.progress("world model", step, training.steps, f"loss {loss:.4f}")

    WorldTrainer(model, clips, training, run.seed).run(report, run.scratch / "world_model.pt")


def _train_features(model: WorldModel, arrays: Arrays, run: Run) -> None:
    for encoder in model.features.encoders if model.features is not None else ():
        if isinstance(encoder, Geometry) and not encoder.trained:
            steps = encoder.settings.steps

            def report(step: int, loss: float, steps: int = steps) -> None:
                run.log(step=step, **{"geometry/loss": loss})
                run.progress("geometry", step, steps, f"loss {loss:.4f}")

            train_geometry(encoder, model.interface, episode_frames(arrays), run.seed, report)


def episode_frames(arrays: Arrays) -> Labelled:
    """All frames of all episodes, with what is known of each; padding repeats the last."""
    first = torch.cat([torch.zeros_like(arrays.progress[:, :1]), arrays.progress], dim=1)
    known = arrays.has_truth[:, None].expand_as(first).clone()
    known[:, 0] = False  # progress is known after the first frame
    return Labelled(arrays.frames.flatten(0, 1), arrays.proprio.flatten(0, 1), first.flatten(), known.flatten())


def clips_of(model: WorldModel, arrays: Arrays, weights: Float64[np.ndarray, " n"]) -> Clips:
    """Episode arrays ready for training, with who is whose twin and, for a reward head, when each succeeded.

    Raises ValueError if a reward head is to learn from episodes whose outcome is not known.
    """
    if model.reward_head is not None:
        arrays.require_truth("the dataset, which a reward head learns from,")
    return prepare(
        model, arrays.frames, arrays.actions, arrays.proprio[:, 0], arrays.length, arrays.instructions,
        torch.as_tensor(weights).float(), next(model.parameters()).device,
        twins(arrays.states, [outcome == "success" for outcome in arrays.outcome]), arrays.success,
    )  # fmt: skip

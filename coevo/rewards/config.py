"""What a reward model is made of and how it is trained."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt

from coevo.records.base import Config


class FrameClassifierConfig(Config):
    """A convolutional classifier of single frames, trained on the simulator's per-frame labels."""

    kind: Literal["frame_classifier"] = "frame_classifier"
    channels: tuple[PositiveInt, PositiveInt, PositiveInt, PositiveInt] = (24, 48, 64, 64)
    """Of the four strided convolutions."""


class ClassifierTraining(Config):
    """Binary cross-entropy on balanced frames."""

    steps: PositiveInt = 800
    positives: PositiveInt = 96
    """Frames of success per batch."""
    late_negatives: PositiveInt = 96
    """Frames without success from the part of the episode where success counts."""
    any_negatives: PositiveInt = 32
    """Frames without success from anywhere."""
    learning_rate: PositiveFloat = 1e-3
    image_noise: NonNegativeFloat = 0.15
    """Largest standard deviation added to frames in [-1, 1]; it forgives the texture of a world model."""
    held_out: Annotated[float, Field(gt=0, lt=1)] = 0.2
    """Share of initial states kept for calibration."""

"""What a reward model is made of and how it is trained."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from coevo.records.base import Config
from coevo.rewards.vlm_config import Looking, Prompt


class FrameClassifierConfig(Config):
    """A convolutional classifier of single frames, trained on the simulator's per-frame labels."""

    kind: Literal["frame_classifier"] = "frame_classifier"
    channels: tuple[PositiveInt, PositiveInt, PositiveInt, PositiveInt] = (24, 48, 64, 64)
    """Of the four strided convolutions."""


class ResNetConfig(Config):
    """The same classifier as a ResNet; the defaults are ResNet-18."""

    kind: Literal["frame_resnet"] = "frame_resnet"
    layer: Literal["basic", "bottleneck"] = "basic"
    stem: PositiveInt = 64
    widths: tuple[PositiveInt, ...] = (64, 128, 256, 512)
    depths: tuple[PositiveInt, ...] = (2, 2, 2, 2)


class TopRewardConfig(Looking):
    """Probability that a vision-language model's next token is `token`, with no text generated (TOPReward).

    Frozen where the model is pretrained. A tiny one is trained to answer, from the simulator's labels.
    """

    kind: Literal["topreward"] = "topreward"
    token: str = " True"
    """One token, with its space: 'True' without is another one."""
    other: str = " False"
    """What a tiny model is trained to answer otherwise; the reading never looks at it."""
    threshold: float | None = Field(default=0.46, gt=0, lt=1)
    """As a probability; none fits one on the simulator's outcomes."""


class DenseProgressConfig(Looking):
    """Progress from 0 to 10 by a head on a vision-language model with low-rank adapters (as in WoVR)."""

    kind: Literal["dense_progress"] = "dense_progress"
    window: Annotated[int, Field(ge=2)] = 4
    prompt: Prompt = Prompt(after="The task is: {instruction} How far is it done, from 0 to 10?")
    rank: NonNegativeInt = 16
    """Of the adapters in the language model's attention; 0 trains the head alone."""
    hidden: PositiveInt = 256
    """Width of the head."""
    threshold: float | None = Field(default=None, gt=0, lt=10)
    """On the scale of progress; none fits one."""


class CompletionConfig(Looking):
    """Probability of completion by a head on the pooled output of a frozen vision-language model (World-Env)."""

    kind: Literal["completion"] = "completion"
    window: Annotated[int, Field(ge=2)] = 32
    """Frames spread evenly over the episode so far."""
    prompt: Prompt = Prompt(after="Is this task completed: {instruction}")
    hidden: PositiveInt = 256
    threshold: float | None = Field(default=0.5, gt=0, lt=1)
    """World-Env's eta."""


class WorldModelHeadConfig(Config):
    """The reward head of the world model that draws (World-VLA-Loop); trained with it, by train_world_model."""

    kind: Literal["world_model_head"] = "world_model_head"
    threshold: float | None = Field(default=None, gt=0, lt=1)
    """None fits one on the simulator's outcomes."""


WindowConfig = TopRewardConfig | DenseProgressConfig | CompletionConfig


def kinds() -> dict[str, type[Config]]:
    """Configurations of our own reward models, by `kind`."""
    own = (
        FrameClassifierConfig, ResNetConfig, TopRewardConfig, DenseProgressConfig, CompletionConfig,
        WorldModelHeadConfig,
    )  # fmt: skip
    return {kind.model_fields["kind"].default: kind for kind in own}


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


class WindowTraining(Config):
    """Steps on windows that end at a reading: half of them at a success, a quarter late in an episode without one."""

    steps: PositiveInt = 400
    batch: Annotated[int, Field(ge=4)] = 16
    image_noise: NonNegativeFloat = 0.15
    """Largest standard deviation added to frames in [-1, 1], one per window; it forgives the texture of a world model.
    Behind a frozen vision-language model, whose output is computed once, none is added."""
    learning_rate: PositiveFloat = 1e-3
    """1e-4 is what the completion head's authors use at full size."""

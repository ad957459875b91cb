"""What a policy is made of and how it is cloned from demonstrations."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt

from coevo.records.base import Config


class FixedGaussian(Config):
    """Normal around the predicted action with a fixed standard deviation, which reinforcement cannot shrink."""

    kind: Literal["gaussian"] = "gaussian"
    std: PositiveFloat = 0.10


class FixedLaplace(Config):
    """Laplace around the predicted action with a fixed scale."""

    kind: Literal["laplace"] = "laplace"
    scale: PositiveFloat = 0.07


Head = Annotated[FixedGaussian | FixedLaplace, Field(discriminator="kind")]


class SmallPolicyConfig(Config):
    """A convolutional policy of about half a million weights: current frame, proprioception, instruction."""

    kind: Literal["small"] = "small"
    head: Head = FixedGaussian()
    segments: PositiveInt = 2
    """Actions predicted per chunk; each is held for chunk / segments control steps, so that noise moves the arm."""
    channels: tuple[PositiveInt, PositiveInt, PositiveInt, PositiveInt] = (32, 64, 64, 64)
    """Of the four strided convolutions."""
    width: PositiveInt = 256
    critic: bool = False
    """A value head for PPO."""
    critic_input: Literal["features", "action"] = "features"
    """What the critic reads. features: those before the action head. action: the drawn action, its noise included, as
    where a critic hangs on the action expert of a flow policy; for comparison."""


class Cloning(Config):
    """Behaviour cloning on noise-free expert actions."""

    steps: PositiveInt = 1500
    batch: PositiveInt = 128
    learning_rate: PositiveFloat = 1e-3
    weight_decay: NonNegativeFloat = 1e-4
    image_noise: NonNegativeFloat = 0.05
    """Standard deviation added to frames in [-1, 1]."""
    command_noise: NonNegativeFloat = 0.005
    """Standard deviation added to the commanded position, metres."""

"""Configuration of the MetaWorld simulator."""

from __future__ import annotations

from typing import Literal

from pydantic import NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from coevo.core.parts import PythonPart
from coevo.records.base import Config
from coevo.records.interface import Interface


class Success(Config):
    """When a frame shows success: the object is near its goal, over the axes that count."""

    distance: PositiveFloat
    """Largest distance between object (or handle, or button) and goal, metres."""
    axes: tuple[Literal["x", "y", "z"], ...] = ("x", "y", "z")
    """Axes over which the distance is taken; MetaWorld judges a door by x and a button by z alone."""
    beyond: bool = False
    """Whether past the goal, as seen from the start, counts as reached; with one axis only."""

    @model_validator(mode="after")
    def _one_axis(self) -> Success:
        if self.beyond and len(self.axes) != 1:
            raise ValueError(f"'beyond' needs one axis to say what lies beyond, there are {len(self.axes)}")
        return self


class ResetRange(Config):
    """Corners of the box that the task's reset vector is drawn from; equal corners fix a value. Metres."""

    low: tuple[float, ...]
    high: tuple[float, ...]

    @model_validator(mode="after")
    def _ordered(self) -> ResetRange:
        if len(self.low) != len(self.high) or any(a > b for a, b in zip(self.low, self.high, strict=True)):
            raise ValueError(f"low {self.low} does not lie below high {self.high}")
        return self


class Paint(Config):
    """Another look for one part of the scene, so that the outcome can be seen at a small size."""

    part: Literal["geom", "site", "body"]
    """body: all geoms of that body."""
    name: str
    rgba: tuple[float, float, float, float]
    size: PositiveFloat | None = None
    """Radius of a site, metres; left out, as MetaWorld has it."""


class Drawing(Config):
    """Quality of the frames. MetaWorld's defaults draw 4-12 frames/s on a CPU, these about 200."""

    shadow_size: NonNegativeInt = 0
    """Texels of the shadow map; 0 draws no shadows."""
    samples: NonNegativeInt = 0
    """Samples per pixel against jagged edges."""
    effects: bool = False
    """Reflections, sky and haze."""


class ExpertConfig(Config):
    """The scripted expert of a task."""

    script: Literal["grasp", "metaworld"] = "metaworld"
    """grasp: hover, descend, close, carry, all from the object's first position. metaworld: the task's own policy."""
    hold: PositiveInt = 1
    """Control steps for which one of its actions is held."""


class MetaWorldConfig(Config):
    """One MetaWorld task, seen by one camera."""

    kind: Literal["metaworld"] = "metaworld"
    env: str
    """Name in MetaWorld, for example 'pick-place-v3'."""
    interface: Interface
    success: Success
    reset: ResetRange | None = None
    """Where object and goal may begin; left out, the task's own ranges."""
    settle: NonNegativeInt = 20
    """Null actions between placing the object and the first frame."""
    paint: tuple[Paint, ...] = ()
    drawing: Drawing = Drawing()
    expert: ExpertConfig = ExpertConfig()


class PythonSimulatorConfig(PythonPart):
    """A simulator of the user's own: a class called with the interface and the options, which answers what
    `coevo.simulators.rows.Simulator` says."""

    interface: Interface

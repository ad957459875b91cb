"""The contract between simulator, policy, world model and reward: declared once, checked wherever two of them meet.

Most published failures of in-world reinforcement learning are mismatches of this contract (action order, gripper
sign, stride, window, colour order), so it is a record that travels inside every artifact.
"""

from __future__ import annotations

from typing import Literal

from pydantic import PositiveFloat, PositiveInt, model_validator

from coevo.records.base import Config

Vector3 = tuple[float, float, float]


class ActionSpace(Config):
    """What the numbers of one action mean. Deltas are float32 in [-1, 1] per dimension and are clipped to it."""

    names: tuple[str, ...] = ("x", "y", "z", "gripper")
    """Meaning of each dimension, in order."""
    representation: Literal["delta_position", "delta_pose", "joint_position"] = "delta_position"
    """delta_position: the first three dimensions move the commanded gripper position. delta_pose: so do they, and the
    next three turn it (axis-angle). joint_position: absolute joint angles, radians."""
    metres_per_unit: PositiveFloat = 0.01
    """Distance that the commanded position moves at action 1."""
    low: Vector3
    """Lower corner of the box that the commanded position is clipped to, metres."""
    high: Vector3
    """Upper corner of that box, metres."""
    gripper_open: float = -1.0
    """Command that opens the gripper."""
    gripper_closed: float = 1.0
    """Command that closes it."""
    null: tuple[float, ...] = (0.0, 0.0, 0.0, -1.0)
    """The simulator's own do-nothing action: what stands in history before the first action."""


class Camera(Config):
    """A free camera and the size of its frames. Frames are RGB, row 0 on top."""

    width: PositiveInt = 64
    height: PositiveInt = 64
    fovy: PositiveFloat = 45.0
    """Vertical field of view, degrees."""
    lookat: Vector3
    distance: PositiveFloat
    azimuth: float
    elevation: float


class Interface(Config):
    """Everything that two components must agree on before they may work together."""

    task: str
    instruction: str
    action: ActionSpace
    camera: Camera
    control_hz: PositiveFloat = 80.0
    chunk: PositiveInt = 8
    """Control steps per decision of the policy (k)."""
    stride: PositiveInt = 4
    """Control steps per recorded frame (s)."""
    horizon: PositiveInt = 80
    """Control steps in an episode (t)."""
    success_from: PositiveInt = 10
    """Index of the first frame after the start at which success counts (a reset may look like success)."""
    proprio: tuple[str, ...] = ("x", "y", "z", "gripper", "time")
    """Commanded position (metres), last gripper command, decisions taken / decisions in an episode."""

    @model_validator(mode="after")
    def _divides(self) -> Interface:
        if self.chunk % self.stride:
            raise ValueError(f"stride {self.stride} does not divide chunk {self.chunk}")
        if self.horizon % self.chunk:
            raise ValueError(f"chunk {self.chunk} does not divide horizon {self.horizon}")
        if len(self.action.null) != len(self.action.names):
            raise ValueError(f"null action {self.action.null} does not have the dimensions {self.action.names}")
        if self.success_from > self.frames:
            raise ValueError(f"success_from {self.success_from} lies past the last frame {self.frames}")
        return self

    @property
    def decisions(self) -> int:
        """Decisions in an episode (q)."""
        return self.horizon // self.chunk

    @property
    def frames(self) -> int:
        """Frames after the first in an episode (f)."""
        return self.horizon // self.stride

    @property
    def chunk_frames(self) -> int:
        """Frames per decision (k / s)."""
        return self.chunk // self.stride

    @property
    def fps(self) -> float:
        """Recorded frames per second."""
        return self.control_hz / self.stride


def require_same(left: Interface, left_name: str, right: Interface, right_name: str) -> None:
    """Raise ValueError that names every field in which two interfaces differ, with both values."""
    faults = [
        f"'{key}': {left_name} has {ours!r}, {right_name} has {theirs!r}"
        for key, ours in left.model_dump().items()
        if ours != (theirs := right.model_dump()[key])
    ]
    if faults:
        raise ValueError(
            f"{left_name} and {right_name} were made for different interfaces; "
            "make both with the same file in configs/simulator:\n  " + "\n  ".join(faults)
        )

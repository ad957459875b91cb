"""What an import must be told: nothing that differs between two files of one layout is guessed."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, TypeAdapter, ValidationError

from coevo.records.base import Config, explain
from coevo.records.interface import Interface


class Gripper(Config):
    """The source's gripper commands; they are mapped linearly to those of the interface's action space."""

    open: float
    closed: float


class Import(Config):
    """Common to all layouts."""

    interface: Interface
    """What the imported episodes are to be: action names and representation, control rate, stride, camera size."""
    gripper: Gripper | None = None
    """Commands that open and close in the source; needed when the action space has a gripper dimension."""
    resize: bool = False
    """Scale frames to the camera's size; without it, another size is refused."""
    ends_in_success: bool = False
    """The source holds only successful demonstrations: the last frame is marked as a success."""
    policy: str = "expert"
    """Who acted."""


class LeRobotImport(Import):
    """A LeRobotDataset v2.0, v2.1 or v3.0 folder: a row per control step, its action follows its frame."""

    kind: Literal["lerobot"]
    camera: str
    """Feature with the frames, for example observation.images.front."""
    action: str = "action"
    state: str = "observation.state"
    success: str | None = None
    """Boolean feature that says whether a row is a success, if there is one."""


class LiberoImport(Import):
    """LIBERO's HDF5 files. Proprioception is ee_states (6) and gripper_states (2)."""

    kind: Literal["libero"]
    camera: Literal["agentview_rgb", "eye_in_hand_rgb"] = "agentview_rgb"
    alignment: Literal["after", "before"]
    """after: obs[t] was taken after action t (LIBERO's own files). before: before it (regenerated files)."""
    flip: bool | None = None
    """Turn frames upside down. Left out, the file's macros_image_convention decides."""


class RoboTwinImport(Import):
    """RoboTwin's HDF5 files with joint positions of both arms (14 numbers), as action and as proprioception."""

    kind: Literal["robotwin"]
    camera: str
    """head_camera, ... in files before format v1.0, cam_head, ... in those after."""
    colour_order: Literal["rgb", "bgr"] | None = None
    """Order in which the JPEG files hold the colours; both exist and the files look alike, so it must be said."""


AnyImport = Annotated[LeRobotImport | LiberoImport | RoboTwinImport, Field(discriminator="kind")]


def read_config(values: object, where: str) -> LeRobotImport | LiberoImport | RoboTwinImport:
    """Validate an import's configuration; ValueError says where, which key and what was meant."""
    kinds = {"lerobot": LeRobotImport, "libero": LiberoImport, "robotwin": RoboTwinImport}
    try:
        return TypeAdapter(AnyImport).validate_python(values)
    except ValidationError as error:
        kind = values.get("kind") if isinstance(values, dict) else None
        raise ValueError(explain(error, kinds.get(kind, Import), where)) from None

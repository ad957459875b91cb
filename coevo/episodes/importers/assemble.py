"""From one recording, one row per control step, to an Episode of the interface that was asked for."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import torch
from jaxtyping import Bool, Float32, Float64, UInt8
from PIL import Image

from coevo.core.states import state_id
from coevo.core.types import Episode, InitialState
from coevo.episodes.importers.config import Import

SLACK = 1e-3
"""How far a delta may exceed 1 by rounding."""


@dataclass(frozen=True)
class Recording:
    """What an importer read. Action i leads from frame i to frame i + 1."""

    where: str
    """File and episode, for messages."""
    instruction: str
    frames: UInt8[np.ndarray, "n1 h w 3"]
    actions: Float32[np.ndarray, "n a"]
    proprio: Float32[np.ndarray, "n1 p"]
    success: Bool[np.ndarray, " n1"] | None = None
    simulator_state: Float64[np.ndarray, " z"] = field(default_factory=lambda: np.zeros(0))


def assemble(recording: Recording, config: Import) -> Episode:
    """Check, convert and thin a recording. ValueError names the file and what does not fit.

    A frame is kept every `stride` steps. If the steps do not divide, the end is filled with the null action and the
    last frame stands for what follows, so that an outcome on the last step is not lost.
    """
    _check(recording, config)
    interface, s = config.interface, config.interface.stride
    n = len(recording.actions)
    kept = np.minimum(np.arange(-(-n // s) + 1) * s, n)
    null = np.array(interface.action.null, np.float32)
    idle = np.tile(null, ((-n) % s, 1))
    frames = _sized(recording.frames[kept], config, recording.where)
    success = _success(recording, config, kept)
    first = torch.from_numpy(frames[:1])
    proprio = torch.from_numpy(recording.proprio[kept])
    state = recording.simulator_state
    # Without a simulator state, what can be seen says whether two episodes begin alike.
    identity = state if len(state) else recording.frames[0].ravel().astype(np.float64)
    return Episode(
        actions=torch.from_numpy(np.concatenate([_with_polarity(recording.actions, config), idle])),
        frames=torch.from_numpy(frames),
        proprio=proprio,
        success=success,
        progress=None if success is None else success.float(),
        probability=None,
        start=InitialState(
            id=state_id(interface.task, identity), task=interface.task, instruction=recording.instruction, seed=0,
            simulator_state=state, frames=first, actions=torch.zeros(0, len(null)),
            proprio=proprio[:1],
        ),
        sample=0, policy=config.policy, source="imported", perturbation="none",
    )


def _check(recording: Recording, config: Import) -> None:
    n, action = len(recording.actions), config.interface.action
    for name, found, needed in (
        ("actions", recording.actions.shape, (n, len(action.names))),
        ("proprioception", recording.proprio.shape, (n + 1, len(config.interface.proprio))),
        ("frames", recording.frames.shape[:1], (n + 1,)),
    ):
        if tuple(found) != needed:
            raise ValueError(f"{recording.where}: {name} have the shape {tuple(found)}, the interface needs {needed}")
    for name, values in (("actions", recording.actions), ("proprioception", recording.proprio)):
        if not np.isfinite(values).all():
            raise ValueError(f"{recording.where}: {name} hold NaN or infinity; the file is damaged")
    deltas = [i for i, name in enumerate(action.names) if "gripper" not in name]
    largest = float(np.abs(recording.actions[:, deltas]).max(initial=0.0))
    if action.representation.startswith("delta") and largest > 1 + SLACK:
        raise ValueError(
            f"{recording.where}: actions reach {largest:.3g}, {action.representation} needs them in [-1, 1]; "
            "take another action column or declare the representation that they have"
        )


def _with_polarity(actions: Float32[np.ndarray, "n a"], config: Import) -> Float32[np.ndarray, "n a"]:
    """The only place where a foreign gripper's sign is turned into ours."""
    action = config.interface.action
    dimensions = [i for i, name in enumerate(action.names) if "gripper" in name]
    if not dimensions:
        return actions
    if config.gripper is None:
        raise ValueError("set 'gripper' to the source's commands, for example {open: 0, closed: 1}; no sign is guessed")
    closed = (actions[:, dimensions] - config.gripper.open) / (config.gripper.closed - config.gripper.open)
    converted = actions.copy()
    converted[:, dimensions] = action.gripper_open + closed.clip(0, 1) * (action.gripper_closed - action.gripper_open)
    return converted


def _sized(frames: UInt8[np.ndarray, "f h w 3"], config: Import, where: str) -> UInt8[np.ndarray, "f h w 3"]:
    camera = config.interface.camera
    if frames.shape[1:3] == (camera.height, camera.width):
        return np.ascontiguousarray(frames)
    if not config.resize:
        raise ValueError(
            f"{where}: frames have {frames.shape[2]} x {frames.shape[1]} pixels, the interface's camera "
            f"{camera.width} x {camera.height}; set 'resize: true', or the camera's size to theirs"
        )
    size = (camera.width, camera.height)
    return np.stack([np.asarray(Image.fromarray(frame).resize(size, Image.Resampling.BOX)) for frame in frames])


def _success(recording: Recording, config: Import, kept: np.ndarray) -> torch.Tensor | None:
    """Per kept frame after the first: whether any step since the frame before was a success."""
    if recording.success is not None:
        return torch.tensor([bool(recording.success[a + 1 : b + 1].any()) for a, b in pairwise(kept)])
    if not config.ends_in_success:
        return None
    success = torch.zeros(len(kept) - 1, dtype=torch.bool)
    success[-1:] = True
    return success

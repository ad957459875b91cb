"""LIBERO's HDF5 files: a file a task, a group an episode."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from coevo.core.types import Episode
from coevo.episodes.importers.assemble import Recording, assemble
from coevo.episodes.importers.config import LiberoImport
from coevo.episodes.importers.hdf5 import files_of, opened

JOINTS = slice(1, 8)
"""The arm's joint angles inside a flattened robosuite state, after the time."""
EQUAL = 1e-3
"""Radians within which two readings of the same joints agree."""


def episodes(path: Path, config: LiberoImport) -> Iterator[Episode]:
    """All episodes of a file or of the files in a folder. ValueError names the file that is damaged or ambiguous."""
    for file in files_of(path):
        with opened(file) as root:
            data = root["data"]
            flip = _flip(file, data, config)
            words = json.loads(data.attrs["problem_info"])["language_instruction"]
            instruction = words if isinstance(words, str) else " ".join(words)
            for name in sorted(data, key=lambda name: int(name.rsplit("_", 1)[1])):
                recording = _recording(f"{file}, {name}", data[name], instruction.strip('"'), flip, config)
                yield assemble(recording, config)


def count(path: Path) -> int:
    """Number of episodes."""
    total = 0
    for file in files_of(path):
        with opened(file) as root:
            total += len(root["data"])
    return total


def _recording(where: str, demo: Any, instruction: str, flip: bool, config: LiberoImport) -> Recording:
    observed = demo["obs"]
    frames = observed[config.camera][:]
    actions, states = demo["actions"][:].astype(np.float32), demo["states"][:]
    proprio = np.concatenate([observed["ee_states"][:], observed["gripper_states"][:]], axis=1).astype(np.float32)
    if not len(frames) == len(actions) == len(states) == len(proprio) or len(frames) < 3:
        raise ValueError(
            f"{where}: {len(frames)} frames, {len(actions)} actions, {len(states)} states and {len(proprio)} poses; "
            "equal numbers of at least 3 are needed, so the file is cut short"
        )
    _refute(where, observed["joint_states"][:] if "joint_states" in observed else None, states, config.alignment)
    # Frame t shows the state after action t: it is where action t + 1 begins, and state t + 1 belongs to it.
    first = 1 if config.alignment == "after" else 0
    return Recording(
        where=where, instruction=instruction, frames=frames[:, ::-1] if flip else frames,
        actions=actions[1:] if config.alignment == "after" else actions[:-1], proprio=proprio,
        simulator_state=states[first].astype(np.float64),
    )


def _refute(where: str, joints: np.ndarray | None, states: np.ndarray, alignment: str) -> None:
    """Raise ValueError if the joints that were observed say the other alignment: they equal the state's own."""
    if joints is None or states.shape[1] < JOINTS.stop or joints.shape[1] != JOINTS.stop - JOINTS.start:
        return
    apart = {
        "before": np.abs(joints - states[:, JOINTS]).max(),
        "after": np.abs(joints[:-1] - states[1:, JOINTS]).max(),
    }
    other = "before" if alignment == "after" else "after"
    if apart[other] < EQUAL <= apart[alignment]:
        raise ValueError(
            f"{where}: 'alignment: {alignment}' was asked for, but the observed joints are those of '{other}' "
            f"({apart[other]:.1e} rad apart, against {apart[alignment]:.1e}); set 'alignment: {other}'"
        )


def _flip(file: Path, data: Any, config: LiberoImport) -> bool:
    if config.flip is not None:
        return config.flip
    convention = data.attrs.get("macros_image_convention")
    if convention not in ("opengl", "opencv"):
        raise ValueError(
            f"{file} does not say which way up its frames are (macros_image_convention is {convention!r}); "
            "look at one and set 'flip' to true or false"
        )
    return convention == "opengl"  # OpenGL's row 0 is the lowest

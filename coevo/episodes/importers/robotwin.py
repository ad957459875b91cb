"""RoboTwin's HDF5 files: an episode a file, before data format v1.0 and since."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from coevo.core.types import Episode
from coevo.episodes.importers.assemble import Recording, assemble
from coevo.episodes.importers.config import RoboTwinImport
from coevo.episodes.importers.hdf5 import files_of, opened

ARM_PARTS = ("left_arm_joint_states", "left_ee_joint_states", "right_arm_joint_states", "right_ee_joint_states")


def episodes(path: Path, config: RoboTwinImport) -> Iterator[Episode]:
    """All episodes of a folder (or one file). ValueError names the file that is damaged, ambiguous or older."""
    if config.colour_order is None:
        raise ValueError(
            "RoboTwin's JPEG files exist with both colour orders and do not reliably say which; look at one frame and "
            "set 'colour_order' to rgb or bgr (bgr: decoded as usual, red and blue look swapped)"
        )
    for file in files_of(path):
        with opened(file) as root:
            if "vision" in root:
                recording = _since_v1(file, root, config)
            elif "endpose" in root and not hasattr(root["endpose"], "keys"):
                raise ValueError(f"{file} is of RoboTwin's first 2.0 layout (endpose as one vector), which is not read")
            else:
                recording = _before_v1(file, root, config)
        yield assemble(recording, config)


def _before_v1(file: Path, root: Any, config: RoboTwinImport) -> Recording:
    """Frame t and joint positions t belong together; the command that leads to frame t + 1 is vector t + 1."""
    vector = root["joint_action/vector"][:].astype(np.float32)
    frames = _frames(file, root[f"observation/{config.camera}/rgb"][:], config)
    spoken = file.parent.parent / "instructions" / f"{file.stem}.json"
    if not spoken.is_file():
        raise ValueError(f"{file}: its instruction file {spoken} is missing")
    return Recording(
        where=str(file), instruction=json.loads(spoken.read_text())["seen"][0], frames=frames, actions=vector[1:],
        proprio=vector,
    )


def _since_v1(file: Path, root: Any, config: RoboTwinImport) -> Recording:
    """action[t] = state[t + 1]; where the state ends a row early, the last action says what it was."""
    rate = float(np.asarray(root["additional_info/frequency"])[()])
    asked = config.interface.control_hz
    if rate != asked:
        raise ValueError(f"{file} has {rate:g} rows a second, the interface 'control_hz: {asked:g}'")
    actions, states = _joints(root["action"]), _joints(root["state"])
    frames = _frames(file, root[f"vision/{config.camera}/colors"][:], config)
    n = min(len(actions), len(frames) - 1)
    spoken = root["instructions"][()]
    words = json.loads(spoken.decode() if isinstance(spoken, bytes) else spoken)
    while not isinstance(words, str):  # a string, a list of them, or {"seen": [...]}
        words = words["seen"] if isinstance(words, dict) else words[0]
    return Recording(
        where=str(file), instruction=words, frames=frames[: n + 1], actions=actions[:n],
        proprio=np.concatenate([states[:n], actions[n - 1 : n]]),
    )


def _joints(group: Any) -> np.ndarray:
    parts = [group[part][:] for part in ARM_PARTS]
    return np.concatenate([part.reshape(len(part), -1) for part in parts], axis=1).astype(np.float32)


def _frames(file: Path, encoded: np.ndarray, config: RoboTwinImport) -> np.ndarray:
    frames = []
    for index, data in enumerate(encoded):
        try:
            # Fixed-length strings: what follows the end of the JPEG is zeros, which the decoder leaves alone.
            frame = np.asarray(Image.open(io.BytesIO(bytes(data))).convert("RGB"))
        except OSError as error:
            raise ValueError(f"{file}: frame {index} of {config.camera} cannot be decoded: {error}") from None
        frames.append(frame[..., ::-1] if config.colour_order == "bgr" else frame)
    return np.stack(frames)

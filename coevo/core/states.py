"""Initial states on disk: states.parquet (one row a state, frames as PNG, lossless) beside interface.json."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float64, UInt8
from torch import Tensor

from coevo.core.artifacts import Artifact
from coevo.core.types import InitialState
from coevo.records.interface import Interface

STATES, INTERFACE = "states.parquet", "interface.json"


def state_id(task: str, simulator_state: Float64[np.ndarray, " z"]) -> str:
    """Id of a physical state: two sets that hold the same state give it the same id, which the leakage guard needs."""
    content = np.ascontiguousarray(simulator_state, dtype="<f8").tobytes()
    return f"{task}-{hashlib.sha256(content).hexdigest()[:8]}"


def write_states(folder: Path, states: Sequence[InitialState], interface: Interface) -> None:
    """Write states and the interface they were made for. Raises ValueError if two states share an id."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    ids = [state.id for state in states]
    if len(set(ids)) < len(ids):
        twice = min(id for id in ids if ids.count(id) > 1)
        raise ValueError(f"two of the {len(ids)} initial states are the same one, {twice}; draw them from another seed")
    rows = [
        dict(
            id=state.id, task=state.task, instruction=state.instruction, seed=state.seed, decision=state.decision,
            simulator_state=_bytes(state.simulator_state), frames=[_png(frame) for frame in state.frames],
            actions=_bytes(state.actions), action_size=state.actions.shape[-1],
            proprio=_bytes(state.proprio), proprio_size=state.proprio.shape[-1],
        )
        for state in states
    ]
    pq.write_table(pa.Table.from_pylist(rows, schema=_schema()), folder / STATES)
    (folder / INTERFACE).write_text(interface.model_dump_json(indent=1) + "\n")


def read_states(artifact: Artifact) -> tuple[list[InitialState], Interface]:
    """The states of an artifact, in the order written, bit for bit, and their interface."""
    import pyarrow.parquet as pq

    interface = Interface.model_validate_json((artifact.path / INTERFACE).read_bytes())
    rows = pq.read_table(artifact.path / STATES).to_pylist()
    return [_state(row) for row in rows], interface


def _state(row: dict) -> InitialState:
    actions = np.frombuffer(row["actions"], "<f4").reshape(-1, row["action_size"]).copy()
    proprio = np.frombuffer(row["proprio"], "<f4").reshape(-1, row["proprio_size"]).copy()
    return InitialState(
        id=row["id"], task=row["task"], instruction=row["instruction"], seed=row["seed"],
        simulator_state=np.frombuffer(row["simulator_state"], "<f8").copy(),
        frames=torch.stack([_pixels(png) for png in row["frames"]]),
        actions=torch.from_numpy(actions), proprio=torch.from_numpy(proprio), decision=row["decision"],
    )


def _schema():
    import pyarrow as pa

    return pa.schema([
        ("id", pa.string()), ("task", pa.string()), ("instruction", pa.string()), ("seed", pa.int64()),
        ("decision", pa.int64()), ("simulator_state", pa.binary()), ("frames", pa.list_(pa.binary())),
        ("actions", pa.binary()), ("action_size", pa.int64()), ("proprio", pa.binary()), ("proprio_size", pa.int64()),
    ])


def _bytes(values: np.ndarray | Tensor) -> bytes:
    array = np.ascontiguousarray(values)
    return array.astype(array.dtype.newbyteorder("<")).tobytes()


def _png(frame: UInt8[Tensor, "h w 3"]) -> bytes:
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(frame.numpy()).save(buffer, format="PNG")
    return buffer.getvalue()


def _pixels(png: bytes) -> UInt8[Tensor, "h w 3"]:
    from PIL import Image

    return torch.from_numpy(np.array(Image.open(io.BytesIO(png)).convert("RGB")))

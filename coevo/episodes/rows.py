"""Episodes as rows of the files in `layout`, and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from coevo.core.types import Episode, InitialState
from coevo.episodes import layout, pixels
from coevo.records.interface import Interface

OPTIONAL = ("success", "progress", "probability", "label")
"""Fields of an Episode that may be none; flags say which, since NaN may also be a value."""


def columns(
    batch: Sequence[Episode], interface: Interface, tasks: dict[str, int], first_episode: int, first_frame: int
) -> dict[str, np.ndarray]:
    """All columns of the data file but the frames, the episodes one after the other."""
    lengths = [len(episode.frames) for episode in batch]
    pairs = list(zip(batch, lengths, strict=True))
    frame_index = np.concatenate([np.arange(length) for length in lengths])
    null = np.tile(np.array(interface.action.null, np.float32), interface.stride)[None]
    return {
        layout.STATE: np.concatenate([e.proprio.numpy() for e in batch]),
        layout.ACTION: np.concatenate([_per_step(e.actions, n, null) for e, n in pairs]),
        layout.LABEL: np.concatenate([_per_step(e.label, n, null) for e, n in pairs]),
        "success": np.concatenate([_per_frame(e.success, n, np.bool_(False)) for e, n in pairs]),
        "progress": np.concatenate([_per_frame(e.progress, n, np.float32(np.nan)) for e, n in pairs]),
        "probability": np.concatenate(
            [np.full(n, np.nan, np.float32) if e.probability is None else e.probability.numpy() for e, n in pairs]
        ),
        "timestamp": (frame_index / interface.fps).astype(np.float32),
        "frame_index": frame_index,
        "episode_index": np.repeat(np.arange(first_episode, first_episode + len(batch)), lengths),
        "index": first_frame + np.arange(sum(lengths)),
        "task_index": np.repeat([tasks[e.start.instruction] for e in batch], lengths),
    }


def start(episode: Episode, number: int, lossless: bool) -> dict[str, Any]:
    """A row of the starts file: what an InitialState holds, and which optional parts the episode has.

    The last context frame usually is the episode's first and is then not stored twice, where frames are lossless.
    """
    state = episode.start
    repeated = lossless and torch.equal(state.frames[-1], episode.frames[0])
    return {
        "episode_index": number,
        "task": state.task,
        "decision": state.decision,
        "simulator_state": state.simulator_state.tolist(),
        "context": pixels.encode(state.frames[: -1 if repeated else None].numpy()),
        "context_ends_in_first_frame": repeated,
        "context_actions": state.actions.flatten().tolist(),
        "context_proprio": state.proprio.flatten().tolist(),
    } | {f"has_{name}": getattr(episode, name) is not None for name in OPTIONAL}


def starts_schema():
    """Arrow schema of the starts file (an empty context has no type of its own)."""
    import pyarrow as pa

    return pa.schema(
        [
            ("episode_index", pa.int64()), ("task", pa.string()), ("decision", pa.int64()),
            ("simulator_state", pa.list_(pa.float64())), ("context", pa.list_(pa.binary())),
            ("context_ends_in_first_frame", pa.bool_()),
            ("context_actions", pa.list_(pa.float32())), ("context_proprio", pa.list_(pa.float32())),
        ]
        + [(f"has_{name}", pa.bool_()) for name in OPTIONAL]
    )


def episode(
    metadata: dict[str, Any], begun: dict[str, Any], values: dict[str, np.ndarray], frames: Tensor, interface: Interface
) -> Episode:
    """The episode whose rows are `values`, with its rows of meta/episodes and of the starts file."""
    known = {name: begun[f"has_{name}"] for name in OPTIONAL}
    size = len(interface.action.names)

    def taken(name: str, first: int, *shape: int) -> Tensor | None:
        return _tensor(values[name][first:]).reshape(*shape) if known[name] else None

    return Episode(
        actions=_tensor(values[layout.ACTION][:-1]).reshape(-1, size),
        frames=frames,
        proprio=_tensor(values[layout.STATE]),
        success=taken("success", 1, -1),
        progress=taken("progress", 1, -1),
        probability=taken("probability", 0, -1),
        start=_initial_state(metadata, begun, frames, interface),
        sample=metadata["sample"],
        policy=metadata["policy"],
        source=metadata["source"],
        perturbation=metadata["perturbation"],
        pair=metadata["pair"],
        label=_tensor(values[layout.LABEL][:-1]).reshape(-1, size) if known["label"] else None,
    )


def _initial_state(
    metadata: dict[str, Any], begun: dict[str, Any], frames: Tensor, interface: Interface
) -> InitialState:
    context = [torch.from_numpy(pixels.decode(begun["context"]))] if begun["context"] else []
    if begun["context_ends_in_first_frame"]:
        context.append(frames[:1])
    return InitialState(
        id=metadata["state"],
        task=begun["task"],
        instruction=metadata["tasks"][0],
        seed=metadata["seed"],
        simulator_state=np.array(begun["simulator_state"], np.float64),
        frames=torch.cat(context),
        actions=_tensor(np.array(begun["context_actions"], np.float32)).reshape(-1, len(interface.action.names)),
        proprio=_tensor(np.array(begun["context_proprio"], np.float32)).reshape(-1, len(interface.proprio)),
        decision=begun["decision"],
    )


def _per_step(actions: Tensor | None, length: int, null: np.ndarray) -> np.ndarray:
    """Rows of `stride` actions each; the last frame is followed by the null action."""
    if actions is None:
        return np.full_like(null, np.nan).repeat(length, axis=0)
    return np.concatenate([actions.numpy().reshape(length - 1, null.shape[1]), null])


def _per_frame(values: Tensor | None, length: int, absent: np.generic) -> np.ndarray:
    """Values of the frames after the first, with a zero for the first."""
    if values is None:
        return np.full(length, absent)
    return np.concatenate([np.zeros(1, absent.dtype), values.numpy()])


def _tensor(values: np.ndarray) -> Tensor:
    return torch.from_numpy(np.array(values))

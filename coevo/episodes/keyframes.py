"""Initial states in the middle of recorded episodes: training that begins where an outcome is about to be decided."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from jaxtyping import Float64

from coevo.core.states import state_id
from coevo.core.types import Episode, InitialState
from coevo.records.interface import Interface


def keyframe(
    episode: Episode, decision: int, simulator_state: Float64[np.ndarray, " z"], interface: Interface
) -> InitialState:
    """The state of an episode after so many decisions, with all frames and actions up to it as its context.

    Args:
        simulator_state: the simulator's own at that moment; an episode does not hold it, a replay finds it.

    Raises ValueError where the episode has no frame there, or is itself begun in the middle of another.
    """
    frames, steps = decision * interface.chunk_frames, decision * interface.chunk
    if not 0 < frames < len(episode.frames):
        raise ValueError(f"decision {decision} lies outside an episode of {len(episode.frames) - 1} frames")
    if episode.start.decision:
        raise ValueError(f"the episode from {episode.start.id} begins in the middle of another; cut whole ones")
    return replace(
        episode.start, id=state_id(interface.task, simulator_state), simulator_state=simulator_state,
        frames=episode.frames[: frames + 1], actions=episode.actions[:steps], proprio=episode.proprio[: frames + 1],
        decision=decision,
    )  # fmt: skip


def undecided(episode: Episode, decision: int, interface: Interface) -> bool:
    """Whether the episode goes on after so many decisions, and has not succeeded by then."""
    frames = decision * interface.chunk_frames
    before = episode.success[interface.success_from - 1 : frames] if episode.success is not None else None
    return frames < len(episode.frames) - 1 and (before is None or not bool(before.any()))

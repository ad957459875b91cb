"""Artifacts of the dot's world, published as stages publish them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from coevo.core import artifacts
from coevo.core.artifacts import Artifact
from coevo.core.states import write_states
from coevo.core.types import Episode, InitialState
from coevo.episodes.split import from_trajectories
from coevo.episodes.store import write_episodes
from coevo.records.interface import Interface
from coevo.rollout import rollout
from tests.doubles import TOY, ToyPolicy, ToySimulator, toy_state


def publish(
    out: Path, kind: str, write: Callable[[Path], Any], states: Sequence[str] = (), parents: dict | None = None
) -> Artifact:
    """What `write` puts into a folder, as an artifact of this kind."""
    with artifacts.writing(out) as folder:
        write(folder)
        return artifacts.publish(
            folder, out, kind=kind, id=f"toy/{out.name}", stage="tests", parents=parents or {}, config={}, seed=0,
            source_sha256="", metrics={}, states=states,
        )  # fmt: skip


def initial_states(out: Path, columns: Sequence[float], interface: Interface = TOY) -> Artifact:
    """Resets with the dot at these columns."""
    states = [toy_state(column, interface=interface) for column in columns]
    ids = [state.id for state in states]
    return publish(out, "initial_states", lambda folder: write_states(folder, states, interface), ids)


def rolled_out(
    states: Sequence[InitialState], speed: float, spread: float, policy: str = "toy/policy", interface: Interface = TOY
) -> list[Episode]:
    """One episode from each state; an expert's carry their own actions as labels."""
    made = from_trajectories(
        rollout(
            ToySimulator(interface), ToyPolicy(speed, spread, policy, interface), states, stream=(0, "made"),
            source="simulator",
        )
    )  # fmt: skip
    if policy != "expert":
        return made
    return [Episode(**vars(episode) | {"label": episode.actions.clamp(-1, 1)}) for episode in made]


def episodes(out: Path, made: Sequence[Episode], interface: Interface = TOY) -> Artifact:
    """Stored episodes."""
    return publish(
        out, "episodes", lambda folder: write_episodes(folder, made, interface), [episode.start.id for episode in made]
    )

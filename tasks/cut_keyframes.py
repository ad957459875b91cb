"""Initial states in the middle of recorded episodes, found by replay in the simulator."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from pydantic import NonNegativeInt, PositiveInt

from coevo.core import stage
from coevo.core.artifacts import Artifact
from coevo.core.stage import Result, Run
from coevo.core.states import write_states
from coevo.core.types import Episode, InitialState
from coevo.episodes.keyframes import keyframe, undecided
from coevo.episodes.store import read_episodes
from coevo.records.base import Config
from coevo.records.interface import Interface, require_same
from coevo.simulators.build import read_config_file
from coevo.workers.simulation import ParallelSimulator


@dataclass(frozen=True)
class Inputs:
    simulator: Path = stage.config_file("a file of configs/simulator")
    episodes: Artifact = stage.artifact("episodes", "simulator episodes to cut, begun at resets")


class Params(Config):
    """Where the episodes are cut."""

    decisions: tuple[PositiveInt, ...] = (3, 5)
    """After so many decisions of an episode that has not succeeded by then."""
    outcomes: tuple[Literal["success", "near", "failure"], ...] = ("success", "near", "failure")
    """How the episodes ended."""
    count: PositiveInt = 100
    """States for each of the decisions at the most, of the first episodes that there are."""
    workers: NonNegativeInt = 2
    """Simulator processes; 0 works in this one. The result does not depend on it."""


def cut_keyframes(inputs: Inputs, params: Params, run: Run) -> Result:
    """Replay the beginnings, take the states. ValueError where a replay does not lead to the recorded frame."""
    config = read_config_file(inputs.simulator)
    recorded = read_episodes(inputs.episodes.path)
    require_same(recorded.interface, inputs.episodes.id, config.interface, str(inputs.simulator))
    wanted = [episode for episode, row in zip(recorded, recorded.rows, strict=True) if row.outcome in params.outcomes]
    states: dict[str, InitialState] = {}
    origins: set[str] = set()
    with ParallelSimulator(config, params.workers) as simulator:
        for number, decision in enumerate(params.decisions):
            run.progress("keyframes", number, len(params.decisions))
            chosen = [each for each in wanted if undecided(each, decision, config.interface)][: params.count]
            if not chosen:
                raise ValueError(
                    f"none of {len(wanted)} episodes of {inputs.episodes.id} is undecided after {decision} decisions; "
                    "name an earlier one in 'decisions', or other 'outcomes'"
                )
            for state in _states(simulator, chosen, decision, config.interface):
                states[state.id] = state
            origins |= {episode.start.id for episode in chosen}
    write_states(run.folder, list(states.values()), config.interface)
    return Result("initial_states", {"states": len(states)}, sorted(origins | set(states)))


def _states(
    simulator: ParallelSimulator, episodes: list[Episode], decision: int, interface: Interface
) -> list[InitialState]:
    states = np.stack([episode.start.simulator_state for episode in episodes])
    actions = torch.stack([episode.actions[: decision * interface.chunk] for episode in episodes]).numpy()
    for first in range(0, actions.shape[1], interface.chunk):
        made = simulator.advance(states, actions[:, first : first + interface.chunk])
        states = made.states
    last = torch.stack([episode.frames[decision * interface.chunk_frames] for episode in episodes])
    apart = (torch.from_numpy(made.frames[:, -1]) != last).flatten(1).any(dim=1)
    if apart.any():
        raise ValueError(
            f"{int(apart.sum())} of {len(episodes)} replays do not lead to the recorded frame; the episodes come from "
            "another version of the simulator, or from another machine's renderer: collect them again here"
        )
    return [keyframe(episode, decision, state, interface) for episode, state in zip(episodes, states, strict=True)]


if __name__ == "__main__":
    stage.main(cut_keyframes)

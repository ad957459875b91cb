"""Initial states by what was recorded from them: those that end both ways, or all, the shortest successes first."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import Literal

from pydantic import PositiveInt

from coevo.core import stage
from coevo.core.artifacts import Artifact
from coevo.core.stage import Result, Run
from coevo.core.states import read_states, write_states
from coevo.episodes.composition import composition
from coevo.episodes.store import EpisodeSet, read_episodes
from coevo.records.base import Config


@dataclass(frozen=True)
class Inputs:
    states: Artifact = stage.artifact("initial_states", "states to choose from")
    episodes: Artifact = stage.artifact("episodes", "episodes from them; of a policy, several from each, for outcomes")


class Params(Config):
    """Which states are chosen."""

    outcomes: Literal["mixed", "all_failure", "all_success", "any"] = "mixed"
    """How a policy's episodes from a state must have ended; any takes states without episodes too."""
    order: Literal["mixed", "length"] = "mixed"
    """mixed: the most evenly mixed first. length: by the mean length of the successes from a state, an expert's among
    them, and states without one last: what a curriculum draws from."""
    count: PositiveInt | None = None
    """At most so many, the first in order; all when left out."""


def select_states(inputs: Inputs, params: Params, run: Run) -> Result:
    """Keep the states whose episodes ended as asked for."""
    states, interface = read_states(inputs.states)
    recorded = read_episodes(inputs.episodes.path)
    rows = [row for row in recorded.rows if row.policy != "expert"]
    found = composition([row.state for row in rows], [row.success for row in rows])
    wanted = {state.id for state in states} if params.outcomes == "any" else getattr(found, params.outcomes)
    episodes = Counter(row.state for row in rows)
    wins = Counter(row.state for row in rows if row.success)
    chosen = [state for state in states if state.id in wanted]
    if params.order == "length":
        length = success_lengths(recorded)
        chosen.sort(key=lambda state: length.get(state.id, math.inf))  # stable: ties in the set's order
    else:
        chosen.sort(key=lambda state: abs(wins[state.id] / max(episodes[state.id], 1) - 0.5))
    chosen = chosen[: params.count]
    if not chosen:
        raise ValueError(
            f"no state of {inputs.states.id} has {params.outcomes} outcomes in {inputs.episodes.id}: there are "
            f"{len(found.mixed)} mixed, {len(found.all_success)} all_success, {len(found.all_failure)} all_failure and "
            f"{found.once} with one episode; collect with more repeats, or from more states"
        )
    write_states(run.folder, chosen, interface)
    return Result("initial_states", {"chosen": len(chosen)} | found.shares(), [state.id for state in chosen])


def success_lengths(recorded: EpisodeSet) -> dict[str, float]:
    """Mean frames to success from each state that has one."""
    lengths: dict[str, list[int]] = {}
    for row, frame in zip(recorded.rows, recorded.first_success().tolist(), strict=True):
        if frame:
            lengths.setdefault(row.state, []).append(frame)
    return {state: sum(own) / len(own) for state, own in lengths.items()}


if __name__ == "__main__":
    stage.main(select_states)

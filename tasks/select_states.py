"""Initial states from which a policy's episodes ended both ways: where another roll of the dice teaches most."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Literal

from pydantic import PositiveInt

from coevo.core import stage
from coevo.core.artifacts import Artifact
from coevo.core.stage import Result, Run
from coevo.core.states import read_states, write_states
from coevo.episodes.composition import composition
from coevo.episodes.store import read_episodes
from coevo.records.base import Config


@dataclass(frozen=True)
class Inputs:
    states: Artifact = stage.artifact("initial_states", "states to choose from")
    episodes: Artifact = stage.artifact("episodes", "a policy's episodes from them, several from each")


class Params(Config):
    """Which states are chosen."""

    outcomes: Literal["mixed", "all_failure", "all_success"] = "mixed"
    """How the episodes from a state must have ended."""
    count: PositiveInt | None = None
    """At most so many, the most evenly mixed first; all when left out."""


def select_states(inputs: Inputs, params: Params, run: Run) -> Result:
    """Keep the states whose episodes ended as asked for."""
    states, interface = read_states(inputs.states)
    rows = [row for row in read_episodes(inputs.episodes.path).rows if row.policy != "expert"]
    found = composition([row.state for row in rows], [row.success for row in rows])
    wanted = getattr(found, params.outcomes)
    episodes = Counter(row.state for row in rows)
    wins = Counter(row.state for row in rows if row.success)
    chosen = [state for state in states if state.id in wanted]
    chosen.sort(key=lambda state: abs(wins[state.id] / episodes[state.id] - 0.5))  # stable: ties in the set's order
    chosen = chosen[: params.count]
    if not chosen:
        raise ValueError(
            f"no state of {inputs.states.id} has {params.outcomes} outcomes in {inputs.episodes.id}: there are "
            f"{len(found.mixed)} mixed, {len(found.all_success)} all_success, {len(found.all_failure)} all_failure and "
            f"{found.once} with one episode; collect with more repeats, or from more states"
        )
    write_states(run.folder, chosen, interface)
    return Result("initial_states", {"chosen": len(chosen)} | found.shares(), [state.id for state in chosen])


if __name__ == "__main__":
    stage.main(select_states)

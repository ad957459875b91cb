"""Draw one set of initial states from a simulator. Sets of other roles hold other states; --exclude checks it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import NonNegativeInt, PositiveInt

from coevo.core import stage
from coevo.core.artifacts import Artifact
from coevo.core.stage import Result, Run
from coevo.core.states import write_states
from coevo.records.base import Config
from coevo.simulators.build import read_config_file
from coevo.workers.simulation import ParallelSimulator


@dataclass(frozen=True)
class Inputs:
    simulator: Path = stage.config_file("a file of configs/simulator")
    exclude: tuple[Artifact, ...] = stage.artifact_list("initial_states", "sets whose states must not occur here")


class Params(Config):
    role: Literal["train", "validation", "admission", "sealed"]
    """What the states are for; it keys their draw, so that roles differ by construction."""
    count: PositiveInt
    """States to draw."""
    workers: NonNegativeInt = 2
    """Simulator processes; 0 works in this one. The result does not depend on it."""


def make_initial_states(inputs: Inputs, params: Params, run: Run) -> Result:
    config = read_config_file(inputs.simulator)
    with ParallelSimulator(config, params.workers) as simulator:
        states = simulator.initial_states(
            run.seed, params.role, range(params.count), lambda done, total: run.progress("states", done, total)
        )
    ids = [state.id for state in states]
    for other in inputs.exclude:
        shared = set(ids).intersection(other.manifest.states)
        if shared:
            raise ValueError(
                f"{len(shared)} of the {params.role} states (the first is {min(shared)}) are also in {other.id}; "
                "give the two sets different roles or seeds"
            )
    write_states(run.folder, states, config.interface)
    return Result("initial_states", dict(states=len(states), role=params.role, task=config.interface.task), ids)


if __name__ == "__main__":
    stage.main(make_initial_states)

"""Collect episodes of the scripted expert: clean ones for cloning, disturbed ones and pairs for the world model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pydantic import NonNegativeInt, PositiveInt

from coevo.core import stage
from coevo.core.artifacts import Artifact
from coevo.core.stage import Result, Run
from coevo.core.states import read_states
from coevo.episodes.store import write_episodes
from coevo.records.base import Config
from coevo.records.interface import require_same
from coevo.simulators.build import read_config_file
from coevo.workers.collection import Tally
from coevo.workers.experts import Demonstrations, Pairs, execute, plan
from coevo.workers.simulation import ParallelSimulator


@dataclass(frozen=True)
class Inputs:
    simulator: Path = stage.config_file("a file of configs/simulator")
    starts: Artifact = stage.artifact("initial_states", "where episodes begin: the train states")


class Params(Config):
    episodes: tuple[Demonstrations, ...]
    """What to collect, kind by kind."""
    pairs: tuple[Pairs, ...] = ()
    """Counterfactuals from the same start."""
    replayed: PositiveInt = 8
    """Episodes that are run again; the share that comes out identical is recorded."""
    workers: NonNegativeInt = 2
    """Simulator processes; 0 works in this one. The result does not depend on it."""


def collect_demonstrations(inputs: Inputs, params: Params, run: Run) -> Result:
    config = read_config_file(inputs.simulator)
    starts, interface = read_states(inputs.starts)
    require_same(interface, inputs.starts.id, config.interface, str(inputs.simulator))
    rows = plan(starts, params.episodes, params.pairs)
    if not rows:
        raise ValueError("'episodes' and 'pairs' are both empty: there is nothing to collect")
    tally = Tally(interface, len(rows), params.replayed, {part.name: part.keep for part in params.episodes})
    with ParallelSimulator(config, params.workers) as simulator:
        episodes = execute(
            simulator, rows, (run.seed, "expert", run.id),
            lambda done, total: run.progress("expert episodes", done, total),
        )
        write_episodes(run.folder, tally.watch(episodes), interface)
        metrics = tally.metrics(simulator)
    return Result("episodes", metrics, sorted({row[0].id for row in rows}))


if __name__ == "__main__":
    stage.main(collect_demonstrations)

"""Run a policy in the simulator: its own failures are what the world model has to learn."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from pydantic import NonNegativeInt, PositiveInt, model_validator

from coevo.core import stage
from coevo.core.artifacts import Artifact
from coevo.core.protocols import Policy
from coevo.core.stage import Result, Run
from coevo.core.states import read_states
from coevo.core.types import Episode, InitialState, Sampling
from coevo.episodes.split import from_trajectories
from coevo.episodes.store import write_episodes
from coevo.policies.build import load
from coevo.records.base import Config
from coevo.records.interface import require_same
from coevo.rollout import rollout
from coevo.simulators.build import read_config_file
from coevo.workers.collection import Keep, Tally
from coevo.workers.experts import Demonstrations, Pairs, execute, plan
from coevo.workers.simulation import ParallelSimulator


@dataclass(frozen=True)
class Inputs:
    simulator: Path = stage.config_file("a file of configs/simulator")
    policy: Artifact = stage.artifact("policy", "whose episodes are collected")
    starts: Artifact = stage.artifact("initial_states", "where episodes begin: the train states")


class Params(Config):
    states: PositiveInt | None = None
    """Use only the first so many start states; all when left out."""
    repeats: PositiveInt = 2
    """Episodes from each start state; several show which states can end both ways."""
    sampling: Sampling = "sampled"
    """sampled: as in training. greedy: the policy's mean, once per state."""
    keep: Keep = {}
    """Store at most so many of the policy's episodes that ended so, and no others; all of them when left out."""
    near_success: tuple[Demonstrations, ...] = ()
    """Disturbed expert episodes beside the policy's own, for near successes that the policy does not make."""
    pairs: tuple[Pairs, ...] = ()
    """Counterfactuals from the same start: the expert undisturbed and disturbed."""
    replayed: PositiveInt = 8
    """Episodes that are run again; the share that comes out identical is recorded."""
    workers: NonNegativeInt = 2
    """Simulator processes; 0 works in this one. The result does not depend on it."""
    batch: PositiveInt = 128
    """Episodes side by side. Changes the policy's arithmetic by rounding, so it is a parameter like any other."""
    device: str = "cpu"
    """Where the policy runs."""

    @model_validator(mode="after")
    def _no_copies(self) -> Params:
        if self.sampling == "greedy" and self.repeats > 1:
            raise ValueError(f"repeats {self.repeats}: greedy episodes of one start are copies; set repeats to 1")
        return self


def collect_rollouts(inputs: Inputs, params: Params, run: Run) -> Result:
    config = read_config_file(inputs.simulator)
    starts, interface = read_states(inputs.starts)
    require_same(interface, inputs.starts.id, config.interface, str(inputs.simulator))
    policy = load(inputs.policy, params.device)
    chosen = starts[: params.states]
    disturbed = plan(starts, params.near_success, params.pairs)
    keep = {"none": params.keep} | {part.name: part.keep for part in params.near_success}
    tally = Tally(interface, len(chosen) * params.repeats + len(disturbed), params.replayed, keep)
    with ParallelSimulator(config, params.workers) as simulator:
        own = policy_episodes(simulator, policy, chosen, params, run)
        expert = execute(
            simulator, disturbed, (run.seed, "expert", run.id),
            lambda done, total: run.progress("expert episodes", done, total),
        )
        write_episodes(run.folder, tally.watch(chain(own, expert)), interface)
        metrics = tally.metrics(simulator)
    return Result("episodes", metrics, sorted({start.id for start in chosen} | {row[0].id for row in disturbed}))


def policy_episodes(
    simulator: ParallelSimulator, policy: Policy, starts: Sequence[InitialState], params: Params, run: Run
) -> Iterator[Episode]:
    """`repeats` episodes from each start, in batches."""
    rows = [(start, sample) for start in starts for sample in range(params.repeats)]
    for first in range(0, len(rows), params.batch):
        part = rows[first : first + params.batch]
        made = rollout(
            simulator, policy, [start for start, _ in part], samples=[sample for _, sample in part],
            stream=(run.seed, "collect", run.id), source="simulator", sampling=params.sampling,
        )
        run.progress("policy episodes", first + len(part), len(rows))
        yield from from_trajectories(made)


if __name__ == "__main__":
    stage.main(collect_rollouts)

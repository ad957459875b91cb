"""Closed-loop replay: episodes that a policy wins in its dream, done again unchanged in the simulator."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from pydantic import NonNegativeInt, PositiveInt

from coevo import judges
from coevo.core import stage
from coevo.core.artifacts import Artifact
from coevo.core.device import best_device
from coevo.core.judging import judge
from coevo.core.stage import Result, Run
from coevo.core.states import read_states
from coevo.core.types import Sampling
from coevo.evaluation import strips
from coevo.evaluation.evaluate import repeated
from coevo.evaluation.replay import replay
from coevo.policies import build as policies
from coevo.records.base import Config, read_yaml
from coevo.records.interface import require_same
from coevo.rollout import rollout
from coevo.simulators import build as simulators
from coevo.workers.simulation import ParallelSimulator
from coevo.worlds import build as worlds

FILE = "replay.json"


@dataclass(frozen=True)
class Inputs:
    """Who dreams, in what, judged by whom."""

    policy: Artifact = stage.artifact("policy", "policy that acts in the dream")
    world_model: Artifact = stage.artifact("world_model", "world model that it was trained in")
    reward: Artifact = stage.artifact("reward_model", "frozen reward that reads the dream")
    states: Artifact = stage.artifact("initial_states", "held-out initial states")
    simulator: Path = stage.config_file("simulator where the dreamed successes are done again")


class Params(Config):
    """How much is dreamed."""

    repeats: PositiveInt = 1
    """Dreams per initial state."""
    sampling: Sampling = "sampled"
    strips: NonNegativeInt = 4
    """Film strips kept for the report."""
    workers: NonNegativeInt = 0
    """Simulator processes; 0 simulates in this one."""


def replay_dreams(inputs: Inputs, params: Params, run: Run) -> Result:
    """Dream, read, replay; write replay.json and film strips."""
    states, interface = read_states(inputs.states)
    policy, reward = policies.load(inputs.policy, best_device()), judges.load(inputs.reward, best_device())
    judges.require_own(reward, inputs.world_model)
    dream = worlds.dream(inputs.world_model, best_device())
    for artifact, part in ((inputs.policy, policy), (inputs.world_model, dream), (inputs.reward, reward)):
        require_same(part.interface, artifact.id, interface, inputs.states.id)
    config = simulators.read_config(read_yaml(inputs.simulator), str(inputs.simulator))
    stream = (run.seed, "replay")
    with ParallelSimulator(config, params.workers) as simulator:
        require_same(interface, inputs.states.id, simulator.interface, str(inputs.simulator))
        run.progress("dream", 0, 2)
        dreamed = rollout(
            dream, policy, repeated(states, params.repeats), stream=stream, source="dream", sampling=params.sampling
        )
        verdicts = judge(reward, dreamed.seen)
        run.progress("replay in the simulator", 1, 2)
        done = replay(dreamed, verdicts, simulator, world_model=inputs.world_model.id, stream=stream)
    run.progress("replay in the simulator", 2, 2)
    record = done.record
    (run.folder / FILE).write_text(record.model_dump_json(indent=1) + "\n")
    truth = done.succeeded.numpy()
    chosen = strips.choose(
        [dreamed.starts[row].id for row in done.rows.tolist()], truth,
        {"simulator": done.frames.numpy(), inputs.world_model.id: dreamed.frames.cpu()[done.rows].numpy()},
        {"simulator": truth, inputs.world_model.id: np.ones_like(truth)}, params.strips,
    )
    strips.write(run.folder, chosen)
    found = record.mismatch
    return Result(
        "replay",
        metrics=dict(
            mismatch=found and found.value, mismatch_low=found and found.low, mismatch_high=found and found.high,
            replayed=len(truth), dreamed=record.dreamed, dreamed_success=record.dreamed_success,
        ),
    )


if __name__ == "__main__":
    stage.main(replay_dreams)

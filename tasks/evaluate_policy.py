"""Success of a policy in the simulator on held-out initial states, paired with that of another where one is given."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import NonNegativeInt, PositiveInt

from coevo.core import artifacts, stage
from coevo.core.artifacts import Artifact
from coevo.core.device import best_device
from coevo.core.protocols import Environment, Policy
from coevo.core.stage import Result, Run
from coevo.core.states import read_states
from coevo.core.types import InitialState, Sampling
from coevo.evaluation.evaluate import compare, repeated, state_scores, success
from coevo.policies import build as policies
from coevo.records.base import Config, read_yaml
from coevo.records.interface import require_same
from coevo.records.outcomes import Evaluation
from coevo.rollout import rollout
from coevo.simulators import build as simulators
from coevo.workers.simulation import ParallelSimulator

FILE = "evaluation.json"


@dataclass(frozen=True)
class Inputs:
    """What is evaluated, where, and against what."""

    policy: Artifact = stage.artifact("policy", "policy to evaluate")
    states: Artifact = stage.artifact("initial_states", "held-out initial states, each used equally often")
    simulator: Path = stage.config_file("simulator")
    start_policy: Artifact | None = stage.artifact("policy", "policy to compare with, evaluated too", optional=True)
    start_evaluation: Artifact | None = stage.artifact(
        "evaluation", "the same for a policy that was evaluated before on these states", optional=True
    )


class Params(Config):
    """How the policy is evaluated."""

    role: Literal["validation", "sealed"] = "validation"
    """sealed: the numbers are reported and decide nothing; a policy that descends from one of the states is refused."""
    repeats: PositiveInt = 2
    """Episodes per initial state."""
    sampling: Sampling = "sampled"
    """sampled, as in training, or greedy."""
    workers: NonNegativeInt = 0
    """Simulator processes; 0 simulates in this one."""
    batch: PositiveInt = 64
    """Initial states per rollout."""


def evaluate_policy(inputs: Inputs, params: Params, run: Run) -> Result:
    """Evaluate, compare, and write evaluation.json."""
    if inputs.start_policy is not None and inputs.start_evaluation is not None:
        raise ValueError("both a start policy and a start evaluation were given; give the one to compare with")
    if params.role == "sealed":
        for policy in (inputs.policy, inputs.start_policy):
            if policy is not None:
                artifacts.refuse_leak(inputs.states, policy)
    states, interface = read_states(inputs.states)
    config = simulators.read_config(read_yaml(inputs.simulator), str(inputs.simulator))
    with ParallelSimulator(config, params.workers) as simulator:
        require_same(interface, inputs.states.id, simulator.interface, str(inputs.simulator))
        evaluation = _evaluate(inputs.policy, simulator, states, inputs, params, run)
        start = None
        if inputs.start_policy is not None:
            start = _evaluate(inputs.start_policy, simulator, states, inputs, params, run)
    if inputs.start_evaluation is not None:
        start = Evaluation.model_validate_json((inputs.start_evaluation.path / FILE).read_bytes())
    if start is not None:
        evaluation = compare(evaluation, start, (run.seed, "evaluate", params.role))
    (run.folder / FILE).write_text(evaluation.model_dump_json(indent=1) + "\n")
    return Result("evaluation", metrics=_metrics(evaluation))


def _evaluate(
    artifact: Artifact, simulator: Environment, states: list[InitialState], inputs: Inputs, params: Params, run: Run
) -> Evaluation:
    """One policy's evaluation. Two policies meet the same noise, so their difference is theirs."""
    policy: Policy = policies.load(artifact, best_device())
    stream = (run.seed, "evaluate", params.role)
    repeated(states, params.repeats)  # refuses a state that is listed twice
    scores = []
    for first in range(0, len(states), params.batch):
        run.progress(f"evaluate {artifact.id}", first, len(states))
        rows = repeated(states[first : first + params.batch], params.repeats)
        episodes = rollout(simulator, policy, rows, stream=stream, source="simulator", sampling=params.sampling)
        scores.extend(state_scores(episodes, simulator.interface))
    run.progress(f"evaluate {artifact.id}", len(states), len(states))
    return Evaluation(
        policy=artifact.id, states=inputs.states.id, role=params.role, sampling=params.sampling,
        scores=tuple(scores), success=success(scores, stream),
    )


def _metrics(evaluation: Evaluation) -> dict[str, float | int]:
    metrics: dict[str, float | int] = {}
    for name in ("success", "start_success", "gain"):
        found = getattr(evaluation, name)
        if found is not None:
            metrics |= {name: found.value, f"{name}_low": found.low, f"{name}_high": found.high}
    return metrics | {"states": len(evaluation.scores)}


if __name__ == "__main__":
    stage.main(evaluate_policy)

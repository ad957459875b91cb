"""Success of a policy in the simulator on held-out initial states, paired with that of another where one is given."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
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
    reruns: NonNegativeInt = 0
    """Further scorings of the start policy with other noise: how far its success moves by chance alone."""


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
            start = _scored_again(inputs.start_policy, simulator, states, inputs, params, run)
        elif inputs.start_evaluation is None:
            evaluation = _scored_again(inputs.policy, simulator, states, inputs, params, run, evaluation)
    if inputs.start_evaluation is not None:
        start = Evaluation.model_validate_json((inputs.start_evaluation.path / FILE).read_bytes())
    if start is not None:
        evaluation = compare(evaluation, start, (run.seed, "evaluate", params.role))
        evaluation = evaluation.model_copy(update=dict(rerun_noise=start.rerun_noise))
    (run.folder / FILE).write_text(evaluation.model_dump_json(indent=1) + "\n")
    return Result("evaluation", metrics=_metrics(evaluation))


def _scored_again(
    artifact: Artifact, simulator: Environment, states: list[InitialState], inputs: Inputs, params: Params, run: Run,
    first: Evaluation | None = None,
) -> Evaluation:  # fmt: skip
    """A start policy's evaluation, with the noise between `reruns` further ones."""
    evaluation = first or _evaluate(artifact, simulator, states, inputs, params, run)
    if not params.reruns:
        return evaluation
    again = [_evaluate(artifact, simulator, states, inputs, params, run, rerun + 1) for rerun in range(params.reruns)]
    values = [each.success.value for each in (evaluation, *again)]
    return evaluation.model_copy(update=dict(rerun_noise=float(np.std(values, ddof=1))))


def _evaluate(
    artifact: Artifact, simulator: Environment, states: list[InitialState], inputs: Inputs, params: Params, run: Run,
    rerun: int = 0,
) -> Evaluation:  # fmt: skip
    """One policy's evaluation. Two policies meet the same noise, so their difference is theirs."""
    policy: Policy = policies.load(artifact, best_device())
    stream = (run.seed, "evaluate", params.role, *((f"rerun {rerun}",) if rerun else ()))
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
    if evaluation.rerun_noise is not None:
        metrics["rerun_noise"] = evaluation.rerun_noise
    return metrics | {"states": len(evaluation.scores)}


if __name__ == "__main__":
    stage.main(evaluate_policy)

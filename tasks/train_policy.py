"""Reinforcement learning in the admitted world model; the same stage in the simulator is the control arm.

A world model that was not admitted is not trained in: the parent policy is published unchanged, with the outcome
`not_admitted` and the reasons, and the loop goes on.
"""

from __future__ import annotations

import shutil
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from pydantic import NonNegativeInt, PositiveInt

from coevo import judges
from coevo.core import artifacts, models, stage
from coevo.core.artifacts import Artifact
from coevo.core.checkpoints import Checkpoint
from coevo.core.device import best_device
from coevo.core.judging import judge
from coevo.core.protocols import Environment, Judge
from coevo.core.stage import Result, Run
from coevo.core.states import read_states
from coevo.core.types import Verdicts, to_device
from coevo.evaluation import evaluate
from coevo.evaluation.replay import replay
from coevo.policies import build as policies
from coevo.records.base import Config, read_yaml
from coevo.records.interface import Interface, require_same
from coevo.records.outcomes import Admission
from coevo.rewards.classifier import read_peak
from coevo.rl import training
from coevo.rl.alarms import Probed
from coevo.rl.config import Algorithm
from coevo.rollout import rollout
from coevo.simulators.build import read_config
from coevo.workers.dreams import Dreamers, Models
from coevo.workers.simulation import ParallelSimulator
from coevo.worlds import build as worlds


@dataclass(frozen=True)
class Inputs:
    policy: Artifact = stage.artifact("policy", "the policy to start from")
    starts: Artifact = stage.artifact("initial_states", "initial states to train from")
    validation: Artifact = stage.artifact("initial_states", "initial states that choose along training")
    simulator: Path = stage.config_file("a file of configs/simulator, for validation and for the control arm")
    world_model: Artifact | None = stage.artifact("world_model", "the world to train in", optional=True)
    reward: Artifact | None = stage.artifact("reward_model", "what judges the dreams", optional=True)
    admission: Artifact | None = stage.artifact("admission", "whether the world model may be used", optional=True)
    algorithm: Path | None = stage.config_file("a file of configs/algorithm; parameters change it", optional=True)


class Params(Config):
    """One training run."""

    environment: Literal["dream", "simulator"] = "dream"
    """simulator is the control: the same algorithm on the simulator's own outcomes."""
    requires_admission: bool = True
    """Control arms in a bad world model switch this off."""
    algorithm: Algorithm = Algorithm()
    """What is given here holds against --algorithm, key by key."""
    validate_every: NonNegativeInt = 4
    """Updates between checks in the simulator on validation states; 0 checks never and keeps the last weights."""
    validation_states: PositiveInt | None = None
    """Use only the first so many of them; none uses all."""
    validation_repeats: PositiveInt = 1
    """Episodes from each of them per check."""
    patience: PositiveInt = 2
    """Checks in a row after which training stops: all below the start policy, or all alarms with a loss. An alarm is a
    dreamed success that rose since the best check while neither validation nor replay did; a loss, that these two
    together fell by more than chance."""
    probe_states: NonNegativeInt = 16
    """Validation states from which each check dreams, to replay what was won there; 0 replays nothing and cannot
    raise an alarm."""
    end_at_success: bool = True
    """End dreamed rows where they first read as a success."""
    workers: NonNegativeInt = 2
    """Simulator processes."""
    dream_workers: NonNegativeInt = 0
    """Workers that dream and compute gradients where a Ray cluster was chosen (docs/cluster.md); elsewhere this process
    does their work. The result does not depend on it, but for rounding on GPUs."""
    shard_rows: PositiveInt | None = None
    """Episodes that a worker dreams at a time; none dreams an update's in one piece, which one worker does alone."""
    part_rows: PositiveInt | None = None
    """Decisions whose gradient a worker computes at a time; none takes a minibatch in one piece. Changes the policy's
    arithmetic by rounding, as shard_rows does, so both are parameters like any other."""


def train_policy(inputs: Inputs, params: Params, run: Run) -> Result:
    """Train, check along the way, and publish the weights of the best check."""
    refused = _refusal(inputs, params)
    if refused:
        for name in models.FILES:
            shutil.copyfile(inputs.policy.path / name, run.folder / name)
        return Result("policy", {"outcome": "not_admitted", "reason": refused})
    params = params.model_copy(update={"algorithm": _algorithm(inputs.algorithm, params.algorithm)})
    device = best_device()
    policy = policies.load(inputs.policy, device)
    policy.id = run.id
    starts, interface = read_states(inputs.starts)
    validation_states, validated = read_states(inputs.validation)
    checked = evaluate.repeated(validation_states[: params.validation_states], params.validation_repeats)
    simulator_config = read_config(read_yaml(inputs.simulator), str(inputs.simulator))
    require_same(policy.interface, inputs.policy.id, interface, inputs.starts.id)
    require_same(policy.interface, inputs.policy.id, validated, inputs.validation.id)
    with ParallelSimulator(simulator_config, params.workers) as simulator, ExitStack() as opened:
        probe = gradients = None
        if params.environment == "simulator":
            roll = _simulated(simulator, policy, run)
        else:
            dream, reward = _world(inputs, policy, device)
            dreamers = opened.enter_context(_dreamers(dream, reward, policy, inputs, params))
            roll, gradients = _dreamed(dreamers, run), dreamers.gradients
            probed = validation_states[: params.probe_states]
            probe = _probe(dream, reward, policy, simulator, probed, inputs, run) if probed else None
        total = params.algorithm.updates + getattr(params.algorithm.estimator, "critic_warmup", 0)

        def check(update: int) -> float:
            episodes = rollout(simulator, policy, checked, stream=(run.seed, "validation"), source="simulator")
            scores = evaluate.state_scores(episodes, interface)
            return sum(score.successes for score in scores) / sum(score.episodes for score in scores)

        def log(update: int, numbers: dict[str, float]) -> None:
            run.log(update=update, **{f"train_policy/{name}": value for name, value in numbers.items()})
            if update:
                run.progress("training", update, total, f"{params.environment} success {numbers['success']:.2f}")

        validation = (
            training.Validation(check, params.validate_every, params.patience, len(checked), probe)
            if params.validate_every
            else None
        )
        outcome = training.train(
            policy, params.algorithm, roll, starts, run.seed, log, validation, params.part_rows, gradients,
            Checkpoint(run.scratch / "policy.pt"),
        )  # fmt: skip
    policies.save(policy, run.folder)
    return Result("policy", _metrics(inputs, params, outcome, len(checked)), sorted(state.id for state in starts))


def _algorithm(file: Path | None, changes: Algorithm) -> Algorithm:
    """The file's, with what the parameters say of it."""
    if file is None:
        return changes
    return Algorithm.parse(read_yaml(file) | changes.model_dump(exclude_unset=True), f"{file} with the parameters")


def _refusal(inputs: Inputs, params: Params) -> str:
    """Why the world model may not be trained in; empty if it may."""
    if params.environment == "simulator" or not params.requires_admission:
        return ""
    if inputs.admission is None:
        raise ValueError("no --admission was given; admit the world model first, or set 'requires_admission: false'")
    admission = Admission.model_validate_json((inputs.admission.path / "admission.json").read_text())
    return "" if admission.admitted else "; ".join(admission.reasons)


def _world(inputs: Inputs, policy, device: torch.device) -> tuple[Environment, Judge]:
    """The world model as an environment, and the frozen reward model that judges it."""
    if inputs.world_model is None or inputs.reward is None:
        raise ValueError("training in a dream needs --world-model and --reward")
    dream = worlds.dream(inputs.world_model, device)
    reward = judges.load(inputs.reward, device)
    judges.require_own(reward, inputs.world_model)
    require_same(policy.interface, inputs.policy.id, dream.interface, inputs.world_model.id)
    require_same(dream.interface, inputs.world_model.id, reward.interface, inputs.reward.id)
    return dream, reward


def _dreamers(dream: Environment, reward: Judge, policy, inputs: Inputs, params: Params) -> Dreamers:
    models, sources = Models(policy, dream, reward), (inputs.policy, inputs.world_model, inputs.reward)
    return Dreamers(models, sources, params.dream_workers, params.shard_rows, params.end_at_success)


def _dreamed(dreamers: Dreamers, run: Run) -> training.Roll:
    """Episodes in the world model, judged by the frozen reward model while or after they are drawn."""
    return lambda starts, key: dreamers.roll(starts, (run.seed, "train", *key))


def _probe(dream: Environment, reward: Judge, policy, simulator, states, inputs: Inputs, run: Run):
    """A small closed-loop replay on validation states; the same noise at every check."""

    def probe(update: int) -> Probed:
        stream = (run.seed, "probe")
        dreamed = rollout(dream, policy, states, stream=stream, source="dream")
        verdicts = judge(reward, dreamed.seen)
        done = replay(dreamed, verdicts, simulator, world_model=inputs.world_model.id, stream=stream)
        return Probed(dreamed=len(dreamed), won=len(done.rows), confirmed=int(done.succeeded.sum()))

    return probe


def _simulated(simulator: ParallelSimulator, policy, run: Run) -> training.Roll:
    """Episodes in the simulator, judged by its own truth."""

    def roll(starts, key):
        episodes = rollout(simulator, policy, starts, stream=(run.seed, "train", *key), source="simulator")
        return to_device(episodes, next(policy.parameters()).device), truth_verdicts(episodes, policy.interface)

    return roll


def truth_verdicts(episodes, interface: Interface) -> Verdicts:
    """The simulator's truth in the form of a reading: probability 1 where the task is done."""
    probability = torch.cat([torch.zeros(len(episodes), 1), episodes.truth.success.float()], dim=1)
    return read_peak(probability, 0.5, interface.success_from, "simulator")


def _metrics(inputs: Inputs, params: Params, outcome: training.Outcome, episodes_per_check: int) -> dict:
    rolled = outcome.episodes if params.environment == "simulator" else 0
    replayed = sum(probe.won for probe in outcome.probes)
    own = rolled + len(outcome.checks) * episodes_per_check + replayed + _admission_replays(inputs)
    parents = [given for given in vars(inputs).values() if isinstance(given, Artifact)]
    behind, uncounted = artifacts.simulator_episodes(parents, inputs.policy)
    gain = None if outcome.best_success is None else outcome.best_success - outcome.checks[0][1]
    return {
        "outcome": "stopped" if outcome.stopped else "trained",
        "reason": outcome.stopped,
        "best_update": outcome.best_update,
        "validation_success": outcome.best_success,
        "validation_gain": gain,
        "useful_frames": outcome.useful_frames,
        "dreamed_episodes": outcome.episodes - rolled + sum(probe.dreamed for probe in outcome.probes),
        "simulator_episodes": own,
        # Data of world model and reward, and admission rollouts too: all that it took since the policy it set out from.
        "simulator_episodes_in_all": own + behind,
        "gain_per_simulator_episode": None if gain is None else gain / max(own + behind, 1),
        "uncounted_sources": uncounted,
    }


def _admission_replays(inputs: Inputs) -> int:
    """Dreamed successes that admission did again in the simulator."""
    if inputs.admission is None:
        return 0
    admission = Admission.model_validate_json((inputs.admission.path / "admission.json").read_text())
    return admission.mismatch.n if admission.mismatch is not None else 0


if __name__ == "__main__":
    stage.main(train_policy)

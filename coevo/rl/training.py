"""One reinforcement learning run in either world: roll out, judge, update, check on validation states, keep best."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from coevo.core import text
from coevo.core.types import InitialState, Trajectories
from coevo.rl.alarms import Probed, Validation, Watch
from coevo.rl.collecting import Roll, collect
from coevo.rl.config import Algorithm, Ppo
from coevo.rl.packing import pack
from coevo.rl.starts import StartSampler
from coevo.rl.update import Gradients, Learner


@runtime_checkable
class Logger(Protocol):
    """What a run reports to: one line of numbers per update, and one before the first where there is a check."""

    def __call__(self, update: int, numbers: dict[str, float]) -> None: ...


@dataclass
class Outcome:
    """What a run ends with."""

    best_update: int = 0
    best_success: float | None = None
    stopped: str = ""
    """Why training ended before its last update; empty if it did not."""
    episodes: int = 0
    """Episodes rolled out for training."""
    checks: list[tuple[int, float]] = field(default_factory=list)
    """Update and success of each check."""
    probes: list[Probed] = field(default_factory=list)
    useful_frames: float = 0.0
    """Share of all training frames that carried gradient."""


def train(
    policy, algorithm: Algorithm, roll: Roll, states: Sequence[InitialState], seed: int, log: Logger,
    validation: Validation | None = None, part_rows: int | None = None, gradients: Gradients | None = None,
) -> Outcome:  # fmt: skip
    """Train `policy` in place; with validation it ends with the weights of its best check, the start included.

    `part_rows` and `gradients` say in what parts, and where, the gradient of a minibatch is computed; see Learner.
    """
    learner = Learner(policy, algorithm, seed, part_rows, gradients)
    sampler = StartSampler(states, seed, algorithm.prefer_mixed, algorithm.returning)
    outcome, watch = Outcome(), Watch(policy, validation)
    warmup = algorithm.estimator.critic_warmup if isinstance(algorithm.estimator, Ppo) else 0
    truncates = isinstance(algorithm.estimator, Ppo) and algorithm.estimator.horizon == "truncation"
    if validation is not None:
        log(0, watch.check(0))
    used = dreamed = 0
    for update in range(1, warmup + algorithm.updates + 1):
        trajectories, verdicts = collect(algorithm, roll, sampler, update)
        outcome.episodes += len(trajectories)
        final = _final_value(policy, trajectories) if truncates else None
        decisions, useful = pack(trajectories, verdicts, algorithm, policy.interface.chunk_frames, final)
        used, dreamed = used + len(decisions), dreamed + useful.dreamed
        numbers = learner.update(decisions)
        numbers |= {
            "success": verdicts.success.float().mean().item(), "useful_frames": useful.frames,
            "mixed_groups": useful.groups, "decisions": float(len(decisions)),
            "dreamed_decisions": float(useful.dreamed),
        }  # fmt: skip
        if watch.due(update - warmup, update == warmup + algorithm.updates):
            numbers |= watch.check(update)
        log(update, numbers)
        if watch.stopped:
            break
    outcome.useful_frames = used / max(dreamed, 1)
    if validation is None:
        outcome.best_update = warmup + algorithm.updates
        return outcome
    watch.keep_best()
    outcome.best_update, outcome.best_success = watch.best.update, watch.best.success
    outcome.stopped, outcome.checks = watch.stopped, [(check.update, check.success) for check in watch.checks]
    outcome.probes = [check.probed for check in watch.checks if check.probed is not None]
    return outcome


@torch.no_grad()
def _final_value(policy, trajectories: Trajectories) -> Tensor:
    """The critic's estimate at the last frame, for a horizon that counts as a truncation."""
    words = text.words([start.instruction for start in trajectories.starts]).to(trajectories.frames.device)
    return policy.expected_value(trajectories.frames[:, -1], trajectories.proprio[:, -1], words)

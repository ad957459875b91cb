"""One reinforcement learning run in either world: roll out, judge, update, check on validation states, keep best."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from coevo.core import text
from coevo.core.types import InitialState, Trajectories, Verdicts, join_rows
from coevo.rl.config import Algorithm, Ppo
from coevo.rl.packing import pack
from coevo.rl.starts import StartSampler
from coevo.rl.update import Learner

Roll = Callable[[Sequence[InitialState], tuple[int | str, ...]], tuple[Trajectories, Verdicts]]
"""Episodes of the present policy from these starts, judged; the second argument keys the randomness."""


@runtime_checkable
class Logger(Protocol):
    """What a run reports to: one line of numbers per update."""

    def __call__(self, update: int, numbers: dict[str, float]) -> None: ...


@dataclass
class Validation:
    """How the policy is checked along training, and when training stops."""

    success: Callable[[int], float]
    """Success in the simulator on validation states after so many updates."""
    every: int
    """Updates between checks."""
    patience: int
    """Checks in a row below the start policy after which training stops."""
    episodes: int
    """Episodes of a check: what a difference is held against."""

    def is_below(self, success: float, start: float) -> bool:
        """Whether a check lies below the start policy's by more than the standard error of their difference."""
        error = math.sqrt((success * (1.0 - success) + start * (1.0 - start)) / self.episodes)
        return success < start - error


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


def train(
    policy, algorithm: Algorithm, roll: Roll, states: Sequence[InitialState], seed: int, log: Logger,
    validation: Validation | None = None,
) -> Outcome:  # fmt: skip
    """Train `policy` in place; with validation it ends with the weights of its best check, the start included."""
    learner, sampler = Learner(policy, algorithm, seed), StartSampler(states, seed, algorithm.prefer_mixed)
    outcome, best = Outcome(), copy.deepcopy(policy.state_dict())
    warmup = algorithm.estimator.critic_warmup if isinstance(algorithm.estimator, Ppo) else 0
    if validation is not None:
        outcome.best_success = validation.success(0)
        outcome.checks.append((0, outcome.best_success))
    truncates = isinstance(algorithm.estimator, Ppo) and algorithm.estimator.horizon == "truncation"
    below = 0
    for update in range(1, warmup + algorithm.updates + 1):
        trajectories, verdicts = _episodes(algorithm, roll, sampler, update)
        outcome.episodes += len(trajectories)
        final = _final_value(policy, trajectories) if truncates else None
        decisions, useful = pack(trajectories, verdicts, algorithm, policy.interface.chunk_frames, final)
        numbers = learner.update(decisions)
        numbers |= {
            "success": verdicts.success.float().mean().item(), "useful_frames": useful.frames,
            "mixed_groups": useful.groups, "decisions": float(len(decisions)),
        }  # fmt: skip
        last = update == warmup + algorithm.updates
        if validation is not None and update > warmup and ((update - warmup) % validation.every == 0 or last):
            numbers["validation_success"] = success = validation.success(update)
            outcome.checks.append((update, success))
            if success >= outcome.best_success:
                outcome.best_update, outcome.best_success = update, success
                best = copy.deepcopy(policy.state_dict())
            below = below + 1 if validation.is_below(success, outcome.checks[0][1]) else 0
        log(update, numbers)
        if validation is not None and below >= validation.patience:
            outcome.stopped = (
                f"after update {update}: validation success {outcome.checks[-1][1]:.3f} was clearly below the start "
                f"policy's {outcome.checks[0][1]:.3f} at {below} checks in a row ({validation.episodes} episodes each)"
            )
            break
    if validation is not None:
        policy.load_state_dict(best)
    else:
        outcome.best_update = warmup + algorithm.updates
    return outcome


def _episodes(
    algorithm: Algorithm, roll: Roll, sampler: StartSampler, update: int
) -> tuple[Trajectories, Verdicts]:
    """The update's episodes: groups from drawn states; single-outcome groups are replaced by `refill` further ones."""
    drawn = sampler.draw(algorithm.states, update)
    trajectories, verdicts = roll(_grouped(drawn, algorithm.group), (update, 0))
    sampler.record(trajectories.state_ids, verdicts.success.tolist())
    if not algorithm.refill:
        return trajectories, verdicts
    dull = _single_outcome(trajectories, verdicts)
    more = sampler.draw(min(len(dull), algorithm.refill), update, "refill", without=[start.id for start in drawn])
    if not more:
        return trajectories, verdicts
    added, judged = roll(_grouped(more, algorithm.group), (update, 1))
    sampler.record(added.state_ids, judged.success.tolist())
    return join_rows(trajectories, added), join_rows(verdicts, judged)


def _grouped(states: Sequence[InitialState], group: int) -> list[InitialState]:
    return [state for state in states for _ in range(group)]


def _single_outcome(trajectories: Trajectories, verdicts: Verdicts) -> list[str]:
    """States from which all episodes ended alike."""
    seen: dict[str, set[bool]] = {}
    for state, success in zip(trajectories.state_ids, verdicts.success.tolist(), strict=True):
        seen.setdefault(state, set()).add(success)
    return [state for state, outcomes in seen.items() if len(outcomes) == 1]


@torch.no_grad()
def _final_value(policy, trajectories: Trajectories) -> Tensor:
    """The critic's estimate at the last frame, for a horizon that counts as a truncation."""
    words = text.words([start.instruction for start in trajectories.starts]).to(trajectories.frames.device)
    features = policy.features(trajectories.frames[:, -1], trajectories.proprio[:, -1], words)
    return policy.value(features, policy.distribution(features).mean)

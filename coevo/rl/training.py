"""One reinforcement learning run in either world: roll out, judge, update, check on validation states, keep best."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from coevo.core import text
from coevo.core.checkpoints import Checkpoint
from coevo.core.types import InitialState, Trajectories
from coevo.rl.alarms import Probed, Validation, Watch
from coevo.rl.collecting import Roll, collect
from coevo.rl.config import Algorithm, Ppo
from coevo.rl.packing import pack
from coevo.rl.starts import StartSampler
from coevo.rl.update import Gradients, Learner, moving_weights, put_weights


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
    checkpoint: Checkpoint | None = None,
) -> Outcome:  # fmt: skip
    """Train `policy` in place; with validation it ends with the weights of its best check, the start included.

    `part_rows` and `gradients` say in what parts, and where, the gradient of a minibatch is computed; see Learner.
    Goes on from `checkpoint` if it holds something, and logs again what was logged before it was stopped.
    """
    learner = Learner(policy, algorithm, seed, part_rows, gradients)
    sampler = StartSampler(states, seed, algorithm.prefer_mixed, algorithm.returning, algorithm.curriculum)
    run = _Run(policy, learner, sampler, Watch(policy, validation), checkpoint or Checkpoint(None), log)
    run.take_up()
    warmup = algorithm.estimator.critic_warmup if isinstance(algorithm.estimator, Ppo) else 0
    truncates = isinstance(algorithm.estimator, Ppo) and algorithm.estimator.horizon == "truncation"
    if validation is not None and not run.lines:
        run.ended(0, run.watch.check(0))
    for update in range(run.update + 1, warmup + algorithm.updates + 1):
        if run.watch.stopped:
            break
        trajectories, verdicts = collect(algorithm, roll, sampler, update)
        final = _final_value(policy, trajectories) if truncates else None
        decisions, useful = pack(trajectories, verdicts, algorithm, policy.interface.chunk_frames, final)
        run.count(len(trajectories), len(decisions), useful.dreamed)
        numbers = learner.update(decisions)
        numbers |= {
            "success": verdicts.success.float().mean().item(), "useful_frames": useful.frames,
            "mixed_groups": useful.groups, "decisions": float(len(decisions)),
            "dreamed_decisions": float(useful.dreamed),
        }  # fmt: skip
        if run.watch.due(update - warmup, update == warmup + algorithm.updates):
            numbers |= run.watch.check(update)
        run.ended(update, numbers)
    return run.outcome()


@dataclass
class _Run:
    """How far a run has come: all that its end depends on, and so all that a checkpoint holds."""

    policy: Any
    learner: Learner
    sampler: StartSampler
    watch: Watch
    checkpoint: Checkpoint
    log: Logger
    update: int = 0
    """The last that was done."""
    lines: list[tuple[int, dict[str, float]]] = field(default_factory=list)
    """What was logged."""
    episodes: int = 0
    decisions: int = 0
    """That carried gradient."""
    dreamed: int = 0
    """Decisions, with or without gradient."""

    def count(self, episodes: int, decisions: int, dreamed: int) -> None:
        self.episodes, self.decisions = self.episodes + episodes, self.decisions + decisions
        self.dreamed += dreamed

    def ended(self, update: int, numbers: dict[str, float]) -> None:
        """Log an update, or the check before the first, and keep what it came to if it is time."""
        self.update = update
        self.lines.append((update, numbers))
        self.log(update, numbers)
        if self.checkpoint.is_due():
            self.checkpoint.save(dict(
                update=update, lines=self.lines, episodes=self.episodes, decisions=self.decisions,
                dreamed=self.dreamed, policy=moving_weights(self.policy), learner=self.learner.state(),
                sampler=self.sampler.state(), watch=self.watch.state(),
            ))  # fmt: skip

    def take_up(self) -> None:
        """Go on from the checkpoint, if there is one."""
        if (saved := self.checkpoint.load()) is None:
            return
        put_weights(self.policy, saved["policy"])
        self.learner.restore(saved["learner"])
        self.sampler.restore(saved["sampler"])
        self.watch.restore(saved["watch"])
        self.update, self.lines = saved["update"], saved["lines"]
        self.count(saved["episodes"], saved["decisions"], saved["dreamed"])
        for line in self.lines:
            self.log(*line)

    def outcome(self) -> Outcome:
        """What the run ended with; the policy gets the weights of its best check."""
        useful, checks = self.decisions / max(self.dreamed, 1), self.watch.checks
        if not checks:
            return Outcome(best_update=self.update, episodes=self.episodes, useful_frames=useful)
        self.watch.keep_best()
        best = self.watch.best
        return Outcome(
            best.update, best.success, self.watch.stopped, self.episodes,
            checks=[(check.update, check.success) for check in checks],
            probes=[check.probed for check in checks if check.probed is not None], useful_frames=useful,
        )  # fmt: skip


@torch.no_grad()
def _final_value(policy, trajectories: Trajectories) -> Tensor:
    """The critic's estimate at the last frame, for a horizon that counts as a truncation."""
    words = text.words([start.instruction for start in trajectories.starts]).to(trajectories.frames.device)
    return policy.expected_value(trajectories.frames[:, -1], trajectories.proprio[:, -1], words)

"""How a policy is watched along training, when training stops, and which of its weights are kept."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from coevo.rl.update import moving_weights, put_weights


@dataclass(frozen=True)
class Probed:
    """A small closed-loop replay: the policy dreams from validation states, and what it wins there is done again."""

    dreamed: int
    """Dreamed episodes."""
    won: int
    """Of them, read as success and replayed in the simulator."""
    confirmed: int
    """Replays that succeeded."""

    @property
    def dreamed_success(self) -> float:
        """Share of the dreamed episodes read as success."""
        return self.won / self.dreamed

    @property
    def mismatch(self) -> float | None:
        """Share of the replays that failed; none where nothing was won."""
        return 1.0 - self.confirmed / self.won if self.won else None


@dataclass
class Validation:
    """How the policy is checked along training, and when training stops."""

    success: Callable[[int], float]
    """Success in the simulator on validation states after so many updates."""
    every: int
    """Updates between checks."""
    patience: int
    """Checks in a row after which a rule stops training: all below the start policy, or all of them alarms at which
    the witnesses fell."""
    episodes: int
    """Episodes of a check: what a difference is held against."""
    probe: Callable[[int], Probed] | None = None
    """The replay probe of a check; none where there is nothing dreamed to replay."""

    def is_below(self, success: float, start: float) -> bool:
        """Whether a check lies below the start policy's by more than the standard error of their difference."""
        return rose(success, self.episodes, start, self.episodes)


@dataclass(frozen=True)
class Check:
    """One look at the policy."""

    update: int
    success: float
    """On validation states, in the simulator."""
    probed: Probed | None = None


def rose(before: float, episodes_before: int, after: float, episodes_after: int) -> bool:
    """Whether a share rose by more than the standard error of the difference."""
    error = math.sqrt(before * (1.0 - before) / episodes_before + after * (1.0 - after) / episodes_after)
    return after > before + error


def is_alarm(best: Check, now: Check) -> bool:
    """Dreamed success rose since the best check and neither validation nor replay did: the dream's errors are used.

    Without a probe at both there is nothing dreamed to compare, and no alarm.
    """
    if best.probed is None or now.probed is None or now.success >= best.success:
        return False
    then, latest = best.probed, now.probed
    if not rose(then.dreamed_success, then.dreamed, latest.dreamed_success, latest.dreamed):
        return False
    if not then.won:
        return True
    return not rose(then.confirmed / then.won, then.won, latest.confirmed / latest.won, latest.won)


SURE = 1.2816
"""Standard errors of a one-sided test at 90%."""


def fell(best: Check, now: Check, episodes: int) -> bool:
    """Whether the witnesses, validation and replay, say together that the policy became worse since the best check.

    Their two differences over their standard errors are pooled (Stouffer), so that a best check, which is the luckiest
    of several, does not stop a run for the noise of one witness.
    """
    shares = [(best.success, episodes, now.success, episodes)]
    if best.probed is not None and now.probed is not None and best.probed.won and now.probed.won:
        then, latest = best.probed, now.probed
        shares.append((then.confirmed / then.won, then.won, latest.confirmed / latest.won, latest.won))
    return sum(drop(*share) for share in shares) / math.sqrt(len(shares)) > SURE


def drop(before: float, episodes_before: int, after: float, episodes_after: int) -> float:
    """How far a share fell, in standard errors of the difference; one more success and failure each are imagined."""
    error = 0.0
    for share, count in ((before, episodes_before), (after, episodes_after)):
        smooth = (share * count + 1.0) / (count + 2.0)
        error += smooth * (1.0 - smooth) / count
    return (before - after) / math.sqrt(error)


@dataclass
class Watch:
    """The checks of one run: applies the rules, and keeps the weights of the best check (the later one of equals)."""

    policy: object
    validation: Validation | None
    checks: list[Check] = field(default_factory=list)
    stopped: str = ""
    """Why training must end; empty while it need not."""
    _below: int = 0
    _alarms: int = 0

    def due(self, update: int, last: bool) -> bool:
        """Whether the policy is checked after so many policy updates."""
        return self.validation is not None and update > 0 and (update % self.validation.every == 0 or last)

    def check(self, update: int) -> dict[str, float]:
        """Look at the policy as it is now; returns what goes into the log."""
        validation = self.validation
        now = Check(update, validation.success(update), validation.probe(update) if validation.probe else None)
        numbers = {"validation_success": now.success}
        if now.probed is not None:
            numbers |= {"probe_dreamed_success": now.probed.dreamed_success, "probe_replays": float(now.probed.won)}
            if now.probed.mismatch is not None:
                numbers["probe_mismatch"] = now.probed.mismatch
        if self.checks:
            alarm = is_alarm(self.best, now)
            self._judge(now, alarm)
            numbers["alarm"] = float(alarm)
        if not self.checks or now.success >= self.best.success:
            self.best, self.weights = now, moving_weights(self.policy)
        self.checks.append(now)
        return numbers

    def _judge(self, now: Check, alarm: bool) -> None:
        start, validation = self.checks[0], self.validation
        self._below = self._below + 1 if validation.is_below(now.success, start.success) else 0
        harmed = alarm and fell(self.best, now, validation.episodes)
        self._alarms = self._alarms + 1 if harmed else 0
        if self._below >= validation.patience:
            self.stopped = (
                f"after update {now.update}: validation success {now.success:.3f} was clearly below the start "
                f"policy's {start.success:.3f} at {self._below} checks in a row ({validation.episodes} episodes each)"
            )
        elif self._alarms >= validation.patience:
            then, latest = self.best.probed, now.probed
            self.stopped = (
                f"after update {now.update}: since update {self.best.update} dreamed success rose from "
                f"{then.dreamed_success:.3f} to {latest.dreamed_success:.3f} while validation success went from "
                f"{self.best.success:.3f} to {now.success:.3f} and {latest.confirmed} of {latest.won} dreamed "
                f"successes replayed ({then.confirmed} of {then.won} then), at {self._alarms} checks in a row: the "
                "policy uses the world model's errors"
            )

    def keep_best(self) -> None:
        """Give the policy the weights of the best check."""
        put_weights(self.policy, self.weights)

    def state(self) -> dict[str, Any]:
        """What a checkpoint holds of it."""
        kept = dict(best=self.checks.index(self.best), weights=self.weights) if self.checks else {}
        counts = dict(stopped=self.stopped, below=self._below, alarms=self._alarms)
        return dict(checks=[asdict(check) for check in self.checks], **counts, **kept)

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        probes = [check["probed"] and Probed(**check["probed"]) for check in state["checks"]]
        self.checks = [
            Check(**check | {"probed": probe}) for check, probe in zip(state["checks"], probes, strict=True)
        ]
        self.stopped, self._below, self._alarms = state["stopped"], state["below"], state["alarms"]
        if self.checks:
            self.best, self.weights = self.checks[state["best"]], state["weights"]

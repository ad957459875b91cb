"""What a group of training seeds came to: the unit in which a gain is claimed."""

from __future__ import annotations

from typing import Literal

from coevo.records.base import Config
from coevo.records.outcomes import Figure, Interval, SeedCriterion


class VarianceSplit(Config):
    """Variance of one episode's success, apart for what the initial state decides and what chance decides there."""

    between_states: float
    """Variance of the states' own success rates; the noise of estimating each is taken off, so it may be negative."""
    within_states: float
    """Mean over states of the variance of episodes from one state."""

    @property
    def share_between(self) -> float | None:
        """Share that the state decides: the ceiling for a critic that sees only the start. None without variance."""
        total = self.between_states + self.within_states
        return self.between_states / total if total > 0 else None


class SeedGroup(Config):
    """Training seeds of one arm, judged together."""

    role: Literal["validation", "sealed"]
    policies: tuple[str, ...]
    gains: tuple[Interval, ...]
    """Of each policy over the start policy, paired per state."""
    mean_gain: Interval | None
    """Over seeds, by Student's interval; none for a single seed."""
    sd: float | None
    """Standard deviation of the gains; none for a single seed."""
    variance: VarianceSplit | None
    """Mean over the policies; none where states were run once."""
    rerun_noise: float | None
    """Standard deviation of the start policy's success between scorings that differ in their noise alone; none if it
    was scored once."""
    criterion: SeedCriterion
    criterion_sha256: str
    reasons: tuple[str, ...]
    """One sentence for each number that failed the criterion, with by how much."""

    @property
    def passed(self) -> bool:
        """Whether the group meets its criterion."""
        return not self.reasons

    def sentence(self) -> str:
        """The verdict in words, the rerun noise beside the gain."""
        said = f"Over {len(self.gains)} training seeds"
        if self.mean_gain is not None:
            mean = self.mean_gain
            said += f" the mean gain is {mean.value:+.3f} [{mean.low:+.3f}, {mean.high:+.3f}], sd {self.sd:.3f}"
        if self.rerun_noise is not None:
            said += f" (the start policy scored again moves by {self.rerun_noise:.3f}, sd)"
        verdict = "the criterion on seeds is met" if self.passed else "the criterion on seeds is not met: "
        return f"{said}; {verdict}{'; '.join(self.reasons)}."

    def figures(self, arm: str, task: str) -> tuple[Figure, ...]:
        """Rows for docs/results; what could not be measured is left out."""
        split = self.variance
        plain = {
            "sd_of_gain": self.sd, "rerun_noise": self.rerun_noise,
            "between_state_share_of_variance": split and split.share_between,
            "seed_criterion_met": float(self.passed),
        }  # fmt: skip
        common = dict(arm=arm, task=task, n=len(self.gains))
        made = [Figure(metric=metric, value=value, **common) for metric, value in plain.items() if value is not None]
        if self.mean_gain is not None:
            made.insert(0, Figure.of(self.mean_gain, "mean_gain", arm, task))
        return tuple(made)

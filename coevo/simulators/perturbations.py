"""Deliberate faults of a scripted expert: the failures and near successes that a world model should have seen.

Each kind turns one number, drawn per episode from `severity`, into one fault. A horizontal direction is drawn
uniformly where one is needed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from jaxtyping import Float32, Float64
from pydantic import PositiveInt, model_validator

from coevo.records.base import Config

Kind = Literal[
    "none", "noise", "laplace", "perception", "goal", "overshoot", "slow", "early_release", "weak_grip", "slip",
]

FAMILIES: dict[str, Kind] = {
    "approach_offset": "perception", "early_release": "early_release", "weak_grip": "weak_grip",
    "overshoot": "overshoot", "lateral_slip": "slip",
}
"""The families that paired counterfactuals are made of, by the name that their episodes bear."""


class Perturbation(Config):
    """One family of faults. What `severity` measures depends on the kind:

    noise: standard deviation of the action (a quarter of it on the gripper), held for `hold` steps. laplace: the same
    with Laplace noise of this scale, as World-Env perturbs actions.
    perception: metres between the object and where the expert sees it. goal: the same for the goal.
    overshoot: how far past the goal it aims, as a share of the way. slow: share of its speed that it lacks.
    early_release: share of the way to the goal still left when it lets go. weak_grip: share of the closing command
    that it lacks. slip: how much it loosens its grip while jerking sideways, 0 none, 1 lets go.
    """

    kind: Kind = "none"
    severity: tuple[float, float] = (0.0, 0.0)
    """Smallest and largest value; drawn uniformly between them."""
    hold: PositiveInt = 4
    """Control steps for which a draw of the noise is held; what a policy with held actions would do."""

    @model_validator(mode="after")
    def _ordered(self) -> Perturbation:
        if not 0.0 <= self.severity[0] <= self.severity[1]:
            raise ValueError(f"severity {self.severity} is not an increasing pair of positive numbers")
        return self


@dataclass
class Disturbance:
    """A perturbation as drawn for one episode; remembers what it needs between steps."""

    perturbation: Perturbation
    rng: np.random.Generator
    severity: float = field(init=False)
    direction: Float64[np.ndarray, " 3"] = field(init=False)
    slip_after: int = field(init=False)
    closed_for: int = 0
    released: bool = False
    noise: Float64[np.ndarray, " 4"] = field(default_factory=lambda: np.zeros(4))

    def __post_init__(self) -> None:
        angle = self.rng.uniform(0.0, 2.0 * np.pi)
        self.severity = self.rng.uniform(*self.perturbation.severity)
        self.direction = np.array([np.cos(angle), np.sin(angle), 0.0])
        self.slip_after = int(self.rng.integers(12, 24))

    def object_seen(self, position: Float64[np.ndarray, " 3"]) -> Float64[np.ndarray, " 3"]:
        """Where the expert believes the object to be."""
        if self.perturbation.kind == "perception":
            return position + self.severity * self.direction
        return position

    def goal_seen(
        self, goal: Float64[np.ndarray, " 3"], start: Float64[np.ndarray, " 3"]
    ) -> Float64[np.ndarray, " 3"]:
        """Where the expert believes the goal of an object that began at `start` to be."""
        match self.perturbation.kind:
            case "goal":
                return goal + self.severity * self.direction
            case "overshoot":
                return goal + self.severity * (goal - start)
            case _:
                return goal

    def executed(
        self, intended: Float64[np.ndarray, " 4"], step: int, progress: float
    ) -> Float32[np.ndarray, " 4"]:
        """What is done in place of the intended action, given the control step and the progress so far (0 to 1)."""
        action = intended.copy()
        self.closed_for = self.closed_for + 1 if intended[3] > 0.0 else 0
        match self.perturbation.kind:
            case "noise" | "laplace" as kind:
                if step % self.perturbation.hold == 0:
                    draw = self.rng.normal if kind == "noise" else self.rng.laplace
                    self.noise = self.severity * draw(size=4) * np.array([1.0, 1.0, 1.0, 0.25])
                action += self.noise
            case "slow":
                action[:3] *= 1.0 - self.severity
            case "early_release":
                self.released |= self.closed_for > 0 and progress >= 1.0 - self.severity
                if self.released:
                    action[3] = -1.0
            case "weak_grip":
                if intended[3] > 0.0:
                    action[3] *= 1.0 - self.severity
            case "slip":
                if self.slip_after <= self.closed_for < self.slip_after + 8:
                    action[:3] += self.direction
                    action[3] = intended[3] - 2.0 * self.severity
            case _:
                pass
        # Rounded to float32 before it is stepped: otherwise a replay of the stored action drifts.
        return np.clip(action, -1.0, 1.0).astype(np.float32)

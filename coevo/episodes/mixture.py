"""Who is drawn how often: classes of episodes and their shares of the training draws.

A class is named `<who>` or `<who>_<outcome>`:

- who: `expert` (the scripted expert by itself, perturbed or not), `rollout` (any other policy by itself), `paired`
  (every episode of a pair), or the name of a perturbation ('nominal', 'offset', ... as the collecting stage named it);
- outcome: `success`, `failure` (near successes included) or `near`. `expert` alone means its successes, since nobody
  asks an expert for its failures without saying so; any other name alone means every outcome.

Classes may overlap; an episode in two of them is drawn for both.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from typing import Literal, Protocol

import numpy as np
from jaxtyping import Float64
from pydantic import Field, NonNegativeInt, PositiveFloat, model_validator

from coevo.records.base import Config

Split = Literal["train", "validation"]
OUTCOMES = {"success": ("success",), "failure": ("failure", "near"), "near": ("near",)}
FAILURE_MIX = {"expert": 0.15, "rollout_success": 0.35, "rollout_failure": 0.5}


class Mixture(Config):
    """How a dataset's episodes are drawn."""

    mixture: dict[str, PositiveFloat] = FAILURE_MIX
    """Share of the draws by class of episode; scaled to sum to 1."""
    optional: tuple[str, ...] = ()
    """Classes that may have no episode; their share then goes to the others in proportion. Others must have some."""
    age_decay: float = Field(1.0, gt=0.0, le=1.0)
    """Weight of an episode against one of its class that is a round younger."""
    max_age: NonNegativeInt | None = None
    """Sources older than so many rounds are left behind; none are when left out."""
    validation_share: float = Field(0.1, ge=0.0, lt=1.0)
    """Share of initial states that go to the validation side, with all their episodes."""

    @model_validator(mode="after")
    def _optional_are_named(self) -> Mixture:
        for name in self.optional:
            if name not in self.mixture:
                raise ValueError(f"optional class '{name}' has no share; the mixture has: {', '.join(self.mixture)}")
        if not self.mixture:
            raise ValueError("the mixture is empty; give at least one class a share, for example {expert: 1.0}")
        return self


class Sortable(Protocol):
    """What the class of an episode depends on."""

    policy: str
    perturbation: str
    pair: str
    outcome: str
    age: int


def belongs(row: Sortable, name: str) -> bool:
    """Whether an episode is of the class `name`."""
    who, _, outcome = name.rpartition("_")
    if outcome not in OUTCOMES:
        who, outcome = name, "success" if name == "expert" else ""
    if outcome and row.outcome not in OUTCOMES[outcome]:
        return False
    match who:
        case "expert":
            return row.policy == "expert" and not row.pair
        case "rollout":
            return row.policy != "expert" and not row.pair
        case "paired":
            return bool(row.pair)
    return row.perturbation == who


def weights(rows: Sequence[Sortable], mixture: Mixture, where: str, strict: bool = True) -> Float64[np.ndarray, " n"]:
    """Probability of drawing each episode; sums to 1 (to 0 if no episode is of any class and not `strict`).

    Args:
        where: what the episodes are, for the message.
        strict: raise ValueError if a class that is not optional is empty.
    """
    parts: dict[str, np.ndarray] = {}
    for name in mixture.mixture:
        part = np.array([mixture.age_decay**row.age if belongs(row, name) else 0.0 for row in rows])
        if part.sum() > 0:
            parts[name] = part / part.sum()
        elif strict and name not in mixture.optional:
            raise ValueError(
                f"{where}: the mixture gives the class '{name}' a share of {mixture.mixture[name]:g} and no episode is "
                f"of that class. There are: {census(rows)}. Collect some, drop the class from 'mixture', or name it in "
                "'optional' to give its share to the others"
            )
    if not parts:
        if strict:
            raise ValueError(f"{where}: no episode is of any class of the mixture. There are: {census(rows)}")
        return np.zeros(len(rows))
    total = sum(mixture.mixture[name] for name in parts)
    return sum(mixture.mixture[name] / total * part for name, part in parts.items())


def census(rows: Sequence[Sortable]) -> str:
    """Number of episodes by class, each episode counted once: '120 expert_success, 14 offset_failure'."""
    counts = Counter(_one_class(row) for row in rows)
    return ", ".join(f"{count} {name}" for name, count in sorted(counts.items())) or "none"


def _one_class(row: Sortable) -> str:
    who = row.perturbation if row.pair else "expert" if row.policy == "expert" else "rollout"
    return f"{who}_{'failure' if row.outcome == 'near' else row.outcome}"


def side(state: str, validation_share: float) -> Split:
    """Side of the split, by the initial state's id alone: no later round moves a state to the other side."""
    draw = int.from_bytes(hashlib.sha256(state.encode()).digest()[:8], "little") / 2**64
    return "validation" if draw < validation_share else "train"

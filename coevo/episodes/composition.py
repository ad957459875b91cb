"""How the outcomes of a policy's episodes are spread over initial states: what a world model can learn about forks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Composition:
    """Initial states by the outcomes of the episodes from them. Only states with two episodes or more are counted."""

    all_success: frozenset[str]
    all_failure: frozenset[str]
    mixed: frozenset[str]
    """Both outcomes: there the actions decide."""
    once: int
    """States with a single episode, of which nothing is known."""

    def shares(self, prefix: str = "") -> dict[str, float | int]:
        """Number of states counted and the share of each kind; no shares where there are none."""
        kinds = {"all_success": self.all_success, "all_failure": self.all_failure, "mixed": self.mixed}
        count = sum(len(states) for states in kinds.values())
        found: dict[str, float | int] = {f"{prefix}states": count, f"{prefix}states_once": self.once}
        return found | ({f"{prefix}{name}": len(states) / count for name, states in kinds.items()} if count else {})


def composition(states: Sequence[str], success: Sequence[bool]) -> Composition:
    """The composition of episodes from these states with these outcomes."""
    wins: dict[str, list[bool]] = {}
    for state, won in zip(states, success, strict=True):
        wins.setdefault(state, []).append(bool(won))
    several = {state: outcomes for state, outcomes in wins.items() if len(outcomes) > 1}
    return Composition(
        all_success=frozenset(state for state, outcomes in several.items() if all(outcomes)),
        all_failure=frozenset(state for state, outcomes in several.items() if not any(outcomes)),
        mixed=frozenset(state for state, outcomes in several.items() if any(outcomes) and not all(outcomes)),
        once=len(wins) - len(several),
    )

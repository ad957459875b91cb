"""Which initial states to train from: those whose outcomes are mixed, since the others give no gradient."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from coevo.core import random
from coevo.core.types import InitialState
from coevo.rl.config import Curriculum


class StartSampler:
    """Draws initial states without repetition in a batch, by how mixed their outcomes have been."""

    def __init__(
        self, states: Sequence[InitialState], seed: int, prefer_mixed: bool = True, returning: float = 0.0,
        curriculum: Curriculum | None = None,
    ) -> None:  # fmt: skip
        self.states, self.seed, self.prefer_mixed, self.returning = list(states), seed, prefer_mixed, returning
        self.curriculum = curriculum
        self.last_was_mixed = np.zeros(len(self.states), dtype=bool)
        # One imagined success and one failure each: a state not tried yet counts as mixed.
        self.successes = np.ones(len(self.states))
        self.episodes = np.full(len(self.states), 2.0)
        self.place = {state.id: index for index, state in enumerate(self.states)}

    def draw(
        self, count: int, update: int, *key: int | str, without: Sequence[str] = ()
    ) -> list[InitialState]:
        """`count` distinct states (fewer if there are fewer), none of those named in `without`.

        The share `returning` of them, if there are so many, ended both ways when they were last rolled. Under a
        curriculum they stand in the set's first part, or just behind it where that holds too few.
        """
        rate = self.successes / self.episodes
        weight = rate * (1.0 - rate) + 0.05 if self.prefer_mixed else np.ones(len(self.states))
        weight[[self.place[state] for state in without]] = 0.0
        if self.curriculum is not None:
            admitted = math.ceil(self.curriculum.share(update) * len(self.states))
            weight[max(admitted, count + len(without)) :] = 0.0
        source = random.stream(self.seed, "starts", update, *key)
        again = np.flatnonzero(self.last_was_mixed & (weight > 0)) if self.returning else np.zeros(0, dtype=int)
        again = source.permutation(again)[: round(self.returning * count)]
        weight[again] = 0.0
        fresh = min(count - len(again), int((weight > 0).sum()))
        new = source.choice(len(self.states), size=fresh, replace=False, p=weight / weight.sum()) if fresh else []
        return [self.states[index] for index in (*again, *new)]

    def record(self, state_ids: Sequence[str], success: Sequence[bool], memory: float = 0.5) -> None:
        """Learn from outcomes; what was known before counts `memory` as much, since the policy has moved."""
        for state in dict.fromkeys(state_ids):
            index = self.place[state]
            own = [won for name, won in zip(state_ids, success, strict=True) if name == state]
            self.last_was_mixed[index] = 0 < sum(own) < len(own)
            self.successes[index] = 1.0 + memory * (self.successes[index] - 1.0) + sum(own)
            self.episodes[index] = 2.0 + memory * (self.episodes[index] - 2.0) + len(own)

    def state(self) -> dict[str, Any]:
        """What a checkpoint holds of it: all that `record` changes."""
        return dict(
            successes=self.successes.tolist(), episodes=self.episodes.tolist(),
            last_was_mixed=self.last_was_mixed.tolist(),
        )  # fmt: skip

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        for name, values in state.items():
            setattr(self, name, np.array(values))

"""Which initial states to train from: those whose outcomes are mixed, since the others give no gradient."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from coevo.core import random
from coevo.core.types import InitialState


class StartSampler:
    """Draws initial states without repetition in a batch, by how mixed their outcomes have been."""

    def __init__(self, states: Sequence[InitialState], seed: int, prefer_mixed: bool = True) -> None:
        self.states, self.seed, self.prefer_mixed = list(states), seed, prefer_mixed
        # One imagined success and one failure each: a state not tried yet counts as mixed.
        self.successes = np.ones(len(self.states))
        self.episodes = np.full(len(self.states), 2.0)
        self.place = {state.id: index for index, state in enumerate(self.states)}

    def draw(self, count: int, *key: int | str, without: Sequence[str] = ()) -> list[InitialState]:
        """`count` distinct states (fewer if there are fewer), none of those named in `without`."""
        rate = self.successes / self.episodes
        weight = rate * (1.0 - rate) + 0.05 if self.prefer_mixed else np.ones(len(self.states))
        weight[[self.place[state] for state in without]] = 0.0
        count = min(count, int((weight > 0).sum()))
        if not count:
            return []
        chosen = random.stream(self.seed, "starts", *key).choice(
            len(self.states), size=count, replace=False, p=weight / weight.sum()
        )
        return [self.states[index] for index in chosen]

    def record(self, state_ids: Sequence[str], success: Sequence[bool], memory: float = 0.5) -> None:
        """Learn from outcomes; what was known before counts `memory` as much, since the policy has moved."""
        for state in dict.fromkeys(state_ids):
            index = self.place[state]
            own = [won for name, won in zip(state_ids, success, strict=True) if name == state]
            self.successes[index] = 1.0 + memory * (self.successes[index] - 1.0) + sum(own)
            self.episodes[index] = 2.0 + memory * (self.episodes[index] - 2.0) + len(own)

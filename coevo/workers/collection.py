"""What a collecting stage says of the episodes it made, gathered while they pass on their way to disk."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Literal

from pydantic import PositiveInt

from coevo.core.protocols import Environment
from coevo.core.types import Episode
from coevo.episodes.outcomes import episode_outcome
from coevo.records.interface import Interface
from coevo.simulators.replay import reproduces

Keep = dict[Literal["success", "near", "failure"], PositiveInt]
"""How many episodes that ended so are stored at the most; failure includes near successes."""


class Tally:
    """Counts outcomes per name of perturbation, and keeps some episodes to run again.

    `keep` says, by name of perturbation ('none' is a policy by itself), which outcomes are stored and how many of each;
    names that it lacks are stored whole. What is run and not stored still counts as simulator episodes.
    """

    def __init__(
        self, interface: Interface, total: int, replayed: int, keep: Mapping[str, Keep] | None = None
    ) -> None:
        self._interface = interface
        self._left = {name: dict(wanted) for name, wanted in (keep or {}).items() if wanted}
        self._picks, self._dropped = bool(self._left), 0
        self._every = max(1, total // replayed)
        self._kept: list[Episode] = []
        self._counts: Counter[tuple[str, str]] = Counter()

    def watch(self, episodes: Iterable[Episode]) -> Iterator[Episode]:
        """Pass on the episodes that are to be stored."""
        for index, episode in enumerate(episodes):
            outcome = episode_outcome(episode, self._interface)
            if index % self._every == 0:
                self._kept.append(episode)
            if not self._wanted(episode.perturbation, outcome):
                self._dropped += 1
                continue
            self._counts[episode.perturbation, outcome] += 1
            yield episode

    def _wanted(self, name: str, outcome: str) -> bool:
        if name not in self._left:
            return True
        left = self._left[name]
        for kind in left:
            if left[kind] and (kind == outcome or (kind, outcome) == ("failure", "near")):
                left[kind] -= 1
                return True
        return False

    def metrics(self, simulator: Environment) -> dict[str, float | int]:
        """Number of episodes, stored and run; per name the stored ones' number and shares of success and near success;
        share replayed alike.

        Replaying whole frames at collection time is what tells a dataset whose actions do not belong to its starts.
        """
        names = sorted({name for name, _ in self._counts})
        count = {name: sum(n for (of, _), n in self._counts.items() if of == name) for name in names}
        metrics: dict[str, float | int] = {"episodes": sum(count.values())}
        if self._picks:
            metrics["simulator_episodes"] = metrics["episodes"] + self._dropped
        for name in names:
            metrics[f"episodes/{name}"] = count[name]
            metrics[f"success/{name}"] = self._counts[name, "success"] / count[name]
            metrics[f"near/{name}"] = self._counts[name, "near"] / count[name]
        again = reproduces(simulator, self._kept)
        metrics["replayed"] = len(again)
        metrics["replayed_alike"] = sum(again) / len(again)
        return metrics

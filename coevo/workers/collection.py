"""What a collecting stage says of the episodes it made, gathered while they pass on their way to disk."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from coevo.core.protocols import Environment
from coevo.core.types import Episode
from coevo.episodes.outcomes import episode_outcome
from coevo.records.interface import Interface
from coevo.simulators.replay import reproduces


class Tally:
    """Counts outcomes per name of perturbation, and keeps some episodes to run again."""

    def __init__(self, interface: Interface, total: int, replayed: int) -> None:
        self._interface = interface
        self._every = max(1, total // replayed)
        self._kept: list[Episode] = []
        self._counts: Counter[tuple[str, str]] = Counter()

    def watch(self, episodes: Iterable[Episode]) -> Iterator[Episode]:
        """Pass episodes on."""
        for index, episode in enumerate(episodes):
            self._counts[episode.perturbation, episode_outcome(episode, self._interface)] += 1
            if index % self._every == 0:
                self._kept.append(episode)
            yield episode

    def metrics(self, simulator: Environment) -> dict[str, float | int]:
        """Number of episodes; per name their number and the shares of success and near success; share replayed alike.

        Replaying whole frames at collection time is what tells a dataset whose actions do not belong to its starts.
        """
        names = sorted({name for name, _ in self._counts})
        count = {name: sum(n for (of, _), n in self._counts.items() if of == name) for name in names}
        metrics: dict[str, float | int] = {"episodes": sum(count.values())}
        for name in names:
            metrics[f"episodes/{name}"] = count[name]
            metrics[f"success/{name}"] = self._counts[name, "success"] / count[name]
            metrics[f"near/{name}"] = self._counts[name, "near"] / count[name]
        again = reproduces(simulator, self._kept)
        metrics["replayed"] = len(again)
        metrics["replayed_alike"] = sum(again) / len(again)
        return metrics

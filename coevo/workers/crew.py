"""Workers behind one interface: this process, processes of this machine, or actors on a Ray cluster.

A worker holds what `make` gave it, made at its first call, and answers calls: a function of a module, applied to what
is held and to the call's arguments. Calls are stateless, so neither the number of workers nor where they run changes a
result; only the calls of a worker that died or fell silent are done again, once.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

Held = TypeVar("Held")
Call = tuple[Callable[..., Any], *tuple[Any, ...]]
"""A function of a module and its arguments after the first, which is what the worker holds."""
Progress = Callable[[int, int], None]
"""Told how many of how many calls are done."""


class Crew(ABC):
    """Workers that answer calls."""

    @abstractmethod
    def run(self, calls: Sequence[Call], progress: Progress | None = None) -> list[Any]:
        """Results of the calls, in order. A fault of a call itself reaches the caller as it is."""

    @abstractmethod
    def close(self) -> None:
        """End the workers."""


class Here(Crew, Generic[Held]):
    """One worker: this process."""

    def __init__(self, held: Held) -> None:
        self.held = held

    def run(self, calls: Sequence[Call], progress: Progress | None = None) -> list[Any]:
        """One call after the other."""
        results = []
        for function, *arguments in calls:
            results.append(function(self.held, *arguments))
            if progress is not None:
                progress(len(results), len(calls))
        return results

    def close(self) -> None:
        """Nothing was started; what is held is its owner's."""


class Replaceable(Crew):
    """Workers that can die or hang. Kinds of them say how calls are attempted and how the workers are mended."""

    def __init__(self, what: str, patience: float) -> None:
        self.what, self.patience = what, patience
        self.restarts = 0
        """How often workers were replaced because one died or hung."""

    def run(self, calls: Sequence[Call], progress: Progress | None = None) -> list[Any]:
        """As in Crew. RuntimeError if workers die or hang twice over the same calls."""
        results: dict[int, Any] = {}
        report = progress or (lambda done, total: None)
        for _ in range(2):
            fault = self._attempt(calls, results, report)
            if fault is None:
                return [results[index] for index in range(len(calls))]
            self._mend()
            self.restarts += 1
            print(
                f"{self.what}: {fault}; {len(calls) - len(results)} of {len(calls)} calls are due again",
                file=sys.stderr,
                flush=True,
            )
        raise RuntimeError(f"{self.what}: {fault}, twice over the same rows; with workers = 0 its cause can be seen")

    @abstractmethod
    def _attempt(self, calls: Sequence[Call], results: dict[int, Any], report: Progress) -> str | None:
        """Fill in the results that are missing; a sentence if a worker died or hung."""

    @abstractmethod
    def _mend(self) -> None:
        """End what is broken; the next attempt starts it anew."""

"""Workers as processes of this machine."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from coevo.workers.crew import Call, Progress, Replaceable


class Processes(Replaceable):
    """`size` processes, started at the first call. A dead or silent one has the whole pool replaced."""

    def __init__(self, make: Callable[[], Any], size: int, what: str, patience: float) -> None:
        super().__init__(what, patience)
        self._make, self._size = make, size
        self._pool: ProcessPoolExecutor | None = None

    def close(self) -> None:
        """End the workers without waiting for one that may never answer."""
        if self._pool is None:
            return
        processes = list((self._pool._processes or {}).values())
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._pool = None
        for process in processes:
            process.terminate()
        for process in processes:
            process.join(timeout=10.0)
            if process.is_alive():
                process.kill()

    def pids(self) -> list[int]:
        """Process ids of the workers that were started."""
        return list((self._pool._processes or {}) if self._pool is not None else {})

    def _attempt(self, calls: Sequence[Call], results: dict[int, Any], report: Progress) -> str | None:
        try:
            pool = self._started()
            futures: dict[Future, int] = {
                pool.submit(_call, *call): index for index, call in enumerate(calls) if index not in results
            }
            pending = set(futures)
            while pending:
                done, pending = wait(pending, timeout=self.patience, return_when=FIRST_COMPLETED)
                if not done:
                    return f"no worker answered for {self.patience:.0f} s"
                for future in done:
                    results[futures[future]] = future.result()
                report(len(results), len(calls))
        except BrokenProcessPool:
            return "a worker process died"
        return None

    def _mend(self) -> None:
        self.close()

    def _started(self) -> ProcessPoolExecutor:
        if self._pool is None:
            # Spawned, not forked: a fork would inherit OpenGL and torch threads in an unknown state.
            self._pool = ProcessPoolExecutor(
                self._size, mp_context=multiprocessing.get_context("spawn"), initializer=_begin, initargs=(self._make,)
            )
        return self._pool


# --- in a worker ---

_make: Callable[[], Any] | None = None
_held: list[Any] = []


def _begin(make: Callable[[], Any]) -> None:
    """Note what to make; it is made at the first call, whose caller then sees what is wrong with it."""
    global _make
    _make = make
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A parent that was killed cannot say goodbye; its workers must not stay behind."""
    multiprocessing.parent_process().join()
    os._exit(1)


def _call(function: Callable[..., Any], *arguments: Any) -> Any:
    if not _held:
        _held.append(_make())
    return function(_held[0], *arguments)

"""A simulator spread over processes. Work is stateless, so the number of workers changes no result.

A worker that dies or hangs costs its rows one repetition: the pool is replaced and the missing rows are redone, once.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any, Self

import numpy as np
from jaxtyping import Float32, Float64

from coevo.core.types import Episode, InitialState
from coevo.simulators.build import SimulatorConfig, build, read_config
from coevo.simulators.perturbations import Perturbation
from coevo.simulators.rows import Advanced, Rows, Simulator

PATIENCE_SECONDS = 600.0
"""How long the pool may stay silent: a worker's start on a busy machine, or a block of rows, a hundred times over."""
BLOCKS_PER_WORKER = 3
"""Blocks of rows that a chunk of actions is cut into, so that a slow core does not hold up the others."""
EPISODES_PER_CALL = 4

Progress = Callable[[int, int], None]


_kept: dict[tuple[str, int], ProcessPoolExecutor] | None = None


@contextmanager
def kept_pools() -> Iterator[None]:
    """Inside, a closed ParallelSimulator leaves its workers to the next one of the same simulator.

    Sixteen workers take some twenty seconds to start, which counts where many stages run in one process.
    """
    global _kept
    _kept = {}
    try:
        yield
    finally:
        pools, _kept = _kept, None
        for pool in pools.values():
            pool.shutdown(wait=False, cancel_futures=True)


class ParallelSimulator(Rows):
    """`Environment`, and what a simulator does beside it, over `workers` processes; 0 works in this one.

    A context manager. ValueError where the simulator cannot be built (from the first call on), RuntimeError if
    workers die or hang twice over the same rows.
    """

    def __init__(self, config: SimulatorConfig, workers: int, patience: float = PATIENCE_SECONDS) -> None:
        if workers < 0:
            raise ValueError(f"'workers' = {workers}: 0 works in this process, n > 0 in n processes")
        self.config, self.interface, self.workers, self.patience = config, config.interface, workers, patience
        self.restarts = 0
        """Pools that were replaced because a worker died or hung."""
        self._pool: ProcessPoolExecutor | None = None
        self._local: Simulator | None = build(config) if workers == 0 else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the workers, or free the renderer of this process."""
        if self._pool is not None and _kept is not None:
            _kept[self._kind()], self._pool = self._pool, None
        elif self._pool is not None:
            self._end_pool()
        if self._local is not None:
            self._local.close()

    def advance(self, states: Float64[np.ndarray, "n z"], actions: Float32[np.ndarray, "n k a"]) -> Advanced:
        """As in Simulator."""
        blocks = np.array_split(np.arange(len(states)), max(1, self.workers * BLOCKS_PER_WORKER))
        calls = [(_advance, states[block], actions[block]) for block in blocks if len(block)]
        return Advanced.join(self._run(calls))

    def initial_states(
        self, seed: int, role: str, indices: Sequence[int], progress: Progress | None = None
    ) -> list[InitialState]:
        """States number `indices` of the set `role`, as Simulator.initial_state gives them."""
        calls = [(_initial_states, seed, role, block) for block in _blocks(indices)]
        return [state for part in self._run(calls, progress) for state in part]

    def demonstrate(
        self,
        starts: Sequence[InitialState],
        perturbations: Sequence[Perturbation],
        streams: Sequence[Sequence[int | str]],
        progress: Progress | None = None,
    ) -> list[Episode]:
        """Episodes of the scripted expert, as Simulator.demonstrate gives them, row by row."""
        work = list(zip(starts, perturbations, streams, strict=True))
        calls = [(_demonstrate, block) for block in _blocks(work)]
        return [episode for part in self._run(calls, progress) for episode in part]

    def _run(self, calls: Sequence[tuple[Any, ...]], progress: Progress | None = None) -> list[Any]:
        """Results of the calls (function, arguments...), in order. Those whose worker died are run again, once."""
        results: dict[int, Any] = {}
        report = progress or (lambda done, total: None)
        if self._local is not None:
            for index, (function, *arguments) in enumerate(calls):
                results[index] = function(*arguments, simulator=self._local)
                report(len(results), len(calls))
            return list(results.values())
        for _ in range(2):
            fault = self._attempt(calls, results, report)
            if fault is None:
                return [results[index] for index in range(len(calls))]
            self._end_pool()
            self.restarts += 1
            print(f"simulator: {fault}; {len(calls) - len(results)} of {len(calls)} calls are due again",
                  file=sys.stderr, flush=True)
        raise RuntimeError(f"simulator: {fault}, twice over the same rows; with workers = 0 its cause can be seen")

    def _attempt(self, calls: Sequence[tuple[Any, ...]], results: dict[int, Any], report: Progress) -> str | None:
        """Fill in the results that are missing; a sentence if a worker died or hung."""
        try:
            pool = self._started_pool()
            futures: dict[Future, int] = {
                pool.submit(*call): index for index, call in enumerate(calls) if index not in results
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

    def _kind(self) -> tuple[str, int]:
        return self.config.model_dump_json(), self.workers

    def _started_pool(self) -> ProcessPoolExecutor:
        if self._pool is None and _kept:
            self._pool = _kept.pop(self._kind(), None)
        if self._pool is None:
            # Spawned, not forked: a fork would inherit OpenGL and torch threads in an unknown state.
            self._pool = ProcessPoolExecutor(
                self.workers, mp_context=multiprocessing.get_context("spawn"), initializer=_begin,
                initargs=(self.config.model_dump(mode="json"),),
            )
        return self._pool

    def _end_pool(self) -> None:
        """End the workers without waiting for one that may never answer."""
        processes = list((self._pool._processes or {}).values())
        self._pool.shutdown(wait=False, cancel_futures=True)
        for process in processes:
            process.terminate()
        for process in processes:
            process.join(timeout=10.0)
            if process.is_alive():
                process.kill()
        self._pool = None


def expert_streams(
    starts: Sequence[InitialState], names: Sequence[str], stream: Sequence[int | str]
) -> list[tuple[int | str, ...]]:
    """The randomness of each expert episode: `stream`, its start, its name, and how many of that start and name stand
    before it, so that neither the number of workers nor other episodes in the list change it."""
    seen: dict[tuple[str, str], int] = {}
    streams = []
    for start, name in zip(starts, names, strict=True):
        key = (start.id, name)
        streams.append((*stream, *key, seen.setdefault(key, 0)))
        seen[key] += 1
    return streams


# --- in a worker ---

_values: dict[str, Any] = {}
_simulator: Simulator | None = None


def _begin(values: dict[str, Any]) -> None:
    """Note what to build; it is built at the first call, whose caller then sees what is wrong with it."""
    import torch

    torch.set_num_threads(1)
    _values.update(values)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A parent that was killed cannot say goodbye; its workers must not stay behind."""
    multiprocessing.parent_process().join()
    os._exit(1)


def _built() -> Simulator:
    global _simulator
    if _simulator is None:
        _simulator = build(read_config(_values, "the worker's simulator"))
    return _simulator


def _advance(states, actions, simulator: Simulator | None = None) -> Advanced:
    return (simulator or _built()).advance(states, actions)


def _initial_states(seed, role, indices, simulator: Simulator | None = None) -> list[InitialState]:
    simulator = simulator or _built()
    return [simulator.initial_state(seed, role, index) for index in indices]


def _demonstrate(work, simulator: Simulator | None = None) -> list[Episode]:
    simulator = simulator or _built()
    return [simulator.demonstrate(start, perturbation, stream) for start, perturbation, stream in work]


def _blocks(items: Sequence[Any]) -> list[Sequence[Any]]:
    return [items[at : at + EPISODES_PER_CALL] for at in range(0, len(items), EPISODES_PER_CALL)]

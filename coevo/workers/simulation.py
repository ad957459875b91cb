"""A simulator spread over workers. Work is stateless, so their number, and where they run, changes no result.

A worker that dies or hangs costs its rows one repetition: it is replaced and the missing rows are redone, once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Self

import numpy as np
import torch
from jaxtyping import Float32, Float64

from coevo.core.types import Episode, InitialState
from coevo.simulators.build import SimulatorConfig, build, read_config
from coevo.simulators.perturbations import Perturbation
from coevo.simulators.rows import Advanced, Rows, Simulator
from coevo.workers import cluster
from coevo.workers.actors import Actors
from coevo.workers.crew import Crew, Here, Progress
from coevo.workers.processes import Processes

PATIENCE_SECONDS = 600.0
"""How long the workers may stay silent: a start on a busy machine, or a block of rows, a hundred times over."""
BLOCKS_PER_WORKER = 3
"""Blocks of rows that a chunk of actions is cut into, so that a slow core does not hold up the others."""
EPISODES_PER_CALL = 4

_kept: dict[tuple[str, int], Crew] | None = None


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
        crews, _kept = _kept, None
        for crew in crews.values():
            crew.close()


class ParallelSimulator(Rows):
    """`Environment`, and what a simulator does beside it, over `workers` workers; 0 works in this process.

    They are actors where the machine chose Ray (`coevo.workers.cluster`), else processes. A context manager.
    ValueError where the simulator cannot be built (from the first call on) or the cluster has no room, RuntimeError if
    workers die or hang twice over the same rows.
    """

    def __init__(self, config: SimulatorConfig, workers: int, patience: float = PATIENCE_SECONDS) -> None:
        if workers < 0:
            raise ValueError(f"'workers' = {workers}: 0 works in this process, n > 0 in n workers")
        self.config, self.interface, self.workers, self.patience = config, config.interface, workers, patience
        self._local: Simulator | None = build(config) if workers == 0 else None
        self._crew: Crew | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the workers, or free the renderer of this process."""
        if self._local is not None:
            self._local.close()
        elif self._crew is not None and _kept is not None:
            _kept[self._kind()] = self._crew
        elif self._crew is not None:
            self._crew.close()
        self._crew = None

    @property
    def crew(self) -> Crew:
        """The workers, found among those kept or made ready at the first use."""
        if self._crew is None:
            self._crew = (_kept.pop(self._kind(), None) if _kept else None) or self._new_crew()
        return self._crew

    def advance(self, states: Float64[np.ndarray, "n z"], actions: Float32[np.ndarray, "n k a"]) -> Advanced:
        """As in Simulator."""
        blocks = np.array_split(np.arange(len(states)), max(1, self.workers * BLOCKS_PER_WORKER))
        calls = [(_advance, states[block], actions[block]) for block in blocks if len(block)]
        return Advanced.join(self.crew.run(calls))

    def initial_states(
        self, seed: int, role: str, indices: Sequence[int], progress: Progress | None = None
    ) -> list[InitialState]:
        """States number `indices` of the set `role`, as Simulator.initial_state gives them."""
        calls = [(_initial_states, seed, role, block) for block in _blocks(indices)]
        return [state for part in self.crew.run(calls, progress) for state in part]

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
        return [episode for part in self.crew.run(calls, progress) for episode in part]

    def _new_crew(self) -> Crew:
        if self._local is not None:
            return Here(self._local)
        make = partial(_build, self.config.model_dump(mode="json"))
        kind = Actors if cluster.chosen() else Processes
        return kind(make, self.workers, "simulator", self.patience)

    def _kind(self) -> tuple[str, int]:
        return self.config.model_dump_json(), self.workers


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


def _build(values: dict[str, Any]) -> Simulator:
    torch.set_num_threads(1)  # as many workers as cores: more threads would stand in one another's way
    return build(read_config(values, "the worker's simulator"))


def _advance(simulator: Simulator, states, actions) -> Advanced:
    return simulator.advance(states, actions)


def _initial_states(simulator: Simulator, seed, role, indices) -> list[InitialState]:
    return [simulator.initial_state(seed, role, index) for index in indices]


def _demonstrate(simulator: Simulator, work) -> list[Episode]:
    return [simulator.demonstrate(start, perturbation, stream) for start, perturbation, stream in work]


def _blocks(items: Sequence[Any]) -> list[Sequence[Any]]:
    return [items[at : at + EPISODES_PER_CALL] for at in range(0, len(items), EPISODES_PER_CALL)]

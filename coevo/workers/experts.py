"""Episodes of scripted experts by plan: how many of which fault, and pairs from the same start."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from pydantic import PositiveInt

from coevo.core.types import Episode, InitialState
from coevo.records.base import Config
from coevo.simulators.perturbations import Perturbation
from coevo.workers.collection import Keep
from coevo.workers.simulation import ParallelSimulator, Progress, expert_streams

ROWS = 64
"""Episodes in memory at once."""


class Demonstrations(Config):
    """A number of expert episodes of one kind."""

    name: str
    """What the episodes are called in the dataset's column 'perturbation'."""
    perturbation: Perturbation = Perturbation()
    count: PositiveInt
    """Episodes; they take the start states in turn, from where the kind before left off."""
    keep: Keep = {}
    """Store at most so many that ended so, and no others; all of them when left out."""


class Pairs(Config):
    """Counterfactuals: the undisturbed expert and disturbed ones from the same start, all executed."""

    name: str
    """What the disturbed episodes are called; the undisturbed one is called 'nominal'."""
    perturbation: Perturbation
    states: PositiveInt
    """Start states, the first of the set."""
    per_state: PositiveInt = 1
    """Disturbed episodes per start state."""


Row = tuple[InitialState, Perturbation, str, str]
"""Start, perturbation, name, pair."""


def plan(
    starts: Sequence[InitialState], demonstrations: Sequence[Demonstrations], pairs: Sequence[Pairs]
) -> list[Row]:
    """The episodes asked for, in order. ValueError if undisturbed ones would repeat or starts are too few."""
    rows: list[Row] = []
    for part in demonstrations:
        if part.perturbation.kind == "none" and part.count > len(starts):
            raise ValueError(
                f"'{part.name}' asks for {part.count} undisturbed episodes from {len(starts)} start states, and two "
                "from the same start would be equal; ask for fewer, perturb them, or make more start states"
            )
        first = len(rows)
        rows += [
            (starts[(first + index) % len(starts)], part.perturbation, part.name, "") for index in range(part.count)
        ]
    nominal: set[str] = set()
    for part in pairs:
        if part.states > len(starts):
            raise ValueError(f"'{part.name}' asks for {part.states} start states, there are {len(starts)}")
        for start in starts[: part.states]:
            if start.id not in nominal:  # families of pairs share their undisturbed episode
                rows.append((start, Perturbation(), "nominal", start.id))
                nominal.add(start.id)
            rows += [(start, part.perturbation, part.name, start.id)] * part.per_state
    return rows


def execute(
    simulator: ParallelSimulator, rows: Sequence[Row], stream: Sequence[int | str], progress: Progress
) -> Iterator[Episode]:
    """The planned episodes, one after the other; `sample` counts those of one start and name."""
    starts, perturbations = [row[0] for row in rows], [row[1] for row in rows]
    streams = expert_streams(starts, [row[2] for row in rows], stream)
    for first in range(0, len(rows), ROWS):
        part = slice(first, first + ROWS)
        size = len(rows[part])
        made = simulator.demonstrate(
            starts[part], perturbations[part], streams[part],
            lambda done, total, first=first, size=size: progress(first + done * size // total, len(rows)),
        )
        for episode, row, keys in zip(made, rows[part], streams[part], strict=True):
            yield replace(episode, perturbation=row[2], pair=row[3], sample=int(keys[-1]))

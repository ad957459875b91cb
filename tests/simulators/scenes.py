"""One MetaWorld simulator for all tests: a process may hold one renderer, and building it takes a second."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np

from coevo.core.types import Episode, InitialState
from coevo.simulators.build import read_config_file
from coevo.simulators.metaworld import MetaWorld
from coevo.simulators.perturbations import Perturbation

ROOT = Path(__file__).resolve().parents[2]
PICK_PLACE = ROOT / "configs/simulator/pick_place.yaml"


@cache
def pick_place() -> MetaWorld:
    return MetaWorld(read_config_file(PICK_PLACE))


@cache
def starts() -> tuple[InitialState, ...]:
    return tuple(pick_place().initial_state(0, "train", index) for index in range(4))


@cache
def noisy_episodes() -> tuple[Episode, ...]:
    noise = Perturbation(kind="noise", severity=(0.1, 0.3))
    return tuple(pick_place().demonstrate(start, noise, (0, "test", start.id)) for start in starts())


def centroid(frame: np.ndarray, channel: int) -> tuple[float, float]:
    """Column and row of the middle of the pixels in which one colour stands out by 60 levels."""
    levels = frame.astype(int)
    others = [c for c in range(3) if c != channel]
    rows, columns = np.nonzero((levels[..., channel, None] > levels[..., others] + 60).all(-1))
    return columns.mean() + 0.5, rows.mean() + 0.5

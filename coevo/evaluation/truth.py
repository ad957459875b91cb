"""Whether an outcome is a fact at all: recorded actions done again from starts that look the same.

A start whose object lies a fraction of a pixel elsewhere draws the same frame. Where that turns the outcome over, no
world model that sees pixels can know it, and what it gets wrong there is not its fault.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Bool, Float64

from coevo.core import random
from coevo.core.protocols import Environment
from coevo.core.types import InitialState
from coevo.evaluation.drive import drive
from coevo.evaluation.intervals import counts_per_state, share_interval
from coevo.evaluation.recorded import Recorded, first_true
from coevo.records.interface import Camera
from coevo.records.outcomes import TruthStability

Shift = Callable[[Float64[np.ndarray, " z"], Float64[np.ndarray, " 2"]], Float64[np.ndarray, " z"]]
"""A simulator's `shifted`: a state and metres (x, y) to the state with its object so much further."""


def metres_per_pixel(camera: Camera) -> float:
    """Width of a pixel at the point that the camera looks at."""
    return 2.0 * camera.distance * math.tan(math.radians(camera.fovy) / 2.0) / camera.height


def shifted_starts(
    starts: Sequence[InitialState], shift: Shift, metres: float, rerun: int, stream: Sequence[int | str]
) -> tuple[InitialState, ...]:
    """Each start with its object `metres` away, in a direction that depends on the state and the rerun alone.

    Frames and ids stay those of the start: within a pixel nobody sees the difference.
    """
    moved: dict[str, Float64[np.ndarray, " z"]] = {}
    for start in starts:
        if start.id not in moved:
            angle = random.stream(*stream, "shift", start.id, rerun).uniform(0.0, 2.0 * np.pi)
            offset = metres * np.array([np.cos(angle), np.sin(angle)])
            moved[start.id] = shift(start.simulator_state, offset)
    return tuple(replace(start, simulator_state=moved[start.id]) for start in starts)


def truth_stability(
    recorded: Recorded,
    simulator: Environment,
    reruns: Sequence[Sequence[InitialState]],
    *,
    pixels: float,
    metres: float,
    stream: Sequence[int | str],
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> TruthStability:
    """Do the recorded actions again from each of the `reruns` (one shifted start per episode) and compare outcomes."""
    flipped = np.zeros(len(recorded), dtype=bool)
    for number, starts in enumerate(reruns):
        flipped |= _won(recorded, simulator, starts) != recorded.truth
        progress(number + 1, len(reruns))
    every = np.ones(len(recorded), dtype=bool)
    share = share_interval(*counts_per_state(recorded.states, flipped, every), random.stream(*stream, "truth"))
    unstable = {state for state, turned in zip(recorded.states, flipped, strict=True) if turned}
    return TruthStability(
        pixels=pixels, metres=metres, reruns=len(reruns), flipped=share, unstable_states=tuple(sorted(unstable))
    )


def _won(recorded: Recorded, simulator: Environment, starts: Sequence[InitialState]) -> Bool[np.ndarray, " n"]:
    keys = torch.zeros(len(starts), dtype=torch.int64)  # a simulator draws nothing
    success = drive(simulator, starts, recorded.actions, keys).success
    # What a short episode's padding does after its end is not part of it.
    within = torch.arange(1, success.shape[1] + 1)[None] <= recorded.length[:, None]
    return first_true((success & within).numpy(), recorded.success_from) <= success.shape[1]

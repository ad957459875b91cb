"""Episodes made from a number, for tests of how they are stored and mixed."""

from __future__ import annotations

import dataclasses

import numpy as np
import torch
from torch import Tensor

from coevo.core.types import Episode, InitialState
from coevo.records.interface import ActionSpace, Camera, Interface


def small(size: int = 8) -> Interface:
    """A camera of `size` pixels a side, 4 control steps a frame, 20 frames a second."""
    return Interface(
        task="push", instruction="push the puck", action=ActionSpace(low=(-1, -1, 0), high=(1, 1, 1)),
        camera=Camera(width=size, height=size, lookat=(0, 0, 0), distance=1, azimuth=0, elevation=-30), success_from=2,
    )


def make_episode(
    seed: int, frames: int = 3, size: int = 8, context: int = 1, state: str | None = None, won: bool | None = None,
    **changes,
) -> Episode:
    """An episode of noise with `frames` frames after the first. `won` sets whether its last frame is a success."""
    draw = np.random.default_rng(seed)
    pixels = torch.from_numpy(draw.integers(0, 256, (context + frames, size, size, 3), dtype=np.uint8))
    success = torch.from_numpy(draw.random(frames) < 0.3)
    if won is not None:
        success = torch.zeros(frames, dtype=torch.bool)
        success[-1:] = won
    start = InitialState(
        id=state or f"push-{seed}", task="push", instruction="push the puck", seed=seed,
        simulator_state=draw.normal(size=5) * 10.0 ** draw.integers(-300, 300, size=5), frames=pixels[:context],
        actions=noise(draw, (context - 1) * 4, 4), proprio=noise(draw, context, 5), decision=context - 1,
    )
    episode = Episode(
        actions=noise(draw, frames * 4, 4), frames=pixels[context - 1 :], proprio=noise(draw, frames + 1, 5),
        success=success, progress=noise(draw, frames).abs().clamp(max=0.4), probability=None, start=start, sample=0,
        policy="sft", source="simulator", perturbation="none",
    )
    return dataclasses.replace(episode, **changes)


def noise(draw: np.random.Generator, *shape: int) -> Tensor:
    """Standard normal float32."""
    return torch.from_numpy(draw.normal(size=shape).astype(np.float32))


def flat_episode(grey: int, frames: int, size: int) -> Episode:
    """Frame i is one colour, (grey + 4 i, grey, 255 - grey): a lossy codec keeps it within a level or two."""
    episode = make_episode(grey, frames=frames, size=4)
    pixels = torch.empty(frames + 1, size, size, 3, dtype=torch.uint8)
    for i in range(frames + 1):
        pixels[i] = torch.tensor([grey + 4 * i, grey, 255 - grey], dtype=torch.uint8)
    return dataclasses.replace(episode, frames=pixels, start=dataclasses.replace(episode.start, frames=pixels[:1]))


def assert_same(left: object, right: object, where: str = "") -> None:
    """Equal to the last bit, NaN included, field by field."""
    if dataclasses.is_dataclass(left):
        for field in dataclasses.fields(left):
            assert_same(getattr(left, field.name), getattr(right, field.name), f"{where}.{field.name}")
    elif isinstance(left, (Tensor, np.ndarray)):
        left, right = np.asarray(left), np.asarray(right)
        assert (left.dtype, left.shape) == (right.dtype, right.shape), where
        assert left.tobytes() == right.tobytes(), where
    else:
        assert left == right, where

"""Which frames a reward model of windows looks at, and what stands between two of its readings."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float32, Int64
from torch import Tensor

from coevo.records.interface import Interface


def tail(ends: Sequence[int], window: int, step: int = 1) -> Int64[Tensor, "e win"]:
    """The last `window` frames up to each of `ends`, every `step`-th; before the start stands the start's frame.

    The window has one length from the first reading on, so a threshold means the same along an episode.
    """
    back = torch.arange(window - 1, -1, -1) * step
    return (torch.as_tensor(list(ends))[:, None] - back).clamp_min(0)


def spread(ends: Sequence[int], window: int) -> Int64[Tensor, "e win"]:
    """`window` frames from the start to each of `ends`, evenly; some stand twice where the episode is still short."""
    share = torch.arange(window, dtype=torch.float64) / max(window - 1, 1)
    return (torch.as_tensor(list(ends), dtype=torch.float64)[:, None] * share + 0.5).floor().long()


def reading_frames(interface: Interface, every: str, first: int = 0, last: int | None = None) -> list[int]:
    """Frames at which a reading is taken, from `first` to `last`: 'chunk', after each decision; 'frame', at each."""
    step = interface.chunk_frames if every == "chunk" else 1
    last = interface.frames if last is None else last
    return [frame for frame in range(step, last + 1, step) if frame >= first]


def per_frame(readings: Float32[Tensor, "n e"], ends: Sequence[int], frames: int) -> Float32[Tensor, "n f1"]:
    """Each reading at its frame and back to the one before it: it stands for all that the decision led to.

    0 at the start, and behind the last reading.
    """
    probability = readings.new_zeros(len(readings), frames)
    for column, end in enumerate(ends):
        begin = ends[column - 1] + 1 if column else 1
        probability[:, begin : end + 1] = readings[:, column, None]
    return probability

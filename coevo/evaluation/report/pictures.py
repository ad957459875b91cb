"""Film strips as images inside the page."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence

import numpy as np
from jaxtyping import UInt8

from coevo.evaluation.strips import Strip

SHOWN = 11
"""Frames of a film strip that are shown, first and last included."""
GAP = 2
"""Pixels between frames."""
FRAME_MILLISECONDS = 220
LAST_MILLISECONDS = 1600
"""How long the outcome stands still before the film begins again."""


def film(frames: UInt8[np.ndarray, "f1 h w 3"]) -> str:
    """A row of evenly spaced frames as a PNG data URI, transparent between them."""
    chosen = frames[shown_frames(len(frames))]
    height, width = chosen.shape[1:3]
    row = np.zeros((height, len(chosen) * (width + GAP) - GAP, 4), dtype=np.uint8)
    for index, frame in enumerate(chosen):
        left = index * (width + GAP)
        row[:, left : left + width, :3] = frame
        row[:, left : left + width, 3] = 255
    return _png([row])


def moving(rows: Sequence[UInt8[np.ndarray, "f1 h w 3"]]) -> tuple[str, ...]:
    """Each row's frames as an animated PNG data URI, all of the same length and so in step."""
    return tuple(_png(list(frames)) for frames in rows)


def still(frames: UInt8[np.ndarray, "f1 h w 3"]) -> str:
    """The last frame, for readers who want no motion."""
    return _png([frames[-1]])


def shown_frames(count: int) -> list[int]:
    """Indices of the frames in a strip."""
    return sorted({round(i) for i in np.linspace(0, count - 1, min(SHOWN, count))})


def leading(strips: Sequence[Strip]) -> Strip | None:
    """The strip that moves on top of the page: a failure that an earlier world model drew as success, the last not.

    Else any failure that was drawn as success, else the first strip.
    """
    failures = [strip for strip in strips if not strip.success]
    for wanted in (
        [s for s in failures if any(row.read_success for row in s.rows[1:-1]) and not s.rows[-1].read_success],
        [s for s in failures if s.rows[-1].read_success],
        list(strips),
    ):
        if wanted:
            return wanted[0]
    return None


def _png(images: Sequence[np.ndarray]) -> str:
    from PIL import Image

    pictures = [Image.fromarray(image) for image in images]
    buffer = io.BytesIO()
    if len(pictures) == 1:
        pictures[0].save(buffer, format="PNG", optimize=True)
    else:
        durations = [FRAME_MILLISECONDS] * (len(pictures) - 1) + [LAST_MILLISECONDS]
        pictures[0].save(
            buffer, format="PNG", save_all=True, append_images=pictures[1:], duration=durations, loop=0, optimize=True
        )
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()

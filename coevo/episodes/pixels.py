"""Frames as PNG bytes, without loss and fast: run-length deflate is the quickest that Pillow offers, and the
smallest on rendered scenes."""

from __future__ import annotations

import io
import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from PIL import Image

RUN_LENGTH = 3  # zlib's Z_RLE


def threads() -> ThreadPoolExecutor:
    """Threads for PNG work: deflate and inflate run outside Python's lock. Their number changes no byte."""
    return ThreadPoolExecutor(min(8, os.cpu_count() or 1))


def encode(frames: np.ndarray) -> list[bytes]:
    """PNG files of frames u8[f h w 3]."""
    files = []
    for frame in frames:
        buffer = io.BytesIO()
        Image.fromarray(frame).save(buffer, "PNG", compress_level=1, compress_type=RUN_LENGTH)
        files.append(buffer.getvalue())
    return files


def decode_into(frames: np.ndarray, files: Iterable[Any]) -> None:
    """Decode PNG files (anything with a buffer) into frames u8[f h w 3]."""
    for frame, file in zip(frames, files, strict=True):
        frame[...] = np.asarray(Image.open(io.BytesIO(file)).convert("RGB"))


def decode(files: list[bytes]) -> np.ndarray:
    """Frames u8[f h w 3] of PNG files, all of one size."""
    first = np.asarray(Image.open(io.BytesIO(files[0])).convert("RGB"))
    frames = np.empty((len(files), *first.shape), np.uint8)
    decode_into(frames, files)
    return frames

"""Checkpoints of a training loop in a stage's scratch folder: a killed stage goes on from there, to the same end.

When one is written depends on the clock and changes no result: each step draws its randomness from its own number.
"""

from __future__ import annotations

import pickle
import sys
import time
from pathlib import Path
from typing import Any

import torch

SECONDS_BETWEEN = 60.0


class Checkpoint:
    """One file, replaced whole. Without a path nothing is kept."""

    def __init__(self, path: Path | None, seconds: float = SECONDS_BETWEEN) -> None:
        self.path, self.seconds = path, seconds
        self._written = time.monotonic()

    def load(self) -> dict[str, Any] | None:
        """What was saved, tensors on the CPU; none if nothing was, or if the machine died before it was on disk."""
        if self.path is None or not self.path.exists():
            return None
        try:
            return torch.load(self.path, map_location="cpu", weights_only=True)
        except (RuntimeError, EOFError, OSError, pickle.UnpicklingError) as error:
            print(f"{self.path} cannot be read ({error}); this part begins anew", file=sys.stderr, flush=True)
            return None

    def is_due(self) -> bool:
        """Whether the last one is old enough for another."""
        return self.path is not None and time.monotonic() - self._written >= self.seconds

    def save(self, state: dict[str, Any]) -> None:
        """Write, then replace the one before: numbers, strings, tensors, and lists and dicts of them."""
        if self.path is None:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        partial = self.path.with_suffix(".writing")
        with partial.open("wb") as file:  # a full disk is then an OSError
            torch.save(state, file)
        partial.replace(self.path)
        self._written = time.monotonic()

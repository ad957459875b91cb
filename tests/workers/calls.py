"""Calls for workers, and what becomes of those that take them."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path


def make(folder: Path) -> Path:
    """What a worker holds: where it notes the calls it took."""
    return folder


def square(folder: Path, number: int, fate: str = "") -> int:
    """number², noted; at the first time the worker may die over it, or hang."""
    first = not (folder / str(number)).exists()
    with (folder / str(number)).open("a") as file:
        file.write("taken\n")
    if first and fate == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    if first and fate == "hangs":
        time.sleep(600.0)
    return number**2


def refuse(folder: Path, number: int) -> None:
    """A fault that a user can mend."""
    raise ValueError(f"'number' = {number} is too large; choose a smaller one")


def where(folder: Path) -> str:
    """The node that the call was taken on."""
    import ray

    return ray.get_runtime_context().get_node_id()


def times_taken(folder: Path) -> list[int]:
    """How often each call was taken."""
    files = sorted(folder.iterdir(), key=lambda file: int(file.name))
    return [len(file.read_text().splitlines()) for file in files]

"""Film strips: a few episodes whose frames are kept for the report, the same actions in every row."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Int, UInt8
from safetensors.numpy import load_file, save_file

FILE, FRAMES = "strips.json", "strips.safetensors"


@dataclass(frozen=True)
class Row:
    """One world's frames of an episode, and what the reward read in them."""

    arm: str
    frames: UInt8[np.ndarray, "f1 h w 3"]
    read_success: bool


@dataclass(frozen=True)
class Strip:
    """One episode: the simulator's row first, then each world model's."""

    state: str
    success: bool
    """What happened in the simulator."""
    rows: tuple[Row, ...]

    @property
    def disagrees(self) -> bool:
        """Whether the last row's reading is not what happened."""
        return self.rows[-1].read_success != self.success


def choose(
    states: Sequence[str],
    truth: Bool[np.ndarray, " n"],
    frames: Mapping[str, UInt8[np.ndarray, "n f1 h w 3"]],
    read: Mapping[str, Bool[np.ndarray, " n"]],
    count: int,
    lasted: Int[np.ndarray, " n"] | None = None,
) -> list[Strip]:
    """At most `count` strips, failures and successes by turns, one per state as far as they last.

    Among each, the last arm's errors come first, then what only the arms before it got wrong, then agreement: what
    went wrong must be seen, and a strip of each kind is shown before a second one.

    Args:
        frames, read: by arm, simulator first and the judged world model last.
        lasted: for how many frames the last arm's reading was not what had happened; the worst errors come first.
    """
    arms = list(frames)
    truth = np.asarray(truth, dtype=bool)
    wrong = {arm: np.asarray(read[arm], dtype=bool) != truth for arm in arms}
    earlier = np.any([wrong[arm] for arm in arms[1:-1]], axis=0) if arms[1:-1] else np.zeros(len(truth), dtype=bool)
    kind = np.where(wrong[arms[-1]], 0, np.where(earlier, 1, 2))
    worst = np.argsort(-(np.zeros(len(truth)) if lasted is None else lasted), kind="stable")
    failures, successes = (_by_turns(worst[truth[worst] == outcome], kind, states) for outcome in (False, True))
    half = max(count - len(successes), (count + 1) // 2)
    chosen = failures[:half]
    chosen += successes[: count - len(chosen)]
    chosen.sort(key=lambda row: (kind[row], truth[row]))

    def film(arm: str, row: int) -> Row:
        return Row(arm, np.asarray(frames[arm][row]), bool(read[arm][row]))

    return [Strip(states[row], bool(truth[row]), tuple(film(arm, row) for arm in arms)) for row in chosen]


def write(folder: Path, strips: Sequence[Strip]) -> None:
    """Write strips.json and strips.safetensors, whose bytes no compressor and no interpreter decides."""
    listing = [
        dict(
            state=strip.state, success=strip.success,
            rows=[dict(arm=row.arm, read_success=row.read_success) for row in strip.rows],
        )
        for strip in strips
    ]
    (folder / FILE).write_text(json.dumps(listing, indent=1) + "\n")
    rows = ((f"{s}.{r}", row.frames) for s, strip in enumerate(strips) for r, row in enumerate(strip.rows))
    save_file({name: np.ascontiguousarray(frames) for name, frames in rows}, folder / FRAMES)


def read(folder: Path) -> list[Strip]:
    """The strips of an artifact's folder; an empty list if it holds none."""
    if not (folder / FILE).is_file():
        return []
    frames = load_file(folder / FRAMES)
    return [
        Strip(
            strip["state"], strip["success"],
            tuple(Row(row["arm"], frames[f"{s}.{r}"], row["read_success"]) for r, row in enumerate(strip["rows"])),
        )
        for s, strip in enumerate(json.loads((folder / FILE).read_text()))
    ]


def _by_turns(rows: np.ndarray, kind: np.ndarray, states: Sequence[str]) -> list[int]:
    """Rows of kinds 0, 1, 2, 0, 1, 2, ..., each kind's rows from new states first."""
    queues = []
    for wanted in (0, 1, 2):
        seen: set[str] = set()
        fresh, again = [], []
        for row in rows[kind[rows] == wanted].tolist():
            (again if states[row] in seen else fresh).append(row)
            seen.add(states[row])
        queues.append(fresh + again)
    ordered: list[int] = []
    while any(queues):
        ordered += [queue.pop(0) for queue in queues if queue]
    return ordered

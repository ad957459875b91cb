"""What takes space and serves nothing any more: found, shown, and removed when a person agrees.

Kept is what the open rounds and the sealed ones of every loop name, and what an artifact among these descends from.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from flows import mending, repro
from flows.lock import born
from flows.loops import Loop, names, number

SCRATCH = Path(".local/scratch")
UNFINISHED = re.compile(r"\..+\.(writing|replaced)-(\d+)")


@dataclass(frozen=True)
class Garbage:
    """Things of one kind that can go."""

    what: str
    paths: tuple[Path, ...]
    bytes: int


@dataclass(frozen=True)
class Found:
    """What there is to free, and what was looked at and stays."""

    garbage: tuple[Garbage, ...]
    kept_for_lineage: dict[str, int]
    """Artifact id and the begin of its hash -> bytes."""

    @property
    def bytes(self) -> int:
        """That would be freed."""
        return sum(item.bytes for item in self.garbage)


def find(root: Path, verify: bool = False) -> Found:
    """Look everywhere; removes nothing. With `verify`, every object of DVC's cache is read and compared with its hash.

    Call it while holding the repository's lock.
    """
    unused = _ask_dvc(root, "unused")
    cached = tuple(map(Path, unused["free"]))
    kinds = [
        Garbage("objects of DVC's cache that no open or sealed round uses", cached, sum(unused["free"].values())),
        _measured("checkpoints of stages that are done", _old_scratch(root)),
        _measured("folders that a killed stage left", _unfinished(root)),
    ]
    if verify:
        wrong = [path for path in map(Path, _ask_dvc(root, "damaged")) if path not in set(cached)]
        kinds.append(_measured("damaged objects of DVC's cache ('dvc pull' or a new run brings them back)", wrong))
    return Found(tuple(kind for kind in kinds if kind.paths), unused["kept"])


def remove(root: Path, found: Found) -> int:
    """Remove what was found; bytes freed. What is gone already is passed over."""
    with mending.held(root / ".dvc" / "tmp" / "lock"):
        for kind in found.garbage:
            for path in kind.paths:
                shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    return found.bytes


def readable(size: int) -> str:
    """'1.4 GiB' of bytes."""
    amount = float(size)
    for unit in ("B", "KiB", "MiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} GiB"


def _ask_dvc(root: Path, *words: str):
    command = [sys.executable, "-m", "flows.dvc_cache", *words]
    made = subprocess.run(command, cwd=root, env=repro.environment(), capture_output=True, text=True)
    if made.returncode != 0:
        raise ValueError(f"DVC cannot be asked what its cache holds:\n{made.stderr.strip()[-1000:]}")
    return json.loads(made.stdout)


def _old_scratch(root: Path) -> list[Path]:
    """Checkpoints that no run will take up: of closed rounds, and of loops that are gone."""
    folder, found = root / SCRATCH, []
    known = {name: Loop(name, root).open_round().round for name in names(root)}
    for of_loop in folder.iterdir() if folder.is_dir() else ():
        if of_loop.name == "start":
            continue
        if of_loop.name not in known:
            found.append(of_loop)
            continue
        current = number(known[of_loop.name])
        found += [
            item for item in of_loop.iterdir() if re.fullmatch(r"i\d+", item.name) and number(item.name) < current
        ]
    return found


def _unfinished(root: Path) -> list[Path]:
    """What a stage that was killed was writing."""
    found = []
    for folder, inside, _ in os.walk(root / "data"):
        for name in list(inside):
            mark = UNFINISHED.fullmatch(name)
            if mark is not None:
                inside.remove(name)
                if born(int(mark[2])) is None:
                    found.append(Path(folder) / name)
    return found


def _measured(what: str, paths: list[Path]) -> Garbage:
    def size(path: Path) -> int:
        files = path.rglob("*") if path.is_dir() else [path]
        return sum(file.stat().st_size for file in files if file.is_file())

    return Garbage(what, tuple(paths), sum(map(size, paths)))

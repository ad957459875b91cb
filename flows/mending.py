"""What a kill or a full disk in the middle of one of DVC's own writes leaves behind, put right before it is met.

DVC writes its lock files in place: torn, each of them stops every later command until a person removes it. All of this
happens under DVC's own locks, so that a file that a running command is writing is not taken for a torn one.
"""

from __future__ import annotations

import fcntl
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import yaml

from flows.lock import write_whole

DAMAGED = ".local/damaged.json"
"""Where a stage names the damaged input that it ended over (coevo.core.stage)."""
PATIENCE_SECONDS = 600.0
"""How long one DVC command may hold its lock at a stretch: it hashes and copies a stage's outputs meanwhile."""


def mend(root: Path) -> None:
    """Free what dead processes hold, and bring torn dvc.lock files back as `keep` last saw them."""
    with held(root / ".dvc" / "tmp" / "rwlock.lock"):
        _free_dead(root / ".dvc" / "tmp" / "rwlock")
    with held(root / ".dvc" / "tmp" / "lock"):
        for lock in _locks(root):
            _restore(lock, _kept(root, lock))


def keep(root: Path) -> None:
    """Copy the dvc.lock files that are whole, for `mend`."""
    with held(root / ".dvc" / "tmp" / "lock"):
        for lock in _locks(root):
            if _entries(text := lock.read_text()) is not None:
                _kept(root, lock).parent.mkdir(parents=True, exist_ok=True)
                write_whole(_kept(root, lock), text)


def forget(root: Path) -> None:
    """Of a damaged input that some earlier command ended over."""
    (root / DAMAGED).unlink(missing_ok=True)


def heal(root: Path) -> str | None:
    """Bring back the damaged input over which a stage has just ended; what was done, or none if that was not the cause.

    DVC trusts a file of its cache once it has written it, so a damaged one comes back with every checkout until it is
    taken out. Then DVC fetches it from the remote, or has the stage that made it run again.
    """
    note = root / DAMAGED
    try:
        path = json.loads(note.read_text())["path"]
    except (FileNotFoundError, ValueError):
        return None
    note.unlink()
    if not (root / path).resolve().is_relative_to((root / "data").resolve()):
        return None
    asked = _ask(root, "-m", "flows.dvc_cache", "damaged", path)
    if asked.returncode != 0:  # not DVC's
        return None
    wrong = json.loads(asked.stdout)
    for file in map(Path, wrong):
        file.unlink()
    shutil.rmtree(root / path, ignore_errors=True)
    fetched = any(_ask(root, "-m", "dvc", verb, path).returncode == 0 for verb in ("checkout", "pull"))
    how = "brought back" if fetched else "made again"
    return f"{path} was damaged ({len(wrong)} files of DVC's cache with it) and is {how}"


def _ask(root: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *words], cwd=root, capture_output=True, text=True)


@contextmanager
def held(file: Path) -> Iterator[None]:
    """Hold one of DVC's locks, which the operating system frees when its holder dies."""
    file.parent.mkdir(parents=True, exist_ok=True)
    until = time.monotonic() + PATIENCE_SECONDS
    with file.open("a+") as opened:
        while True:
            try:
                fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > until:
                    raise ValueError(
                        f"another DVC command has held {file} for {PATIENCE_SECONDS:.0f} s; end it, or wait for its end"
                    ) from None
                time.sleep(0.1)
        yield


def _free_dead(file: Path) -> None:
    """Take out of DVC's list of paths in use those of processes that are gone.

    DVC does so itself, but goes by the number alone: one that another process has now, or a zombie that nobody waits
    for (usual in containers), blocks it for ever.
    """
    try:
        text = file.read_text()
        listed = json.loads(text)
    except FileNotFoundError:
        return
    except ValueError:
        print(f"removed {file}, which was torn when a DVC command was killed", file=sys.stderr, flush=True)
        file.unlink()
        return
    written = file.stat().st_mtime
    free = {
        "write": {path: user for path, user in listed.get("write", {}).items() if _is_dvc(user["pid"], written)},
        "read": {
            path: living
            for path, users in listed.get("read", {}).items()
            if (living := [user for user in users if _is_dvc(user["pid"], written)])
        },
    }
    if free != {"write": listed.get("write", {}), "read": listed.get("read", {})}:
        write_whole(file, json.dumps(free))


def _is_dvc(pid: int, written: float) -> bool:
    """Whether this process can be the one that wrote its number at or before the time `written`."""
    try:
        process = psutil.Process(pid).as_dict(["name", "cmdline", "create_time", "status"])
    except psutil.Error:
        return False
    words = " ".join([process["name"], *(process["cmdline"] or ())]).lower()  # none of somebody else's
    lives = process["status"] != psutil.STATUS_ZOMBIE and process["create_time"] <= written + 1.0
    return lives and ("dvc" in words or "python" in words)


def _restore(lock: Path, kept: Path) -> None:
    text, before = lock.read_text(), kept.read_text() if kept.is_file() else None
    if text == before or not is_torn(text):
        return
    if before is not None:
        write_whole(lock, before)
        said = "brought back as it was before"
    else:
        lock.unlink()  # DVC knows from its cache of runs what was made from what: no stage runs again for it
        said = "removed"
    print(f"{lock} was torn when a DVC command was killed, and is {said}", file=sys.stderr, flush=True)


def is_torn(text: str) -> bool:
    """Whether this is the beginning of a dvc.lock that stops within a stage: outputs are what is written last of one.

    One that stops between two stages is as good as whole: DVC finds those that follow in its cache of runs.
    """
    stages = _entries(text)
    if stages is None:
        return True
    last = list(stages.values())[-1].get("outs") if stages else None
    return not last or not all(isinstance(out, dict) and "md5" in out for out in last)


def _entries(text: str) -> dict[str, Any] | None:
    """The stages of a dvc.lock; none if it cannot be read to its end."""
    try:
        stages = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))["stages"]
        whole = text.endswith("\n") and all(isinstance(stage["cmd"], str) for stage in stages.values())
    except (yaml.YAMLError, KeyError, TypeError, AttributeError):
        return None
    return stages if whole else None


def _locks(root: Path) -> list[Path]:
    files = (root / "start" / "dvc.lock", root / "dvc.lock", *root.glob("loops/**/dvc.lock"))
    return [file for file in files if file.is_file()]


def _kept(root: Path, lock: Path) -> Path:
    return root / ".local" / "locks" / lock.relative_to(root)

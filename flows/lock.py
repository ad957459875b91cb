"""One flow at a time works on the repository; a second one is told who does."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout


class Held(RuntimeError):
    """Another process works on the repository; the message names it."""


@contextmanager
def repository_lock(root: Path, purpose: str) -> Iterator[None]:
    """Hold the repository, or raise Held at once. Nested use in one process is fine.

    The operating system frees the lock when its holder dies, however it dies. A stage that a dead holder left running
    is ended first: it would write where the new holder works.
    """
    folder = root / ".local"
    folder.mkdir(exist_ok=True)
    lock = FileLock(folder / "repository.lock", is_singleton=True, thread_local=False)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise Held(_describe(folder / "holder.json")) from None
    try:
        if lock.lock_counter == 1:
            _end_leftover(folder / "running.json")
            holder = dict(pid=os.getpid(), purpose=purpose, since=time.strftime("%Y-%m-%d %H:%M:%S"))
            (folder / "holder.json").write_text(json.dumps(holder))
        yield
    finally:
        lock.release()


@contextmanager
def recorded_group(root: Path, pid: int, stage: str) -> Iterator[None]:
    """Write down the process group of a running stage, so that whoever follows a dead holder can end it."""
    file = root / ".local" / "running.json"
    file.write_text(json.dumps(dict(pid=pid, born=_born(pid), stage=stage)))
    try:
        yield
    finally:
        file.unlink(missing_ok=True)


def end_group(pid: int) -> None:
    """End a process group: politely, then after two seconds for certain."""
    for sign, wait in ((signal.SIGTERM, 2.0), (signal.SIGKILL, 1.0)):
        try:
            os.killpg(pid, sign)
        except (ProcessLookupError, PermissionError):
            return
        until = time.monotonic() + wait
        while time.monotonic() < until and _group_lives(pid):
            time.sleep(0.05)


def _end_leftover(file: Path) -> None:
    try:
        left = json.loads(file.read_text())
    except (FileNotFoundError, ValueError):
        return
    members = _group_members(left["pid"])
    # A process id can come back as someone else's: the leader's birth time tells. If only the leader died, no new
    # process can have taken its number while its group has members.
    if members and (left["pid"] not in members or _born(left["pid"]) == left["born"]):
        end_group(left["pid"])
    file.unlink(missing_ok=True)


def _describe(file: Path) -> str:
    try:
        holder = json.loads(file.read_text())
    except (FileNotFoundError, ValueError):
        return "the repository is in use by another coevo process; wait for it or end it"
    return (
        f"the repository is in use by '{holder['purpose']}' (process {holder['pid']}, since {holder['since']}); "
        "wait for it or end it"
    )


def _born(pid: int) -> str | None:
    """Start time of a process in clock ticks since boot; none if it is gone (or this system has no /proc)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[19]
    except OSError:
        return None


def _group_members(group: int) -> list[int]:
    """Living processes of a process group."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            state, _, its_group = (folder / "stat").read_text().rsplit(")", 1)[1].split()[:3]
        except OSError:
            continue
        if int(its_group) == group and state != "Z":
            found.append(int(folder.name))
    return found


def _group_lives(group: int) -> bool:
    return bool(_group_members(group))

"""One flow at a time works on the repository; a second one is told who does."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

MARK = "COEVO_STAGE_OF"
"""Environment variable of every process that a flow starts for a stage: the repository that it works in."""


class Held(RuntimeError):
    """Another process works on the repository; the message names it."""


@contextmanager
def repository_lock(root: Path, purpose: str) -> Iterator[None]:
    """Hold the repository, or raise Held at once. Nested use in one process is fine.

    The operating system frees the lock when its holder dies, however it dies. What a dead holder left running is ended
    first: it would write where the new holder works.
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
            end_marked(root)
            holder = dict(pid=os.getpid(), purpose=purpose, since=time.strftime("%Y-%m-%d %H:%M:%S"))
            write_whole(folder / "holder.json", json.dumps(holder))
        yield
    finally:
        lock.release()


def write_whole(file: Path, text: str) -> None:
    """Write a file in one step: a kill or a full disk leaves the old content or the new one."""
    partial = file.with_name(f".{file.name}.{os.getpid()}.partial")
    try:
        partial.write_text(text)
        os.replace(partial, file)
    finally:
        partial.unlink(missing_ok=True)


def mark(root: Path) -> dict[str, str]:
    """What a stage's environment holds so that it and all that it starts can be found again, whoever is left."""
    return {MARK: str(root.resolve())}


def end_marked(root: Path) -> None:
    """End every process that a flow started for a stage of this repository, whatever group it has moved to."""
    wanted = f"{MARK}={root.resolve()}".encode()
    _end(lambda: [pid for pid in _processes() if wanted in _environment(pid) and pid != os.getpid()], os.kill)


def end_group(pid: int) -> None:
    """End a process group."""
    _end(lambda: [pid] if _group_members(pid) else [], os.killpg)


def born(pid: int) -> str | None:
    """Start time of a process in clock ticks since boot; none if it is gone or a zombie."""
    fields = _stat(pid)
    return fields[19] if fields and fields[0] != "Z" else None


def _end(found: Callable[[], list[int]], send: Callable[[int, int], None]) -> None:
    """Politely, then after two seconds for certain."""
    for sign, wait in ((signal.SIGTERM, 2.0), (signal.SIGKILL, 1.0)):
        for pid in (left := found()):
            try:
                send(pid, sign)
            except (ProcessLookupError, PermissionError):
                continue
        if not left:
            return
        until = time.monotonic() + wait
        while time.monotonic() < until and found():
            time.sleep(0.05)


def _describe(file: Path) -> str:
    try:
        holder = json.loads(file.read_text())
    except (FileNotFoundError, ValueError):
        return "the repository is in use by another coevo process; wait for it or end it"
    return (
        f"the repository is in use by '{holder['purpose']}' (process {holder['pid']}, since {holder['since']}); "
        "wait for it or end it"
    )


def _processes() -> list[int]:
    """Living processes; none where the system has no /proc."""
    return [int(folder.name) for folder in Path("/proc").glob("[0-9]*") if born(int(folder.name)) is not None]


def _group_members(group: int) -> list[int]:
    """Living processes of a process group."""
    return [pid for pid in _processes() if (fields := _stat(pid)) and int(fields[2]) == group]


def _environment(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:  # gone, or somebody else's
        return []


def _stat(pid: int) -> list[str]:
    """Fields of /proc/PID/stat from the state on: state, parent, group, ...; none if it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return []

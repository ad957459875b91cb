"""One flow at a time works on the repository; a second one is told who does."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
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
    where = str(root.resolve())

    def marked() -> list[int]:
        living = psutil.process_iter(["status", "environ"])  # of somebody else's the environment is none
        return [
            process.pid
            for process in living
            if (process.info["environ"] or {}).get(MARK) == where and _lives(process.info["status"])
        ]

    _end(lambda: [pid for pid in marked() if pid != os.getpid()], os.kill)


def end_group(pid: int) -> None:
    """End a process group."""
    _end(lambda: [pid] if _has_members(pid) else [], os.killpg)


def born(pid: int) -> float | None:
    """When a process started, in seconds since boot, which no change of the clock moves; none if it is gone or a
    zombie."""
    try:
        process = psutil.Process(pid)
        return process.create_time() - psutil.boot_time() if _lives(process.status()) else None
    except psutil.Error:
        return None


def is_same(pid: int, since: float) -> bool:
    """Whether the process that `born` once said this of is still alive; its number may be another one's by now."""
    now = born(pid)
    return now is not None and abs(now - since) < 2.0  # boot is known to the second


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


def _has_members(group: int) -> bool:
    """Whether a process group has a living process."""
    for process in psutil.process_iter(["status"]):
        try:
            if os.getpgid(process.pid) == group and _lives(process.info["status"]):
                return True
        except OSError:  # gone, or somebody else's
            continue
    return False


def _lives(status: str) -> bool:
    return status not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)

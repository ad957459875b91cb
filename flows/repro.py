"""Calls of DVC's command line: the one way in which stages run."""

from __future__ import annotations

import configparser
import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from flows.lock import end_group, recorded_group

BUSY = ("Unable to acquire lock", "is busy, it is being blocked by", "is locked")
"""What DVC says when another DVC process holds what it needs."""
RETRY_SECONDS = (1, 2, 4, 8, 15)
"""Pauses before further tries at a busy lock; the last is repeated."""
PATIENCE_SECONDS = 3600
"""A person's own `dvc repro` may take this long before a flow gives up waiting for it."""


class StageFailed(RuntimeError):
    """A stage ended badly; the message is the stage's own last words."""


def environment() -> dict[str, str]:
    """Environment of DVC and its stages: this interpreter's commands come first, output is not held back."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    return {**os.environ, "PATH": path, "PYTHONUNBUFFERED": "1"}


def status(root: Path, files: Sequence[str]) -> Mapping[str, object]:
    """What `dvc status` finds changed in these dvc.yaml files: {stage address: reasons}; empty when all is done."""
    for pause in _pauses():
        made = subprocess.run(
            [sys.executable, "-m", "dvc", "status", "--json", *files],
            cwd=root,
            env=environment(),
            capture_output=True,
            text=True,
        )
        if made.returncode == 0:
            return json.loads(made.stdout)
        if not any(sign in made.stderr for sign in BUSY):
            raise StageFailed(f"'dvc status' failed:\n{made.stderr.strip()}")
        time.sleep(pause)
    raise StageFailed(f"DVC stayed busy for {PATIENCE_SECONDS} s: {made.stderr.strip()}")


def reproduce(root: Path, address: str, on_line: Callable[[str], None], upstream: bool = False) -> bool:
    """Have DVC run one stage if it must (with `upstream`, all that it needs too). Whether anything was run.

    A lock held by a person's own DVC command is waited for. Raises StageFailed.
    """
    arguments = ["repro", *([] if upstream else ["--single-item"]), *(["--pull"] if has_remote(root) else []), address]
    waiting = False
    for pause in _pauses():
        code, last, ran = _run(root, address, arguments, on_line)
        if code == 0:
            return ran
        busy = [line for line in last if any(sign in line for sign in BUSY)]
        if not busy:
            words = [line for line in last if not line.startswith("PROGRESS ")]
            said = [line for line in words if not line.startswith("ERROR: failed to reproduce")]
            raise StageFailed("\n".join((said or words)[-15:]) or f"DVC ended with status {code} and said nothing")
        if not waiting:
            on_line(f"waiting, since DVC is busy with another command: {busy[-1]}")
        waiting = True
        time.sleep(pause)
    raise StageFailed(f"DVC stayed busy for {PATIENCE_SECONDS} s: {busy[-1]}")


def has_remote(root: Path) -> bool:
    """Whether a default remote is configured. Without one, `--pull` warns at every stage."""
    config = configparser.ConfigParser()
    config.read([root / ".dvc" / "config", root / ".dvc" / "config.local"])
    return config.has_option("core", "remote")


def _pauses() -> Iterator[float]:
    until, tries = time.monotonic() + PATIENCE_SECONDS, 0
    while time.monotonic() < until:
        yield RETRY_SECONDS[min(tries, len(RETRY_SECONDS) - 1)]
        tries += 1


def _run(
    root: Path, address: str, arguments: Sequence[str], on_line: Callable[[str], None]
) -> tuple[int, list[str], bool]:
    """Exit status, last lines, and whether a stage was run. The whole process group ends with this call."""
    process = subprocess.Popen(
        [sys.executable, "-m", "dvc", *arguments],
        cwd=root,
        env=environment(),
        text=True,
        errors="replace",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    last: deque[str] = deque(maxlen=40)
    ran = False
    try:
        with recorded_group(root, process.pid, address):
            for line in _lines(process):
                ran = ran or line.startswith("Running stage")
                if not _chatter(line):
                    last.append(line)
                    on_line(line)
            return process.wait(), list(last), ran
    finally:
        end_group(process.pid)


def _lines(process: subprocess.Popen[str]) -> Iterator[str]:
    """Lines as they come, until the process has ended: a daemon left behind with our pipe open must not hold us.

    A thread reads and this one waits in short steps, so that a cancellation can interrupt it.
    """
    lines: queue.Queue[str | None] = queue.Queue()

    def read() -> None:
        for line in process.stdout:
            lines.put(line.rstrip("\n"))
        lines.put(None)

    threading.Thread(target=read, daemon=True).start()
    ended = 0.0
    while True:
        try:
            line = lines.get(timeout=0.2)
        except queue.Empty:
            if process.poll() is not None:
                ended = ended or time.monotonic()
                if time.monotonic() - ended > 1.0:
                    return
            continue
        if line is None:
            return
        yield line


def _chatter(line: str) -> bool:
    """DVC's own small talk, of no use in a log of the stage."""
    return not line.strip() or line.startswith(
        (
            "> ",
            "Generating lock file",
            "Updating lock file",
            "To track the changes",
            "\tgit add",
            "To enable auto",
            "\tdvc config",
            "Use `dvc push`",
            "Data and pipelines are up to date",
        )
    )

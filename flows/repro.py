"""Calls of DVC's command line: the one way in which stages run."""

from __future__ import annotations

import configparser
import json
import os
import queue
import shlex
import shutil
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from flows import mending
from flows.graph import Stage
from flows.lock import end_group, end_marked, mark

DVC = (sys.executable, "-m", "flows.dvc_command")
BUSY = 75
"""Exit status of flows.dvc_command where another DVC process holds what it needs."""
FAILED = "ERROR: failed to reproduce"
"""How DVC begins to say that a stage ended badly."""
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
        made = dvc(root, "status", "--json", *files)
        if made.returncode == 0:
            return json.loads(made.stdout)
        if made.returncode != BUSY:
            raise StageFailed(f"'dvc status' failed:\n{made.stderr.strip()}")
        time.sleep(pause)
    raise StageFailed(f"DVC stayed busy for {PATIENCE_SECONDS} s: {made.stderr.strip()}")


def dvc(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """One DVC command that starts no stage, to its end."""
    return subprocess.run([*DVC, *arguments], cwd=root, env=environment(), capture_output=True, text=True)


def reproduce(root: Path, address: str, on_line: Callable[[str], None], upstream: bool = False) -> bool:
    """Have DVC run one stage if it must (with `upstream`, all that it needs too). Whether anything was run.

    A lock held by a person's own DVC command is waited for. Raises StageFailed.
    """
    # At a stage's end DVC takes its lock again: without waiting it gives up after three seconds, and the work with it.
    arguments = ["--wait-for-lock", "repro", *([] if upstream else ["--single-item"])]
    arguments += [*(["--pull"] if has_remote(root) else []), address]
    waiting, healed = False, None
    mending.forget(root)
    for pause in _pauses():
        code, last, ran = _run(root, arguments, on_line)
        if code == 0:
            mending.keep(root)
            _let_go(root)
            return ran
        if code != BUSY and not healed and (healed := mending.heal(root)):
            on_line(healed)
            arguments = [word for word in arguments if word != "--single-item"]  # what made it comes first
            continue
        if code != BUSY:
            words = [line for line in last if not line.startswith("PROGRESS ")]
            # Of a command that failed the stage's own words say more; what else went wrong (a full disk) DVC says here.
            said = [line for line in words if not (line.startswith(FAILED) and ": failed to run: " in line)]
            ended = f"DVC was ended by signal {-code}" if code < 0 else f"DVC ended with status {code} and said nothing"
            raise StageFailed("\n".join((said or words)[-15:]) or ended)
        if not waiting:
            on_line(f"waiting, since DVC is busy with another command: {' '.join(last)}")
        waiting = True
        time.sleep(pause)
    raise StageFailed(f"DVC stayed busy for {PATIENCE_SECONDS} s: {' '.join(last)}")


def _let_go(root: Path) -> None:
    """Of finished artifacts that stages kept in case DVC were killed before it wrote them down (coevo.core.stage)."""
    for kept in list((root / ".local" / "scratch").rglob("finished-run-*")):
        shutil.rmtree(kept, ignore_errors=True)


def check(root: Path, stages: Sequence[Stage]) -> None:
    """Validate the parameters of these stages against what their code takes; ValueError lists all faults at once.

    It costs some seconds for the imports, and spares the hours after which a late stage would find its own fault.
    """
    commands = json.dumps([shlex.split(stage.command) for stage in stages])
    made = subprocess.run(
        [sys.executable, "-m", "coevo.core.check"],
        cwd=root, env=environment(), input=commands, capture_output=True, text=True,
    )  # fmt: skip
    if made.returncode == 2:
        raise ValueError(made.stderr.strip())
    if made.returncode != 0:
        raise StageFailed(f"the parameters could not be checked:\n{made.stderr.strip()}")


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


def _run(root: Path, arguments: Sequence[str], on_line: Callable[[str], None]) -> tuple[int, list[str], bool]:
    """Exit status, last lines, and whether a stage was run. All that was started for it ends with this call."""
    process = subprocess.Popen(
        [*DVC, *arguments],
        cwd=root,
        env=environment() | mark(root),
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
        for line in _lines(process):
            ran = ran or line.startswith("Running stage")
            if not _chatter(line):
                last.append(line)
                on_line(line)
        return process.wait(), list(last), ran
    finally:
        end_group(process.pid)
        end_marked(root)


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

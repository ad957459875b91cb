"""Kills in a small round of the real stages: simulator, training, dreams. Minutes long."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from flows import lock
from tests.flows import toys
from tests.survival.site import wait_for
from tests.test_one_round import Repository, begun

KILLS = 8
SECONDS_BETWEEN = (2.0, 15.0)


def processes(root: Path, word: str) -> list[int]:
    """Living processes of a repository whose command holds `word`, youngest last."""
    found = []
    for process in psutil.process_iter(["cwd", "cmdline", "status", "create_time"]):
        known = process.info
        here = known["cwd"] is not None and Path(known["cwd"]) == root.resolve()
        command = " ".join(known["cmdline"] or ())
        if here and word in command and known["status"] != psutil.STATUS_ZOMBIE and not command.startswith("/bin/"):
            found.append((known["create_time"], process.pid))
    return [pid for _, pid in sorted(found)]


def begin(repository: Repository) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-m", "flows.cli", "run"], cwd=repository.root, env=repository.environment,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip


@pytest.mark.survival
@pytest.mark.timeout(3600)
def test_a_real_round_that_is_killed_again_and_again_ends_with_the_same_hashes(tmp_path_factory, server):
    # Both are copies of the code as it is now, whoever edits it while this runs.
    whole, repository = (begun(tmp_path_factory.mktemp(name), server) for name in ("whole", "killed"))
    whole.run_round()
    moments, killed = random.Random("real round"), []
    while len(killed) < KILLS:
        run = begin(repository)
        wait_for(lambda: processes(repository.root, "tasks.") or run.poll() is not None, "a stage", 300)  # noqa: B023
        if run.poll() is not None:
            break
        time.sleep(moments.uniform(*SECONDS_BETWEEN))
        # A worker of the simulator is replaced and its rows are redone: the stage goes on. The others end the run.
        kind = moments.choice(["multiprocessing.spawn", "tasks.", "flows.dvc_command", "flows.cli"])
        found = processes(repository.root, kind)
        if not found:
            kind, found = "tasks.", processes(repository.root, "tasks.")
        if found:
            killed.append(kind)
            os.kill(found[-1], signal.SIGKILL)
        if kind != "multiprocessing.spawn":
            run.wait(timeout=600)
        else:
            time.sleep(moments.uniform(*SECONDS_BETWEEN))
            lock.end_group(run.pid)
            run.wait(timeout=600)
    print(f"{len(killed)} kills: {', '.join(killed)}")
    repository.run_round()
    assert toys.hashes(repository.root) == toys.hashes(whole.root)
    assert repository.unfinished() == {}
    assert not processes(repository.root, "tasks.") and not processes(repository.root, "multiprocessing.spawn")
    assert not [path for path in (repository.root / "data").rglob(".*.writing-*")]

"""How processes are known, on any system that psutil knows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

import flows
from flows import lock


@pytest.fixture
def sleeper():
    process = subprocess.Popen(["sleep", "60"])
    yield process
    process.kill()
    process.wait()


def test_a_process_is_known_by_its_start_and_a_zombie_is_none(sleeper):
    since = lock.born(sleeper.pid)
    assert since > lock.born(os.getppid()) - 1 and lock.is_same(sleeper.pid, since)
    # A younger process that has the number now began later.
    assert not lock.is_same(sleeper.pid, since - 60.0)
    sleeper.kill()
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)
    assert lock.born(sleeper.pid) is None and not lock.is_same(sleeper.pid, since)
    sleeper.wait()
    assert lock.born(sleeper.pid) is None


def test_a_group_ends_with_those_who_do_not_listen():
    deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True); time.sleep(60)"
    process = subprocess.Popen([sys.executable, "-c", deaf], stdout=subprocess.PIPE, start_new_session=True)
    assert process.stdout.readline().strip() == b"1"
    began = time.monotonic()
    lock.end_group(process.pid)
    assert process.wait(5) == -9 and time.monotonic() - began < 10


def test_what_is_marked_for_another_repository_is_left_alone(tmp_path):
    (tmp_path / "a").mkdir()
    mark = lock.mark(tmp_path / "a")
    own, other = (
        subprocess.Popen(["sleep", "60"], env={**os.environ, **marked}, start_new_session=True)
        for marked in (mark, lock.mark(tmp_path / "ab"))
    )
    try:
        lock.end_marked(tmp_path / "a")
        assert own.wait(5) == -15 and other.poll() is None
    finally:
        other.kill()
        other.wait()


def test_no_flow_reads_what_linux_alone_has():
    folder = Path(flows.__file__).parent
    assert not [file.name for file in folder.glob("*.py") if re.search(r"[\"']/proc|f\"/proc", file.read_text())]

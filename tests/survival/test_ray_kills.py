"""kill -9 of Ray workers, of the stage that they work for, and of the flow, at seeded random moments.

Each stage has a Ray of its own (COEVO_RAY=local), whose daemons and workers are in sessions of their own.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

import psutil
import pytest

from tests.survival.site import Site, wait_for
from tests.survival.sound import require_done
from tests.survival.test_kills import tell
from tests.survival.test_quick_kills import begin

pytestmark = [
    pytest.mark.survival,
    pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed: pip install 'coevo[ray]'"),
]
KINDS = ("a worker", "two workers", "the stage", "the flow")
CALLS = """
import time
from pathlib import Path

def wait_and_say(held, pause, step):
    time.sleep(float(Path(pause).read_text()))
    return step
"""
"""Beside the toy stages, for their workers: what a script defines cannot be sent to another process."""


@pytest.fixture
def ray_site(tmp_path, monkeypatch):
    """A toy repository whose stages count by two workers, and nothing of Prefect."""
    folder = tempfile.mkdtemp(prefix="ray-")  # short: the paths of Ray's sockets have a limit
    for name, value in dict(COEVO_RAY="local", RAY_TMPDIR=folder, COEVO_RAY_WAIT="600").items():
        monkeypatch.setenv(name, value)
    site = Site(tmp_path / "site", "http://127.0.0.1:9")
    (site.root / "calls.py").write_text(CALLS)
    counting = """    crew = Actors(dict, 2, "counting", 600.0)
    total += sum(crew.run([(wait_and_say, str(Path("pause").absolute()), step) for step in range(params.steps)]))
    crew.close()
"""
    stages = (site.root / "toys.py").read_text()
    begins = stages.index("    for step in range(params.steps):")
    ends = stages.index('    (run.folder / "total.txt")', begins)
    stages = stages[:begins] + counting + stages[ends:]
    stages = stages.replace("from coevo.core import stage", "from calls import wait_and_say\n"
                            "from coevo.core import stage\nfrom coevo.workers.actors import Actors")  # fmt: skip
    (site.root / "toys.py").write_text(stages)
    yield site
    site.close()
    wait_for(lambda: not daemons(folder), "Ray to end", 60)
    shutil.rmtree(folder)


def daemons(folder: str) -> list[int]:
    """Living processes of the Rays in this folder; a worker's own environment is overwritten by its title."""
    found = []
    for process in psutil.process_iter(["environ", "cmdline", "status"]):
        known = process.info
        words = [*(known["cmdline"] or ()), (known["environ"] or {}).get("RAY_TMPDIR", "")]
        if known["status"] != psutil.STATUS_ZOMBIE and any(folder in word for word in words):
            found.append(process.pid)
    return found


def workers(site: Site) -> list[int]:
    """Actors that have begun, the oldest first."""
    found = []
    for process in psutil.process_iter(["cwd", "cmdline", "status", "create_time"]):
        known = process.info
        here = known["cwd"] is not None and Path(known["cwd"]) == site.root.resolve()
        begun = " ".join(known["cmdline"] or ()).startswith("ray::Worker")
        if here and begun and known["status"] != psutil.STATUS_ZOMBIE:
            found.append((known["create_time"], process.pid))
    return [pid for _, pid in sorted(found)]


@pytest.mark.parametrize("seed", [1, 2])
def test_a_round_whose_workers_are_killed_again_and_again(ray_site, undisturbed, seed, capsys):
    site, moments, killed = ray_site, random.Random(f"ray {seed}"), []
    kinds = list(KINDS)
    moments.shuffle(kinds)
    (site.root / "pause").write_text("5")
    run = None
    for kind in kinds:
        run = begin(site) if run is None or run.poll() is not None else run
        wait_for(lambda: len(workers(site)) == 2 or run.poll() is not None, "two workers", step=0.2)  # noqa: B023
        if run.poll() is not None:
            break
        time.sleep(moments.uniform(0.0, 4.0))
        victims = {"a worker": workers(site)[:1], "two workers": workers(site), "the stage": site.stages(),
                   "the flow": [run.pid]}[kind]  # fmt: skip
        if not victims:  # between two stages
            continue
        for pid in victims:
            os.kill(pid, signal.SIGKILL)
        killed.append(kind)
        if kind in ("the stage", "the flow"):
            assert run.wait() != 0
        else:  # replaced: the stage goes on
            wait_for(lambda: not set(victims) & set(workers(site)), "the workers' end")  # noqa: B023
    tell(capsys, killed)
    site.hurry()
    if run.poll() is None:
        assert run.wait() == 0, site.said()
    else:
        assert begin(site).wait() == 0, site.said()
    require_done(site, undisturbed)
    wait_for(lambda: not daemons(os.environ["RAY_TMPDIR"]), "Ray to end", 60)

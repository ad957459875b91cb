"""kill -9 of everything, at seeded random moments of a toy round with the real DVC, Prefect and processes.

One repository after the other is killed again and again. The four kills of `make test` are in test_quick_kills.py.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time

import psutil
import pytest

from tests.survival.site import Server, Site, wait_for
from tests.survival.sound import require_sound, run_again

KILLS = 5
"""In one repository. Each later run goes on from what the killed ones left."""


def slow(site: Site, pause: float) -> None:
    """Seconds per step of a toy stage, of which each has two or three."""
    (site.root / "pause").write_text(str(pause))


def kill(site: Site, kind: str, run: subprocess.Popen) -> bool:
    """Kill a process of this kind; a stage or a DVC may just be ending, and the next one is as good. Whether one was
    found before the run was over."""
    find = dict(stage=site.stages, dvc=lambda: site.processes("flows.dvc_command"), flow=lambda: [run.pid])[kind]
    wait_for(lambda: find() or run.poll() is not None, f"a {kind}")
    found = find()
    if run.poll() is not None or not found:
        return False
    os.kill(found[0], signal.SIGKILL)
    return True


@pytest.mark.survival
@pytest.mark.parametrize("kind", ["stage", "dvc", "flow"])
def test_one_kill_costs_nothing_that_was_finished(site, undisturbed, kind):
    slow(site, 0.3)
    run = site.begin("run")
    wait_for(site.stages, "the first stage")
    time.sleep(random.Random(kind).uniform(0.0, 3.0))
    assert kill(site, kind, run)
    wait_for(lambda: run.poll() is not None, "the end of the run")
    assert "Traceback" not in site.said(), site.said()
    run_again(site, undisturbed)


@pytest.mark.survival
def test_a_run_goes_on_without_its_runner(site, undisturbed):
    slow(site, 0.3)
    runner = site.serve()
    site.trigger()
    wait_for(site.stages, "the first stage")
    os.kill(runner.pid, signal.SIGKILL)
    runner.wait()
    site.hurry()
    wait_for(lambda: not site.unended(), "the end of the run", step=0.5)
    require_sound(site, undisturbed)


@pytest.mark.survival
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_round_that_is_killed_again_and_again(site, undisturbed, seed, capsys):
    slow(site, 1.0)
    moments, killed = random.Random(f"command line {seed}"), []
    while len(killed) < KILLS:
        run = site.begin("run")
        wait_for(lambda: site.stages() or run.poll() is not None, "a stage")  # noqa: B023
        time.sleep(moments.uniform(0.0, 5.0))
        kind = moments.choice(["stage", "dvc", "flow"])
        if not kill(site, kind, run):
            break
        killed.append(kind)
        wait_for(lambda: run.poll() is not None, "the end of the run")  # noqa: B023
        assert "Traceback" not in site.said(), site.said()
    tell(capsys, killed)
    run_again(site, undisturbed)


@pytest.mark.survival
@pytest.mark.parametrize("seed", [1, 2])
def test_a_served_round_that_is_killed_again_and_again(own_server: Server, tmp_path, undisturbed, seed, capsys):
    """The runner with and without its run, the run alone, the server, and all at once, as by a power cut."""
    site = Site(tmp_path / "site", own_server.url)
    slow(site, 1.0)
    moments, killed = random.Random(f"served {seed}"), []
    kinds = ["run", "server", "runner and run", "all", moments.choice(["server", "all"])]
    moments.shuffle(kinds)
    runner = None
    try:
        for kind in kinds:
            if runner is None or runner.poll() is not None:
                runner = site.serve()
            run = site.trigger()
            wait_for(lambda: site.stages() or site.state(run) == "COMPLETED", "a stage", step=0.2)  # noqa: B023
            if not site.stages():
                break
            time.sleep(moments.uniform(0.0, 5.0))
            kill_served(site, own_server, runner, kind)
            killed.append(kind)
        tell(capsys, killed)
        run_again(site, undisturbed)
    finally:
        site.close()


def kill_served(site: Site, server: Server, runner: subprocess.Popen, kind: str) -> None:
    """Ends with a server that answers; what was not killed has come to its end."""
    runs = [pid for pid in site.processes() if pid != runner.pid and "prefect" in command(pid)]
    if kind in ("runner and run", "all"):
        os.kill(runner.pid, signal.SIGKILL)
        runner.wait()
    if kind in ("server", "all"):
        server.kill()
    victims = {"all": site.processes(), "server": []}.get(kind, runs)
    for pid in victims:
        os.kill(pid, signal.SIGKILL)
    if kind == "server":  # the stage is not lost with the server; the run then is
        wait_for(lambda: not site.stages(), "the stage to end")
        wait_for(lambda: not [pid for pid in runs if pid in site.processes()], "the run to give up", step=0.5)
    if kind in ("server", "all"):
        server.start()


def command(pid: int) -> str:
    """Words of a process; empty if it is gone."""
    try:
        return " ".join(psutil.Process(pid).cmdline())
    except psutil.Error:
        return ""


def tell(capsys, killed: list[str]) -> None:
    """For the count in docs/reliability.md."""
    with capsys.disabled():
        print(f"\n{len(killed)} kills: {'; '.join(killed)}")

"""Four kills for `make test`: a round by its flow's own steps, without Prefect, whose server takes longer than all of
them. (tests/flows/test_loop.py kills a stage and a flow under Prefect; `make survival` everything.)
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time

import pytest

from tests.flows import toys
from tests.survival.site import Site, settings, wait_for
from tests.survival.sound import require_done

ROUND = """
from flows import repro, rounds
from flows.lock import repository_lock
from flows.loops import Loop

loop = Loop()
with repository_lock(loop.root, "a round"):
    rounds.tidy(loop)
    for stage in rounds.left_to_do(loop):
        repro.reproduce(loop.root, stage.address, print)
    assert not rounds.left_to_do(loop)
"""


def begin(site: Site) -> subprocess.Popen:
    with (site.root / ".local" / "said").open("a") as said:
        process = subprocess.Popen(
            [sys.executable, "-c", ROUND], cwd=site.root, env=settings(site.root, site.server), stdout=said,
            stderr=said, start_new_session=True,
        )  # fmt: skip
    site.begun.append(process)
    return process


@pytest.mark.parametrize("kind", ["stage", "dvc", "flow", "all"])
def test_a_kill_costs_nothing_that_was_finished(tmp_path, undisturbed, kind):
    site = Site(tmp_path / "site", "http://127.0.0.1:9", pause=0.3)
    try:
        run = begin(site)
        wait_for(site.stages, "the first stage")
        time.sleep(random.Random(kind).uniform(0.0, 3.0))
        victims = {"stage": site.stages, "dvc": lambda: site.processes("flows.dvc_command"), "flow": lambda: [run.pid],
                   "all": lambda: [*site.stages(), *site.processes("flows.dvc_command"), run.pid]}[kind]  # fmt: skip
        for pid in wait_for(victims, f"a {kind}"):
            os.kill(pid, signal.SIGKILL)
        assert run.wait() != 0, site.said()
        site.hurry()
        assert begin(site).wait() == 0, site.said()
        require_done(site, undisturbed)
        assert toys.hashes(site.root) == undisturbed
    finally:
        site.close()

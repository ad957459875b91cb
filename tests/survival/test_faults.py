"""What is not a kill: a cancelled run, a full disk, a busy DVC, torn and damaged files, two triggers at once."""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta

import pytest
import yaml

from tests.flows import toys
from tests.survival.site import Site, settings, wait_for
from tests.survival.sound import require_sound, run_again

survival = pytest.mark.survival
DISK_MIB = 4
SPARED_KIB = (0, 24, 64, 160)
"""Space that is left on the disk: it runs out in DVC's files, in a stage's, in the cache, in a lock file."""


@survival
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_run_that_is_cancelled_from_the_page_ends_its_stage(site, undisturbed, seed):
    (site.root / "pause").write_text("1")
    site.serve()
    run = site.trigger()
    wait_for(site.stages, "the first stage")
    time.sleep(random.Random(f"cancelled {seed}").uniform(0.0, 6.0))
    site.ask(f"flow_runs/{run}/set_state", state={"type": "CANCELLING", "name": "Cancelling"})
    wait_for(lambda: site.state(run) == "CANCELLED", "the run to be cancelled", step=0.5)
    wait_for(lambda: not site.stages(), "the stage to end", 10)
    run_again(site, undisturbed)


@survival
def test_of_two_triggers_at_once_one_runs_and_the_other_is_cancelled_and_told_why(site, undisturbed):
    (site.root / "pause").write_text("0.3")
    site.serve()
    require_one_refused(site, [site.trigger("loop"), site.trigger("round")])
    require_sound(site, undisturbed)


@survival
def test_of_two_schedules_that_fire_at_once_one_runs_and_the_other_is_cancelled(site, undisturbed):
    (site.root / "pause").write_text("0.3")
    site.serve()
    due = datetime.now(UTC) + timedelta(seconds=40)  # the server looks for new schedules every few seconds
    daily = dict(interval=86400, anchor_date=due.isoformat())
    scheduled = [
        (site.deployment(flow), site.ask(f"deployments/{site.deployment(flow)}/schedules", [{"schedule": daily}])[0])
        for flow in ("loop", "round")
    ]

    def fired() -> list[str]:
        return [run["id"] for run in site.runs() if run["auto_scheduled"] and run["state"]["type"] != "SCHEDULED"]

    wait_for(lambda: len(fired()) == 2, "both schedules to fire", step=0.5)
    for deployment, schedule in scheduled:  # with it go the runs of the days to come
        site.ask(f"deployments/{deployment}/schedules/{schedule['id']}", method="DELETE")
    require_one_refused(site, fired())
    require_sound(site, undisturbed)


def require_one_refused(site: Site, runs: list[str]) -> None:
    """Once they have ended: one did the work, the other was told who does."""
    wait_for(lambda: not site.unended(), "both to end", step=0.5)
    ended = {run["id"]: run["state"] for run in site.runs() if run["id"] in runs}
    assert sorted(state["type"] for state in ended.values()) == ["CANCELLED", "COMPLETED"]
    (refused,) = [state for state in ended.values() if state["type"] == "CANCELLED"]
    assert "the repository is in use by 'coevo run" in refused["message"]


@pytest.fixture
def small_disk(tmp_path):
    """A disk of four MiB; skipped where this user may not mount one."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "tmpfs", str(place)], capture_output=True, text=True
    )
    if mounted.returncode:
        pytest.skip(f"no small disk to fill: {mounted.stderr.strip()}")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


@survival
@pytest.mark.parametrize("spared", SPARED_KIB)
def test_a_disk_that_fills_up_leaves_nothing_torn(small_disk, server, undisturbed, spared):
    site = Site(small_disk / "site", server)
    try:
        ballast = small_disk / "ballast"
        free = shutil.disk_usage(small_disk).free
        ballast.write_bytes(b"\0" * max(0, free - spared * 1024))
        full = site.coevo("run")
        assert full.returncode == 0 or "o space left" in full.stdout + full.stderr, full.stdout + full.stderr
        ballast.unlink()
        run_again(site, undisturbed)
    finally:
        site.close()


@survival
def test_a_persons_dvc_that_holds_its_lock_at_a_stages_end_costs_no_work(site, undisturbed):
    """DVC gives up its own lock after three seconds, after which the stage's work would be lost."""
    run = site.begin("run")
    wait_for(site.stages, "the first stage", step=0.01)
    holder = (
        "from dvc.repo import Repo; import time; repo = Repo(); repo.lock.lock(); print(1, flush=True); time.sleep(9)"
    )
    own = subprocess.Popen(
        [sys.executable, "-c", holder], cwd=site.root, env=settings(site.root, site.server), stdout=subprocess.PIPE
    )
    assert own.stdout.readline().strip() == b"1"
    assert own.wait() == 0 and run.wait() == 0, site.said()
    require_sound(site, undisturbed)


def damage(site: Site, content: bytes) -> None:
    """Change an object of DVC's cache, as a failing disk does: name, size and permissions stay."""
    name = hashlib.md5(content).hexdigest()
    file = site.root / ".dvc/cache/files/md5" / name[:2] / name[2:]
    mode = file.stat().st_mode
    file.chmod(0o644)
    file.write_bytes(b"9" * len(content))
    file.chmod(mode)


@survival
@pytest.mark.parametrize("what", ["total.txt", "manifest.json"])
def test_a_damaged_object_of_the_cache_is_found_and_made_again(site, undisturbed, what):
    assert site.coevo("run").returncode == 0
    made = site.root / "data/default/i001/policy/0"
    damage(site, (made / what).read_bytes())
    shutil.rmtree(made)
    shutil.rmtree(site.root / "data/default/i001/decision")
    # Without its entry the decision is due, and reads the damaged files that DVC brings back.
    lock = yaml.safe_load((site.root / "dvc.lock").read_text())
    del lock["stages"]["decide"]
    (site.root / "dvc.lock").write_text(yaml.safe_dump(lock))
    shutil.rmtree(site.root / ".dvc/cache/runs")
    run_again(site, undisturbed, times=2)
    assert "damaged" not in site.coevo("gc", "--verify", "--yes").stdout


@survival
def test_torn_lock_files_are_mended_and_nothing_runs_again(site, undisturbed):
    assert site.coevo("run").returncode == 0
    for file in ("dvc.lock", "start/dvc.lock", ".dvc/tmp/rwlock"):
        for share in (0.0, 0.2, 0.3, 0.5, 0.6, 0.9):
            path = site.root / file
            whole = (
                path.read_text() if file.endswith("dvc.lock") else '{"write": {"x": {"pid": 1, "cmd": "dvc repro"}}}'
            )
            path.write_text(whole[: int(len(whole) * share)])
            made = site.coevo("run")
            assert made.returncode == 0, f"{file}, {share}: {made.stdout + made.stderr}"
            require_sound(site, undisturbed)


@survival
def test_a_lock_of_a_dead_process_whose_number_lives_on_is_freed(site, undisturbed):
    """DVC itself goes by the number alone, and would wait for whoever has it now."""
    (site.root / ".dvc/tmp").mkdir()
    place = site.root / "data/default/i001/policy/0"
    (site.root / ".dvc/tmp/rwlock").write_text(f'{{"write": {{"{place}": {{"pid": 1, "cmd": "dvc repro"}}}}}}')
    run_again(site, undisturbed)


def test_a_dead_flow_leaves_no_stage_whatever_group_it_has_moved_to(tmp_path):
    """A daemon that a stage started, for example Ray's, ends with it too."""
    from flows import lock

    root = toys.make(tmp_path / "site")
    sleeper = subprocess.Popen(["sleep", "60"], env={**os.environ, **lock.mark(root)}, start_new_session=True)
    other = subprocess.Popen(["sleep", "60"], env={**os.environ, **lock.mark(tmp_path)}, start_new_session=True)
    try:
        with lock.repository_lock(root, "test"):
            assert sleeper.wait(5) != 0 and other.poll() is None
    finally:
        other.kill()
        other.wait()

"""The loop's flows on a toy pipeline, with the real DVC, the real command line and real kills."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from flows import rounds
from flows.loops import Loop
from tests.flows import toys

SLOW = 0.4
"""Seconds per step of a toy stage, where a test must catch it at work."""


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory) -> dict[str, str]:
    """Hashes that plain `dvc repro` gives."""
    root = toys.make(tmp_path_factory.mktemp("undisturbed"))
    dvc(root, "repro")
    return toys.hashes(root)


def dvc(root: Path, *arguments: str) -> str:
    return subprocess.run(
        [sys.executable, "-m", "dvc", *arguments],
        cwd=root,
        env=toys.environment(),
        check=True,
        capture_output=True,
        text=True,
    ).stdout


def wait_for(condition, what: str, limit: float = 60.0):
    until = time.monotonic() + limit
    while not (found := condition()):
        assert time.monotonic() < until, f"waited {limit} s for {what}"
        time.sleep(0.05)
    return found


def stage_process(root: Path, argument: str) -> int | None:
    """Id of the toy stage's own process in this repository whose command holds `argument`."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().decode().split("\0")
            if words[1:3] == ["toys.py", "work"] and argument in words and (folder / "cwd").resolve() == root.resolve():
                return int(folder.name)
        except OSError:
            continue
    return None


def test_the_flow_makes_what_dvc_makes_and_running_again_does_nothing(tmp_path, coevo, undisturbed):
    root = toys.make(tmp_path)
    first = coevo(root, "run")
    assert first.returncode == 0, first.stdout + first.stderr
    assert toys.hashes(root) == undisturbed
    before = {path: path.stat().st_mtime_ns for path in (root / "data").rglob("*")}
    began = time.monotonic()
    again = coevo(root, "run")
    assert "nothing to do: round i001 is finished" in again.stdout
    assert time.monotonic() - began < 15
    assert before == {path: path.stat().st_mtime_ns for path in (root / "data").rglob("*")}
    assert dvc(root, "status", "--json").strip() == "{}"


def test_without_a_server_a_temporary_one_serves_and_leaves_nothing_at_home(tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    root = toys.make(tmp_path / "repository")
    made = toys.coevo(
        root, "run", HOME=str(home), XDG_CACHE_HOME=str(home / ".cache"), XDG_CONFIG_HOME=str(home / ".config")
    )
    assert made.returncode == 0, made.stdout + made.stderr
    assert "Traceback" not in made.stdout + made.stderr
    assert list(home.rglob("*")) == []


def test_kill_9_of_a_stage_leaves_nothing_half_done_and_a_rerun_finishes_alike(tmp_path, coevo, begin, undisturbed):
    root = toys.make(tmp_path, SLOW)
    run = begin(root, "run")
    victim = wait_for(lambda: stage_process(root, "data/default/i001/policy/0"), "the stage")
    os.kill(victim, signal.SIGKILL)
    said, _ = run.communicate(timeout=60)
    assert run.returncode == 1 and "Traceback" not in said, said
    assert not (root / "data/default/i001/policy/0").exists()
    (root / "pause").write_text("0")
    assert coevo(root, "run").returncode == 0
    assert toys.hashes(root) == undisturbed
    assert not list((root / "data").rglob(".*writing*"))


def test_kill_9_of_the_flow_ends_its_stage_at_the_next_run(tmp_path, coevo, begin, undisturbed):
    root = toys.make(tmp_path, SLOW)
    run = begin(root, "run")
    orphan = wait_for(lambda: stage_process(root, "data/default/i001/policy/0"), "the stage")
    os.kill(run.pid, signal.SIGKILL)
    run.wait()
    (root / "pause").write_text("0")
    assert coevo(root, "run").returncode == 0
    assert stage_process(root, "work") is None and not Path(f"/proc/{orphan}").exists()
    assert toys.hashes(root) == undisturbed


def test_an_interrupt_ends_the_stage_too(tmp_path, begin):
    root = toys.make(tmp_path, SLOW)
    run = begin(root, "run")
    wait_for(lambda: stage_process(root, "data/start/work"), "the stage")
    os.kill(run.pid, signal.SIGINT)
    run.communicate(timeout=60)
    assert run.returncode != 0
    assert stage_process(root, "work") is None


def test_a_second_run_is_refused_and_told_who_holds_the_repository(tmp_path, coevo, begin):
    root = toys.make(tmp_path, SLOW)
    first = begin(root, "run")
    wait_for(lambda: stage_process(root, "data/start/work"), "the first run")
    second = coevo(root, "run")
    assert second.returncode == 1
    assert f"in use by 'coevo run --rounds 1 --loop default' (process {first.pid}," in " ".join(second.stdout.split())


def test_a_persons_own_dvc_command_is_waited_for(tmp_path, coevo, undisturbed):
    root = toys.make(tmp_path, SLOW)
    own = subprocess.Popen(
        [sys.executable, "-m", "dvc", "repro", "work@0"], cwd=root, env=toys.environment(), stdout=subprocess.DEVNULL
    )
    wait_for(lambda: stage_process(root, "data/start/work"), "DVC's stage")
    made = coevo(root, "run")
    assert own.wait(60) == 0
    assert made.returncode == 0, made.stdout + made.stderr
    assert toys.hashes(root) == undisturbed


def test_a_failing_stage_says_its_own_message_and_no_traceback(tmp_path, coevo):
    root = toys.make(tmp_path)
    values = yaml.safe_load((root / "params.yaml").read_text())
    (root / "params.yaml").write_text(yaml.safe_dump(values | {"work": {"fault": "the cup is empty; fill it"}}))
    made = coevo(root, "run")
    assert made.returncode == 1
    assert "work: the cup is empty; fill it" in made.stdout and "Traceback" not in made.stdout + made.stderr


def test_opening_the_next_round_seals_the_one_before(tmp_path, coevo):
    root = toys.make(tmp_path)
    assert coevo(root, "run", "--rounds", "2").returncode == 0
    opened = yaml.safe_load((root / "round.yaml").read_text())
    assert opened["round"] == "i002" and opened["parents"] == {"policy": "default/i001/policy/0"}
    assert opened["before"]["decision"] == {"previous": "data/default/i001/decision"}
    assert sorted(path.name for path in (root / "rounds/i001").iterdir()) == [
        "decision.json",
        "dvc.lock",
        "params.yaml",
        "round.yaml",
        "run.json",
        "sealed.dvc",
    ]
    kept = json.loads((root / "rounds/i001/run.json").read_text())
    assert {each["id"] for each in kept["stages"]} == {
        "default/i001/policy/0",
        "default/i001/policy/1",
        "default/i001/decision",
    }
    assert "nothing to do: round i002 is finished" in coevo(root, "run", "--rounds", "2").stdout
    shutil.rmtree(root / "data/default/i001")
    dvc(root, "checkout")
    assert (root / "data/default/i001/policy/0/total.txt").is_file()
    assert dvc(root, "status", "--json").strip() == "{}"


def test_a_code_edit_makes_the_open_round_stale_and_no_closed_one(tmp_path):
    root = toys.make(tmp_path)
    dvc(root, "repro")
    rounds.open_next(Loop("default", root))
    dvc(root, "repro")
    (root / "toys.py").write_text((root / "toys.py").read_text() + "# edited\n")
    assert sorted(json.loads(dvc(root, "status", "--json"))) == ["decide", "work@0", "work@1"]


def test_a_stop_decision_ends_the_loop_early(tmp_path, coevo):
    root = toys.make(tmp_path)
    values = yaml.safe_load((root / "params.yaml").read_text())
    (root / "params.yaml").write_text(yaml.safe_dump(values | {"decide": {"outcome": "stop"}}))
    assert coevo(root, "run", "--rounds", "3").returncode == 0
    assert yaml.safe_load((root / "round.yaml").read_text())["round"] == "i001"
    again = coevo(root, "run", "--rounds", "3")
    assert "nothing to do: round i001 was the last: its decision stopped the loop" in again.stdout


def test_a_sealing_that_was_killed_midway_is_finished_by_the_next_run(tmp_path):
    root = toys.make(tmp_path)
    dvc(root, "repro")
    loop = Loop("default", root)
    closed = loop.open_round()
    rounds._record(loop, closed)
    loop.write_open_round(closed.model_copy(update=dict(round="i002", parents={"policy": "default/i001/policy/0"})))
    assert not (root / "rounds/i001/sealed.dvc").exists()  # killed here
    rounds.reconcile(loop)
    assert (root / "rounds/i001/sealed.dvc").is_file()
    dvc(root, "repro")
    assert dvc(root, "status", "--json").strip() == "{}"


def test_results_of_a_seed_that_was_taken_out_are_not_read(tmp_path, coevo):
    root = toys.make(tmp_path / "a")
    dvc(root, "repro")
    fewer = (root / "params.yaml").read_text().replace("seeds: [0, 1]", "seeds: [0]")
    (root / "params.yaml").write_text(fewer)
    assert coevo(root, "run").returncode == 0
    assert not (root / "data/default/i001/policy/1").exists()
    fresh = toys.make(tmp_path / "b")
    (fresh / "params.yaml").write_text(fewer)
    dvc(fresh, "repro")
    assert toys.hashes(root)["data/default/i001/decision"] == toys.hashes(fresh)["data/default/i001/decision"]


def test_the_script_for_bare_machines_makes_the_same_and_resumes(tmp_path, undisturbed):
    root = toys.make(tmp_path)
    script = [sys.executable, str(toys.PROJECT / "scripts" / "run_stages.py")]

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*script, *arguments], cwd=root, env=toys.environment(), capture_output=True, text=True)

    late = run("--until", "0")
    assert late.returncode == 3 and "4 stages left" in late.stdout and not (root / "data").exists()
    first = run("--only", "start")
    assert first.returncode == 0 and (root / "data/start/work/manifest.json").is_file()
    assert run().returncode == 0
    assert "took" not in run().stdout
    made = json.loads((root / "data/made_without_dvc.json").read_text())
    assert sorted(made) == sorted(undisturbed)
    dvc(root, "commit", "--force")
    assert toys.hashes(root) == undisturbed
    changed = (root / "params.yaml").read_text().replace("steps: 3", "steps: 4")
    (root / "params.yaml").write_text(changed)
    assert run().stdout.count("took") == 3  # work@0, work@1, decide; the start is left alone


def test_one_stage_brings_what_it_needs(tmp_path, coevo):
    root = toys.make(tmp_path)
    made = coevo(root, "stage", "work@1")
    assert made.returncode == 0, made.stdout + made.stderr
    assert (root / "data/default/i001/policy/1").is_dir() and not (root / "data/default/i001/policy/0").exists()


def test_status_and_lineage_say_what_is(tmp_path, coevo):
    root = toys.make(tmp_path)
    assert "left to do: start/dvc.yaml:begin, work@0, work@1, decide" in coevo(root, "status").stdout
    dvc(root, "repro")
    assert "left to do: nothing" in coevo(root, "status").stdout
    said = coevo(root, "lineage", "data/default/i001/decision").stdout
    assert "sources.0: default/i001/policy/0" in said and "    sources.0: start/work" in said
    wrong = coevo(root, "status", "--loop", "nosuch")
    assert wrong.returncode == 1 and "there is no loop 'nosuch'; there is: default" in wrong.stdout

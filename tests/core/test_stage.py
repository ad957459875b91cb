"""What stages have in common."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from coevo.core import artifacts, check, stage
from coevo.core.artifacts import Artifact
from coevo.core.source import closure, source_sha256
from coevo.core.stage import Result, Run
from coevo.records.base import Config
from coevo.records.manifest import Kind

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Inputs:
    source: Artifact | None = stage.artifact("episodes", "where to begin", optional=True)
    more: tuple[Artifact, ...] = stage.artifact_list("episodes", "more of them")
    config: Path | None = stage.config_file("a file", optional=True)


class Learning(Config):
    """A part of the parameters."""

    learning_rate: float = 0.1


class Params(Config):
    """Parameters of the toy."""

    steps: int = 2
    learning: Learning = Learning()
    kind: Kind = "episodes"


def count(inputs: Inputs, params: Params, run: Run) -> Result:
    """Write numbers; stop where a file says so, and go on from the checkpoint."""
    run.scratch.mkdir(parents=True, exist_ok=True)
    checkpoint = run.scratch / "step"
    for step in range(int(checkpoint.read_text()) if checkpoint.exists() else 0, params.steps):
        if Path("stop").exists() and step == 1:
            raise KeyboardInterrupt
        checkpoint.write_text(str(step + 1))
        Path("worked").open("a").write(f"{step}\n")
    (run.folder / "numbers").write_text(str(run.seed + params.steps))
    return Result(params.kind, {"steps": params.steps}, ["s1"])


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(stage.source, "source_sha256", lambda module: "code")
    Path("params.yaml").write_text("seed: 4\ncount: {steps: 3, learning: {learning_rate: 0.5}}\nother: {steps: 1}\n")
    return tmp_path


def run(*arguments: str) -> Artifact:
    return stage.run_command(count, ["--out", "data/default/i001/numbers", *arguments])


def test_a_stage_publishes_what_it_made_with_its_parameters_and_seed(here):
    made = artifacts.read(run().path)
    assert made.id == "default/i001/numbers"
    assert made.manifest.seed == 4 and made.manifest.states == ("s1",)
    assert made.manifest.config == {"params": {"steps": 3, "learning": {"learning_rate": 0.5}, "kind": "episodes"}}
    assert (made.path / "numbers").read_text() == "7"
    assert json.loads(Path(".local/runs/default/i001/numbers.json").read_text())["sha256"] == made.manifest.sha256


def test_a_stage_run_again_hashes_the_same_and_another_seed_does_not(here):
    assert run().manifest.sha256 == run().manifest.sha256 != run("--seed", "5").manifest.sha256


def test_parents_and_files_are_named_in_the_manifest(here):
    Path("small.yaml").write_text("width: 3\n")
    first = run()
    made = stage.run_command(
        count, ["--out", "data/x/two", "--source", str(first.path), "--more", str(first.path), "--config", "small.yaml"]
    )
    assert {role: parent.sha256 for role, parent in made.manifest.parents.items()} == {
        "source": first.manifest.sha256, "more.0": first.manifest.sha256,
    }  # fmt: skip
    assert made.manifest.config["config"] == {"width": 3}


def test_an_input_of_the_wrong_kind_is_refused(here):
    Path("params.yaml").write_text("count: {kind: policy}\n")
    first = run()
    with pytest.raises(ValueError, match="kind 'policy', 'episodes' is needed"):
        run("--source", str(first.path))


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ("{step: 3}", "unknown key 'step'; did you mean 'steps'?"),
        ("{learning: {learning_rat: 3}}", "unknown key 'learning.learning_rat'; did you mean 'learning_rate'?"),
        ("{zzz: 3}", "unknown key 'zzz'; known keys: kind, learning, steps"),
        ("{steps: many}", "'steps' = 'many'"),
    ],
)
def test_a_wrong_parameter_names_its_place_and_the_nearest_key(here, section, message):
    Path("params.yaml").write_text(f"count: {section}\n")
    with pytest.raises(ValueError) as fault:
        run()
    assert str(fault.value).startswith("params.yaml, section 'count': ") and message in str(fault.value)


def test_a_section_that_is_not_there_is_refused_and_the_stages_own_may_be_left_out(here):
    assert run("--section", "other").manifest.metrics == {"steps": 1}
    with pytest.raises(ValueError, match="params.yaml has no section 'othr'; did you mean 'other'?"):
        run("--section", "othr")
    Path("params.yaml").write_text("seed: 4\n")
    assert run().manifest.metrics == {"steps": 2}


@pytest.mark.parametrize("seed", ["first", "1.5", "true"])
def test_a_seed_that_is_no_whole_number_is_named(here, seed):
    Path("params.yaml").write_text(f"seed: {seed}\n")
    with pytest.raises(ValueError, match="params.yaml: 'seed' = .* is not a whole number"):
        run()


def test_a_missing_file_names_its_siblings(here):
    Path("configs").mkdir()
    for name in ("pick_place", "push"):
        Path(f"configs/{name}.yaml").write_text("{}")
    with pytest.raises(ValueError, match="no such file: configs/pick_plac.yaml; did you mean 'pick_place'. there is: "):
        run("--config", "configs/pick_plac.yaml")


def test_a_stopped_stage_goes_on_from_its_checkpoint(here):
    Path("stop").touch()
    with pytest.raises(KeyboardInterrupt):
        run()
    assert not Path("data/default/i001/numbers").exists()
    Path("stop").unlink()
    stopped = run().manifest
    assert Path("worked").read_text().split() == ["0", "1", "2"]  # nothing twice
    assert stopped.sha256 == run().manifest.sha256
    assert not list(Path(".local/scratch").rglob("step"))


def test_under_a_flow_a_finished_artifact_outlives_a_kill_of_dvc(here, monkeypatch):
    """DVC removes an output before it runs its stage again, since it had not yet written down what was made."""
    monkeypatch.setenv(stage.UNDER_A_FLOW, str(here))
    first = run()
    shutil.rmtree(first.path)
    assert run().manifest == first.manifest
    assert Path("worked").read_text().split() == ["0", "1", "2"]  # nothing twice
    shutil.rmtree(first.path)
    (kept,) = Path(".local/scratch").rglob("finished-run-*")
    (kept / "numbers").unlink()
    (kept / "numbers").write_text("torn")
    assert run().manifest == first.manifest and len(Path("worked").read_text().split()) == 6
    shutil.rmtree(first.path)
    assert run("--seed", "9").manifest != first.manifest  # another seed is other work


def test_by_hand_a_stage_runs_again_when_asked_to(here):
    run()
    run()
    assert len(Path("worked").read_text().split()) == 6 and not list(Path(".local/scratch").rglob("finished-*"))


def test_a_damaged_input_is_named_where_a_flow_looks(here, monkeypatch):
    made = run()
    (made.path / "numbers").write_text("8")
    monkeypatch.setattr(sys, "argv", ["count", "--out", "data/x/two", "--source", str(made.path)])
    with pytest.raises(SystemExit):
        stage.main(count)
    assert json.loads(Path(stage.DAMAGED).read_text()) == {"path": str(made.path)}


def test_parameters_are_checked_without_opening_an_artifact(tmp_path):
    (tmp_path / "params.yaml").write_text("seed: 0\ntrain_policy: {updates_: 3}\nreplay_dreams: {worker: 2}\n")
    rest = ["--params", str(tmp_path / "params.yaml"), "--out", "d", "--policy", "nowhere", "--simulator", "c"]
    commands = [
        ["python", "-m", "tasks.train_policy", "--starts", "a", "--validation", "b", *rest],
        ["python", "-m", "tasks.replay_dreams", "--world-model", "w", "--reward", "r", "--states", "s", *rest],
        ["python", "toys.py", "work"],
    ]
    found = check.faults(commands)
    assert [fault.split("; ")[-1] for fault in found] == ["did you mean 'updates'?", "did you mean 'workers'?"]
    assert check.faults(commands[2:]) == []


@pytest.mark.parametrize("change", [("--seed", "9"), ("--section", "other")])
def test_a_checkpoint_of_another_seed_or_parameter_is_not_taken_up(here, change):
    Path("stop").touch()
    with pytest.raises(KeyboardInterrupt):
        run()
    Path("stop").unlink()
    Path("worked").unlink()
    run(*change)
    assert Path("worked").read_text().split()[0] == "0"
    assert not list(Path(".local/scratch").rglob("step"))


def test_a_mistake_ends_the_command_with_status_2_and_one_line(tmp_path):
    params = tmp_path / "params.yaml"
    params.write_text("train_policy: {updates_: 3}\n")
    arguments = ["--policy", "nowhere", "--starts", "a", "--validation", "b", "--simulator", "c", "--out", "d"]
    ended = subprocess.run(
        [sys.executable, "-m", "tasks.train_policy", *arguments, "--params", str(params)],
        cwd=ROOT, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert ended.returncode == 2
    assert ended.stderr.strip().splitlines() == [
        f"train_policy: {params}, section 'train_policy': unknown key 'updates_'; did you mean 'updates'?"
    ]


def test_progress_is_a_line_at_most_once_a_second(capsys):
    surroundings = Run("x", Path("."), Path("."), 0)
    assert list(surroundings.track("counting", range(100))) == list(range(100))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("PROGRESS counting 0/100") and lines[-1] == "PROGRESS counting 100/100"
    assert len(lines) <= 3


@pytest.mark.parametrize(
    ("out", "id"),
    [
        ("data/default/i003/policy", "default/i003/policy"),
        ("/x/data/start/policy", "start/policy"),
        ("/a/b/c/d", "b/c/d"),
    ],
)
def test_an_artifacts_id_is_its_path_below_data(out, id):
    assert stage.artifact_id(Path(out)) == id


def test_the_closure_of_a_module_holds_what_it_imports_at_any_depth():
    files = {str(path) for path in closure("tasks.pretrain_policy")}
    assert {"tasks/pretrain_policy.py", "coevo/policies/small.py", "coevo/core/random.py"} <= files
    assert not any(path.startswith("coevo/worlds") for path in files)
    assert source_sha256("tasks.pretrain_policy") != source_sha256("tasks.train_policy")

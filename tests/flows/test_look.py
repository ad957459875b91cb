"""Plan, doctor, new loops: what is said before anything runs."""

import json
import subprocess
import sys

import pytest
import yaml

from flows import doctor, new, plan
from flows.graph import Stage
from flows.loops import Loop
from tests.flows import toys

SIZES = {"data/start/train_states": 400, "data/start/sealed_states": 96}


def stage(command: str, *deps: str) -> Stage:
    return Stage("s", command, deps, ("data/default/i001/s",), ())


@pytest.mark.parametrize(
    ("command", "section", "episodes"),
    [
        ("python -m tasks.collect_rollouts --starts data/start/train_states", {"repeats": 2}, 800),
        ("python -m tasks.collect_rollouts --starts data/start/train_states", {"repeats": 3, "states": 10}, 30),
        ("python -m tasks.evaluate_policy --states data/start/sealed_states", {"repeats": 2}, 192),
        (
            "python -m tasks.train_policy --validation data/start/sealed_states",
            {"validate_every": 4, "validation_repeats": 2, "algorithm": {"updates": 8, "states": 24, "group": 8}},
            3 * (96 * 2 + 16),
        ),
        (
            "python -m tasks.train_policy --validation data/start/sealed_states",
            {"validate_every": 4, "probe_states": 8, "algorithm": {"updates": 6, "states": 20, "group": 8}},
            3 * (96 + 8),
        ),
        (
            "python -m tasks.collect_demonstrations",
            {"episodes": [{"count": 40}], "pairs": [{"states": 10, "per_state": 2}]},
            40 + 30,
        ),
        (
            "python -m tasks.admit_world_model --states data/start/sealed_states",
            {"repeats": 2, "shifts": 4},
            96 * 2 + 96 * 2 * 4,
        ),
        (
            "python -m tasks.train_policy --validation data/start/sealed_states",
            {"environment": "simulator", "validate_every": 0, "algorithm": {"updates": 2, "states": 3, "group": 8}},
            48,
        ),
        ("python -m tasks.train_world_model", {"training": {"steps": 600}}, 0),
        ("python toys.py work", {}, 0),
    ],
)
def test_simulator_episodes_are_counted_from_the_parameters(command, section, episodes):
    assert plan.simulator_episodes(stage(command), section, SIZES) == episodes


def test_work_grows_with_the_counts_that_both_runs_name():
    before = {"training": {"steps": 600, "batch": 32}, "repeats": 2, "workers": 2}
    assert plan.growth({"training": {"steps": 1200}, "workers": 4}, before) == 2.0
    assert plan.growth({"repeats": 3, "training": {"steps": 600}}, before) == 1.5
    assert plan.growth({"episodes": [{"count": 80}, {"count": 80}]}, {"episodes": [{"count": 40}]}) == 4.0
    assert plan.growth({}, {}) == 1.0


def test_an_outputs_place_is_the_same_in_every_round():
    loop = Loop("mine")
    assert plan.place(loop, "data/mine/i012/policy/0") == "policy/0"
    assert plan.place(loop, "data/start/policy") == "start/policy"


def test_a_plan_stands_on_the_last_run(tmp_path):
    root = toys.make(tmp_path)
    loop = Loop(root=root)
    (first, *_) = plan.estimates(loop, [each for each in loop.stages() if each.address == "work@0"])
    assert (first.seconds, first.basis) == (None, "-")
    subprocess.run([sys.executable, "-m", "dvc", "repro", "work@0"], cwd=root, env=toys.environment(), check=True)
    run = json.loads((root / ".local/runs/default/i001/policy/0.json").read_text())
    values = (root / "params.yaml").read_text()
    (root / "params.yaml").write_text(values.replace("work: {steps: 3}", "work: {steps: 6}"))
    (found,) = plan.estimates(loop, [each for each in loop.stages() if each.address == "work@0"])
    assert found.basis == "i001"  # a toy names no section, so nothing scales it
    assert found.seconds == run["seconds"] and found.mib == run["peak_mib"] and found.bytes > 0


def test_a_new_loop_has_its_own_files_and_makes_what_the_first_makes(tmp_path):
    root = toys.make(tmp_path)
    mine = Loop("mine", root)
    assert new.make(mine, Loop(root=root)) == [f"loops/mine/dvc.yaml:{name}" for name in ("work@0", "work@1", "decide")]
    subprocess.run([sys.executable, "-m", "dvc", "repro"], cwd=root, env=toys.environment(), check=True)
    (root / "loops/mine/params.yaml").write_text((root / "params.yaml").read_text().replace("steps: 3", "steps: 5"))
    repro = [sys.executable, "-m", "dvc", "repro", mine.pipeline]
    subprocess.run(repro, cwd=root, env=toys.environment(), check=True)
    made = {name: (root / f"data/{name}/i001/policy/0/total.txt").read_text() for name in ("default", "mine")}
    assert int(made["mine"]) - int(made["default"]) == 3 + 4
    # and one made of it is its own, too
    new.make(Loop("theirs", root), mine)
    text = (root / "loops/theirs/dvc.yaml").read_text()
    assert "loops/theirs/params.yaml" in text and "loops/mine" not in text


def test_a_name_that_is_taken_or_no_name_is_refused(tmp_path):
    root = toys.make(tmp_path)
    for name, said in (("default", "'default' is taken"), ("My loop", "'My loop' cannot name a loop")):
        with pytest.raises(ValueError, match=said):
            new.make(Loop(name, root), Loop(root=root))


def test_the_projects_own_pipeline_can_be_copied():
    own = Loop(root=toys.PROJECT)
    text = (own.folder / "dvc.yaml").read_text()
    made = yaml.safe_load(new.with_own_files(text, own, Loop("mine", toys.PROJECT)))["stages"]
    for name, before in yaml.safe_load(text)["stages"].items():
        added = made[name]["cmd"].removeprefix(before["cmd"].strip()).strip()
        if "criterion" not in before["cmd"] and "round.yaml" not in before["cmd"]:
            assert added == "--params loops/mine/params.yaml"
        assert made[name]["wdir"] == "../.." and list(made[name]["params"][0]) == ["loops/mine/params.yaml"]
    assert "loops/mine/criterion.yaml" in made["admit_world_model"]["deps"]
    assert "loops/mine/round.yaml" in made["decide_round"]["deps"]


def test_the_doctor_names_what_is_broken_and_how_to_mend_it(tmp_path, monkeypatch):
    root = toys.make(tmp_path)
    (root / "params.yaml").write_text("wrok: {}\n" + (root / "params.yaml").read_text())
    (found,) = doctor.loops(root)
    assert found.state == "broken" and "no stage reads the key 'wrok'" in found.said
    assert doctor.remote(root).mend.startswith("dvc remote add")
    assert doctor.git(tmp_path / "data").mend == "git init"
    assert doctor.prefect("http://127.0.0.1:9/api").state == "broken"
    monkeypatch.setenv(doctor.DATABASE, "postgresql+asyncpg://someone:secret@127.0.0.1:9/runs")
    assert doctor.database().state == "broken" and "secret" not in doctor.database().said
    monkeypatch.setenv("DO_NOT_TRACK", "0")
    assert doctor.privacy().mend == "unset DO_NOT_TRACK"


def test_each_entry_for_a_work_pool_names_a_flow_and_a_loop():
    entries = yaml.safe_load((toys.PROJECT / "prefect.yaml").read_text())["deployments"]
    flows = [entry["entrypoint"].rsplit(".", 1) for entry in entries if entry["parameters"] == {"loop": "default"}]
    assert [name for _, name in flows] == ["coevolve", "run_round", "run_one_stage"]
    for module, name in flows:
        assert f"\ndef {name}(" in (toys.PROJECT / f"{module.replace('.', '/')}.py").read_text()

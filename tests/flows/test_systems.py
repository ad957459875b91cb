"""Published systems: each file is what its type says, and the loop made of it has a graph that DVC reads too."""

import hashlib
import importlib
import json
import shutil
import subprocess
import sys
import typing
from pathlib import Path

import pytest
import yaml

from coevo.records.base import read_yaml
from coevo.records.system import Scale, System, laid_over
from flows import new, rounds
from flows.loops import Loop, OpenRound
from flows.systems import Recipe
from scripts.write_code_deps import module_of
from tests.flows import toys

FOLDER = toys.PROJECT / "configs"
SYSTEMS = sorted(file.stem for file in (FOLDER / "system").glob("*.yaml"))
SCALES = sorted(file.stem for file in (FOLDER / "scale").glob("*.yaml"))
CLAIMS = [
    pytest.param(claim, read_yaml(FOLDER / "system" / f"{name}.yaml"), id=f"{name}: {claim['says']}")
    for name in SYSTEMS
    for claim in read_yaml(FOLDER / "system" / f"{name}.yaml")["claims"]
]
each_system = pytest.mark.parametrize("system", SYSTEMS)
each_scale = pytest.mark.parametrize("scale", SCALES)


def repository(root: Path) -> Path:
    """The project's pipeline and configuration at `root`, its code and weights by links."""
    for name in ("configs", "start", "dvc.yaml", "params.yaml", "round.yaml", "criterion.yaml"):
        copy = shutil.copytree if (toys.PROJECT / name).is_dir() else shutil.copyfile
        copy(toys.PROJECT / name, root / name)
    for name in ("coevo", "tasks", "weights"):
        (root / name).symlink_to(toys.PROJECT / name)
    return root


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Path:
    """A repository with a loop for every system at every scale, named after both."""
    root = repository(tmp_path_factory.mktemp("project"))
    for system in SYSTEMS:
        for scale in SCALES:
            new.of_system(Loop(f"{system}_{scale}", root), system, scale)
    return root


@each_scale
@each_system
def test_a_loop_is_made_whose_stages_find_what_they_read_and_whose_values_are_valid(project, system, scale):
    for stage in Loop(f"{system}_{scale}", project).stages():
        module = module_of(stage.command)
        function = getattr(importlib.import_module(module), module.removeprefix("tasks."))
        words = stage.command.split()
        options = dict(zip(words, words[1:], strict=False))
        file, section = options.get("--params", "params.yaml"), options.get("--section", function.__name__)
        values = read_yaml(project / file)
        typing.get_type_hints(function)["params"].parse(values.get(section) or {}, f"{file}, section '{section}'")
        assert section not in values or (file, section) in stage.params


@each_system
def test_how_a_reward_is_calibrated_reaches_the_stage_that_does_it(project, system):
    """A world model's own head is calibrated in each round, another reward in the loop's own start."""
    reward = read_yaml(FOLDER / "system" / f"{system}.yaml")["reward"]
    file = "params.yaml" if reward.get("own_head") else "start/params.yaml"
    section = read_yaml(project / "loops" / f"{system}_laptop" / file).get("calibrate_reward") or {}
    assert set(reward.get("calibration", {})) <= set(section)
    if system == "world_vla_loop":
        assert section["threshold"] == {"kind": "given", "value": 0.3}


def test_dvc_reads_every_loops_graph(project):
    subprocess.run(["git", "init", "--quiet", "."], cwd=project, check=True)
    (project / ".dvc").mkdir(exist_ok=True)
    shutil.copyfile(toys.PROJECT / ".dvc/config", project / ".dvc/config")
    script = "import json; from dvc.repo import Repo; print(json.dumps([s.addressing for s in Repo('.').index.stages]))"
    made = subprocess.run([sys.executable, "-c", script], cwd=project, capture_output=True, text=True, check=True)
    ours = {
        stage.address for system in SYSTEMS for scale in SCALES for stage in Loop(f"{system}_{scale}", project).stages()
    }
    assert ours <= set(json.loads(made.stdout))


def test_the_files_are_shorter_than_a_page_and_say_what_each_published_figure_rests_on():
    for name in SYSTEMS:
        assert len((FOLDER / "system" / f"{name}.yaml").read_text().splitlines()) <= 60


@pytest.mark.parametrize("claim, values", CLAIMS)
def test_a_claim_rests_on_a_line_of_its_file(claim, values):
    for key in claim["line"].split("."):
        assert key in values, f"there is no line '{claim['line']}'"
        values = values[key]


def test_the_loop_says_which_file_it_came_from(project):
    opened = Loop("worldloop_laptop", project).open_round()
    file = project / "loops/worldloop_laptop/system.yaml"
    assert opened.origin.system == "worldloop" and opened.origin.scale == "laptop"
    assert opened.origin.sha256 == hashlib.sha256(file.read_bytes()).hexdigest()
    assert file.read_bytes() == (FOLDER / "system/worldloop.yaml").read_bytes()
    assert opened.parents["policy"] == "worldloop_laptop/start/policy"
    assert opened.parents["world_model"] == "start/world_model"


def test_a_loop_made_of_a_systems_loop_makes_its_own_start(project):
    new.make(Loop("copy", project), Loop("worldloop_laptop", project))
    made = Loop("copy", project)
    assert "data/copy/start/policy" in {out for stage in made.stages() for out in stage.outs}
    for file in made.files[1:]:
        assert "worldloop_laptop" not in (project / file).read_text()
    assert made.open_round().parents["policy"] == "copy/start/policy"


def test_a_system_or_a_file_that_is_not_there_is_named(tmp_path):
    root = repository(tmp_path)
    with pytest.raises(ValueError, match="no such file: .*worldlop.yaml; did you mean 'worldloop'"):
        Recipe.read(Loop("mine", root), "worldlop", "laptop")
    file = root / "configs/system/worldloop.yaml"
    file.write_text(file.read_text().replace("file: small_tokens", "file: small_token"))
    with pytest.raises(ValueError, match="small_token.yaml; did you mean 'small_tokens'"):
        new.of_system(Loop("mine", root), "worldloop", "laptop")
    file.write_text(file.read_text().replace("pretraining:", "pretrainig:"))
    with pytest.raises(ValueError, match="unknown key 'policy.pretrainig'; did you mean 'pretraining'"):
        new.of_system(Loop("mine", root), "worldloop", "laptop")
    assert not (root / "loops/mine").exists()


def test_a_scale_changes_how_much_and_a_new_kind_replaces_the_old_one():
    below = {"training": {"steps": 100, "batch": 8}, "estimator": {"kind": "ppo", "discount": 1.0}}
    made = laid_over(below, {"training": {"steps": 5}, "estimator": {"kind": "grpo"}})
    assert made == {"training": {"steps": 5, "batch": 8}, "estimator": {"kind": "grpo"}}
    assert below["training"]["steps"] == 100


def test_the_open_round_keeps_what_the_loop_came_from_and_goes_on_from_its_own_start(project):
    loop = Loop("worldloop_laptop", project)
    opened = loop.open_round()
    again = OpenRound.parse(yaml.safe_load(loop.round_file.read_text()), "round.yaml")
    assert again == opened and "origin" not in yaml.safe_load((project / "round.yaml").read_text())
    assert rounds.next_parents(loop, opened, {"policy": "i001"})["policy"] == "worldloop_laptop/i001/policy/0"


def test_the_types_say_what_is_wrong():
    values = read_yaml(FOLDER / "system/worldloop.yaml")
    with pytest.raises(ValueError, match="names no 'file'"):
        System.parse(values | {"reward": {"own_head": True}}, "mine.yaml")
    with pytest.raises(ValueError, match="key 'simulator' is missing"):
        Scale.parse({}, "mine.yaml")


def test_a_loop_runs_its_own_start_first_and_once(tmp_path, coevo):
    root = toys.make(tmp_path)
    loop = Loop("mine", root)
    new.make(loop, Loop(root=root))
    (loop.folder / "start").mkdir()
    (root / loop.start).write_text(
        "stages:\n  begin:\n    wdir: ../../..\n"
        "    cmd: >-\n      python toys.py work --params loops/mine/start/params.yaml --section begin\n"
        "      --out data/mine/start/work\n"
        "    params: [loops/mine/start/params.yaml: [begin, seed]]\n    outs: [data/mine/start/work]\n"
    )
    (loop.folder / "start/params.yaml").write_text("seed: 7\nbegin: {steps: 1}\n")
    loop.write_open_round(loop.open_round().model_copy(update={"parents": {"policy": "mine/start/work"}}))
    assert loop.files == ("loops/mine/start/dvc.yaml", "loops/mine/dvc.yaml")
    made = coevo(root, "run", "--loop", "mine", "--rounds", "2")
    assert made.returncode == 0, made.stdout + made.stderr
    assert (root / "data/mine/start/work/total.txt").read_text() == "7"
    assert not (root / "data/start").exists() and loop.open_round().round == "i002"
    assert (loop.folder / "start/dvc.lock").is_file()
    assert "nothing to do" in coevo(root, "run", "--loop", "mine", "--rounds", "2").stdout

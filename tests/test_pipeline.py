"""dvc.yaml against the code: every stage has a module, its code is what it imports, and nothing is made twice."""

import importlib
import json
import re
import shutil
import subprocess
import sys
import typing
from collections import Counter
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml

from coevo.core.source import closure
from flows import graph
from flows.graph import Stage
from flows.loops import START, Loop
from scripts.write_code_deps import is_code, module_of, with_code

ROOT = Path(__file__).resolve().parents[1]
LOOPS = ["default", *sorted(file.parent.name for file in ROOT.glob("loops/*/dvc.yaml"))]
STAGES = {(loop, stage.address): stage for loop in LOOPS for stage in Loop(loop, ROOT).stages()}
each_loop = pytest.mark.parametrize("loop", LOOPS)
each_stage = pytest.mark.parametrize("stage", STAGES.values(), ids=lambda stage: stage.address)


@each_stage
def test_every_stage_has_a_module(stage: Stage):
    assert find_spec(module_of(stage.command)) is not None, f"{module_of(stage.command)} does not exist"


@each_loop
def test_code_dependencies_are_what_the_module_imports(loop: str):
    for stage in Loop(loop, ROOT).stages():
        code = [dep for dep in stage.deps if is_code(dep)]
        if not stage.address.startswith(START):
            wanted = [str(path) for path in closure(module_of(stage.command))]
            remedy = f"run 'python -m scripts.write_code_deps {Loop(loop, ROOT).pipeline}'"
            assert code == wanted, f"{stage.address}: {remedy}"


def test_the_start_does_not_go_stale_when_code_is_edited():
    for stage in Loop("default", ROOT).stages():
        if stage.address.startswith(START):
            assert not [dep for dep in stage.deps if is_code(dep)]


def test_writing_code_dependencies_keeps_all_else():
    text = (
        "# why\nstages:\n  a:\n    cmd: python -m tasks.import_start --x\n    deps:\n      - data/x\n"
        "      - coevo/old.py\n    outs:\n      - y\n"
    )
    wanted = [f"      - {path}" for path in closure("tasks.import_start")]
    assert with_code(text).splitlines() == [*text.splitlines()[:6], *wanted, "    outs:", "      - y"]
    assert with_code(with_code(text)) == with_code(text)


@each_loop
def test_no_output_is_written_twice(loop: str):
    made = Counter(out for stage in Loop(loop, ROOT).stages() for out in stage.outs)
    assert not [out for out, count in made.items() if count > 1]
    for out in made:
        assert not [other for other in made if other.startswith(f"{out}/")], f"something else is made inside {out}"


@each_stage
def test_a_command_says_where_it_writes_and_its_paths_are_its_dependencies(stage: Stage):
    words = stage.command.split()
    assert [words[words.index("--out") + 1]] == list(stage.outs)
    read = [word for word in words if re.match(r"(data|configs|weights)/|(?!start/params|params)[\w/]+\.yaml$", word)]
    for path in (word.rstrip("/*") for word in read if word not in stage.outs):
        assert path in stage.deps, f"{stage.address} reads {path} and does not depend on it"
    for dep in stage.deps:
        assert is_code(dep) or dep in [word.rstrip("/*") for word in words], f"{stage.address} never reads {dep}"


@each_stage
def test_a_stage_depends_on_its_own_section_and_its_seed(stage: Stage):
    words = stage.command.split()

    def option(name: str, default: str) -> str:
        return words[words.index(name) + 1] if name in words else default

    file = option("--params", "params.yaml")
    section = option("--section", module_of(stage.command).removeprefix("tasks."))
    known = yaml.safe_load((ROOT / file).read_text())
    wanted = [(file, key) for key in (section, "seed") if key in known and not (key == "seed" and "--seed" in words)]
    assert sorted(stage.params) == sorted(wanted)


def test_a_later_round_decides_against_its_parent_and_reports_against_the_start(tmp_path):
    for name in ("dvc.yaml", "params.yaml"):
        shutil.copyfile(ROOT / name, tmp_path / name)
    opened = yaml.safe_load((ROOT / "round.yaml").read_text())
    opened |= {"round": "i002", "parents": opened["parents"] | {"policy": "default/i001/policy/0"}}
    (tmp_path / "round.yaml").write_text(yaml.safe_dump(opened))
    stages = graph.read(tmp_path, ["dvc.yaml"])
    for role, policy in (("validation", "data/default/i001/policy/0"), ("sealed", "data/start/policy")):
        (evaluated,) = [stage for stage in stages if stage.outs == (f"data/default/i002/start_evaluation/{role}",)]
        assert f"--policy {policy} " in evaluated.command


@each_stage
def test_its_parameters_are_valid(stage: Stage):
    """Values in params.yaml are checked here, before a long run meets them."""
    module = module_of(stage.command)
    function = getattr(importlib.import_module(module), module.removeprefix("tasks."))
    words = stage.command.split()
    file = words[words.index("--params") + 1] if "--params" in words else "params.yaml"
    section = words[words.index("--section") + 1] if "--section" in words else function.__name__
    values = yaml.safe_load((ROOT / file).read_text())
    typing.get_type_hints(function)["params"].parse(values.get(section) or {}, f"{file}, section '{section}'")


@each_loop
def test_every_section_of_the_parameters_is_read_by_a_stage(loop: str):
    its = Loop(loop, ROOT)
    read = {key for stage in its.stages() for file, key in stage.params if file != "start/params.yaml"}
    plain = {"seed", "seeds", "promoted_seed", "simulator"}
    assert set(yaml.safe_load((its.folder / "params.yaml").read_text())) - plain <= read


def test_our_reading_of_the_graph_is_dvcs():
    """Names, commands, dependencies, outputs, and an order in which DVC would run them too."""
    script = (
        "import json; from dvc.repo import Repo; repo = Repo('.')\n"
        "wd = repo.root_dir + '/'\n"
        "stages = [s for s in repo.index.stages if s.is_data_source is False]\n"
        "show = lambda items: sorted(str(i.fs_path).removeprefix(wd) for i in items if not hasattr(i, 'params'))\n"
        "print(json.dumps({s.addressing: [s.cmd, show(s.deps), show(s.outs),"
        " [p.addressing for p in repo.index.graph.successors(s)]] for s in stages}))"
    )
    made = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    theirs = json.loads(made.stdout)
    ours = {stage.address: stage for loop in LOOPS for stage in Loop(loop, ROOT).stages()}
    assert set(ours) == set(theirs)
    for address, (command, deps, outs, before) in theirs.items():
        stage = ours[address]
        assert stage.command == " ".join(command.split())
        assert sorted(stage.deps) == [dep.removeprefix(str(ROOT) + "/") for dep in deps]
        assert sorted(stage.outs) == [out.removeprefix(str(ROOT) + "/") for out in outs]
        order = list(ours)
        for other in before:
            if other in ours:
                assert order.index(other) < order.index(address), f"{address} stands before {other}"

"""Who may import whom. An arrow that points the wrong way is named with its file and line."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("simulators", "policies", "worlds", "rewards", "episodes", "rl", "evaluation")
OURS = ("coevo", "tasks", "flows", "scripts")
HEAVY = ("torch", "diffusers", "transformers", "ray", "prefect", "numpy")


def imports(file: Path) -> list[tuple[int, str]]:
    """(line, dotted name) of each import in a file; 'from a import b' gives a.b."""
    found = []
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file.relative_to(ROOT)}:{node.lineno}: write imports in full"
            found += [(node.lineno, f"{node.module}.{alias.name}") for alias in node.names]
    return found


def below(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


def within(name: str, packages: tuple[str, ...]) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def refuse(files: list[Path], allowed: tuple[str, ...], ours: tuple[str, ...] = OURS) -> None:
    """Fail, naming each import in `files` of one of `ours` that is not in `allowed`."""
    wrong = [
        f"{file.relative_to(ROOT)}:{line} imports {name}"
        for file in files
        for line, name in imports(file)
        if within(name, ours) and not within(name, allowed)
    ]
    assert not wrong, f"allowed here: {', '.join(allowed) or 'nothing'}\n" + "\n".join(wrong)


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_core_and_never_another_room(room):
    refuse(below(f"coevo/{room}"), (f"coevo.{room}", "coevo.core", "coevo.records"))


def test_records_import_nothing_of_ours_and_nothing_heavy():
    refuse(below("coevo/records"), ("coevo.records",))
    refuse(below("coevo/records"), (), HEAVY)


def test_core_imports_records_alone():
    refuse(below("coevo/core"), ("coevo.core", "coevo.records"))


def test_rollout_imports_core():
    refuse([ROOT / "coevo/rollout.py"], ("coevo.core", "coevo.records"))


def test_judges_import_the_two_rooms_that_they_join():
    refuse([ROOT / "coevo/judges.py"], ("coevo.rewards", "coevo.worlds", "coevo.core", "coevo.records"))


def test_workers_import_coevo_and_no_task():
    refuse(below("coevo/workers"), ("coevo",))


@pytest.mark.parametrize("task", below("tasks"), ids=lambda file: file.stem)
def test_a_task_imports_no_task_and_no_flow(task):
    refuse([task], ("coevo",))


def test_flows_import_records_alone():
    refuse(below("flows"), ("flows", "coevo.records"))
    refuse(below("flows"), ("prefect",), HEAVY)


def test_only_flows_import_prefect():
    files = [file for folder in ("coevo", "tasks", "scripts") for file in below(folder)]
    refuse(files, (), ("prefect", "dvc"))


def test_only_workers_import_ray():
    files = [file for folder in ("coevo", "tasks", "flows", "scripts") for file in below(folder)]
    refuse([file for file in files if "coevo/workers" not in str(file)], (), ("ray",))


def test_only_artifacts_hash_and_publish():
    """Others may hash for keys and fingerprints; a manifest is made in one place."""
    files = [file for folder in ("coevo", "tasks", "flows") for file in below(folder)]
    makers = {
        str(file.relative_to(ROOT))
        for file in files
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func).startswith(("Manifest(", "Manifest.model_validate"))
        and not ast.unparse(node.func).endswith("_json")
    }
    assert makers == {"coevo/core/artifacts.py"}


def test_flows_that_prefect_serves_keep_their_annotations():
    """With postponed annotations every run of a served flow fails: its parameters are 'not fully defined'."""
    for file in below("flows"):
        if any(within(name, ("prefect.flow",)) for _, name in imports(file)):
            assert "from __future__ import annotations" not in file.read_text(), file.name

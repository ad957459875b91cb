"""`coevo gc`: what goes, and what lineage keeps."""

import json
import os
import shutil
import subprocess
import sys

import pytest

from flows import garbage, rounds
from flows.loops import Loop
from tests.flows import toys


def dvc(root, *arguments: str) -> str:
    return subprocess.run(
        [sys.executable, "-m", "dvc", *arguments], cwd=root, env=toys.environment(), check=True, capture_output=True,
        text=True,
    ).stdout  # fmt: skip


def steps(root, count: int) -> None:
    """Another number of steps: the open round's stages make something else."""
    text = (root / "params.yaml").read_text()
    (root / "params.yaml").write_text(
        text.replace(text[text.index("work:") : text.index("decide")], f"work: {{steps: {count}}}\n")
    )


@pytest.fixture(scope="module")
def two_rounds(tmp_path_factory):
    """A finished round, sealed, and the next one finished too."""
    made = toys.make(tmp_path_factory.mktemp("two") / "site")
    dvc(made, "repro", "start/dvc.yaml:begin")
    dvc(made, "repro")
    rounds.open_next(Loop(root=made))
    dvc(made, "repro")
    return made


@pytest.fixture
def root(two_rounds, tmp_path, monkeypatch):
    """The same to be changed."""
    monkeypatch.setenv("PYTHONPATH", str(toys.PROJECT))
    return shutil.copytree(two_rounds, tmp_path / "site", symlinks=True)


def test_nothing_that_a_round_names_is_garbage(root):
    assert garbage.find(root, verify=True) == garbage.Found((), {})


def test_results_of_earlier_parameters_go_and_all_rounds_can_still_be_brought_back(root):
    before = toys.hashes(root)
    steps(root, 5)
    dvc(root, "repro")
    steps(root, 3)
    dvc(root, "repro")
    assert toys.hashes(root) == before
    found = garbage.find(root)
    (cached,) = found.garbage
    assert "no open or sealed round uses" in cached.what and found.bytes == cached.bytes > 0
    assert garbage.remove(root, found) == found.bytes and garbage.find(root).garbage == ()
    shutil.rmtree(root / "data")
    dvc(root, "checkout")
    assert dvc(root, "status", "--json").strip() == "{}"


def test_an_ancestor_of_what_is_in_use_stays_though_no_stage_names_it(root):
    """The start is made anew, with another result; the sealed round descends from the old one."""
    kept = json.loads((root / "data/start/work/manifest.json").read_text())
    text = (root / "start/params.yaml").read_text()
    (root / "start/params.yaml").write_text(text.replace("steps: 2", "steps: 4"))
    dvc(root, "repro", "start/dvc.yaml:begin")
    assert json.loads((root / "data/start/work/manifest.json").read_text())["sha256"] != kept["sha256"]
    found = garbage.find(root)
    assert list(found.kept_for_lineage) == [f"start/work {kept['sha256'][:12]}"] and found.garbage == ()


def test_checkpoints_of_closed_rounds_and_what_a_killed_stage_wrote_go(root):
    scratch, data = root / ".local/scratch", root / "data/default/i002/policy"
    for folder in (scratch / "default/i001/policy/run-1", scratch / "default/i002/policy/run-1", scratch / "gone/i001",
                   data / ".0.writing-999999999", data / f".1.writing-{os.getpid()}"):  # fmt: skip
        folder.mkdir(parents=True)
        (folder / "file").write_bytes(b"x" * 1000)
    found = garbage.find(root)
    assert {path for kind in found.garbage for path in kind.paths} == {
        scratch / "default/i001", scratch / "gone", data / ".0.writing-999999999",
    }  # fmt: skip
    assert found.bytes == 3000
    garbage.remove(root, found)
    assert (scratch / "default/i002/policy/run-1/file").is_file() and (data / f".1.writing-{os.getpid()}").is_dir()


def test_the_command_asks_and_says_how_much(root):
    steps(root, 5)
    dvc(root, "repro")

    def gc(answer: str, *options: str) -> str:
        made = subprocess.run(
            [sys.executable, "-m", "flows.cli", "gc", *options], cwd=root, env=toys.environment(), input=answer,
            capture_output=True, text=True,
        )  # fmt: skip
        return made.stdout + made.stderr

    assert "free " in (said := gc("n\n")) and "freed" not in said
    assert "freed " in gc("y\n")
    assert "nothing to free" in gc("", "--yes")


def test_sizes_are_said_as_people_say_them():
    assert [garbage.readable(size) for size in (12, 1536, 3 * 2**20, 5 * 2**30)] == [
        "12 B", "1.5 KiB", "3.0 MiB", "5.0 GiB",
    ]  # fmt: skip

"""Artifacts: whole or not at all, and what they say of themselves can be trusted."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from coevo.core import artifacts

ROOT = Path(__file__).resolve().parents[2]


def make(out: Path, text: str = "hello", kind: str = "episodes", parents=None, states=(), seed: int = 0, metrics=None):
    with artifacts.writing(out) as folder:
        (folder / "deep").mkdir()
        (folder / "deep" / "payload.txt").write_text(text)
        return artifacts.publish(
            folder, out, kind=kind, id=out.name, stage="tests", parents=parents or {}, config={"steps": 3}, seed=seed,
            source_sha256="0", metrics=metrics or {"n": 1}, states=states,
        )


def hidden(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if path.name.startswith(".")]


def test_an_artifact_reads_back_as_published(tmp_path):
    made = make(tmp_path / "a", states=("s2", "s1", "s2"))
    read = artifacts.read(tmp_path / "a", "episodes")
    assert read.manifest == made.manifest
    assert read.manifest.states == ("s1", "s2")
    assert [entry.path for entry in read.manifest.files] == ["deep/payload.txt", "lineage.json"]
    assert hidden(tmp_path) == []


def test_the_same_content_gives_the_same_hash_and_another_seed_does_not(tmp_path):
    first, again, other = (make(tmp_path / side / "a", seed=seed) for side, seed in (("x", 0), ("y", 0), ("z", 1)))
    assert first.manifest.sha256 == again.manifest.sha256 != other.manifest.sha256


def test_a_kind_that_is_not_asked_for_is_refused(tmp_path):
    make(tmp_path / "a", kind="policy")
    with pytest.raises(ValueError, match="kind 'policy', 'world_model' is needed"):
        artifacts.read(tmp_path / "a", "world_model")


@pytest.mark.parametrize("file", ["deep/payload.txt", "lineage.json"])
def test_a_changed_file_is_named(tmp_path, file):
    parent = make(tmp_path / "parent", states=("s1",))
    make(tmp_path / "a", parents={"source": parent})
    target = tmp_path / "a" / file
    target.write_text(target.read_text().replace("s1", "s9").replace("hello", "hullo"))  # the same length
    with pytest.raises(ValueError, match=f"damaged: {target} is not the file that was published.*dvc pull"):
        artifacts.read(tmp_path / "a")


def test_a_missing_file_is_named(tmp_path):
    make(tmp_path / "a")
    (tmp_path / "a/deep/payload.txt").unlink()
    with pytest.raises(ValueError, match="payload.txt is missing"):
        artifacts.read(tmp_path / "a")


@pytest.mark.parametrize(("key", "value"), [("seed", 5), ("metrics", {"n": 2}), ("states", ["s3"]), ("id", "b")])
def test_an_edited_manifest_is_refused(tmp_path, key, value):
    make(tmp_path / "a")
    file = tmp_path / "a/manifest.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {key: value}))
    with pytest.raises(ValueError, match="manifest.json was edited"):
        artifacts.read(tmp_path / "a")


def test_a_manifest_that_is_no_manifest_is_named(tmp_path):
    (tmp_path / "a").mkdir()
    with pytest.raises(ValueError, match="a is not an artifact"):
        artifacts.read(tmp_path / "a")
    (tmp_path / "a/manifest.json").write_text("{")
    with pytest.raises(ValueError, match="a/manifest.json cannot be read"):
        artifacts.read(tmp_path / "a")


def test_lineage_reaches_grandparents_without_their_folders(tmp_path):
    states = make(tmp_path / "states", kind="initial_states", states=("s1",))
    rollouts = make(tmp_path / "rollouts", parents={"starts": states}, states=("s1",))
    policy = make(tmp_path / "policy", kind="policy", parents={"rollouts": rollouts})
    lineage = policy.lineage()
    assert {node["id"] for node in lineage.values()} == {"states", "rollouts", "policy"}
    assert lineage[policy.manifest.sha256]["parents"] == {"rollouts": rollouts.manifest.sha256}
    assert lineage[states.manifest.sha256]["states"] == ["s1"]


def test_simulator_episodes_are_counted_once_and_from_the_start_policy_on(tmp_path):
    shown = make(tmp_path / "demonstrations", metrics={"episodes": 20})
    start = make(tmp_path / "start", kind="policy", parents={"demonstrations": shown})
    rollouts = make(tmp_path / "rollouts", parents={"policy": start}, metrics={"episodes": 300})
    weak = make(tmp_path / "weak", metrics={"n": 1})  # of a number that nobody wrote down
    data = make(tmp_path / "data", kind="dataset", parents={"a": rollouts, "b": shown}, metrics={"episodes": 320})
    world = make(tmp_path / "world", kind="world_model", parents={"data": data})
    reward = make(tmp_path / "reward", kind="reward_model", parents={"a": rollouts, "b": weak})
    assert artifacts.simulator_episodes([start, world, reward], start) == (300, 1)
    trained = make(
        tmp_path / "trained", kind="policy", parents={"policy": start, "world": world},
        metrics={"simulator_episodes": 96},
    )  # fmt: skip
    assert artifacts.simulator_episodes([trained], start) == (396, 0)
    assert artifacts.simulator_episodes([trained], trained) == (0, 0)


def test_a_leak_names_the_path_it_took(tmp_path):
    sealed = make(tmp_path / "sealed", kind="initial_states", states=("s1", "s2"))
    clean = make(tmp_path / "clean", states=("s7",))
    leaky = make(tmp_path / "leaky", states=("s2", "s7"))
    dataset = make(tmp_path / "dataset", kind="dataset", parents={"a": clean, "b": leaky})
    policy = make(tmp_path / "policy", kind="policy", parents={"dataset": dataset})
    with pytest.raises(ValueError, match=r"1 of the states in sealed \(the first is s2\).*policy <- dataset <- leaky"):
        artifacts.refuse_leak(sealed, policy)
    artifacts.refuse_leak(sealed, make(tmp_path / "other", kind="policy", parents={"dataset": clean}))


def test_a_failed_block_leaves_nothing(tmp_path):
    with pytest.raises(ZeroDivisionError), artifacts.writing(tmp_path / "a") as folder:
        (folder / "half").write_text("written")
        _ = 1 / 0
    assert list(tmp_path.iterdir()) == []


def test_a_failed_block_leaves_the_artifact_that_stood_there(tmp_path):
    first = make(tmp_path / "a")
    with pytest.raises(ZeroDivisionError), artifacts.writing(tmp_path / "a"):
        _ = 1 / 0
    assert artifacts.read(tmp_path / "a").manifest == first.manifest
    second = make(tmp_path / "a", text="replaced")
    assert artifacts.read(tmp_path / "a").manifest == second.manifest != first.manifest
    assert hidden(tmp_path) == []


KILLED = """
import sys, time
from pathlib import Path
from coevo.core import artifacts
with artifacts.writing(Path(sys.argv[1])) as folder:
    (folder / "half").write_bytes(b"0" * 1000)
    print(folder, flush=True)
    time.sleep(60)
"""


def test_a_killed_writer_leaves_no_artifact_and_the_next_one_cleans_up(tmp_path):
    out = tmp_path / "a"
    with subprocess.Popen([sys.executable, "-c", KILLED, str(out)], stdout=subprocess.PIPE, text=True, cwd=ROOT) as one:
        leftover = Path(one.stdout.readline().strip())
        one.send_signal(signal.SIGKILL)
    assert (leftover / "half").is_file() and not out.exists()
    with pytest.raises(ValueError, match="is not an artifact"):
        artifacts.read(out)
    make(out)
    assert not leftover.exists() and artifacts.read(out)


def test_a_writer_that_lives_is_left_alone(tmp_path):
    out = tmp_path / "a"
    with subprocess.Popen([sys.executable, "-c", KILLED, str(out)], stdout=subprocess.PIPE, text=True, cwd=ROOT) as one:
        theirs = Path(one.stdout.readline().strip())
        make(out)
        assert (theirs / "half").is_file()
        one.send_signal(signal.SIGKILL)


def full(folder: Path) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def full_in_rust(folder: Path) -> None:
    raise RuntimeError("Error while serializing: I/O error: No space left on device (os error 28)")


def full_behind_torch(folder: Path) -> None:
    """torch.save hides the error of the file it writes to behind one of its own."""
    with open("/dev/full", "wb", buffering=0) as file:
        torch.save({"weights": torch.zeros(100_000)}, file)


@pytest.mark.parametrize("fault", [full, full_in_rust, full_behind_torch])
def test_a_full_disk_is_said_plainly_and_nothing_is_published(tmp_path, fault):
    with pytest.raises(ValueError, match=r"no space left while writing .*/a \(\d+ MiB free.*nothing was published"):
        with artifacts.writing(tmp_path / "a") as folder:
            fault(folder)
    assert list(tmp_path.iterdir()) == []


TINY = """
import os, subprocess, sys, torch
from pathlib import Path
from safetensors.torch import save_file
from coevo.core import artifacts
out = Path(sys.argv[1]) / "a"
try:
    with artifacts.writing(out) as folder:
        save_file({"weights": torch.zeros(1_000_000)}, folder / "weights.safetensors")
except ValueError as error:
    print(error, os.listdir(out.parent))
"""


def test_a_disk_that_is_really_full_is_said_plainly(tmp_path):
    """On a file system of 256 KiB, where this machine lets a user mount one."""
    mount = f"mount -t tmpfs -o size=256k tmpfs {tmp_path} && exec {sys.executable} -c '{TINY}' {tmp_path}"
    probe = ["unshare", "--map-root-user", "--mount", "sh", "-c", f"mount -t tmpfs tmpfs {tmp_path}"]
    try:
        allowed = subprocess.run(probe, capture_output=True).returncode == 0
    except FileNotFoundError:
        allowed = False
    if not allowed:
        pytest.skip("this machine lets no user mount a file system of their own")
    said = subprocess.run(
        [*probe[:5], mount], capture_output=True, text=True, cwd=ROOT, check=True
    ).stdout
    assert "no space left while writing" in said and said.strip().endswith("[]")


def test_the_hash_of_a_folder_is_that_of_its_names_and_contents(tmp_path):
    (tmp_path / "a").write_text("1")
    before = artifacts.tree_sha256(tmp_path)
    (tmp_path / "a").rename(tmp_path / "b")
    assert artifacts.tree_sha256(tmp_path) != before
    assert artifacts.tree_sha256(tmp_path / "b") == artifacts.file_sha256(tmp_path / "b")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="empty"):
        artifacts.tree_sha256(tmp_path / "empty")

"""What DVC and git keep of rounds: pushed, pulled into a fresh clone, committed and tagged."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from flows import repro, rounds
from flows.loops import Loop
from tests.flows import toys

KEYS = dict(AWS_ACCESS_KEY_ID="test", AWS_SECRET_ACCESS_KEY="test", AWS_DEFAULT_REGION="us-east-1")


def call(root: Path, *words: str) -> str:
    """A command of git or DVC in a repository."""
    command = [sys.executable, "-m", *words] if words[0] == "dvc" else list(words)
    made = subprocess.run(command, cwd=root, env=toys.environment(**KEYS), capture_output=True, text=True)
    assert made.returncode == 0, made.stdout + made.stderr
    return made.stdout


WHO = {f"GIT_{role}_{what}": value for role in ("AUTHOR", "COMMITTER") for what, value in
       (("NAME", "A Person"), ("EMAIL", "person@example.org"))}  # fmt: skip


@pytest.fixture(scope="module")
def two_rounds(tmp_path_factory):
    """Round i001 sealed and committed, and round i002 finished."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in WHO.items():
            patch.setenv(name, value)
        root = toys.make(tmp_path_factory.mktemp("two") / "site")
        call(root, "git", "add", ".")
        call(root, "git", "commit", "--quiet", "--message", "begin")
        call(root, "git", "config", "coevo.commitRounds", "true")
        call(root, "dvc", "repro", "start/dvc.yaml:begin")
        call(root, "dvc", "repro")
        (root / "notes.txt").write_text("a person's own, not to be committed\n")
        rounds.open_next(Loop(root=root))
        call(root, "dvc", "repro")
    return root


@pytest.fixture
def finished(two_rounds, tmp_path, monkeypatch):
    """The same to be changed; who commits is known."""
    for name, value in {**WHO, "PYTHONPATH": str(toys.PROJECT)}.items():
        monkeypatch.setenv(name, value)
    return shutil.copytree(two_rounds, tmp_path / "site", symlinks=True)


@pytest.fixture
def s3():
    """Address of a local S3 server with an empty bucket."""
    pytest.importorskip("moto", reason="the extra 'dev' is not installed")
    pytest.importorskip("dvc_s3", reason="the extra 's3' is not installed")
    import boto3
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    url = f"http://{host}:{port}"
    boto3.client(
        "s3", endpoint_url=url, aws_access_key_id="test", aws_secret_access_key="test", region_name="us-east-1"
    ).create_bucket(Bucket="rounds")
    yield url
    server.stop()


def push_and_clone(root: Path, place: str, *settings: tuple[str, str]) -> Path:
    """Push to a remote and pull into a fresh clone, in which nothing may be left to do."""
    call(root, "dvc", "remote", "add", "--default", "store", place)
    for name, value in settings:
        call(root, "dvc", "remote", "modify", "store", name, value)
    call(root, "dvc", "push")
    call(root, "git", "add", ".dvc/config", "round.yaml", "dvc.lock", "start/dvc.lock", "rounds")
    call(root, "git", "commit", "--quiet", "--message", "finished")
    clone = root.parent / "clone"
    call(root.parent, "git", "clone", "--quiet", str(root), str(clone))
    shutil.move(root, root.parent / "away")  # nothing may come from there
    call(clone, "dvc", "pull")
    assert "Running stage" not in call(clone, "dvc", "repro")
    assert call(clone, "dvc", "status", "--json").strip() == "{}"
    assert rounds.left_to_do(Loop(root=clone)) == []
    assert toys.hashes(clone) == toys.hashes(root.parent / "away")
    assert (clone / "data/default/i001/policy/0/total.txt").is_file()
    return clone


def test_a_fresh_clone_pulls_all_rounds_from_a_folder_and_has_nothing_to_do(finished, tmp_path):
    push_and_clone(finished, str(tmp_path / "store"))


def test_a_fresh_clone_pulls_all_rounds_from_s3_and_has_nothing_to_do(finished, s3):
    push_and_clone(finished, "s3://rounds/store", ("endpointurl", s3))


def test_a_stage_fetches_what_it_needs_in_a_fresh_clone(finished, tmp_path):
    clone = push_and_clone(finished, str(tmp_path / "store"))
    shutil.rmtree(clone / "data")
    shutil.rmtree(clone / ".dvc/cache")
    assert repro.reproduce(clone, "decide", lambda line: None, upstream=True) is False
    assert (clone / "data/default/i002/decision/decision.json").is_file()


def test_a_closed_round_is_committed_by_its_paths_and_tagged_once(finished):
    assert call(finished, "git", "tag").split() == ["default/i001"]
    changed = call(finished, "git", "show", "--name-only", "--format=%s", "default/i001").split("\n")
    assert changed[0] == "Close round i001 of loop default: promote, it is a toy"
    assert sorted(filter(None, changed[1:])) == sorted(
        ["dvc.lock", "round.yaml", "start/dvc.lock",
         *(f"rounds/i001/{name}" for name in ("decision.json", "dvc.lock", "params.yaml", "round.yaml", "run.json",
                                              "sealed.dvc"))]
    )  # fmt: skip
    assert "notes.txt" in call(finished, "git", "status", "--porcelain")
    rounds.tidy(Loop(root=finished))
    assert call(finished, "git", "rev-list", "--count", "HEAD").strip() == "2"


def test_a_tag_brings_a_closed_rounds_data_back(finished):
    first = (finished / "data/default/i001/policy/0/total.txt").read_text()
    shutil.rmtree(finished / "data/default")
    call(finished, "git", "worktree", "add", "--quiet", str(finished.parent / "then"), "default/i001")
    call(finished.parent / "then", "dvc", "cache", "dir", "--local", str(finished / ".dvc/cache"))
    call(finished.parent / "then", "dvc", "checkout", "rounds/i001/sealed.dvc")
    assert (finished.parent / "then/data/default/i001/policy/0/total.txt").read_text() == first


def test_where_git_refuses_the_loop_goes_on_and_says_so(finished, capfd):
    hook = finished / ".git/hooks/pre-commit"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\nexit 1\n")
    hook.chmod(0o755)
    assert rounds.open_next(Loop(root=finished)) == "i003"
    assert "git did not commit round i002" in capfd.readouterr().err
    hook.unlink()
    rounds.tidy(Loop(root=finished))
    assert call(finished, "git", "tag").split() == ["default/i001", "default/i002"]


def test_numbers_of_two_revisions_are_compared(finished):
    pipeline = (finished / "dvc.yaml").read_text()
    (finished / "dvc.yaml").write_text(pipeline + '\nmetrics: ["data/${loop}/${round}/policy/0/manifest.json"]\n')
    call(finished, "git", "commit", "--quiet", "--message", "metrics", "dvc.yaml", "dvc.lock")
    text = (finished / "params.yaml").read_text()
    (finished / "params.yaml").write_text(text.replace("work: {steps: 3}", "work: {steps: 5}"))
    call(finished, "dvc", "repro")
    (changed,) = json.loads(call(finished, "dvc", "metrics", "diff", "--json")).values()
    assert changed["metrics.total"]["diff"] == 7  # 3 + 4 more


def test_without_the_setting_git_is_left_alone(tmp_path):
    root = toys.make(tmp_path / "site")
    call(root, "dvc", "repro")
    rounds.open_next(Loop(root=root))
    made = subprocess.run(["git", "log"], cwd=root, capture_output=True, text=True)
    assert made.returncode != 0 and "does not have any commits" in made.stderr

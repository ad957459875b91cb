"""What kills leave in DVC's own files, without any DVC."""

import json
import os
import subprocess

import pytest
import yaml

from flows import lock, mending


@pytest.fixture
def root(tmp_path):
    (tmp_path / ".dvc/tmp").mkdir(parents=True)
    return tmp_path


def rwlock(root, **listed):
    (root / ".dvc/tmp/rwlock").write_text(json.dumps(listed))
    mending.mend(root)
    file = root / ".dvc/tmp/rwlock"
    return json.loads(file.read_text()) if file.is_file() else None


def user(pid: int) -> dict:
    return {"pid": pid, "cmd": "dvc repro"}


def test_paths_of_living_dvcs_stay_in_use_and_those_of_others_are_freed(root):
    ended = subprocess.Popen(["true"])
    ended.wait()
    own, foreign = user(os.getpid()), user(1)  # this process is a Python, as DVC is; the first one is not
    free = rwlock(root, write={"a": own, "b": foreign}, read={"c": [own, user(ended.pid)], "d": [foreign]})
    assert free == {"write": {"a": own}, "read": {"c": [own]}}


def test_a_zombie_holds_nothing(root):
    zombie = subprocess.Popen(["python3", "-c", "pass"])
    os.waitid(os.P_PID, zombie.pid, os.WEXITED | os.WNOWAIT)
    assert rwlock(root, write={"a": user(zombie.pid)}, read={}) == {"write": {}, "read": {}}
    zombie.wait()


def test_a_number_that_a_younger_process_has_holds_nothing(root):
    file = root / ".dvc/tmp/rwlock"
    file.write_text(json.dumps({"write": {"a": user(os.getpid())}, "read": {}}))
    os.utime(file, (1000.0, 1000.0))  # long before this process began
    mending.mend(root)
    assert json.loads(file.read_text())["write"] == {}


@pytest.mark.parametrize("text", ["", '{"wri', '{"write": {"a": {"pid": 3'])
def test_a_torn_list_of_paths_is_removed(root, text, capsys):
    (root / ".dvc/tmp/rwlock").write_text(text)
    mending.mend(root)
    assert not (root / ".dvc/tmp/rwlock").exists() and "torn" in capsys.readouterr().err


WHOLE = "schema: '2.0'\nstages:\n  work:\n    cmd: python toys.py\n    outs:\n    - path: x\n      md5: abc\n"


@pytest.mark.parametrize(
    "torn", ["", "schema: '2.0'\nsta", "schema: '2.0'\nstages:\n  work:\n    cm", WHOLE[:-3] + ": ["]
)
def test_a_torn_lock_comes_back_as_it_was_kept_and_a_whole_one_stays(root, torn):
    (root / "dvc.lock").write_text(WHOLE)
    mending.keep(root)
    (root / "dvc.lock").write_text(torn)
    mending.keep(root)  # a torn one is never kept
    mending.mend(root)
    assert (root / "dvc.lock").read_text() == WHOLE
    (root / "dvc.lock").write_text(WHOLE + "# newer\n")
    mending.mend(root)
    assert (root / "dvc.lock").read_text() == WHOLE + "# newer\n"


TWO = """schema: '2.0'
stages:
  work:
    cmd: python toys.py work --sources data/start/work --seed 0 --out
      data/default/i001/policy/0
    deps:
    - path: toys.py
      hash: md5
      md5: 3b9fbeb7ebeccae137958741a43549de
      size: 2462
    params:
      params.yaml:
        work:
          steps: 3
    outs:
    - path: data/default/i001/policy/0
      hash: md5
      md5: f7bac12568fa00342ac655a824e31f12.dir
      size: 1018
      nfiles: 3
  decide:
    cmd: python toys.py decide
    outs:
    - path: data/default/i001/decision
      hash: md5
      md5: e15bb4909667a5e7691b2196375b3245.dir
      size: 700
      nfiles: 3
"""


def test_wherever_a_lock_is_cut_it_is_torn_or_holds_no_half_of_a_stage():
    stages = yaml.safe_load(TWO)["stages"]
    whole = [cut for cut in range(len(TWO) + 1) if not mending.is_torn(TWO[:cut])]
    assert whole[-1] == len(TWO) and 4 < len(whole) < 10  # at the last lines of each stage
    for cut in whole:
        for name, left in yaml.safe_load(TWO[:cut])["stages"].items():
            assert [out["md5"] for out in left["outs"]] == [out["md5"] for out in stages[name]["outs"]], cut
            assert left["cmd"] == stages[name]["cmd"] and left.get("deps") == stages[name].get("deps"), cut


def test_a_lock_as_it_was_kept_is_not_torn_even_if_its_last_stage_makes_nothing(root):
    nothing = TWO + "  look:\n    cmd: python toys.py look\n"
    (root / "dvc.lock").write_text(nothing)
    mending.keep(root)
    mending.mend(root)
    assert (root / "dvc.lock").read_text() == nothing


def test_a_torn_lock_of_which_nothing_was_kept_is_removed(root):
    (root / "dvc.lock").write_text("stages: {")
    mending.mend(root)
    assert not (root / "dvc.lock").exists()


def test_a_file_is_replaced_whole_or_not_at_all(root, monkeypatch):
    file = root / "holder.json"
    lock.write_whole(file, "old")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        lock.write_whole(file, "new")
    assert file.read_text() == "old" and [path.name for path in root.iterdir() if path.is_file()] == ["holder.json"]

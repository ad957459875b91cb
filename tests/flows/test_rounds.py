"""What is said and done about a repository's files before any stage runs."""

import pytest

from flows import rounds
from flows.loops import Loop
from tests.flows import toys


def test_strays_go_and_what_a_running_stage_writes_stays(tmp_path):
    loop = Loop(root=toys.make(tmp_path / "repository"))
    made = loop.data("i001") / "policy"
    for name in ("0", "1", "2", ".1.writing-4321"):
        (made / name).mkdir(parents=True)
    rounds.remove_strays(loop)
    assert sorted(path.name for path in made.iterdir()) == [".1.writing-4321", "0", "1"]


@pytest.mark.parametrize(
    ("file", "old", "new", "said"),
    [
        ("params.yaml", "work:", "wrok:", "params.yaml: no stage reads the key 'wrok'; did you mean 'work'?"),
        ("params.yaml", "decide: {}\n", "", "params.yaml: key 'decide' is missing, which decide reads"),
        ("dvc.yaml", '["data/${loop}/${round}/policy",', '["data/${loop}/${round}/polices",',
         "decide reads data/default/i001/polices, which is not there and which no stage makes; did you mean "),
        ("start/dvc.yaml", "[configs/start.yaml]", "[configs/strat.yaml]",
         "start/dvc.yaml:begin reads configs/strat.yaml, which is not there and which no stage makes; did you mean "
         "configs/start.yaml?"),
        ("start/params.yaml", "begin:", "begn:", "start/params.yaml: no stage reads the key 'begn'; did you mean"),
    ],
)  # fmt: skip
def test_what_cannot_work_is_named_before_anything_runs(tmp_path, file, old, new, said):
    loop = Loop(root=toys.make(tmp_path))
    text = (tmp_path / file).read_text()
    (tmp_path / file).write_text(text.replace(old, new))
    with pytest.raises(ValueError) as fault:
        loop.stages()
    assert str(fault.value).startswith(said)


def test_a_folder_without_a_loop_is_said_to_be_one(tmp_path):
    with pytest.raises(ValueError, match="there is no round.yaml in .*; run this in the project's repository"):
        Loop(root=tmp_path).open_round()


def test_a_loop_that_would_write_into_anothers_data_is_refused(tmp_path):
    root = toys.make(tmp_path)
    (root / "loops/mine").mkdir(parents=True)
    (root / "loops/mine/round.yaml").write_text((root / "round.yaml").read_text())
    with pytest.raises(ValueError, match="'loop' = 'default' names another loop.*set it to 'mine'"):
        Loop("mine", root).open_round()

"""What opening and going on with a round does to the files of a repository, without running anything."""

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

"""Reading a dvc.yaml without DVC: names, values, order. (tests/test_pipeline.py holds it against DVC's own.)"""

import pytest

from flows import graph
from flows.graph import Stage


def stage(address: str, deps: tuple[str, ...] = (), outs: tuple[str, ...] = ()) -> Stage:
    return Stage(address, "true", deps, outs, ())


def written(tmp_path, text: str, **files: str) -> tuple[Stage, ...]:
    (tmp_path / "dvc.yaml").write_text(text)
    for name, content in files.items():
        (tmp_path / f"{name}.yaml").write_text(content)
    return graph.read(tmp_path, ["dvc.yaml"])


def test_a_matrix_makes_one_stage_for_each_combination_in_order(tmp_path):
    text = """
stages:
  s:
    matrix: {role: [a, b], seed: "${seeds}"}
    cmd: run ${item.role} ${item.seed}
    outs: ["out/${item.role}/${item.seed}"]
"""
    found = written(tmp_path, text, params="seeds: [0, 1]")
    assert [each.address for each in found] == ["s@a-0", "s@a-1", "s@b-0", "s@b-1"]
    assert found[2].command == "run b 0" and found[2].outs == ("out/b/0",)


def test_a_mapping_becomes_options_and_an_empty_one_nothing(tmp_path):
    text = "stages: {s: {cmd: 'run ${none} ${some} end'}}"
    (found,) = written(tmp_path, text, params="none: {}\nsome: {a: x, b: [y, z]}")
    assert found.command == "run --a x --b y z end"


def test_a_reference_to_nothing_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"'\$\{roundd\}' in dvc.yaml names nothing"):
        written(tmp_path, "stages: {s: {cmd: 'run ${roundd}'}}")


def test_stages_stand_after_what_they_read_from():
    last, first, middle = stage("last", ("m/x",)), stage("first", outs=("f",)), stage("middle", ("f/part",), ("m/x",))
    assert [each.address for each in graph.ordered([last, first, middle])] == ["first", "middle", "last"]


def test_a_folder_that_holds_outputs_is_read_from_all_of_them():
    both = [stage("report", ("policy",)), stage("seed0", outs=("policy/0",)), stage("seed1", outs=("policy/1",))]
    assert [each.address for each in graph.ordered(both)] == ["seed0", "seed1", "report"]


def test_a_name_that_begins_alike_is_not_inside():
    assert not graph.reads_from(stage("a", ("data/policy_old",)), stage("b", outs=("data/policy",)))


def test_a_circle_is_named():
    with pytest.raises(ValueError, match="a <- b <- a"):
        graph.ordered([stage("a", ("y",), ("x",)), stage("b", ("x",), ("y",))])


def test_downstream_reaches_through_untouched_stages():
    chain = graph.ordered(
        [stage("a", (), ("a",)), stage("b", ("a",), ("b",)), stage("c", ("b",), ("c",)), stage("d", (), ("d",))]
    )
    assert graph.downstream(chain, ["a"]) == {"a", "b", "c"}

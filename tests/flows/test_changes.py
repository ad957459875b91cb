"""Values from a form: what is written to params.yaml, and what is refused."""

import subprocess
import sys

import pytest
import yaml

from flows import changes, forms
from flows.loops import Loop
from tests.flows import toys


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    """DVC is asked by a module of ours, in the toy's own folder."""
    monkeypatch.setenv("PYTHONPATH", str(toys.PROJECT))


PARAMS = """seed: 0
seeds: [0, 1]  # training seeds
work:
  steps: 3  # how far to count
  how: {often: 2}
decide: {}
"""


@pytest.fixture
def loop(tmp_path):
    root = toys.make(tmp_path)
    (root / "params.yaml").write_text(PARAMS)
    return Loop(root=root)


def test_given_values_are_written_and_comments_stay(loop):
    sent = {"seed": None, "seeds": [], "work": {"steps": 5, "how": {"often": None}}, "decide": {}}
    assert changes.apply(loop, sent)
    assert (loop.root / "params.yaml").read_text() == PARAMS.replace("steps: 3", "steps: 5")


def test_an_empty_form_and_the_values_that_are_there_change_nothing(loop):
    before = (loop.root / "params.yaml").stat().st_mtime_ns
    for sent in (None, {}, {"work": {"steps": None}}, {"work": {"steps": 3}, "seeds": [0, 1]}):
        assert not changes.apply(loop, sent)
    assert (loop.root / "params.yaml").stat().st_mtime_ns == before


def test_a_choice_of_true_or_false_is_written_as_one(loop):
    file = loop.root / "params.yaml"
    file.write_text(file.read_text().replace("steps: 3", "pictures: true\n  steps: 3"))
    choice = forms.changes_schema(loop)["properties"]["work"]["properties"]["pictures"]
    assert (choice["type"], choice["enum"]) == ("string", ["true", "false"])
    assert changes.apply(loop, {"work": {"pictures": "false"}})
    assert yaml.safe_load(file.read_text())["work"]["pictures"] is False


def test_a_key_that_is_not_there_is_named(loop):
    with pytest.raises(ValueError, match="params.yaml has no key 'wrok'; did you mean 'work'?"):
        changes.apply(loop, {"wrok": {"steps": 5}})


def test_a_value_that_a_finished_stage_ran_without_is_refused_and_a_seed_more_is_not(tmp_path):
    root = toys.make(tmp_path)
    subprocess.run([sys.executable, "-m", "dvc", "repro", "work@0"], cwd=root, env=toys.environment(), check=True)
    with pytest.raises(ValueError, match="i001 has already run work@0 with work.steps = 3; give the value to the next"):
        changes.apply(Loop(root=root), {"work": {"steps": 5}})
    assert changes.apply(Loop(root=root), {"seeds": [0, 1, 2]})
    assert yaml.safe_load((root / "params.yaml").read_text())["seeds"] == [0, 1, 2]


def test_words_of_the_command_line_become_changes():
    assert changes.parse(["a.b.c=4", "a.b.d=[1, 2]", "e=none"]) == {"a": {"b": {"c": 4, "d": [1, 2]}}, "e": "none"}
    with pytest.raises(ValueError, match="'a.b' is not of the form section.key=value"):
        changes.parse(["a.b"])


def test_a_form_has_a_group_for_each_section_and_no_defaults(loop):
    schema = forms.changes_schema(loop)
    assert list(schema["properties"]) == ["seed", "seeds", "work"]
    work = schema["properties"]["work"]["properties"]
    assert work["steps"] == {"type": "integer", "title": "steps", "description": "Now: 3."}
    assert work["how"]["properties"]["often"]["type"] == "integer"
    assert schema["properties"]["seeds"]["items"] == {"type": "integer"}
    assert "default" not in str(schema)


def test_bounds_choices_and_meaning_come_from_the_stages():
    """Of the project's own loop, whose stages state them."""
    policy = forms.changes_schema(Loop(root=toys.PROJECT))["properties"]["train_policy"]["properties"]
    algorithm = policy["algorithm"]["properties"]
    assert algorithm["group"]["minimum"] == 2 and algorithm["updates"]["minimum"] == 1
    assert algorithm["ratio"]["enum"] == ["token", "action", "chunk"]
    assert policy["validate_every"]["description"].startswith("Updates between checks in the simulator")


def test_stages_are_choices_and_those_of_the_start_come_last(loop):
    assert forms.stage_names(loop) == ["work", "decide", "start/dvc.yaml:begin"]

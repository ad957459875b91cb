"""Datasets: mixtures, splits and what is carried from round to round."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from coevo.core import artifacts, stage
from coevo.core.artifacts import Artifact
from coevo.core.types import Episode
from coevo.episodes import mixture as mixtures
from coevo.episodes.dataset import read_dataset
from coevo.episodes.mixture import Mixture, belongs, side, weights
from coevo.episodes.store import write_episodes
from tasks.build_dataset import Inputs, Params, build_dataset
from tests.episodes.examples import assert_same, make_episode, small


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def publish(path: str, episodes: list[Episode]) -> Artifact:
    with artifacts.writing(Path(path)) as folder:
        write_episodes(folder, episodes, small())
        return artifacts.publish(
            folder, Path(path), kind="episodes", id=stage.artifact_id(Path(path)), stage="tests", parents={}, config={},
            seed=0, source_sha256="", metrics={}, states=[episode.start.id for episode in episodes],
        )


def build(path: str, sources: list[Artifact], previous: Artifact | None = None, **params) -> Artifact:
    parents = {f"sources.{i}": source for i, source in enumerate(sources)}
    parents |= {"previous": previous} if previous else {}
    values = Params.parse({"validation_share": 0.0} | params, "test")
    return stage.run_stage(
        build_dataset, Inputs(tuple(sources), previous), values, Path(path), seed=0, parents=parents
    )


def expert(seed: int, **changes) -> Episode:
    return make_episode(seed, won=True, policy="expert", **changes)


def row(policy: str = "sft", outcome: str = "success", perturbation: str = "none", pair: str = "", age: int = 0):
    from coevo.episodes.dataset import DatasetRow

    return DatasetRow(0, 0, "s", outcome, perturbation, policy, pair, age, "train", 0.0)


def test_classes_are_who_and_outcome():
    offset = row("expert", "failure", "offset", "p1")
    names = "expert expert_failure offset_failure offset offset_success paired_failure rollout_failure"
    assert [name for name in names.split() if belongs(offset, name)] == ["offset_failure", "offset", "paired_failure"]
    assert belongs(row("expert"), "expert") and not belongs(row("expert", "failure"), "expert")
    assert belongs(row(outcome="near"), "rollout_failure") and belongs(row(outcome="near"), "rollout_near")
    assert not belongs(row(outcome="unknown"), "rollout_failure") and belongs(row(outcome="unknown"), "rollout")


def test_a_share_is_split_evenly_inside_its_class():
    rows = [row("expert")] + [row(outcome="success")] * 4 + [row(outcome="failure")] * 2
    given = weights(rows, Mixture(), "test")
    assert given.tolist() == pytest.approx([0.15] + [0.35 / 4] * 4 + [0.5 / 2] * 2)


def test_shares_need_not_sum_to_one():
    rows = [row("expert"), row()]
    assert weights(rows, Mixture(mixture={"expert": 1.0, "rollout": 3.0}), "test").tolist() == [0.25, 0.75]


def test_overlapping_classes_add_up():
    rows = [row(outcome="near"), row(outcome="failure")]
    given = weights(rows, Mixture(mixture={"rollout_failure": 0.5, "rollout_near": 0.5}), "test")
    assert given.tolist() == [0.75, 0.25]


def test_a_round_older_halves_the_weight_inside_the_class():
    rows = [row(age=1), row(age=0), row("expert")]
    given = weights(rows, Mixture(mixture={"rollout": 0.6, "expert": 0.4}, age_decay=0.5), "test")
    assert given.tolist() == pytest.approx([0.2, 0.4, 0.4])


def test_an_empty_class_is_named_with_what_there_is():
    rows = [row("expert"), row(outcome="near")]
    with pytest.raises(ValueError, match="'rollout_success' a share of 0.35.*1 expert_success, 1 rollout_failure"):
        weights(rows, Mixture(), "test")


def test_an_empty_optional_class_gives_its_share_to_the_others():
    rows = [row("expert"), row(outcome="near")]
    given = weights(rows, Mixture(optional=("rollout_success",)), "test")
    assert given.tolist() == pytest.approx([0.15 / 0.65, 0.5 / 0.65])


def test_an_optional_class_must_have_a_share():
    with pytest.raises(ValueError, match="optional class 'nominal' has no share"):
        Mixture.parse({"optional": ["nominal"]}, "test")


def test_a_state_is_never_on_both_sides_and_growing_the_share_moves_none_back():
    states = [f"push-{i}" for i in range(1000)]
    small_side = {state for state in states if side(state, 0.1) == "validation"}
    large_side = {state for state in states if side(state, 0.2) == "validation"}
    assert small_side < large_side
    assert 70 < len(small_side) < 130


def test_episodes_of_all_sources_come_back_in_the_order_of_their_weights():
    demonstrations = publish("data/start/demonstrations", [expert(1), expert(2, frames=5)])
    own = [make_episode(3, won=True), make_episode(4, won=False), make_episode(5, won=False)]
    rollouts = publish("data/l/i001/rollouts", own)
    made = build("data/l/i001/dataset", [demonstrations, rollouts])
    dataset = read_dataset(made)
    arrays, given = dataset.arrays("train"), dataset.weights("train")
    assert arrays.states == ("push-1", "push-2", "push-3", "push-4", "push-5")
    assert given.tolist() == pytest.approx([0.075, 0.075, 0.35, 0.25, 0.25])
    assert arrays.length.tolist() == [3, 5, 3, 3, 3]
    assert (arrays.frames[1] == make_episode(2, frames=5).frames).all()
    assert dataset.interface == small()
    assert made.manifest.metrics["episodes/train"] == 5


def test_validation_states_stay_out_of_training():
    made = build("data/l/d", [publish("data/l/r", [expert(i, state=f"s{i // 2}") for i in range(40)])],
                 mixture={"expert": 1.0}, validation_share=0.3)
    dataset = read_dataset(made)
    train, validation = set(dataset.arrays("train").states), set(dataset.arrays("validation").states)
    assert train and validation and not train & validation
    assert dataset.weights("validation").sum() == pytest.approx(1.0)
    assert set(made.manifest.states) == train | validation


def test_a_previous_dataset_is_carried_a_round_older_and_needs_nothing_else():
    first = build("data/l/i001/dataset", [publish("data/l/i001/rollouts", [expert(1)])], mixture={"expert": 1.0})
    second_rollouts = publish("data/l/i002/rollouts", [expert(2)])
    second = build("data/l/i002/dataset", [second_rollouts], first, mixture={"expert": 1.0}, age_decay=0.5)
    shutil.rmtree("data/l/i001")
    shutil.rmtree("data/l/i002/rollouts")
    dataset = read_dataset(artifacts.read(second.path, "dataset"))
    assert [(source.id, source.age) for source in dataset.sources] == [("l/i001/rollouts", 1), ("l/i002/rollouts", 0)]
    assert dataset.weights("train").tolist() == pytest.approx([1 / 3, 2 / 3])
    assert_same(dataset.sets[0].episode(0), expert(1))


def test_a_source_given_again_is_taken_once():
    source = publish("data/start/demonstrations", [expert(1)])
    first = build("data/l/i001/dataset", [source], mixture={"expert": 1.0})
    second = build("data/l/i002/dataset", [source], first, mixture={"expert": 1.0})
    assert [(row.age, row.weight) for row in read_dataset(second).rows] == [(1, 1.0)]


def test_old_sources_are_left_behind():
    first = build("data/l/i001/dataset", [publish("data/l/i001/rollouts", [expert(1)])], mixture={"expert": 1.0})
    new = publish("data/l/i002/rollouts", [expert(2)])
    second = build("data/l/i002/dataset", [new], first, mixture={"expert": 1.0}, max_age=0)
    assert [source.id for source in read_dataset(second).sources] == ["l/i002/rollouts"]


def test_sources_are_links_or_copies_with_equal_hashes(monkeypatch):
    source = publish("data/l/rollouts", [expert(1)])
    linked = build("data/l/linked", [source], mixture={"expert": 1.0})
    file = "sources/00-l-rollouts/data/chunk-000/file-000.parquet"
    assert (linked.path / file).stat().st_ino == (source.path / "data/chunk-000/file-000.parquet").stat().st_ino

    def no_links(*_):
        raise OSError("not on this file system")

    monkeypatch.setattr(os, "link", no_links)
    copied = build("data/l/copied", [source], mixture={"expert": 1.0})
    assert (copied.path / file).stat().st_ino != (linked.path / file).stat().st_ino
    assert copied.manifest.files == linked.manifest.files


def test_sources_of_different_interfaces_are_refused():
    other = small().model_copy(update={"success_from": 1})
    with artifacts.writing(Path("data/l/other")) as folder:
        write_episodes(folder, [expert(2)], other)
        second = artifacts.publish(folder, Path("data/l/other"), kind="episodes", id="l/other", stage="t", parents={},
                                   config={}, seed=0, source_sha256="", metrics={}, states=[])
    with pytest.raises(ValueError, match="'success_from': l/one has 2, l/other has 1"):
        build("data/l/d", [publish("data/l/one", [expert(1)]), second])


def test_no_source_is_an_error():
    with pytest.raises(ValueError, match="at least one source"):
        build("data/l/d", [])


def test_episodes_without_a_class_are_kept_but_not_drawn():
    source = publish("data/l/r", [expert(1), replace(expert(2), perturbation="offset", pair="p")])
    dataset = read_dataset(build("data/l/d", [source], mixture={"expert": 1.0}))
    assert [row.weight for row in dataset.rows] == [1.0, 0.0]
    assert len(dataset.arrays("train")) == 1
    assert np.array_equal(dataset.weights("train"), [1.0])
    assert mixtures.census(dataset.rows) == "1 expert_success, 1 offset_success"

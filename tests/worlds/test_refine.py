"""The second round: what is refined on, where training stops, and which weights are kept."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from coevo.core.stage import run_stage
from coevo.core.states import read_states
from coevo.episodes.composition import composition
from coevo.episodes.dataset import DatasetRow
from coevo.episodes.store import read_episodes
from coevo.worlds import build
from tasks import refine_world_model as refine
from tasks import select_states as select
from tests.doubles import ToyReward, toy_state
from tests.toy_artifacts import episodes, initial_states, publish, rolled_out
from tests.worlds.examples import SEEN, training
from tests.worlds.test_stages import data, pretrain  # noqa: F401

HELD_OUT = [toy_state(column, 9, SEEN) for column in range(6)]


def row(state, outcome="success", policy="toy/policy", age=0, pair="") -> DatasetRow:
    return DatasetRow(
        source=0, episode=0, state=state, outcome=outcome, perturbation="none", policy=policy, pair=pair, age=age,
        split="train", weight=0.25,
    )  # fmt: skip


def test_states_are_told_apart_by_the_outcomes_of_their_episodes():
    found = composition(["a", "a", "b", "b", "c", "c", "d"], [True, True, False, False, True, False, True])
    assert (found.all_success, found.all_failure, found.mixed, found.once) == ({"a"}, {"b"}, {"c"}, 1)
    shares = found.shares("new_")
    assert shares["new_states"] == 3 and shares["new_states_once"] == 1 and shares["new_mixed"] == 1 / 3
    assert composition([], []).shares() == {"states": 0, "states_once": 0}


def test_only_the_newest_rollouts_of_a_policy_say_which_states_are_mixed():
    rows = [
        row("a"), row("a", "failure"), row("b"), row("b", "near", pair="b"), row("c", age=1),
        row("c", "failure", age=1), row("d", policy="expert"), row("d", "failure", policy="expert"),
    ]  # fmt: skip
    assert refine.newest_composition(rows).mixed == {"a"}
    assert refine.newest_composition(rows[4:]).mixed == {"c"}


def test_episodes_from_mixed_states_are_drawn_more_often():
    rows = [row("a"), row("a"), row("b"), row("c")]
    found = refine.preferring(np.full(4, 0.25), rows, frozenset({"a"}), 3.0)
    assert found.tolist() == pytest.approx([0.375, 0.375, 0.125, 0.125])


def peak_of(*looks, **params):
    peak, model = refine.Peak(refine.Params(training=training(), **params)), torch.nn.Linear(1, 1)
    ends = []
    for step, (recall, fake) in enumerate(looks):
        with torch.no_grad():
            model.weight.fill_(float(step))
        ends.append(peak.add(refine.Look(step, recall, fake), model))
    return peak, ends


def test_the_peak_of_discrimination_is_kept_and_training_ends_behind_it():
    peak, ends = peak_of((0.9, 0.4), (0.9, 0.2), (0.8, 0.15), (0.7, 0.05), (0.95, 0.1), patience=2)
    # 0.5, 0.7, 0.65, 0.65: two in a row below the best; the last would have been better and is not waited for.
    assert ends[:4] == [False, False, False, True]
    peak, ends = peak_of((0.9, 0.4), (0.9, 0.2), (0.8, 0.15), patience=2)
    assert peak.best.step == 1 and peak.weights["weight"].item() == 1.0 and not any(ends)


def test_a_world_model_that_turned_pessimistic_is_not_chosen():
    peak, _ = peak_of((0.9, 0.4), (0.7, 0.1), (0.85, 0.3), recall_floor=0.8)
    assert peak.best.step == 2
    alone, _ = peak_of((0.7, 0.4), (0.7, 0.1), recall_floor=0.8)
    assert alone.best.step == 0


def test_looks_come_when_the_trainer_reports():
    with pytest.raises(ValueError, match="watch_every = 30 is no multiple of 50"):
        refine.Params(training=training(), watch_every=30)


@pytest.mark.parametrize(("seen", "best"), [([(0.9, 0.4), (0.9, 0.2)], 6), ([(0.9, 0.4), (0.8, 0.4)], 0)])
def test_the_stage_keeps_the_better_of_before_and_after(tmp_path, data, monkeypatch, seen, best):  # noqa: F811
    base = pretrain(tmp_path, data)
    held_out = episodes(tmp_path / "held_out", rolled_out(HELD_OUT, 1.0, 0.5, interface=SEEN), SEEN)
    reward = publish(tmp_path / "reward", "reward_model", lambda folder: (folder / "empty").touch())
    monkeypatch.setattr(refine.judges, "load", lambda artifact, device: ToyReward(SEEN))
    real, answers, really = refine._Judge.look, iter(seen), []

    def look(judge, step):
        really.append(real(judge, step))
        return refine.Look(step, *next(answers))

    monkeypatch.setattr(refine._Judge, "look", look)
    made = run_stage(
        refine.refine_world_model, refine.Inputs(data, base, reward, held_out), refine.Params(training=training()),
        tmp_path / "refined", seed=0, parents=dict(dataset=data, world_model=base, reward=reward, held_out=held_out),
    )  # fmt: skip
    metrics = made.manifest.metrics
    assert metrics["best_step"] == best and metrics["steps"] == 6 and metrics["newest_states_once"] > 0
    assert metrics["discrimination_before"] == pytest.approx(0.5)
    assert all(0 <= each.recall <= 1 and 0 <= each.fake_success <= 1 for each in really) and len(really) == 2
    logged = [json.loads(line) for line in (made.path / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in logged] == [0, 6] and "world_model/recall" in logged[0]
    before, after = build.load(base).state_dict(), build.load(made).state_dict()
    same = all(torch.equal(weight, after[name]) for name, weight in before.items())
    assert same == (best == 0)


def test_states_with_mixed_outcomes_are_chosen_the_most_even_first(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    starts = [toy_state(column) for column in (0, 4, 9)]
    made = rolled_out([state for state in starts for _ in range(4)], 1.0, 0.6)
    won = {state.id: sum(bool(e.success[1:].any()) for e in made if e.start.id == state.id) for state in starts}
    assert 0 < won["dot-4-7"] < 4 and won["dot-0-7"] == 0  # what the toy's noise gives
    states = initial_states(tmp_path / "states", [0, 4, 9])
    source = episodes(tmp_path / "episodes", made)

    def chosen(out, **params):
        given = select.Inputs(states, source)
        parents = dict(states=states, episodes=source)
        return run_stage(select.select_states, given, select.Params(**params), tmp_path / out, seed=0, parents=parents)

    found, _ = read_states(chosen("mixed"))
    assert "dot-4-7" in [state.id for state in found] and "dot-0-7" not in [state.id for state in found]
    assert [state.id for state in read_states(chosen("lost", outcomes="all_failure"))[0]][0] == "dot-0-7"
    assert len(read_states(chosen("one", count=1))[0]) == 1


def test_states_are_put_in_order_by_the_length_of_their_successes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    # At full speed the dot reaches column 10 from 2, 4, 6 at frames 4, 3, 2; never from 0; column 3 was not recorded.
    states = initial_states(tmp_path / "states", [0, 2, 3, 4, 6])
    recorded = rolled_out([toy_state(column) for column in (0, 2, 4, 6, 6)], 1.0, 0.0)
    source = episodes(tmp_path / "episodes", recorded)
    assert read_episodes(source.path).first_success().tolist() == [0, 4, 3, 2, 2]
    made = run_stage(
        select.select_states, select.Inputs(states, source), select.Params(outcomes="any", order="length"),
        tmp_path / "ordered", seed=0, parents=dict(states=states, episodes=source),
    )  # fmt: skip
    assert [state.id for state in read_states(made)[0]] == [f"dot-{column}-7" for column in (6, 4, 2, 0, 3)]

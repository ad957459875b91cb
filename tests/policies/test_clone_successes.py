"""The stage that clones a policy's own successes."""

from __future__ import annotations

import pytest

from coevo.core.stage import run_stage
from coevo.policies import build
from coevo.policies.config import Cloning
from coevo.rollout import rollout
from tasks import clone_successes as stage
from tests.doubles import ToySimulator, toy_state
from tests.rl.examples import make_policy
from tests.toy_artifacts import episodes, publish, rolled_out

STATES = [toy_state(column, row) for column in range(6) for row in (4, 7, 10)]


def clone(tmp_path, *made, out="cloned"):
    policy = publish(tmp_path / "policy", "policy", lambda folder: build.save(make_policy(std=0.05), folder))
    sources = tuple(episodes(tmp_path / f"rollouts{number}", part) for number, part in enumerate(made))
    settings = stage.Params(cloning=Cloning(steps=150, batch=16, learning_rate=3e-3))
    parents = {"policy": policy} | {f"episodes.{number}": source for number, source in enumerate(sources)}
    return run_stage(
        stage.clone_successes, stage.Inputs(policy, sources), settings, tmp_path / out, seed=0, parents=parents
    )


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_what_won_is_done_again_and_what_lost_is_not(tmp_path):
    # At full speed the line is reached from columns 2 to 5; backwards it never is, and nothing of that is learned.
    made = clone(tmp_path, rolled_out(STATES, 1.0, 0.0), rolled_out(STATES, -1.0, 0.0))
    assert made.manifest.metrics["successes"] == 12
    assert set(made.manifest.states) == {state.id for state in STATES if state.simulator_state[0] >= 2}
    policy = build.load(made)
    found = rollout(ToySimulator(), policy, STATES, stream=(0,), source="simulator", sampling="greedy")
    assert (found.actions[..., 0] - 1.0).abs().max() < 0.2
    again = clone(tmp_path, rolled_out(STATES, 1.0, 0.0), rolled_out(STATES, -1.0, 0.0))
    assert again.manifest.sha256 == made.manifest.sha256


def test_rollouts_without_a_success_are_refused(tmp_path):
    with pytest.raises(ValueError, match="no success to clone in toy/rollouts0; collect more"):
        clone(tmp_path, rolled_out(STATES, 0.0, 0.0))

"""The stage that clones the expert."""

from __future__ import annotations

import pytest

from coevo.core.stage import run_stage
from coevo.policies import build
from coevo.policies.config import Cloning
from coevo.rollout import rollout
from tasks import pretrain_policy as stage
from tests.doubles import ToySimulator, toy_state
from tests.toy_artifacts import episodes, rolled_out

STATES = [toy_state(column, row) for column in range(6) for row in (4, 7, 10)]


def run(tmp_path, made, out="policy", **params):
    config = tmp_path / "small.yaml"
    config.write_text("kind: small\nchannels: [16, 16, 32, 64]\nwidth: 32\nhead: {kind: gaussian, std: 0.05}\n")
    source = episodes(tmp_path / "demonstrations", made)
    settings = stage.Params(**(dict(cloning=Cloning(steps=150, batch=16, learning_rate=3e-3)) | params))
    return run_stage(
        stage.pretrain_policy, stage.Inputs(source, config), settings, tmp_path / out, seed=0,
        parents={"demonstrations": source},
    )  # fmt: skip


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_a_cloned_policy_does_what_the_expert_did(tmp_path):
    made = run(tmp_path, rolled_out(STATES, 1.0, 0.0, "expert"))
    # At full speed the line is reached from columns 2 to 5: four of six.
    assert made.manifest.metrics == {"outcome": "cloned", "demonstrations": 12}
    assert set(made.manifest.states) == {state.id for state in STATES if state.simulator_state[0] >= 2}
    policy = build.load(made)
    assert policy.config.width == 32
    found = rollout(ToySimulator(), policy, STATES, stream=(0,), source="simulator", sampling="greedy")
    assert (found.actions[..., 0] - 1.0).abs().max() < 0.2 and found.actions[..., 1:3].abs().max() < 0.2
    assert run(tmp_path, rolled_out(STATES, 1.0, 0.0, "expert")).manifest.sha256 == made.manifest.sha256


def test_too_few_successes_are_counted(tmp_path):
    made = rolled_out(STATES, 1.0, 0.0, "expert")
    with pytest.raises(ValueError, match="toy/demonstrations holds 12 successful demonstrations, 13 are needed"):
        run(tmp_path, made, episodes=13)
    assert run(tmp_path, made, episodes=5).manifest.metrics["demonstrations"] == 5

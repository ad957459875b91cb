"""The stage that trains, calibrates and freezes a reward model."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import yaml

from coevo.core.stage import run_stage
from coevo.records.outcomes import Calibration
from coevo.rewards import build
from coevo.rewards.calibration import Quantile
from coevo.rewards.config import WindowTraining
from tasks import calibrate_reward as stage
from tests.doubles import TOY, toy_state
from tests.rewards.small_vlm import COMPLETION
from tests.rewards.test_rewards import TRAINING
from tests.toy_artifacts import episodes, rolled_out

STATES = [toy_state(column, row) for column in range(6) for row in range(2, 11)]


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "reward.yaml").write_text("kind: frame_classifier\nchannels: [16, 16, 32, 64]\n")


def run(tmp_path, sources, out="reward", config=True, reward=None, **params):
    inputs = stage.Inputs(tuple(sources), tmp_path / "reward.yaml" if config else None, reward)
    parents = {f"episodes.{number}": source for number, source in enumerate(sources)}
    params = stage.Params(training=TRAINING, **params)
    return run_stage(stage.calibrate_reward, inputs, params, tmp_path / out, seed=0, parents=parents)


def test_a_reward_is_calibrated_on_states_it_was_not_trained_on_and_frozen(tmp_path):
    source = episodes(tmp_path / "rollouts", rolled_out(STATES, 1.0, 0.0))
    made = run(tmp_path, [source])
    calibration = Calibration.model_validate_json((made.path / "calibration.json").read_bytes())
    held = [state.id for state in STATES if stage._held_out(state.id, 0, TRAINING.held_out)]
    assert 3 <= len(held) < 30 and calibration.n == len(held)
    assert calibration.balanced_accuracy > 0.8 and made.manifest.metrics["threshold"] == calibration.threshold
    assert made.manifest.states == tuple(sorted(state.id for state in STATES))
    measured = run(tmp_path, [source], "again", config=False, reward=made)
    again = Calibration.model_validate_json((measured.path / "calibration.json").read_bytes())
    assert again.n == len(STATES) and again.threshold == calibration.threshold
    assert again.weights_sha256 == calibration.weights_sha256  # the weights stay what they were, to the byte
    assert measured.manifest.states == ()
    assert build.load(measured).calibration == again


def test_a_reward_of_windows_goes_through_the_same_stage(tmp_path):
    (tmp_path / "reward.yaml").write_text(yaml.safe_dump(COMPLETION.model_dump(mode="json")))
    source = episodes(tmp_path / "rollouts", rolled_out(STATES, 1.0, 0.0))
    made = run(tmp_path, [source], windows=WindowTraining(steps=40, batch=16))
    calibration = Calibration.model_validate_json((made.path / "calibration.json").read_bytes())
    assert calibration.window == calibration.frames_read == 2 and calibration.fps == TOY.fps
    assert (calibration.threshold, calibration.threshold_from) == (0.5, "given")  # the configuration's eta
    levels = json.loads((made.path / "sweep.json").read_text())
    assert [row["threshold"] for row in levels] == [0.2, 0.3, 0.4, 0.5, 0.6, 0.5]
    assert set(levels[0]) >= {"accuracy", "precision", "recall", "f1"}
    moved = run(tmp_path, [source], "moved", config=False, reward=made, threshold=Quantile(rate=0.5))
    again = Calibration.model_validate_json((moved.path / "calibration.json").read_bytes())
    assert again.weights_sha256 == calibration.weights_sha256 and again.threshold_from == "quantile"
    assert again.trigger_rate == pytest.approx(0.5, abs=0.02)


def test_more_data_never_moves_a_state_across():
    sides = {state.id: stage._held_out(state.id, 0, 0.5) for state in STATES}
    assert 0.3 < sum(sides.values()) / len(sides) < 0.7
    assert sides == {state.id: stage._held_out(state.id, 0, 0.5) for state in reversed(STATES)}


def test_what_cannot_be_calibrated_is_refused(tmp_path):
    source = episodes(tmp_path / "rollouts", rolled_out(STATES, 1.0, 0.0))
    with pytest.raises(ValueError, match="give either --config .* or --reward"):
        run(tmp_path, [source], config=False)
    with pytest.raises(ValueError, match="no episodes were given"):
        run(tmp_path, [])
    lost = episodes(tmp_path / "lost", rolled_out(STATES, 0.0, 0.0))
    with pytest.raises(ValueError, match="a reward model needs all three"):
        run(tmp_path, [lost])
    faster = TOY.model_copy(update={"control_hz": 4.0})
    states = [toy_state(column, interface=faster) for column in range(6)]
    other = episodes(tmp_path / "other", rolled_out(states, 1.0, 0.0, interface=faster), faster)
    with pytest.raises(ValueError, match="toy/rollouts and toy/other.*\n.*control_hz"):
        run(tmp_path, [source, other])


def test_dreamed_episodes_are_refused_since_nobody_knows_how_they_ended(tmp_path):
    dreamed = [replace(episode, success=None, progress=None) for episode in rolled_out(STATES[:2], 1.0, 0.0)]
    source = episodes(tmp_path / "dreams", [*rolled_out(STATES[2:4], 1.0, 0.0), *dreamed])
    with pytest.raises(ValueError, match="2 of the 4 episodes in toy/dreams were dreamed or imported"):
        run(tmp_path, [source])

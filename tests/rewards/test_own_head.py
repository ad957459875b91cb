"""A world model's own head as a reward model, from its calibration to its use in a dream."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch

from coevo import judges
from coevo.core import models
from coevo.core.artifacts import file_sha256
from coevo.core.judging import judge
from coevo.core.protocols import EpisodeReader
from coevo.core.stage import run_stage
from coevo.core.types import take_rows
from coevo.records.outcomes import Calibration
from coevo.rewards import build as rewards
from coevo.rewards.config import WorldModelHeadConfig
from coevo.rollout import rollout
from coevo.workers.dreams import Dreamers, Models
from coevo.worlds import build as worlds
from coevo.worlds.config import RewardHeadConfig
from coevo.worlds.dream import Dream
from tasks import calibrate_reward as stage
from tests.doubles import ToyPolicy, ToyReward, ToySimulator, toy_state
from tests.toy_artifacts import episodes, publish, rolled_out
from tests.worlds.examples import SEEN, make_model, randomised

STATES = [toy_state(column, row, SEEN) for column in range(6) for row in (3, 6, 9)]
TRAINED_ON = [state.id for state in STATES[:6]]


def world_model(path, seed: int = 0, states=TRAINED_ON, **choices):
    model = randomised(make_model(seed, reward_head=RewardHeadConfig(hidden=8), **choices), seed)
    return publish(path, "world_model", lambda folder: worlds.save(model, folder), states)


@pytest.fixture
def source(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "head.yaml").write_text("kind: world_model_head\n")
    return episodes(tmp_path / "rollouts", rolled_out(STATES, 0.7, 0.4, interface=SEEN), SEEN)


def calibrate(tmp_path, source, world=None, reward=None, out="reward"):
    config = None if reward is not None else tmp_path / "head.yaml"
    inputs = stage.Inputs((source,), config, reward, world)
    given = {"episodes.0": source, "world_model": world, "reward": reward}
    parents = {role: artifact for role, artifact in given.items() if artifact is not None}
    return run_stage(stage.calibrate_reward, inputs, stage.Params(), tmp_path / out, seed=0, parents=parents)


def test_it_is_calibrated_where_its_world_model_was_not_trained_and_holds_what_it_needs(tmp_path, source):
    world = world_model(tmp_path / "world")
    made = calibrate(tmp_path, source, world)
    assert made.manifest.parents["world_model"].sha256 == world.manifest.sha256
    assert made.manifest.states == tuple(sorted(state.id for state in STATES[6:]))
    calibration = Calibration.model_validate_json((made.path / "calibration.json").read_bytes())
    assert calibration.n == 12 and calibration.window == 1 + 2 + 2 == calibration.frames_read
    assert calibration.weights_sha256 == file_sha256(world.path / models.WEIGHTS)
    origin = json.loads((made.path / judges.ORIGIN).read_text())
    assert (origin["id"], origin["sha256"]) == ("toy/world", world.manifest.sha256)
    for file in world.path.iterdir():
        file.unlink()
    reward = judges.load(made)
    assert isinstance(reward, EpisodeReader) and reward.calibration == calibration
    again = calibrate(tmp_path, source, reward=made, out="again")
    measured = Calibration.model_validate_json((again.path / "calibration.json").read_bytes())
    assert measured.n == len(STATES) and measured.threshold == calibration.threshold
    assert measured.weights_sha256 == calibration.weights_sha256


def test_what_is_asked_wrongly_is_refused(tmp_path, source):
    with pytest.raises(ValueError, match="give that world model with --world-model"):
        calibrate(tmp_path, source)
    with pytest.raises(ValueError, match="toy/all was trained on all 18 initial states"):
        calibrate(tmp_path, source, world_model(tmp_path / "all", states=[state.id for state in STATES]))
    bare = publish(tmp_path / "bare", "world_model", lambda folder: worlds.save(make_model(), folder))
    with pytest.raises(ValueError, match="toy/bare has no reward head"):
        calibrate(tmp_path, source, bare)
    with pytest.raises(ValueError, match="coevo.judges"):
        rewards.build(WorldModelHeadConfig(), SEEN, 0)


def test_a_dream_of_another_world_model_is_refused(tmp_path, source):
    world, other = world_model(tmp_path / "world"), world_model(tmp_path / "other", seed=1)
    reward = judges.load(calibrate(tmp_path, source, world))
    judges.require_own(reward, world)
    judges.require_own(ToyReward(SEEN), other)  # a reader of frames reads anybody's
    with pytest.raises(ValueError, match="is the head of toy/world .*, and toy/other .* would draw"):
        judges.require_own(reward, other)


def test_in_a_dream_it_says_what_the_world_model_said_and_elsewhere_it_reads(tmp_path, source):
    world = world_model(tmp_path / "world")
    reward = judges.load(calibrate(tmp_path, source, world))
    policy, roll = ToyPolicy(spread=0.3, interface=SEEN), dict(stream=(0,), source="dream")
    dreamed = rollout(Dream(worlds.load(world)), policy, STATES[:4], **roll)
    own = judge(reward, dreamed.seen)
    assert torch.equal(own.probability[:, 1:], dreamed.probability) and not own.probability[:, 0].any()
    assert own.threshold == reward.calibration.threshold_as_probability
    read = judge(reward, replace(dreamed.seen, probability=None))
    assert read.probability.shape == (4, 5) and not torch.equal(read.probability, own.probability)
    alone = judge(reward, take_rows(replace(dreamed.seen, probability=None), [2]))
    torch.testing.assert_close(alone.probability[0], read.probability[2])
    recorded = rollout(ToySimulator(SEEN), policy, STATES[:4], **roll)
    assert not torch.equal(judge(reward, recorded.seen).probability, read.probability)
    assert judge(ToyReward(SEEN), recorded.seen).success.shape == (4,)


@pytest.mark.parametrize("end_at_success", [True, False])
def test_training_is_judged_by_it(tmp_path, source, end_at_success):
    world = world_model(tmp_path / "world")
    reward = judges.load(calibrate(tmp_path, source, world))
    together = Models(ToyPolicy(spread=0.3, interface=SEEN), Dream(worlds.load(world)), reward)
    together.policy.parameters = lambda: iter([torch.zeros(1)])
    with Dreamers(together, (), 0, None, end_at_success) as dreamers:
        made, verdicts = dreamers.roll(STATES[:6], (0, "train"))
    assert verdicts.reward_model == reward.id and made.probability.shape == (6, 4)
    assert torch.equal(verdicts.probability[:, 1:], made.probability)


def test_whole_chunks_are_read(tmp_path, source):
    reward = judges.load(calibrate(tmp_path, source, world_model(tmp_path / "world")))
    made = rollout(ToySimulator(SEEN), ToyPolicy(interface=SEEN), STATES[:1], stream=(0,), source="simulator").seen
    short = replace(made, frames=made.frames[:, :4], actions=made.actions[:, :6])
    with pytest.raises(ValueError, match="3 frames after the first are no whole number of the 2 frames of a chunk"):
        judge(reward, short)

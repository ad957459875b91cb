"""Reward models of windows: trained until they answer better than chance, frozen, and read while an episode goes on."""

from __future__ import annotations

import math

import pytest
import torch

from coevo.core import artifacts
from coevo.core.protocols import RewardModel
from coevo.rewards import build, fitting, tiny
from coevo.rewards.calibration import Given, calibrate
from coevo.rewards.config import DenseProgressConfig, TopRewardConfig, WindowTraining
from coevo.rewards.ending import FirstSuccess, FrameReader, HistoryReader
from coevo.rewards.vlm_config import PretrainedVlm
from coevo.rollout import rollout
from tests.doubles import TOY, ToyDream, ToyPolicy, toy_state
from tests.rewards.small_vlm import ASK, COMPLETION, PROGRESS, TINY, TOPREWARD
from tests.rewards.test_rewards import episodes, publish

# Steps, learning rate, and balanced accuracy on other episodes. A dot at 9.6 is drawn where one at 10 is, so no reader
# of pixels is right about all; the last one has nothing but a head on features of random weights.
LEARNING = {"topreward": (100, 3e-3, 0.75), "dense_progress": (200, 1e-3, 0.75), "completion": (800, 3e-3, 0.65)}


def fit(config, steps: int, learning_rate: float = 1e-3):
    made, model = episodes(count=12), build.build(config, TOY, 0)
    training, losses = WindowTraining(steps=steps, batch=32, learning_rate=learning_rate), []
    fitting.fit(
        model, training, made.frames, made.truth.success, made.truth.progress, [TOY.instruction] * len(made), 0,
        lambda step, loss: losses.append(loss),
    )  # fmt: skip
    return model, losses


@pytest.fixture(scope="module", params=[TOPREWARD, PROGRESS, COMPLETION], ids=lambda config: config.kind)
def fitted(request):
    return fit(request.param, *LEARNING[request.param.kind][:2])


def judged(model, seed: int = 1):
    made = episodes(seed)
    truth = made.truth.success[:, TOY.success_from - 1 :].any(dim=1)
    readings = model.probabilities(made.frames)[:, TOY.success_from :]
    return made, truth, readings


def save(model, out, choice=None):
    with artifacts.writing(out) as folder:
        weights = build.save_weights(model, folder)
        made, truth, readings = judged(model)
        calibration = calibrate(readings.amax(1), truth, TOY, weights, model.looked(), choice, readings.flatten())
        (folder / "calibration.json").write_text(calibration.model_dump_json())
        return publish(folder, out), made, truth


def test_it_answers_better_than_chance_on_episodes_it_has_not_seen(fitted):
    model, _ = fitted
    _, truth, readings = judged(model)
    assert 0.1 < truth.float().mean() < 0.9
    found = calibrate(readings.amax(dim=1), truth, TOY, "", model.looked())
    assert found.balanced_accuracy > LEARNING[model.config.kind][2]
    assert found.frames_read == found.window == model.config.window


def test_it_is_saved_and_loaded_frozen_with_the_same_readings(fitted, tmp_path):
    model, _ = fitted
    artifact, made, truth = save(model, tmp_path / "reward")
    loaded = build.load(artifact)
    assert isinstance(loaded, RewardModel) and not any(weight.requires_grad for weight in loaded.parameters())
    verdicts = loaded.verdicts(made.frames, [TOY.instruction] * len(made))
    assert torch.allclose(verdicts.probability, model.probabilities(made.frames), atol=1e-5)
    told = verdicts.success == truth
    assert (told[truth].float().mean() + told[~truth].float().mean()) / 2 > LEARNING[model.config.kind][2]
    assert loaded.calibration.unit == ("progress" if model.config.kind == "dense_progress" else "probability")
    assert loaded.calibration.token == (" True" if model.config.kind == "topreward" else None)


def test_an_episode_is_read_as_it_goes_on_as_it_is_read_whole(fitted, tmp_path):
    reward = build.load(save(fitted[0], tmp_path / "reward")[0])
    assert isinstance(reward, FrameReader) and isinstance(reward, HistoryReader)
    starts, roll = [toy_state(column) for column in (0, 3, 9, 12)], dict(stream=(0,), source="dream")
    monitor = FirstSuccess(reward)
    ended = rollout(ToyDream(), ToyPolicy(), starts, monitor=monitor, **roll)
    whole = reward.verdicts(rollout(ToyDream(), ToyPolicy(), starts, **roll).frames, [TOY.instruction] * 4)
    found = monitor.verdicts()
    assert found.success.tolist() == whole.success.tolist() and found.threshold == whole.threshold
    assert found.first_success.tolist() == whole.first_success.tolist()
    done = whole.first_success < TOY.frames + 1
    assert ended.length[done].tolist() == (whole.first_success[done] / TOY.chunk_frames).ceil().int().tolist()


def test_fitting_again_gives_the_same_weights():
    (first, losses), (again, repeated) = fit(PROGRESS, 3), fit(PROGRESS, 3)
    assert losses == repeated
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), again.parameters(), strict=True))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("vlm") / "vlm"
    tiny.write(path, TINY)
    return path


def test_a_pretrained_reward_is_training_free_and_holds_no_weights(folder, tmp_path):
    pretrained = PretrainedVlm(model=str(folder), dtype="float32")
    model, losses = fit(TopRewardConfig(vlm=pretrained, prompt=ASK, window=2), 3)
    assert losses == [] and model.kept() == {}
    artifact, made, _ = save(model, tmp_path / "reward", Given(value=0.46))
    loaded = build.load(artifact)
    assert loaded.calibration.threshold == 0.46 and loaded.calibration.threshold_from == "given"
    assert loaded.config.vlm.revision.startswith("sha256:")
    assert torch.equal(loaded.probabilities(made.frames), model.probabilities(made.frames))
    before = model.reader.model.lm_head.weight.clone()
    assert torch.equal(before, loaded.reader.model.lm_head.weight)


def test_adapters_and_head_alone_are_kept_of_a_pretrained_model(folder):
    pretrained = PretrainedVlm(model=str(folder), dtype="float32")
    model = build.build(DenseProgressConfig(vlm=pretrained, prompt=ASK, window=2, rank=4, hidden=8), TOY, 0)
    kept = model.kept()
    assert kept and all("lora_" in name or name.startswith("head.") for name in kept)
    assert {name for name, weight in model.named_parameters() if weight.requires_grad} == set(kept)
    with pytest.raises(ValueError, match="weights do not fit, missing \\['head.0.bias'\\]"):
        model.load_kept({name: weight for name, weight in kept.items() if name != "head.0.bias"})


def test_a_frozen_model_is_not_trained_with_its_head():
    model = build.build(COMPLETION, TOY, 0)
    trained = {name for name, weight in model.named_parameters() if weight.requires_grad}
    assert trained and all(name.startswith("head.") for name in trained)


def test_the_probability_is_the_tokens_share_of_the_whole_vocabulary():
    model = build.build(TOPREWARD, TOY, 0)
    taken = torch.randn(1, 2, 32)
    logits = model.reader.model.lm_head(taken)[0, 0].tolist()
    token = model.reader.token_id(" True")
    share = math.exp(logits[token]) / sum(math.exp(value) for value in logits)
    assert model.readings(taken)[0, 0].item() == pytest.approx(share, abs=1e-6)


def test_what_has_succeeded_is_at_ten_whatever_its_nearness():
    model = build.build(PROGRESS, TOY, 0)
    model.progress = lambda taken: torch.tensor([10.0, 4.0])
    loss = model.loss(torch.zeros(2, 32), torch.tensor([True, False]), torch.tensor([0.9, 0.5]))
    assert loss.item() == pytest.approx(0.1**2 / 2)


def test_without_a_calibration_there_is_no_verdict():
    with pytest.raises(ValueError, match="no calibration yet"):
        build.build(TOPREWARD, TOY, 0).verdicts(torch.zeros(1, 5, 16, 16, 3).byte(), ["go"])

"""Reward models: the reading, its threshold, and that they stay what was calibrated."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import pytest
import torch

from coevo.core import artifacts
from coevo.core.protocols import RewardModel
from coevo.rewards import build, classifier
from coevo.rewards.calibration import (
    Given,
    Looked,
    Quantile,
    calibrate,
    measure,
    quantile_threshold,
    sweep,
    value_order,
)
from coevo.rewards.classifier import read_peak
from coevo.rewards.config import ClassifierTraining, FrameClassifierConfig, ResNetConfig
from coevo.rollout import rollout
from tests.doubles import TOY, ToyPolicy, ToyReward, ToySimulator, toy_state

CONFIG = FrameClassifierConfig(channels=(16, 16, 32, 64))
TRAINING = ClassifierTraining(steps=120, positives=24, late_negatives=24, any_negatives=8, learning_rate=3e-3)


def episodes(seed: int = 0, count: int = 8):
    starts = [toy_state(column, row) for column in (0, 1, 2, 3, 4, 5) for row in range(2, 2 + count)]
    return rollout(
        ToySimulator(), ToyPolicy(speed=0.7, spread=0.4), starts, stream=(seed, "reward"), source="simulator"
    )


def publish(folder, out):
    return artifacts.publish(
        folder, out, kind="reward_model", id="x/reward", stage="tests", parents={}, config={}, seed=0,
        source_sha256="", metrics={}, states=(),
    )  # fmt: skip


def test_a_peak_is_read_from_the_frame_where_success_counts():
    probability = torch.tensor([
        [0.9, 0.9, 0.2, 0.1, 0.1],  # high only before frame 2: a reset that looks like success
        [0.0, 0.1, 0.5, 0.4, 0.9],  # reaches 0.5 at frame 2
        [0.0, 0.1, 0.2, 0.49, 0.7],
    ])
    kept = probability.clone()
    read = read_peak(probability, 0.5, 2, "reward")
    assert read.success.tolist() == [False, True, True]
    assert read.first_success.tolist() == [5, 2, 4]  # frames + 1 = 5 where there is none
    assert torch.equal(probability, kept) and read.threshold == 0.5 and read.reward_model == "reward"


def test_calibration_takes_the_upper_part_of_the_best_thresholds():
    """Failures reach 0.2 and successes 0.6: all of 0.21 ... 0.60 separate them, three quarters up is 0.51."""
    peak, truth = torch.tensor([0.1, 0.2, 0.6, 0.9]), torch.tensor([False, False, True, True])
    found = calibrate(peak, truth, TOY, "hash")
    assert found.threshold == pytest.approx(0.51, abs=0.011)
    assert (found.precision, found.recall, found.false_positive_rate, found.balanced_accuracy) == (1, 1, 0, 1)
    assert found.frames_given == found.frames_read == 3  # frames 2, 3, 4 of an episode
    assert found.n == 4 and found.fps == 4.0 and found.weights_sha256 == "hash"


def test_measuring_counts_by_hand():
    peak = torch.tensor([0.9, 0.8, 0.3, 0.7, 0.1])
    truth = torch.tensor([True, True, True, False, False])
    found = measure(peak, truth, TOY, 0.5, "hash")
    assert found.precision == pytest.approx(2 / 3) and found.recall == pytest.approx(2 / 3)
    assert found.false_positive_rate == 0.5 and found.balanced_accuracy == pytest.approx((2 / 3 + 0.5) / 2)
    assert measure(peak, truth, TOY, 0.95, "hash").precision == 0


def test_a_sweep_counts_at_each_threshold_by_hand():
    peak = torch.tensor([0.9, 0.8, 0.3, 0.7, 0.1])
    truth = torch.tensor([True, True, True, False, False])
    low, high = sweep(peak, truth, (0.5, 0.95))
    assert (low["accuracy"], low["precision"], low["recall"]) == pytest.approx((3 / 5, 2 / 3, 2 / 3))
    assert low["f1"] == pytest.approx(2 / 3) and low["false_positive_rate"] == 0.5
    assert (high["accuracy"], high["precision"], high["recall"], high["f1"]) == pytest.approx((2 / 5, 0, 0, 0))


def test_readings_that_rise_with_time_are_in_order():
    assert value_order(torch.tensor([[0.1, 0.2, 0.9]])) == 1.0
    assert value_order(torch.tensor([[0.1, 0.2, 0.9], [0.9, 0.2, 0.1], [0.5, 0.5, 0.5], [0.1, 0.3, 0.2]])) == (
        pytest.approx((1 - 1 + 0 + 0.5) / 4)
    )


def test_a_threshold_moves_to_another_task_by_the_share_that_reaches_it():
    """0.46 is reached by 2 of 8 readings there; here 2 of 8 reach 0.3, and no outcome was looked at."""
    there = torch.tensor([0.1, 0.2, 0.46, 0.9, 0.0, 0.3, 0.4, 0.1])
    here = torch.tensor([0.1, 0.05, 0.3, 0.8, 0.0, 0.1, 0.2, 0.15])
    truth = torch.tensor([False, False, True, True, False, False, False, False])
    first = calibrate(there, truth, TOY, "", choice=Given(value=0.46), readings=there)
    assert (first.trigger_rate, first.threshold_from) == (0.25, "given")
    moved = calibrate(here, truth, TOY, "", choice=Quantile(rate=first.trigger_rate), readings=here)
    assert moved.threshold == pytest.approx(0.3) and moved.trigger_rate == 0.25
    assert moved.threshold_from == "quantile" and moved.recall == 1.0
    assert quantile_threshold(here, 0.01) == pytest.approx(0.8)  # one reading at the least


@pytest.mark.parametrize("unit, stored", [("probability", 0.5), ("log_probability", math.log(0.5)), ("progress", 5.0)])
def test_a_threshold_is_stored_in_its_unit_and_read_on_one_scale(unit, stored):
    peak, truth = torch.tensor([0.2, 0.49, 0.5, 0.9]), torch.tensor([False, False, True, True])
    looked = Looked(16, 16, 4.0, window=16, token=" True", unit=unit)
    found = calibrate(peak, truth, TOY, "", looked, Given(value=stored))
    assert found.threshold_as_probability == pytest.approx(0.5) and found.threshold == stored and found.recall == 1.0
    assert (found.unit, found.token, found.window, found.frames_read) == (unit, " True", 16, 16)


def test_a_reading_that_saw_fewer_frames_than_it_was_given_is_refused():
    peak, truth = torch.tensor([0.2, 0.9]), torch.tensor([False, True])
    with pytest.raises(ValueError, match="16 frames were given for a verdict and 4 were read"):
        measure(peak, truth, TOY, 0.46, "", Looked(16, 4, 2.0, window=16))


def test_the_shipped_reward_reads_what_it_always_read():
    """Its frames are noise, so its readings are small; the numbers are those of the first version of this class."""
    model = build.load(artifacts.read(Path(__file__).parents[2] / "weights/reward"))
    number = torch.arange(2 * 21 * 64 * 64 * 3)
    noise = (number * 2654435761 % 4294967291 // 65536 % 256).view(42, 64, 64, 3).permute(0, 3, 1, 2).float()
    frames = torch.nn.functional.avg_pool2d(noise, 9, 1, 4).permute(0, 2, 3, 1).round().byte().view(2, 21, 64, 64, 3)
    frames[1, :, 20:30, 20:30, 1] = 255
    read = model.verdicts(frames, ["", ""])
    assert read.probability[0, ::5].tolist() == pytest.approx([0.0359, 0.0302, 0.0186, 0.0206, 0.0623], abs=6e-5)
    assert read.probability[1, ::5].tolist() == pytest.approx([0.0043, 0.0048, 0.0049, 0.0045, 0.0045], abs=6e-5)
    assert read.threshold == 0.7 and model.calibration.n == 1453 and model.calibration.threshold_from == "fitted"
    assert read.first_success.tolist() == [21, 21]


@pytest.mark.parametrize("outcome", [True, False])
def test_episodes_of_one_outcome_calibrate_nothing(outcome):
    peak, truth = torch.rand(3), torch.full((3,), outcome)
    for judge in (lambda: calibrate(peak, truth, TOY, ""), lambda: measure(peak, truth, TOY, 0.5, "")):
        with pytest.raises(ValueError, match=f"of 3 episodes {3 * outcome} succeeded.*both outcomes"):
            judge()


@pytest.mark.parametrize("labels", [torch.zeros(2, 4), torch.ones(2, 4), torch.tensor([[0.0, 1, 1, 1]] * 2)])
def test_a_classifier_without_frames_of_every_sort_is_refused(labels):
    model = build.build(CONFIG, TOY, 0)
    with pytest.raises(ValueError, match="a reward model needs all three"):
        classifier.fit(model, TRAINING, torch.zeros(2, 5, 16, 16, 3).byte(), labels.bool(), 0, print)


@pytest.fixture(scope="module")
def fitted():
    made = episodes()
    model = build.build(CONFIG, TOY, 0)
    losses = []
    classifier.fit(model, TRAINING, made.frames, made.truth.success, 0, lambda step, loss: losses.append(loss))
    return model, losses


def test_a_fitted_classifier_tells_the_dot_at_the_line(fitted):
    model, losses = fitted
    assert losses[-1] < 0.3 * losses[0] or losses[-1] < 0.05
    fresh = episodes(seed=1)
    truth = fresh.truth.success[:, TOY.success_from - 1 :].any(dim=1)
    assert 0.1 < truth.float().mean() < 0.9
    peak = model.probabilities(fresh.frames)[:, TOY.success_from :].amax(dim=1)
    # A dot at 9.6 is drawn where one at 10 is, and has not arrived: no reader of pixels is right about all.
    assert calibrate(peak, truth, TOY, "").balanced_accuracy > 0.85


def test_fitting_again_gives_the_same_weights(fitted):
    made, model = episodes(), build.build(CONFIG, TOY, 0)
    classifier.fit(model, TRAINING, made.frames, made.truth.success, 0, lambda *line: None)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), fitted[0].parameters(), strict=True))


def test_a_resnet_takes_the_place_of_the_convolutions(tmp_path):
    made, losses = episodes(), []
    model = build.build(ResNetConfig(stem=8, widths=(8, 16), depths=(1, 1)), TOY, 0)
    classifier.fit(model, TRAINING, made.frames, made.truth.success, 0, lambda step, loss: losses.append(loss))
    assert losses[-1] < 0.5 * losses[0]
    artifact, made, truth = save(model, tmp_path)
    loaded = build.load(artifact)
    assert (loaded.verdicts(made.frames, [""] * len(made)).success == truth).float().mean() > 0.85
    assert torch.equal(loaded.probabilities(made.frames), model.probabilities(made.frames))


def test_a_kind_that_does_not_exist_is_refused_with_the_nearest():
    with pytest.raises(ValueError, match="no reward model of kind 'top_reward'; did you mean 'topreward'"):
        build.read_config({"kind": "top_reward"}, "here.yaml")
    with pytest.raises(ValueError, match="frames in pairs, give an even number"):
        build.read_config({"kind": "topreward", "window": 15}, "here.yaml")
    with pytest.raises(ValueError, match="every task would be judged alike"):
        build.read_config({"kind": "topreward", "prompt": {"after": "Done?"}}, "here.yaml")


def test_no_verdict_without_a_calibration():
    model = build.build(CONFIG, TOY, 0)
    assert isinstance(model, RewardModel) and isinstance(ToyReward(), RewardModel)
    with pytest.raises(ValueError, match="no calibration yet"):
        model.verdicts(torch.zeros(1, 5, 16, 16, 3).byte(), ["go"])


def save(model, tmp_path):
    made = episodes(seed=2)
    truth = made.truth.success[:, TOY.success_from - 1 :].any(dim=1)
    out = tmp_path / "reward"
    with artifacts.writing(out) as folder:
        weights = build.save_weights(model, folder)
        peak = model.probabilities(made.frames)[:, TOY.success_from :].amax(dim=1)
        calibration = calibrate(peak, truth, TOY, weights)
        (folder / "calibration.json").write_text(calibration.model_dump_json())
        return publish(folder, out), made, truth


def test_a_loaded_reward_model_is_frozen_and_judges_as_it_was_calibrated(fitted, tmp_path):
    artifact, made, truth = save(fitted[0], tmp_path)
    model = build.load(artifact)
    assert not any(weight.requires_grad for weight in model.parameters())
    verdicts = model.verdicts(made.frames, ["go"] * len(made))
    assert (verdicts.success == truth).float().mean() > 0.85
    assert verdicts.threshold == model.calibration.threshold and verdicts.reward_model == "x/reward"
    (tmp_path / "again").mkdir()
    assert build.save_weights(model, tmp_path / "again") == model.calibration.weights_sha256


def test_weights_that_were_not_calibrated_are_refused(fitted, tmp_path):
    artifact, *_ = save(fitted[0], tmp_path)
    out = tmp_path / "swapped"
    with artifacts.writing(out) as folder:
        for entry in artifact.manifest.files:
            shutil.copyfile(artifact.path / entry.path, folder / entry.path)
        build.save_weights(build.build(CONFIG, TOY, 9), folder)
        assert json.loads((folder / "calibration.json").read_text())["weights_sha256"]
        swapped = publish(folder, out)
    with pytest.raises(ValueError, match="x/reward was calibrated with other weights"):
        build.load(swapped)

"""The stages that train world models."""

from __future__ import annotations

import json

import pytest
import torch

from coevo.core import artifacts
from coevo.core.stage import run_stage
from coevo.episodes.dataset import write_dataset
from coevo.episodes.mixture import Mixture
from coevo.worlds import build
from coevo.worlds.training import WorldTrainer
from tasks import pretrain_world_model, train_world_model
from tests.doubles import toy_state
from tests.toy_artifacts import episodes, publish, rolled_out
from tests.worlds.examples import SEEN, training

CONFIG = """
transformer: {kind: new, layers: 1, heads: 2, head_dim: 16, ffn_dim: 32, patch: 2, text_dim: 8}
codec: {kind: conv, channels: 8, width: 8, steps: 5, batch: 8}
"""
STATES = [toy_state(column, row, SEEN) for column in range(6) for row in (4, 7, 10)]


@pytest.fixture
def data(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "world.yaml").write_text(CONFIG)
    source = episodes(tmp_path / "rollouts", rolled_out(STATES, 0.7, 0.4, interface=SEEN), SEEN)
    mixture = Mixture(mixture={"rollout": 1.0}, validation_share=0.2)
    return publish(tmp_path / "dataset", "dataset", lambda folder: write_dataset(folder, [source], mixture))


def pretrain(tmp_path, data, out="base", **more):
    inputs = pretrain_world_model.Inputs(data, tmp_path / "world.yaml", more.pop("codec", None))
    params = pretrain_world_model.Params(training=training(), **more)
    return run_stage(
        pretrain_world_model.pretrain_world_model, inputs, params, tmp_path / out, seed=0, parents={"dataset": data}
    )


def fine_tune(tmp_path, data, base, out="tuned"):
    return run_stage(
        train_world_model.train_world_model, train_world_model.Inputs(data, base),
        train_world_model.Params(training=training()), tmp_path / out, seed=0,
        parents={"dataset": data, "world_model": base},
    )  # fmt: skip


def test_a_base_is_trained_with_its_codec_and_tuned_without(tmp_path, data):
    base = pretrain(tmp_path, data)
    logged = [json.loads(line) for line in (base.path / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in logged] == [5, 6] and {"codec/loss"} < {key for line in logged for key in line}
    assert set(base.manifest.states) < {state.id for state in STATES}  # the validation side was not seen
    tuned = fine_tune(tmp_path, data, base)
    first, second = build.load(base), build.load(tuned)
    for name, weight in first.codec.state_dict().items():
        assert torch.equal(weight, second.codec.state_dict()[name])
    assert not torch.equal(first.net.transformer.proj_out.weight, second.net.transformer.proj_out.weight)
    shared = pretrain(tmp_path, data, "shared", codec=tuned, half_precision=True)
    assert torch.allclose(build.load(shared).codec.mean, first.codec.mean, atol=1e-2)
    small, large = (made.path / "weights.safetensors" for made in (shared, base))
    assert small.stat().st_size < 0.6 * large.stat().st_size


def test_a_killed_stage_goes_on_to_the_same_hash(tmp_path, data, monkeypatch):
    base = pretrain(tmp_path, data)
    whole = fine_tune(tmp_path, data, base)
    inner, steps = WorldTrainer._advance, []

    def advance(trainer):
        steps.append(trainer.step)
        if len(steps) == 5:
            raise KeyboardInterrupt
        return inner(trainer)

    monkeypatch.setattr(WorldTrainer, "_advance", advance)
    with pytest.raises(KeyboardInterrupt):
        fine_tune(tmp_path, data, base)
    assert artifacts.read(tmp_path / "tuned").manifest == whole.manifest  # what stood there still stands
    assert fine_tune(tmp_path, data, base).manifest.sha256 == whole.manifest.sha256
    assert steps == [0, 1, 2, 3, 4, 3, 4, 5]  # killed before its fifth step, taken up at the checkpoint after three


def test_data_of_another_interface_is_refused(tmp_path, data):
    base = pretrain(tmp_path, data)
    other = SEEN.model_copy(update={"control_hz": 4.0})
    states = [toy_state(column, interface=other) for column in range(6)]
    source = episodes(tmp_path / "others", rolled_out(states, 0.7, 0.4, interface=other), other)
    mixture = Mixture(mixture={"rollout": 1.0}, validation_share=0.0)
    wrong = publish(tmp_path / "wrong", "dataset", lambda folder: write_dataset(folder, [source], mixture))
    with pytest.raises(ValueError, match="toy/wrong.*\n.*control_hz"):
        fine_tune(tmp_path, wrong, base)

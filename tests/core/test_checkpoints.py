"""Checkpoints of training loops: a stopped one goes on to the same weights and the same log, in every room."""

from __future__ import annotations

import pytest
import torch

from coevo.core import random
from coevo.core.checkpoints import Checkpoint
from coevo.policies import build as policies
from coevo.policies import cloning
from coevo.policies.config import Cloning, FixedGaussian, SmallPolicyConfig
from coevo.rewards import build as rewards
from coevo.rewards import classifier
from coevo.rewards.config import ClassifierTraining, FrameClassifierConfig
from coevo.worlds.codec_training import train_codec
from coevo.worlds.codecs import ConvAutoencoder
from coevo.worlds.config import ConvCodec
from tests.doubles import TOY

CODEC = ConvCodec(channels=4, width=8, steps=120, batch=4)
REWARD = ClassifierTraining(steps=120, positives=4, late_negatives=4, any_negatives=2)
POLICY = SmallPolicyConfig(channels=(8, 8, 8, 8), width=16, head=FixedGaussian(std=0.05))


class Stopped(Exception):
    """In place of a kill."""


def clone(seed, report, checkpoint):
    source = random.generator(0, "rows")
    model = policies.build(POLICY, TOY, seed)
    rows = dict(
        frames=torch.randint(0, 256, (12, 16, 16, 3), generator=source, dtype=torch.uint8),
        proprio=torch.rand(12, 5, generator=source), words=torch.zeros(12, 8, dtype=torch.int64),
        label=torch.rand(12, TOY.chunk, 4, generator=source),
    )  # fmt: skip
    cloning.clone(model, Cloning(steps=220, batch=4), **rows, seed=0, report=report, checkpoint=checkpoint)
    return model


def train_reward(seed, report, checkpoint):
    source = random.generator(0, "rows")
    frames = torch.randint(0, 256, (6, 5, 16, 16, 3), generator=source, dtype=torch.uint8)
    success = torch.rand(6, 4, generator=source) < 0.4
    model = rewards.build(FrameClassifierConfig(channels=(8, 8, 8, 8)), TOY, seed)
    classifier.fit(model, REWARD, frames, success, 0, report, checkpoint)
    return model


def encode(seed, report, checkpoint):
    torch.manual_seed(seed)
    model = ConvAutoencoder(CODEC)
    frames = torch.randint(0, 256, (20, 16, 16, 3), generator=random.generator(0, "rows"), dtype=torch.uint8)
    train_codec(model, CODEC, frames, 0, report, checkpoint)
    return model


@pytest.mark.parametrize("train", [clone, train_reward, encode])
def test_a_stopped_training_goes_on_to_the_same_weights_and_log(train, tmp_path):
    lines, again = [], []
    whole = train(0, lambda *line: lines.append(line), None)

    def stop(step, loss):
        if step == lines[1][0]:
            raise Stopped

    with pytest.raises(Stopped):
        train(0, stop, Checkpoint(tmp_path / "kept.pt", seconds=0.0))
    # Other weights to begin with: all must come from the checkpoint.
    resumed = train(5, lambda *line: again.append(line), Checkpoint(tmp_path / "kept.pt"))
    assert again == lines
    for name, tensor in whole.state_dict().items():
        assert torch.equal(tensor, resumed.state_dict()[name]), name


def test_without_a_path_nothing_is_written_and_nothing_is_due(tmp_path):
    none = Checkpoint(None, seconds=0.0)
    none.save({"step": 1})
    assert none.load() is None and not none.is_due() and not list(tmp_path.iterdir())


def test_a_checkpoint_that_never_reached_the_disk_is_passed_over(tmp_path, capsys):
    kept = Checkpoint(tmp_path / "deep" / "kept.pt", seconds=0.0)
    kept.save({"step": 3, "lines": [(1, 0.5)], "weights": torch.ones(2)})
    assert kept.load()["lines"] == [(1, 0.5)] and kept.is_due()
    whole = kept.path.read_bytes()
    kept.path.write_bytes(whole[: len(whole) // 2])
    assert kept.load() is None and "this part begins anew" in capsys.readouterr().err
    assert [path.name for path in kept.path.parent.iterdir()] == ["kept.pt"]

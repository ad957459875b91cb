"""The world model's own reward head: its loss, where it is read, and that it learns."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from coevo.core import random
from coevo.worlds.clips import Windows
from coevo.worlds.config import RewardHeadConfig
from coevo.worlds.dream import Dream
from coevo.worlds.reward_head import RewardHead, success_loss
from coevo.worlds.training import WorldTrainer
from tests.doubles import toy_state
from tests.worlds.examples import SEEN, SMALL, clips_of, episodes, make_model, randomised, training

HEAD = RewardHeadConfig(hidden=32)


def test_the_loss_of_a_head_that_knows_nothing_is_the_logarithm_of_2():
    logits = torch.zeros(2, 2, requires_grad=True)
    loss = success_loss(logits, torch.tensor([[True, False], [False, False]]))
    assert loss.item() == pytest.approx(math.log(2))
    loss.backward()  # (sigmoid - success) / 4 frames
    assert logits.grad.flatten().tolist() == pytest.approx([-0.125, 0.125, 0.125, 0.125])


def test_a_head_answers_for_every_recorded_frame_of_a_latent_frame():
    head = RewardHead(HEAD, dim=6, temporal=4)
    features = torch.randn(2, 3, 5, 6)
    logits = head(features)
    assert logits.shape == (2, 12)
    changed = features.clone()
    changed[:, 1] = torch.randn(2, 5, 6)
    assert (head(changed) != logits).any(dim=0).tolist() == [False] * 4 + [True] * 4 + [False] * 4


def test_its_loss_stands_beside_that_of_flow_matching_with_its_weight_and_reaches_the_transformer():
    clips = clips_of(make_model(), episodes(count=8))
    found, gradients = {}, {}
    for weight in (0.0, 0.5, 1.0):
        model = randomised(make_model(reward_head=HEAD))
        trainer = WorldTrainer(model, clips, training(reward_weight=weight, gradient_clip=1e9), 0)
        found[weight] = trainer._advance().item()
        gradients[weight] = model.net.transformer.blocks[0].ffn.net[2].weight.grad.clone()
    assert found[0.5] > found[0.0] and found[1.0] - found[0.0] == pytest.approx(2 * (found[0.5] - found[0.0]), rel=1e-4)
    moved = gradients[1.0] - gradients[0.0]
    assert moved.abs().max() > 0
    torch.testing.assert_close(moved, 2 * (gradients[0.5] - gradients[0.0]), atol=1e-5, rtol=1e-3)


def test_without_a_head_nothing_of_training_changes():
    clips = clips_of(make_model(), episodes(count=4))
    plain, other = (WorldTrainer(make_model(), clips, training(last_step=share), 0) for share in (0.0, 1.0))
    assert plain._advance().item() == other._advance().item()


def test_a_share_of_the_batch_stands_at_the_level_at_which_the_head_is_read():
    model = make_model(reward_head=HEAD, sampling_steps=5)
    trainer = WorldTrainer(model, clips_of(model, episodes(count=4)), training(last_step=0.25), 0)
    levels = trainer._levels(torch.full((8,), 0.9))
    assert levels.tolist() == pytest.approx([0.9, 0.9, 0.9, 0.2] * 2)


def test_a_head_cannot_learn_from_episodes_without_outcome():
    model = make_model(reward_head=HEAD)
    clips = replace(clips_of(model, episodes(count=4)), success=None)
    with pytest.raises(ValueError, match="nothing says at which frames"):
        WorldTrainer(model, clips, training(), 0)


@torch.no_grad()
def test_a_dreams_reading_is_that_of_its_last_step():
    """With an oracle for the frames, the drawn latents noised to the last step's level are what the head sees."""
    model = randomised(make_model(reward_head=HEAD, sampling_steps=2))
    states = [toy_state(column, row) for column, row in ((1, 2), (7, 4), (9, 9))]
    dream = Dream(model)
    dream.reset(states, random.row_keys(0, rows=range(3)))
    context, noise = dream.latents.clone(), random.normal(random.fold(dream.keys, 0), *model.latent_shape())
    path = torch.cat([dream.poses, torch.zeros(3, 2, 2, 4)], dim=1)
    path[:, 3:] = dream.poses[:, -1:]  # commands that move nothing
    actions = torch.zeros(3, 4, 4)
    actions[..., 3] = -1.0
    window = model.conditions(path, dream.words)
    step = dream.step(actions)
    first = model.predict(context, noise, torch.ones(3), window).clean
    expected = model.read(context, first, noise, window)
    torch.testing.assert_close(step.probability, expected, atol=1e-5, rtol=1e-4)
    alone = Dream(model)
    alone.reset(states[:1], random.row_keys(0, rows=range(1)))
    torch.testing.assert_close(alone.step(actions[:1]).probability, step.probability[:1], atol=1e-5, rtol=1e-4)


def test_a_trained_head_reads_frames_that_it_is_shown():
    """The dot has succeeded where its column is at least 10; commands of the window are the same in both readings."""
    model = make_model(transformer=SMALL.model_copy(update={"patch": 8}), reward_head=HEAD)
    choices = dict(steps=120, batch=24, warmup=20, ema=0.9, learning_rate=4e-3, reward_weight=1.0, self_rollout=0.0)
    made = episodes(count=160)
    WorldTrainer(model, clips_of(model, made), training(**choices), 0).run(lambda *line: None)
    test = episodes(seed=9, count=60)
    windows = Windows(model, clips_of(model, test))
    rows, second = torch.arange(60), torch.ones(60, dtype=torch.int64)
    clean = windows.latents(rows, windows.future(second))
    context = windows.latents(rows, windows.past(second))
    noise = torch.randn(clean.shape, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        read = model.read(context, clean, noise, windows.conditions(rows, second))
    truth = windows.success(rows, second)
    assert 0.1 < truth.float().mean() < 0.9
    assert ((read > 0.5) == truth).float().mean() > 0.85
    assert SEEN.chunk_frames == read.shape[1]

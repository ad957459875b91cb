"""Rows that go through an episode behind nothing but their own frames."""

from __future__ import annotations

import pytest
import torch
from pydantic import ValidationError

from coevo.worlds.training import WorldTrainer
from coevo.worlds.world_model import Prediction, WorldModel
from tests.worlds.examples import LONGER, clips_of, episodes, make_model, randomised, training
from tests.worlds.test_features import BRIGHTNESS


def walker(model: WorldModel, count: int = 4, **choices) -> WorldTrainer:
    choices = dict(self_rollout=1.0, self_rollout_steps=1) | choices
    clips = clips_of(model, episodes(count=count, interface=model.interface))
    return WorldTrainer(model, clips, training(batch=count, self_rollout_from="start", **choices), 0)


def walk(trainer: WorldTrainer, decision: list[int], steps: int):
    """(decisions, context, conditions, noise) of each step, the batch drawn as rows 0, 1, ... at `decision`."""
    rows = torch.arange(len(decision))
    for step in range(steps):
        noise = torch.randn(
            trainer.own.rows, *trainer.model.latent_shape(), generator=torch.Generator().manual_seed(step)
        )
        yield *trainer.own.advance(rows, torch.tensor(decision), noise)[1:], noise


@torch.no_grad()
def test_a_row_is_where_a_dream_of_its_episode_would_be():
    model = randomised(make_model(interface=LONGER))
    trainer = walker(model)
    windows, rows, start = trainer.windows, torch.arange(4), torch.zeros(4, dtype=torch.int64)
    held = windows.latents(rows, windows.past(start))
    for step, (at, context, _, noise) in enumerate(walk(trainer, [1] * 4, 3)):
        assert at.tolist() == [step + 1] * 4
        drawn = model.sample(held, noise, windows.conditions(rows, at - 1), 1).clean
        held = torch.cat([held[:, :, :1], drawn], dim=2)  # 2 frames of history are the 2 of a chunk
        assert torch.equal(context, held)
        assert not torch.equal(context, windows.latents(rows, windows.past(at)))


def test_rows_begin_all_over_their_episodes_and_then_at_the_start_of_the_next():
    trainer = walker(make_model(interface=LONGER))
    at = [decision.tolist() for decision, *_ in walk(trainer, [1, 2, 3, 3], 5)]
    assert at == [[1, 2, 3, 3], [2, 3, 1, 1], [3, 1, 2, 2], [1, 2, 3, 3], [2, 3, 1, 1]]


def test_the_other_rows_stay_where_they_were_drawn_behind_recorded_frames():
    trainer = walker(randomised(make_model(interface=LONGER)), self_rollout=0.5)
    windows, rows = trainer.windows, torch.arange(4)
    for at, context, _, _ in walk(trainer, [1, 1, 3, 0], 3):
        recorded = windows.latents(rows, windows.past(at))
        assert at[2:].tolist() == [3, 0] and torch.equal(context[2:], recorded[2:])
        assert torch.equal(context[:, :, :1], recorded[:, :, :1])


@torch.no_grad()
def test_features_are_those_of_the_rows_own_frames():
    model = randomised(make_model(interface=LONGER, features=(BRIGHTNESS,)))
    trainer = walker(model)
    for _, context, window, _ in walk(trainer, [1] * 4, 3):
        shown = model.codec.decode(context, trainer.clips.frames[:, 0])
        torch.testing.assert_close(window.features, model.features_of(shown))


def test_an_episode_of_one_chunk_has_nothing_of_its_own_before_it():
    model = randomised(make_model())
    clips = clips_of(model, episodes(count=2), length=torch.tensor([2, 4]))
    trainer = WorldTrainer(model, clips, training(batch=2, self_rollout=1.0, self_rollout_from="start"), 0)
    for at, context, _, _ in walk(trainer, [0, 1], 3):
        assert at.tolist() == [0, 1]
        assert all(torch.equal(context[0, :, frame], clips.latents[0, 0]) for frame in range(3))


@pytest.mark.parametrize("features", [(), (BRIGHTNESS,)])
def test_all_that_a_row_carries_on_is_named(features):
    """Warm-up runs before a capture are undone on what is named as state, and a checkpoint holds it."""
    trainer = walker(make_model(interface=LONGER, features=features))
    held = [item for item in vars(trainer.own).values() if isinstance(item, torch.Tensor)] + [*trainer.own.seen]
    before = [item.clone() for item in held]
    list(walk(trainer, [1, 2, 1, 3], 1))
    changed = [item for item, old in zip(held, before, strict=True) if not torch.equal(item, old)]
    assert len(changed) >= 2 + 2 * len(features)
    named = {id(item) for item in trainer._state()}
    assert {id(item) for item in changed} <= {id(item) for item in trainer.own.state()} <= named
    assert WorldTrainer(trainer.model, trainer.clips, training(), 0).own.state() == []


def test_episodes_are_walked_by_their_weight_however_long_they_are():
    model = make_model(interface=LONGER)
    clips = clips_of(model, episodes(count=2, interface=LONGER), length=torch.tensor([8, 4]))  # 4 decisions and 2
    settings = training(batch=256, self_rollout=1.0, self_rollout_from="start", self_rollout_steps=1)
    own = WorldTrainer(model, clips, settings, 0).own
    model.sample = lambda context, noise, window, steps: Prediction(noise, None)
    source, trained = torch.Generator().manual_seed(0), torch.zeros(2)
    noise = torch.zeros(256, *model.latent_shape())
    for step in range(40):
        drawn = own.candidates(torch.zeros(256, dtype=torch.int64), source)
        episode, *_ = own.advance(drawn, torch.ones(256, dtype=torch.int64), noise)
        trained += torch.bincount(episode, minlength=2) * (step >= 10)
    assert (trained[0] / trained[1]).item() == pytest.approx(1.0, abs=0.15)  # by weight alone it is 3 to 1


def test_twins_and_rows_that_go_their_own_way_are_refused_together():
    with pytest.raises(ValidationError, match="choose one of them"):
        training(together=0.5, self_rollout_from="start")


@torch.no_grad()
def test_a_history_of_more_than_a_chunk_is_made_of_several_own_ones():
    model = randomised(make_model(interface=LONGER, history=4))
    trainer = walker(model)
    windows, rows = trainer.windows, torch.arange(4)
    held = windows.latents(rows, windows.past(torch.zeros(4, dtype=torch.int64)))
    for at, context, _, noise in walk(trainer, [1] * 4, 3):
        drawn = model.sample(held, noise, windows.conditions(rows, at - 1), 1).clean
        held = torch.cat([held[:, :, :1], torch.cat([held, drawn], dim=2)[:, :, -4:]], dim=2)
        assert torch.equal(context, held)


def test_without_noise_no_level_is_trained_that_shows_the_answer():
    model = make_model(noise=0.0, sampling_steps=1)
    for choices in (dict(), dict(pure_noise=1.0, self_rollout_steps=2), dict(self_rollout_steps=1)):
        with pytest.raises(ValueError, match="it would be shown its answer"):
            WorldTrainer(model, clips_of(model, episodes(count=4)), training(**choices), 0)
    WorldTrainer(model, clips_of(model, episodes(count=4)), training(pure_noise=1.0, self_rollout=0.0), 0)
    with pytest.raises(ValidationError, match="without noise there is one Euler step"):
        make_model(noise=0.0, sampling_steps=2)


def test_a_head_needs_a_step_in_which_it_sees_something():
    with pytest.raises(ValidationError, match="nothing of them would be left"):
        make_model(reward_head=dict(hidden=8), sampling_steps=1)

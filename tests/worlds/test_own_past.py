"""Rows that go through an episode behind nothing but their own frames."""

from __future__ import annotations

import pytest
import torch
from pydantic import ValidationError

from coevo.worlds.training import WorldTrainer
from coevo.worlds.world_model import WorldModel
from tests.worlds.examples import SEEN, clips_of, episodes, make_model, randomised, training
from tests.worlds.test_features import BRIGHTNESS

LONGER = SEEN.model_copy(update={"horizon": 16})
"""4 decisions of 2 frames."""


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
        episode, at = trainer.own.placed(rows, torch.tensor(decision))
        yield at, *trainer.own.context_of(episode, at, noise), noise


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


def test_the_captured_step_knows_what_a_row_carries_on():
    """Warm-up runs before a capture are undone on what is named as state."""
    trainer = walker(make_model(interface=LONGER))
    named = {id(item) for item in trainer._state()}
    assert {id(item) for item in trainer.own.state()} <= named
    assert WorldTrainer(trainer.model, trainer.clips, training(), 0).own.state() == []


def test_twins_and_rows_that_go_their_own_way_are_refused_together():
    with pytest.raises(ValidationError, match="choose one of them"):
        training(together=0.5, self_rollout_from="start")

"""A world model as an environment."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from coevo.core import artifacts, kinematics, random
from coevo.core.protocols import Environment
from coevo.rollout import rollout
from coevo.worlds import build
from coevo.worlds.dream import Dream
from coevo.worlds.training import WorldTrainer
from tests.doubles import ToyPolicy, toy_state
from tests.worlds.examples import SEEN, clips_of, episodes, make_model, randomised, training

STATES = [toy_state(column, row) for column, row in ((1, 2), (3, 7), (5, 11), (7, 4), (9, 9))]


def dreamed(dream: Dream, states, speed: float = 0.8):
    policy = ToyPolicy(speed=speed, spread=0.3, interface=SEEN)
    return rollout(dream, policy, states, stream=(0, "dream"), source="dream")


@pytest.fixture(scope="module")
def model():
    return randomised(make_model())


def test_it_answers_the_protocol(model):
    assert isinstance(Dream(model), Environment)


def test_a_dream_has_the_shape_of_an_episode_and_moves_with_the_action(model):
    made = dreamed(Dream(model), STATES)
    assert made.frames.shape == (5, 5, 16, 16, 3) and made.frames.dtype == torch.uint8
    assert made.truth is None and made.length.tolist() == [2] * 5
    still = dreamed(Dream(model), STATES, speed=-0.8)
    assert torch.equal(made.frames[:, 0], still.frames[:, 0]) and not torch.equal(made.frames[:, 1], still.frames[:, 1])


def test_proprioception_is_exact_arithmetic(model):
    made = dreamed(Dream(model), STATES)
    path = kinematics.commanded_poses(SEEN.action, made.proprio[:, 0, :4], made.actions)
    torch.testing.assert_close(made.proprio[:, 1:, :4], path[:, 1::2])


def test_a_row_dreams_the_same_in_any_batch(model):
    whole = dreamed(Dream(model), STATES)
    alone = [dreamed(Dream(model), [state]) for state in STATES]
    parted = dreamed(Dream(model, batch=2), STATES)
    levels = torch.cat([one.frames for one in alone]).int() - whole.frames.int()
    # Matrix products of other sizes round otherwise, which may tip a level; noise from the batch would move them all.
    assert levels.abs().max() <= 1 and (levels != 0).float().mean() < 0.01
    levels = parted.frames.int() - whole.frames.int()
    assert levels.abs().max() <= 1 and (levels != 0).float().mean() < 0.01
    assert torch.equal(torch.cat([one.actions for one in alone]), whole.actions)


def test_samples_of_a_start_dream_different_noise(model):
    made = dreamed(Dream(model), [STATES[0], STATES[0]], speed=0.0)
    assert not torch.equal(made.frames[0, 1], made.frames[1, 1])


@torch.no_grad()
def test_without_noise_every_sample_of_a_start_dreams_the_same():
    made = []
    for noise in (1.0, 0.0):
        dream = Dream(randomised(make_model(noise=noise, sampling_steps=1)))
        for seed in (0, 1):
            dream.reset(STATES, random.row_keys(seed, rows=range(5)))
            made.append(dream.step(torch.zeros(5, 4, 4)).frames)
    assert not torch.equal(made[0], made[1]) and torch.equal(made[2], made[3])


def test_without_noise_training_begins_where_a_dream_does():
    model, begun = randomised(make_model(noise=0.0, sampling_steps=1)), []
    settings = training(batch=4, pure_noise=1.0, self_rollout_steps=1)
    trainer = WorldTrainer(model, clips_of(model, episodes(count=4)), settings, 0)
    inner = model.predict
    model.predict = lambda context, noisy, *rest: begun.append(noisy) or inner(context, noisy, *rest)
    trainer._advance()
    assert len(begun) == 2 and not any(noisy.any() for noisy in begun)  # its own sample, and what the loss reads


def test_dropped_rows_do_not_disturb_the_others(model):
    actions = torch.zeros(5, 4, 4)
    keys = random.row_keys(0, rows=range(5))
    whole, fewer = Dream(model), Dream(model)
    for dream in (whole, fewer):
        dream.reset(STATES, keys)
        dream.step(actions)
    fewer.keep(torch.tensor([3, 1]))
    expected, found = whole.step(actions), fewer.step(actions[:2])
    levels = found.frames.int() - expected.frames[[3, 1]].int()
    assert levels.abs().max() <= 1 and (levels != 0).float().mean() < 0.01
    torch.testing.assert_close(found.proprio, expected.proprio[[3, 1]])


@torch.no_grad()
def test_history_that_is_missing_repeats_the_first_frame_as_in_training(model):
    """Also where the gripper was left closed: what the model was trained behind is what it dreams behind."""
    made = episodes(count=3)
    starts = [replace(start, proprio=start.proprio + torch.tensor([0, 0, 0, 1.5, 0])) for start in made.starts]
    made = replace(made, starts=tuple(starts), proprio=made.proprio + torch.tensor([0, 0, 0, 1.5, 0]))
    trainer = WorldTrainer(model, clips_of(model, made), training(self_rollout=0.0), 0)
    rows, first = torch.arange(3), torch.zeros(3, dtype=torch.int64)
    dream = Dream(model)
    dream.reset(starts, random.row_keys(0, rows=range(3)))
    nothing = torch.zeros(0, *model.latent_shape())
    torch.testing.assert_close(dream.latents, trainer.own.advance(rows, first, nothing)[2])
    seen = model.conditions(dream.poses, dream.words)
    trained = trainer.windows.conditions(rows, first)
    torch.testing.assert_close(seen.poses, trained.poses[:, :3])
    torch.testing.assert_close(seen.marks, trained.marks[:, :3])


@torch.no_grad()
def test_the_history_of_the_second_chunk_is_what_the_first_drew(model):
    dream = Dream(model)
    dream.reset(STATES, random.row_keys(0, rows=range(5)))
    first = dream.latents[:, :, :1].clone()
    step = dream.step(torch.zeros(5, 4, 4))
    assert dream.latents.shape[2] == model.context and torch.equal(dream.latents[:, :, :1], first)
    frames = model.codec.decode(dream.latents[:, :, 1:], step.frames[:, -1])
    assert torch.equal(frames, step.frames)  # history 2 is the chunk's 2 frames


def test_a_dream_begun_in_the_middle_of_an_episode_stands_where_one_held_to_its_frames_does(model):
    actions, keys = torch.full((5, 4, 4), 0.5), random.row_keys(0, rows=range(5))
    held = Dream(model)
    held.reset(STATES, keys)
    step = held.step(actions)
    frames = torch.cat([torch.stack([state.frames for state in STATES]), step.frames], dim=1)
    held.hold(frames)
    begun = Dream(model)
    proprio = torch.cat([torch.stack([state.proprio for state in STATES]), step.proprio], dim=1)
    middle = [
        replace(state, frames=frames[row], actions=actions[row], proprio=proprio[row], decision=1)
        for row, state in enumerate(STATES)
    ]
    seen = begun.reset(middle, keys)
    assert torch.equal(begun.latents, held.latents) and torch.equal(seen.frames[:, -1], step.frames[:, -1])
    torch.testing.assert_close(begun.poses, held.poses)
    first, second = begun.step(actions), held.step(actions)
    assert torch.equal(first.frames, second.frames)
    torch.testing.assert_close(first.proprio, second.proprio)


def test_starts_at_different_decisions_are_refused(model):
    with pytest.raises(ValueError, match="same decision"):
        Dream(model).reset([STATES[0], replace(STATES[1], decision=1)], random.row_keys(0, rows=range(2)))


@torch.no_grad()
def test_a_saved_world_model_dreams_the_same(model, tmp_path):
    with artifacts.writing(tmp_path / "world") as folder:
        build.save(model, folder)
        made = artifacts.publish(
            folder, tmp_path / "world", kind="world_model", id="x/world", stage="tests", parents={}, config={}, seed=0,
            source_sha256="", metrics={}, states=(),
        )  # fmt: skip
    loaded = build.load(made)
    assert loaded.id == "x/world" and loaded.config == model.config and loaded.interface == SEEN
    assert torch.equal(dreamed(Dream(loaded), STATES).frames, dreamed(Dream(model), STATES).frames)


def test_after_holding_frames_nothing_of_what_was_drawn_is_left(model):
    actions, keys = torch.full((5, 4, 4), 0.5), random.row_keys(0, rows=range(5))
    recorded = dreamed(Dream(model), STATES, speed=-0.3).frames[:, :3]
    left, spoilt, own = Dream(model), Dream(model), Dream(model)
    for dream in (left, spoilt, own):
        dream.reset(STATES, keys)
        dream.step(actions)
    spoilt.latents, spoilt.present = torch.zeros_like(spoilt.latents), torch.zeros_like(spoilt.present)
    left.hold(recorded)
    spoilt.hold(recorded)
    assert torch.equal(left.latents[:, :, 0], own.latents[:, :, 0])  # the first frame stays in the window
    second = left.step(actions).frames
    assert torch.equal(second, spoilt.step(actions).frames)
    assert not torch.equal(second, own.step(actions).frames)

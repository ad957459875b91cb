"""Training: what carries loss, that it resumes to the same weights, and that it learns."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from coevo.core import random
from coevo.core.types import take_rows
from coevo.worlds.codec_training import train_codec
from coevo.worlds.codecs import ConvAutoencoder
from coevo.worlds.config import ConvCodec
from coevo.worlds.dream import Dream
from coevo.worlds.training import WorldTrainer
from tests.worlds.examples import LONGER, SMALL, clips_of, columns, episodes, make_model, randomised, training


def weights(model) -> list[torch.Tensor]:
    return [weight.detach().clone() for weight in model.parameters()]


def train(model, clips, checkpoint=None, **choices) -> list[tuple[int, float]]:
    reported = []
    WorldTrainer(model, clips, training(**choices), 0).run(lambda *line: reported.append(line), checkpoint)
    return reported


def test_only_future_frames_are_targets():
    """Frames after the window and between its initial frame and its history are free to be anything."""
    model = make_model(interface=LONGER)
    made = episodes(count=4, interface=model.interface)  # 8 frames, 4 decisions
    spoiled = replace(made, frames=made.frames.clone())
    spoiled.frames[:, 1] = 99  # decision 1 draws frames 3 and 4 behind 1 and 2; decision 3 draws 7 and 8 behind 5 and 6
    found = []
    for one in (made, spoiled):
        trainer = WorldTrainer(model, clips_of(model, one), training(self_rollout=0.0), 0)
        rows, decision = torch.arange(4), torch.full((4,), 3)
        frames = (trainer.windows.future(decision), trainer.windows.past(decision))
        latents = [trainer.windows.latents(rows, numbers) for numbers in frames]
        found.append([*latents, trainer.windows.moved(rows, decision)])
    for ours, theirs in zip(*found, strict=True):
        assert torch.equal(ours, theirs)
    assert clips_of(model, made).decisions.tolist() == [4] * 4
    assert trainer.windows.past(torch.tensor([0, 1, 3])).tolist() == [[0, 0, 0], [0, 1, 2], [0, 5, 6]]
    assert trainer.windows.future(torch.tensor([0, 1, 3])).tolist() == [[1, 2], [3, 4], [7, 8]]


def test_the_loss_does_not_look_at_what_is_said_of_the_context():
    model = randomised(make_model())
    clips = clips_of(model, episodes(count=4))
    found = []
    for spoil in (0.0, 1e3):
        trainer = WorldTrainer(randomised(make_model()), clips, training(), 0)
        inner = trainer.model.net.forward

        def spoiled(*arguments, inner=inner, spoil=spoil):
            output = inner(*arguments)
            return torch.cat([output[:, :, :3] + spoil, output[:, :, 3:]], dim=2)

        trainer.model.net.forward = spoiled
        found.append(trainer._advance().item())
    assert found[0] == found[1]


def test_cells_in_which_a_pixel_moved_are_marked():
    model = make_model()
    made = take_rows(episodes(count=2), [0])
    made.frames[:] = 0
    made.frames[0, 1, 5, 6] = 200  # in the first future frame of decision 0
    made.frames[0, 2, 5, 6] = 5  # below what counts as moved
    trainer = WorldTrainer(model, clips_of(model, made), training(), 0)
    moved = trainer.windows.moved(torch.tensor([0]), torch.tensor([0]))
    assert moved.shape == (1, 1, 2, 16, 16) and moved.nonzero().tolist() == [[0, 0, 0, 5, 6]]


def test_half_the_batch_stands_behind_its_own_sample():
    model = randomised(make_model())
    trainer = WorldTrainer(model, clips_of(model, episodes(count=4)), training(batch=4, self_rollout=0.5), 0)
    rows, decision = torch.arange(4), torch.ones(4, dtype=torch.int64)
    real = trainer.windows.latents(rows, trainer.windows.past(decision))
    mixed = trainer.own.advance(rows, decision, torch.randn(2, *model.latent_shape()))[2]
    same = [torch.equal(mixed[row], real[row]) for row in range(4)]
    assert same == [False, False, True, True] and torch.equal(mixed[:, :, :1], real[:, :, :1])
    assert not mixed.requires_grad


def test_an_episode_of_one_chunk_is_trained_behind_its_start_and_a_shorter_one_never():
    model = randomised(make_model())
    made = episodes(count=3)
    clips = clips_of(model, made, length=torch.tensor([2, 1, 4]))
    assert clips.decisions.tolist() == [1, 0, 2] and clips.weights.tolist() == [1, 0, 1]
    trainer = WorldTrainer(model, clips, training(batch=2, self_rollout=1.0), 0)
    drawn, inner = [], trainer._update
    trainer._update = lambda *given: drawn.append(given[:2]) or inner(*given)
    for _ in range(12):
        trainer._advance()
        trainer.step += 1
    pairs = {(int(e), int(d)) for episode, decision in drawn for e, d in zip(episode, decision, strict=True)}
    assert pairs == {(0, 0), (2, 1)}
    mixed = trainer.own.advance(torch.tensor([0, 2]), torch.tensor([0, 1]), torch.randn(2, *model.latent_shape()))[2]
    start = clips.latents[0, 0]
    assert all(torch.equal(mixed[0, :, frame], start) for frame in range(3))
    with pytest.raises(ValueError, match="none of the 3 episodes holds a whole chunk of 2 frames"):
        clips_of(model, made, length=torch.tensor([1, 1, 0]))


@pytest.mark.parametrize("begun_at", ["recorded", "start"])
def test_a_stopped_training_resumes_to_the_same_weights_and_the_same_log(tmp_path, begun_at):
    choices = dict(self_rollout_from=begun_at)
    # Of 4 decisions: a row is in the midst of its episode when it stops.
    clips = clips_of(make_model(interface=LONGER), episodes(count=6, interface=LONGER))
    whole = make_model(interface=LONGER)
    lines = train(whole, clips, **choices)
    checkpoint = tmp_path / "scratch" / "world_model.pt"
    stopped = WorldTrainer(make_model(interface=LONGER), clips, training(**choices), 0)
    inner, done = stopped._advance, []

    def advance():
        if len(done) == 4:
            raise KeyboardInterrupt
        done.append(inner())
        return done[-1]

    stopped._advance = advance
    with pytest.raises(KeyboardInterrupt):
        stopped.run(lambda *line: None, checkpoint)
    resumed = make_model(seed=5, interface=LONGER)  # other weights: all comes from the checkpoint
    assert train(resumed, clips, checkpoint, **choices) == lines
    assert all(torch.equal(a, b) for a, b in zip(weights(whole), weights(resumed), strict=True))


def test_a_resumed_run_reports_what_was_reported_before(tmp_path):
    model, clips, checkpoint = make_model(), clips_of(make_model(), episodes(count=4)), tmp_path / "world_model.pt"
    choices = dict(batch=2, steps=53, checkpoint_every=52, self_rollout=0.0)
    lines = train(model, clips, checkpoint, **choices)
    assert [step for step, _ in lines] == [50, 53]
    assert train(make_model(), clips, checkpoint, **choices) == lines


def test_the_seed_decides_and_what_is_saved_is_the_average():
    clips = clips_of(make_model(), episodes(count=6))
    first, again, other = make_model(), make_model(), make_model()
    train(first, clips)
    train(again, clips)
    WorldTrainer(other, clips, training(), 1).run(lambda *line: None)
    assert all(torch.equal(a, b) for a, b in zip(weights(first), weights(again), strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(weights(first), weights(other), strict=True))
    frozen, begun = make_model(), weights(make_model())
    train(frozen, clips, ema=0.9999999)
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(weights(frozen), begun, strict=True))
    assert not frozen.training


def test_a_trained_world_model_moves_the_square_as_it_is_told():
    model = make_model(transformer=SMALL.model_copy(update={"patch": 8}))
    choices = dict(steps=350, batch=24, warmup=20, ema=0.95, learning_rate=4e-3)
    lines = train(model, clips_of(model, episodes(count=160)), self_rollout=0.25, self_rollout_steps=1, **choices)
    assert lines[-1][1] < 0.15 * lines[0][1]
    test = episodes(seed=9, count=40)
    dream = Dream(model)
    dream.reset(test.starts, random.row_keys(0, rows=range(40)))
    drawn = columns(torch.cat([dream.step(test.actions[:, at : at + 4]).frames for at in (0, 4)], dim=1))
    true, start = columns(test.frames[:, 1:]), columns(test.frames[:, :1])
    assert (columns(test.frames) - test.proprio[..., 0]).abs().max() <= 0.51  # the measure itself
    moved = torch.corrcoef(torch.stack([(drawn - start).flatten(), (true - start).flatten()]))[0, 1]
    assert moved > 0.6
    # A model that ignores actions can at best leave the dot where it was, or move all dots alike.
    assert (drawn - true)[:, 2:].abs().mean() < 0.75 * (start - true)[:, 2:].abs().mean()


def test_a_small_codec_learns_frames_and_leaves_latents_of_unit_scale():
    settings = ConvCodec(channels=8, width=8, steps=120, batch=32, learning_rate=4e-3)
    torch.manual_seed(0)
    codec = ConvAutoencoder(settings)
    made = episodes(count=24)
    frames = made.frames.flatten(0, 1)
    losses = []
    train_codec(codec, settings, frames, 0, lambda step, loss: losses.append(loss))
    latents = codec.encode(made.frames)
    assert latents.shape == (24, 8, 5, 2, 2)
    assert latents.mean(dim=(0, 2, 3, 4)).abs().max() < 0.05 and (latents.std(dim=(0, 2, 3, 4)) - 1).abs().max() < 0.05
    assert codec.decode(latents, made.frames[:, 0]).shape == made.frames.shape
    assert losses[-1] < 0.5 * losses[0]

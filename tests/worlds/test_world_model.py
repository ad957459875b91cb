"""The window, the flow, and what the additions to Wan change: nothing at first."""

from __future__ import annotations

import pytest
import torch
from diffusers import WanTransformer3DModel

from coevo.core import kinematics
from coevo.worlds import wan
from coevo.worlds.codecs import Pixels
from coevo.worlds.config import NewTransformer, WorldModelConfig
from coevo.worlds.training import WorldTrainer
from coevo.worlds.world_model import Prediction, Window
from tests.worlds.examples import SEEN, SMALL, clips_of, episodes, make_model, randomised, training


def inputs(model, rows: int = 3, seed: int = 0):
    """Context, noise and conditions of as many windows."""
    source = torch.Generator().manual_seed(seed)
    channels, future, height, width = model.latent_shape()
    context = torch.randn(rows, channels, model.context, height, width, generator=source)
    noise = torch.randn(rows, channels, future, height, width, generator=source)
    frames = 1 + model.config.history + model.interface.chunk_frames
    poses = torch.rand(rows, frames, model.interface.stride, 4, generator=source) * 10
    return context, noise, model.conditions(poses, model.numbered(["move the dot"] * rows))


def test_the_transformer_is_that_of_diffusers():
    model = make_model()
    assert type(model.net.transformer) is WanTransformer3DModel
    assert model.net.transformer.config.num_layers == 2 and model.latent_shape() == (3, 2, 16, 16)


@torch.no_grad()
def test_a_published_model_with_the_additions_draws_what_it_drew_without():
    """The reference is diffusers' own path: one timestep per token, no poses, no maps."""
    published = WanTransformer3DModel(
        patch_size=(1, 2, 2), num_attention_heads=2, attention_head_dim=24, in_channels=4, out_channels=4, text_dim=16,
        freq_dim=32, ffn_dim=64, num_layers=2, rope_max_seq_len=32,
    ).eval()  # fmt: skip
    source = torch.Generator().manual_seed(0)
    latents = torch.randn(2, 4, 3, 8, 8, generator=source)
    words, sigma = torch.randint(1, 512, (2, 8), generator=source), torch.tensor([[0.0, 0.0, 0.7], [0.0, 0.0, 1.0]])
    encoder = wan.WordEmbedding(16)
    tokens = sigma.repeat_interleave(16, dim=1) * 1000.0
    (expected,) = published(latents, tokens, encoder(words), return_dict=False)
    ours = wan.ActionWan(published, pose_size=8, patch_pixels=8, words=encoder).eval()
    poses, maps = torch.randn(2, 3, 8, generator=source), torch.rand(2, 2, 3, 32, 32, generator=source)
    torch.testing.assert_close(ours(latents, sigma, poses, maps, words), expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(ours(latents, sigma, None, None, words), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("condition", ["poses", "marks", "words"])
@torch.no_grad()
def test_every_condition_reaches_the_future_once_it_has_weights(condition):
    model = randomised(make_model())
    context, noise, window = inputs(model, rows=1)
    before = model.predict(context, noise, torch.tensor([0.5]), window).clean
    parts = {"poses": window.poses, "marks": window.marks, "words": window.words}
    value = parts[condition].clone()
    value[:, -1] += 1
    after = model.predict(context, noise, torch.tensor([0.5]), Window(**(parts | {condition: value}))).clean
    assert (after - before).abs().max() > 1e-3


@torch.no_grad()
def test_conditions_that_are_switched_off_have_no_effect():
    model = randomised(make_model(action_maps=False, pose_condition=False))
    context, noise, window = inputs(model, rows=1)
    before = model.predict(context, noise, torch.tensor([0.5]), window).clean
    moved = Window(window.poses + 1, window.marks + 1, window.words)
    assert torch.equal(model.predict(context, noise, torch.tensor([0.5]), moved).clean, before)


@pytest.mark.parametrize("prediction", ["clean", "velocity"])
@torch.no_grad()
def test_what_the_network_says_of_the_context_counts_for_nothing(prediction):
    model = randomised(make_model(prediction=prediction))
    context, noise, window = inputs(model)
    before = model.predict(context, noise, torch.full((3,), 0.5), window).clean
    inner = model.net.forward

    def spoiled(*arguments):
        output = inner(*arguments)
        output[:, :, : model.context] = 1e6
        return output

    model.net.forward = spoiled
    assert torch.equal(model.predict(context, noise, torch.full((3,), 0.5), window).clean, before)


@pytest.mark.parametrize("steps", [1, 2, 5])
@torch.no_grad()
def test_an_oracle_is_recovered_by_any_number_of_steps(steps):
    model = make_model()
    context, noise, window = inputs(model)
    target = torch.randn(noise.shape, generator=torch.Generator().manual_seed(1))
    levels, between = [], []

    def oracle(context, noisy, sigma, window):
        levels.append(sigma[0].item())
        between.append(noisy.clone())
        return Prediction(target, None)

    model.predict = oracle
    torch.testing.assert_close(model.sample(context, noise, window, steps).clean, target, atol=1e-6, rtol=0)
    assert levels == pytest.approx([1 - step / steps for step in range(steps)])
    for level, noisy in zip(levels, between, strict=True):  # on the straight line from noise to target
        torch.testing.assert_close(noisy, target + level * (noise - target), atol=1e-5, rtol=0)


@torch.no_grad()
def test_clean_and_velocity_say_the_same_thing_of_a_known_answer():
    context, noise, window = inputs(make_model())
    target, sigma = torch.randn(noise.shape), torch.tensor([0.25, 0.5, 1.0])
    spread = sigma.view(-1, 1, 1, 1, 1)
    answers = {"clean": target - context[:, :, -1:], "velocity": noise - target}
    for prediction, answer in answers.items():
        model = make_model(prediction=prediction)
        model.net.forward = lambda *arguments, answer=answer: torch.cat([context, answer], dim=2)
        found = model.predict(context, target + spread * (noise - target), sigma, window).clean
        torch.testing.assert_close(found, target, atol=1e-5, rtol=0)


@torch.no_grad()
def test_the_context_stands_at_noise_level_zero():
    model, seen = make_model(), []
    context, noise, window = inputs(model)
    inner = model.net.forward
    model.net.forward = lambda latents, levels, *rest: seen.append(levels) or inner(latents, levels, *rest)
    model.predict(context, noise, torch.tensor([0.2, 0.5, 1.0]), window)
    assert seen[0].tolist() == [pytest.approx([0, 0, 0, level, level]) for level in (0.2, 0.5, 1.0)]


def test_poses_of_a_group_of_frames_stand_side_by_side_and_the_first_frame_for_a_whole_group():
    poses = torch.arange(5.0).view(1, 5, 1, 1).expand(1, 5, 2, 4)  # 5 frames of 2 control steps, all 4 numbers alike
    assert wan.frame_poses(poses, 1)[..., ::4].tolist() == [[[frame] * 2 for frame in range(5)]]
    assert wan.frame_poses(poses, 4)[..., ::4].tolist() == [[[0.0] * 8, [1, 1, 2, 2, 3, 3, 4, 4]]]


def test_windows_of_training_and_of_dreaming_have_the_same_conditions():
    model = make_model()
    made = episodes(count=3)
    clips = clips_of(model, made)
    trainer = WorldTrainer(model, clips, training(), 0)
    rows, decision = torch.arange(3), torch.tensor([1, 1, 1])
    ours = trainer.windows.conditions(rows, decision)
    poses = kinematics.commanded_poses(SEEN.action, made.proprio[:, 0, :4], made.actions).view(3, 4, 2, 4)
    start = made.proprio[:, :1, :4][:, :, None].expand(-1, 1, 2, -1)
    window = model.conditions(torch.cat([start, poses], dim=1), model.numbered([SEEN.instruction] * 3))
    for name in ("poses", "marks", "words"):
        torch.testing.assert_close(getattr(ours, name), getattr(window, name))


def test_pixels_come_back_as_they_were():
    frames = torch.randint(0, 256, (2, 3, 8, 8, 3), dtype=torch.uint8)
    codec = Pixels()
    latents = codec.encode(frames)
    assert latents.shape == (2, 3, 3, 8, 8) and latents.min() >= -1 and latents.max() <= 1
    assert torch.equal(codec.decode(latents, frames[:, 0]), frames)


def test_a_configuration_names_its_kind():
    parsed = WorldModelConfig.parse(
        {"transformer": {"kind": "new", **SMALL.model_dump(exclude={"kind"})}, "codec": {"kind": "pixels"}}, "here"
    )
    assert isinstance(parsed.transformer, NewTransformer)
    with pytest.raises(ValueError, match="here: .*transformer"):
        WorldModelConfig.parse({"transformer": {"kind": "newer"}, "codec": {"kind": "pixels"}}, "here")


def test_blocks_are_compiled_on_a_gpu_where_the_configuration_says_so_and_never_on_a_cpu(monkeypatch):
    compiled = []
    noted = lambda self, **options: compiled.append(options)  # noqa: E731
    monkeypatch.setattr(WanTransformer3DModel, "compile_repeated_blocks", noted)
    model = make_model(compile=True)
    monkeypatch.setattr(model, "to", lambda device: model)
    model.on("cpu")
    assert compiled == []
    model.on("cuda")
    assert compiled == [{"fullgraph": True}]

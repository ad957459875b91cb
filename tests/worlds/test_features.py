"""Frozen encoders whose features of the context frames are added to it."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from coevo.core import random
from coevo.core.parts import PythonPart
from coevo.worlds import features
from coevo.worlds.config import ClipFeatures, DinoFeatures, Form, GeometryFeatures
from coevo.worlds.dream import Dream
from coevo.worlds.features_training import Labelled, targets, train_geometry
from coevo.worlds.training import WorldTrainer
from tests.doubles import toy_state
from tests.worlds.examples import LONG, SEEN, clips_of, episodes, make_model, randomised, training
from tests.worlds.test_form import dreamed, published

GEOMETRY = GeometryFeatures(channels=(8, 8, 8, 8), steps=3, batch=8)
STATES = [toy_state(column, row) for column, row in ((1, 2), (3, 7), (7, 4))]


class Brightness(nn.Module):
    """An encoder of one's own: the mean red of each quarter of the frame."""

    channels = 2

    def __init__(self, interface) -> None:
        super().__init__()

    def forward(self, frames):
        red = nn.functional.adaptive_avg_pool2d(frames[..., 0].float() / 255, 2)[:, None]
        return torch.cat([red, red**2], dim=1)


BRIGHTNESS = PythonPart(target="tests.worlds.test_features:Brightness")


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    """The published classes at a size for a test, as they lie on the hub."""
    from transformers import CLIPConfig, CLIPModel, Dinov2Config, Dinov2Model

    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("encoders")
    small = dict(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, image_size=28)
    Dinov2Model(Dinov2Config(**small, patch_size=14, mlp_ratio=2)).save_pretrained(folder / "dinov2")
    text = dict(hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8, vocab_size=9)
    vision = dict(**small, patch_size=14, intermediate_size=16)
    CLIPModel(CLIPConfig(text_config=text, vision_config=vision, projection_dim=8)).save_pretrained(folder / "clip")
    return DinoFeatures(source=str(folder / "dinov2")), ClipFeatures(source=str(folder / "clip"))


def test_published_encoders_load_under_their_own_names_and_say_what_transformers_says(hub):
    from transformers import CLIPVisionModel, Dinov2Model

    frames = torch.randint(0, 256, (2, 16, 16, 3), dtype=torch.uint8)
    dino, clip = (features.build(each, SEEN).eval() for each in hub)
    with torch.no_grad():
        patches = Dinov2Model.from_pretrained(hub[0].source).eval()(dino.seen(frames)).last_hidden_state
        pooled = CLIPVisionModel.from_pretrained(hub[1].source).eval()(clip.seen(frames)).pooler_output
        found = dino(frames)
        assert found.shape == (2, 16, 2, 2) and torch.equal(found[:, :, 0, 1], patches[:, 2])
        assert torch.equal(clip(frames), pooled[:, :, None, None])
    white = torch.full((1, 16, 16, 3), 255, dtype=torch.uint8)
    expected = (1 - torch.tensor([0.485, 0.456, 0.406])) / torch.tensor([0.229, 0.224, 0.225])  # ImageNet's
    torch.testing.assert_close(dino.seen(white)[0, :, 5, 5], expected)


def test_maps_are_laid_over_the_patches_with_unit_scale():
    model = make_model(features=(BRIGHTNESS,))
    maps = torch.tensor([[3.0, 1.0]]).view(1, 1, 2, 1, 1)
    assert model.features.grid == (4, 4)
    laid = model.features.laid_out([maps])
    assert laid.shape == (1, 2, 1, 4, 4)
    torch.testing.assert_close(laid[0, :, 0, 2, 3], torch.tensor([1.0, -1.0]), atol=1e-4, rtol=0)


@torch.no_grad()
def test_features_that_are_new_leave_the_drawing_as_it_was(hub, tmp_path):
    parent = published(tmp_path / "parent", randomised(make_model()))
    from coevo.worlds import build

    before = dreamed(build.load(parent))
    after = build.load(parent, form=Form(features=(GEOMETRY, *hub)))
    assert torch.equal(dreamed(after).frames, before.frames)
    seeing = randomised(after)
    assert not torch.equal(dreamed(seeing).frames, before.frames)
    again = build.load(published(tmp_path / "again", seeing))
    assert torch.equal(dreamed(again).frames, dreamed(seeing).frames)


def test_encoders_stay_frozen_and_the_projection_learns(hub):
    model = make_model(features=(GEOMETRY, *hub))
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    clips = clips_of(model, episodes(count=4))
    WorldTrainer(model, clips, training(steps=2, batch=4), 0).run(lambda *line: None)
    moved = {name for name, weight in model.state_dict().items() if not torch.equal(weight, before[name])}
    assert not any(name.startswith("features.") for name in moved)
    assert "net.transformer.patch_embedding.feature_embedding.weight" in moved


@torch.no_grad()
def test_a_dream_sees_the_features_that_training_saw_and_moves_on_with_what_it_drew():
    model = randomised(make_model(features=(BRIGHTNESS,)))
    made = episodes(count=3)
    trainer = WorldTrainer(model, clips_of(model, made), training(self_rollout=0.0), 0)
    rows, first = torch.arange(3), torch.zeros(3, dtype=torch.int64)
    dream = Dream(model)
    dream.reset(made.starts, random.row_keys(0, rows=range(3)))
    torch.testing.assert_close(dream.features, trainer.windows.conditions(rows, first).features)
    step = dream.step(made.actions[:, :4])
    assert torch.equal(dream.features[:, :, 1:], model.features_of(step.frames))  # history 2 is the chunk's 2 frames
    dream.hold(made.frames[:, :3])
    torch.testing.assert_close(dream.features, trainer.windows.conditions(rows, first + 1).features)
    dream.keep(torch.tensor([2, 0]))
    torch.testing.assert_close(dream.features, trainer.windows.conditions(rows[[2, 0]], first[:2] + 1).features)


def test_rows_behind_their_own_sample_see_its_features_and_not_the_recorded_ones():
    model = randomised(make_model(features=(BRIGHTNESS,)))
    trainer = WorldTrainer(model, clips_of(model, episodes(count=4)), training(batch=4, self_rollout=0.5), 0)
    rows, decision = torch.arange(4), torch.tensor([1, 0, 1, 1])
    recorded = trainer.windows.conditions(rows, decision).features
    *_, window = trainer.own.advance(rows, decision, torch.randn(2, *model.latent_shape()))
    same = [torch.equal(window.features[row], recorded[row]) for row in range(4)]
    assert same == [False, True, True, True]  # the second row has no chunk before it
    assert torch.equal(window.features[:, :, :1], recorded[:, :, :1])


def test_what_a_small_encoder_learns_is_where_the_gripper_is_and_how_near_the_goal():
    proprio = torch.tensor([[7.0, 7.0, 0.5, -1.0, 0.0], [0.0, 14.0, 0.0, -1.0, 0.0]])
    labelled = Labelled(
        torch.zeros(2, 16, 16, 3, dtype=torch.uint8), proprio, torch.tensor([0.25, 0.0]), torch.tensor([True, False])
    )
    target, known = targets(SEEN, labelled)
    assert target.shape == (2, 8) and target[0, 4:].tolist() == pytest.approx([0.0, 0.0, 0.0, 0.25])
    assert target[0, :2].tolist() == pytest.approx([0.0, 0.0], abs=0.1)  # the camera looks at (7, 7)
    assert target[1, 4:7].tolist() == pytest.approx([-1.0, 1.0, -1.0])
    assert known[:, 7].tolist() == [1.0, 0.0] and known[:, :7].all()


def test_a_small_encoder_is_trained_once_and_frozen():
    made = episodes(count=40, interface=SEEN)
    torch.manual_seed(0)
    encoder = features.build(GEOMETRY.model_copy(update=dict(channels=(8, 16, 16, 16), steps=60, batch=32)), SEEN)
    frames, proprio = made.frames.flatten(0, 1), made.proprio.flatten(0, 1)
    nothing = torch.zeros(len(frames))
    lines = []
    train_geometry(
        encoder, SEEN, Labelled(frames, proprio, nothing, nothing.bool()), 0, lambda *line: lines.append(line)
    )
    assert [step for step, _ in lines] == [50, 60] and lines[-1][1] < 0.1
    assert encoder.trained and not any(weight.requires_grad for weight in encoder.parameters())


def test_latent_frames_of_several_frames_have_the_features_of_their_last_one(tmp_path):
    from tests.worlds.examples import publish_hub
    from tests.worlds.test_hub import hub_model

    model = hub_model(publish_hub(tmp_path), interface=LONG, features=(BRIGHTNESS,))
    frames = torch.randint(0, 256, (2, 5, 16, 16, 3), dtype=torch.uint8)
    assert torch.equal(model.context_features(frames), model.features(frames[:, [0, 4]]))
    assert torch.equal(model.features_of(frames[:, 1:]), model.features(frames[:, [4]]))
    made = episodes(count=2, interface=LONG)
    trainer = WorldTrainer(model, clips_of(model, made), training(steps=1, batch=2), 0)
    trainer.run(lambda *line: None)
    dream = Dream(model)
    dream.reset([replace(toy_state(1, interface=LONG), decision=0)], torch.tensor([1]))
    assert dream.step(torch.zeros(1, 8, 4)).frames.shape == (1, 4, 16, 16, 3)

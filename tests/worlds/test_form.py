"""A world model that goes on in another form than its parent's."""

from __future__ import annotations

import pytest
import torch

from coevo.core.artifacts import Artifact
from coevo.rollout import rollout
from coevo.worlds import build
from coevo.worlds.config import Form, RewardHeadConfig
from coevo.worlds.dream import Dream
from coevo.worlds.training import WorldTrainer
from tests.doubles import ToyPolicy, toy_state
from tests.toy_artifacts import publish
from tests.worlds.examples import SEEN, clips_of, episodes, make_model, randomised, training

HEAD = RewardHeadConfig(hidden=8)
STATES = [toy_state(column, row) for column, row in ((1, 2), (7, 4))]


def dreamed(model):
    return rollout(Dream(model), ToyPolicy(spread=0.3, interface=SEEN), STATES, stream=(0,), source="dream")


def published(path, model) -> Artifact:
    return publish(path, "world_model", lambda folder: build.save(model, folder))


@pytest.fixture(scope="module")
def parent(tmp_path_factory):
    return published(tmp_path_factory.mktemp("parent") / "world", randomised(make_model()))


@torch.no_grad()
def test_new_parts_leave_the_drawing_as_it_was(parent):
    before, after = dreamed(build.load(parent)), dreamed(build.load(parent, form=Form(reward_head=HEAD)))
    assert torch.equal(after.frames, before.frames)
    assert before.probability is None and after.probability.shape == (2, 4)


@torch.no_grad()
def test_maps_that_the_parent_never_used_begin_without_effect(tmp_path):
    blind = published(tmp_path / "blind", make_model(action_maps=False, pose_condition=False))
    seeing = build.load(blind, form=Form(action_maps=True, pose_condition=True))
    assert seeing.config.action_maps and torch.equal(dreamed(seeing).frames, dreamed(build.load(blind)).frames)


def test_what_a_form_leaves_out_stays_as_the_parent_has_it(parent):
    config = build.load(parent).config
    assert Form().of(config) == config
    assert Form(history=4, sampling_steps=1).of(config).model_dump() == config.model_dump() | {
        "history": 4, "sampling_steps": 1,
    }  # fmt: skip


def test_new_parts_are_made_from_the_seed(parent):
    first, again, other = (build.load(parent, form=Form(reward_head=HEAD), seed=seed).reward_head for seed in (0, 0, 1))
    weights = [head.frame[0].weight for head in (first, again, other)]
    assert torch.equal(weights[0], weights[1]) and not torch.equal(weights[0], weights[2])


def test_a_part_that_the_parent_has_keeps_its_sizes(tmp_path):
    headed = published(tmp_path / "headed", make_model(reward_head=HEAD))
    with pytest.raises(ValueError, match="toy/headed has reward_head.*of \\(8,.*asks for \\(16,"):
        build.load(headed, form=Form(reward_head=RewardHeadConfig(hidden=16)))


def test_a_parent_that_lacks_other_weights_is_refused(tmp_path, parent):
    model = make_model(transformer=build.load(parent).config.transformer.model_copy(update={"layers": 1}))
    model.config = model.config.model_copy(update={"transformer": build.load(parent).config.transformer})
    with pytest.raises(RuntimeError, match="Missing key.*blocks.1"):
        build.load(published(tmp_path / "short", model), form=Form(reward_head=HEAD))


def test_a_longer_history_trains_and_dreams_from_the_parents_weights(parent):
    """The window of 1 initial, 4 history and 8 future frames."""
    long = SEEN.model_copy(update={"chunk": 16, "horizon": 32})
    model = published(parent.path.parent / "long", randomised(make_model(interface=long)))
    model = build.load(model, form=Form(history=4, reward_head=HEAD))
    assert model.context + model.future == 13
    losses = []
    clips = clips_of(model, episodes(count=4, interface=long))
    WorldTrainer(model, clips, training(steps=1, batch=2), 0).run(lambda step, loss: losses.append(loss))
    policy = ToyPolicy(spread=0.3, interface=long)
    made = rollout(Dream(model), policy, [toy_state(1, interface=long)], stream=(0,), source="dream")
    assert losses[0] == losses[0] and made.frames.shape == (1, 17, 16, 16, 3) and made.probability.shape == (1, 16)

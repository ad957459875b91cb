"""Cosmos-Predict2 with actions, on a tiny one of random weights saved as the hub lays it out."""

from __future__ import annotations

import pytest
import torch
from diffusers import CosmosTransformer3DModel

from coevo.rollout import rollout
from coevo.worlds import build, wan
from coevo.worlds.config import CosmosTransformer, Form, RewardHeadConfig, WanVae, WorldModelConfig
from coevo.worlds.cosmos import FPS, ActionCosmos
from coevo.worlds.dream import Dream
from coevo.worlds.training import WorldTrainer
from tests.doubles import ToyPolicy, toy_state
from tests.toy_artifacts import publish
from tests.worlds.examples import LONG, clips_of, episodes, make_model, publish_cosmos, training


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    return publish_cosmos(tmp_path_factory.mktemp("cosmos"))


def model_of(hub: str, lora_rank: int | None = 2, **choices):
    transformer = CosmosTransformer(source=hub, lora_rank=lora_rank)
    defaults = dict(codec=WanVae(source=hub), history=4, prediction="velocity", transformer=transformer)
    return make_model(interface=LONG, **(defaults | choices))


@torch.no_grad()
def test_a_published_model_with_the_additions_draws_what_it_drew_without(hub):
    """The reference is its own forward as its pipeline calls it: the mark of context frames, then the padding mask."""
    source = torch.Generator().manual_seed(0)
    latents = torch.randn(2, 4, 3, 8, 8, generator=source)
    words, sigma = torch.randint(1, 512, (2, 8), generator=source), torch.tensor([[0.0, 0.0, 0.7], [0.0, 0.0, 1.0]])
    encoder = wan.WordEmbedding(16)
    published = CosmosTransformer3DModel.from_pretrained(hub, subfolder="transformer").eval()
    published.register_to_config(concat_padding_mask=False)
    context = torch.tensor([1.0, 1.0, 0.0]).view(1, 1, 3, 1, 1).expand(2, 1, 3, 8, 8)
    (expected,) = published(
        torch.cat([latents, context, torch.zeros_like(context)], dim=1), sigma[:, None, :, None, None], encoder(words),
        fps=FPS, return_dict=False,
    )  # fmt: skip
    ours = CosmosTransformer3DModel.from_pretrained(hub, subfolder="transformer")
    ours = ActionCosmos(ours, channels=4, pose_size=8, factor=4, words=encoder).eval()
    poses, maps = torch.randn(2, 3, 8, generator=source), torch.rand(2, 2, 3, 32, 32, generator=source)
    torch.testing.assert_close(ours(latents, sigma, poses, maps, words), expected, atol=1e-5, rtol=1e-5)
    for weight in (ours.transformer.time_embed.pose[2].weight, ours.transformer.patch_embed.map_embedding.weight):
        before = ours(latents, sigma, poses, maps, words)
        weight.copy_(torch.randn(weight.shape, generator=source) * 0.2)
        assert (ours(latents, sigma, poses, maps, words) - before).abs().max() > 1e-3


def test_it_trains_and_dreams_end_to_end_and_goes_on_with_a_head(hub, tmp_path):
    model = model_of(hub)
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    clips = clips_of(model, episodes(count=4, interface=LONG))
    WorldTrainer(model, clips, training(steps=3, batch=4, warmup=1, learning_rate=1e-2), 0).run(lambda *line: None)
    moved = {name for name, weight in model.state_dict().items() if not torch.equal(weight, before[name])}
    new = {name for name in moved if ".pose." in name or ".map_embedding." in name}
    assert len(new) == 5 and all(".lora_" in name for name in moved - new)
    saved = publish(tmp_path / "world", "world_model", lambda folder: build.save(model, folder))
    policy, starts = ToyPolicy(spread=0.3, interface=LONG), [toy_state(column, interface=LONG) for column in (1, 4)]
    loaded = build.load(saved, form=Form(reward_head=RewardHeadConfig(hidden=8)))
    made, again = (rollout(Dream(one), policy, starts, stream=(0,), source="dream") for one in (model, loaded))
    assert made.frames.shape == (2, 17, 16, 16, 3) and torch.equal(made.frames, again.frames)
    assert made.probability is None and again.probability.shape == (2, 16)


def test_what_does_not_fit_is_refused(hub, tmp_path):
    config = model_of(hub).config.model_dump()
    for change, why in (({"prediction": "clean"}, "published with 'velocity'"), ({"compile": True}, "leave it out")):
        with pytest.raises(ValueError, match=why):
            WorldModelConfig.model_validate(config | change)
    with pytest.raises(ValueError, match="takes 4 channels and the codec makes 4: a Video2World one is needed"):
        model_of(publish_cosmos(tmp_path, in_channels=4))

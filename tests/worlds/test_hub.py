"""Published Wan weights end to end, on a tiny Wan of random weights saved as the hub lays them out."""

from __future__ import annotations

import pytest
import torch

from coevo.core import text
from coevo.rollout import rollout
from coevo.worlds import build, codecs, wan
from coevo.worlds.config import HubTransformer, WanVae
from coevo.worlds.dream import Dream
from coevo.worlds.training import WorldTrainer
from tests.doubles import ToyPolicy, toy_state
from tests.toy_artifacts import publish
from tests.worlds.examples import LONG, SEEN, clips_of, episodes, make_model, publish_hub, training


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    return publish_hub(tmp_path_factory.mktemp("hub"))


def hub_model(hub: str, lora_rank: int | None = None, interface=LONG, **choices):
    transformer = HubTransformer(source=hub, lora_rank=lora_rank)
    defaults = dict(codec=WanVae(source=hub), history=4, prediction="velocity")
    return make_model(interface=interface, transformer=transformer, **(defaults | choices))


def test_published_weights_load_under_their_own_names(hub):
    from safetensors.torch import load_file

    model = hub_model(hub)
    published = load_file(f"{hub}/transformer/diffusion_pytorch_model.safetensors")
    ours = {
        name.removeprefix("net.transformer.").replace("condition_embedder.embedder", "condition_embedder")
        .replace("patch_embedding.embedding", "patch_embedding"): weight
        for name, weight in model.state_dict().items()
    }  # fmt: skip
    assert published and all(torch.equal(weight, ours[name]) for name, weight in published.items())
    assert not set(ours).intersection(name for name in ours if name.startswith("net.words"))


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        (dict(history=3), "history = 3 is no multiple of the codec's 4 frames"),
        (dict(interface=SEEN), "frames per chunk = 2 is no multiple of the codec's 4 frames"),
    ],
)
def test_windows_that_the_causal_codec_cannot_hold_are_refused(hub, choices, message):
    with pytest.raises(ValueError, match=message):
        hub_model(hub, **choices)


@torch.no_grad()
def test_the_causal_codec_takes_1_plus_4_j_frames_and_gives_4_for_each_latent_frame(hub):
    codec = hub_model(hub).codec
    frames = torch.randint(0, 256, (2, 9, 16, 16, 3), dtype=torch.uint8)
    latents = codec.encode(frames)
    assert latents.shape == (2, 4, 3, 4, 4)
    assert codec.decode(latents[:, :, 1:], frames[:, 0]).shape == (2, 8, 16, 16, 3)
    for count in (2, 4, 8):
        with pytest.raises(ValueError, match=f"takes 1 \\+ 4 j frames, {count} were given"):
            codec.encode(frames[:, :count])


@torch.no_grad()
def test_the_future_is_decoded_as_the_rest_of_the_video_that_begins_at_the_present(hub):
    codec = hub_model(hub).codec
    frames = torch.randint(0, 256, (1, 9, 16, 16, 3), dtype=torch.uint8)
    latents = codec.encode(frames)
    whole = codec.vae.decode(latents * codec.std + codec.mean).sample
    expected = codecs.pixels.to_uint8(whole.transpose(1, 2))[:, 1:]
    assert torch.equal(codec.decode(latents[:, :, 1:], frames[:, 0]), expected)


@torch.no_grad()
def test_an_instruction_is_read_by_the_published_encoder_once(hub):
    from transformers import AutoTokenizer, UMT5EncoderModel

    words = wan.HubText(hub, 16)
    words.remember(["move the dot", "the line", "move the dot"])
    assert words.known == ["move the dot", "the line"]
    found = words(text.words(["the line", "move the dot"]))
    tokens = AutoTokenizer.from_pretrained(hub, subfolder="tokenizer")(["the line", "move the dot"])["input_ids"]
    encoder = UMT5EncoderModel.from_pretrained(hub, subfolder="text_encoder").eval()
    for row, ids in enumerate(tokens):
        expected = encoder(torch.tensor([ids])).last_hidden_state[0]
        torch.testing.assert_close(found[row, : len(ids)], expected, atol=1e-5, rtol=1e-4)
        assert not found[row, len(ids) :].any()
    words.source = "nowhere"  # what is known is not read again
    words.remember(["the line"])


@torch.no_grad()
def test_an_instruction_that_was_never_read_goes_not_unnoticed(hub):
    words = wan.HubText(hub, 16, places=2)
    assert words(text.words(["the dot"])).isnan().all()
    long = "move the dot to the line and back"
    with pytest.raises(ValueError, match="begin with the same 8 words"):
        words.remember([long, f"{long} again"])
    with pytest.raises(ValueError, match="takes 2 instructions, 3 were given"):
        words.remember(["dot", "line"])


@pytest.mark.parametrize("lora_rank", [2, None])
def test_a_published_model_trains_and_dreams_end_to_end(hub, lora_rank, tmp_path):
    model = hub_model(hub, lora_rank)
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    clips = clips_of(model, episodes(count=4, interface=LONG))
    assert clips.latents is None
    losses = []
    # Weights begin to move in the first step; those in front of a weight that begins at zero a step later.
    settings = training(steps=3, batch=4, warmup=1, learning_rate=1e-2)
    WorldTrainer(model, clips, settings, 0).run(lambda step, loss: losses.append(loss))
    assert len(losses) == 1 and losses[0] == losses[0]
    moved = {name for name, weight in model.state_dict().items() if not torch.equal(weight, before[name])}
    assert not any(name.startswith("codec.") for name in moved)
    new = {name for name in moved if ".pose." in name or ".map_embedding." in name}
    assert len(new) == 5
    if lora_rank:
        assert {name for name in moved - new if ".lora_" not in name} == set()
        assert len([name for name in moved if ".lora_" in name]) == 2 * 2 * 2 * 4  # A and B, layers, attentions, four
    else:
        assert any(name.endswith("blocks.0.ffn.net.0.proj.weight") for name in moved)
    saved = publish(tmp_path / "world", "world_model", lambda folder: build.save(model, folder))
    policy = ToyPolicy(spread=0.3, interface=LONG)
    starts = [toy_state(column, interface=LONG) for column in (1, 4)]
    made, again = (
        rollout(Dream(one), policy, starts, stream=(0,), source="dream") for one in (model, build.load(saved))
    )
    assert made.frames.shape == (2, 17, 16, 16, 3) and made.frames.float().std() > 0
    assert torch.equal(made.frames, again.frames)


@torch.no_grad()
def test_windows_of_training_are_grouped_as_those_of_dreaming(hub):
    model = hub_model(hub)
    made = episodes(count=2, interface=LONG)
    trainer = WorldTrainer(model, clips_of(model, made), training(self_rollout=0.0), 0)
    rows, first = torch.arange(2), torch.zeros(2, dtype=torch.int64)
    dream = Dream(model)
    dream.reset(made.starts, torch.tensor([1, 2]))
    nothing = torch.zeros(0, *model.latent_shape())
    torch.testing.assert_close(dream.latents, trainer.own.advance(rows, first, nothing)[2])
    window, trained = model.conditions(dream.poses, dream.words), trainer.windows.conditions(rows, first)
    torch.testing.assert_close(window.poses, trained.poses[:, :2])
    torch.testing.assert_close(window.marks, trained.marks[:, :2])
    # The future's latents are those of the video from the present on.
    future = trainer.windows.latents(rows, trainer.windows.future(first + 1))
    assert torch.equal(future, model.codec.encode(made.frames[:, 4:9])[:, :, 1:])

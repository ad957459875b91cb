"""A world model of the dot, small enough to train in a test, and a published one made of random weights."""

from __future__ import annotations

import json
from pathlib import Path

import torch

from coevo.core.types import Trajectories
from coevo.records.interface import Interface
from coevo.rollout import rollout
from coevo.worlds.clips import Clips, prepare
from coevo.worlds.config import NewTransformer, PixelCodec, WorldModelConfig, WorldTraining
from coevo.worlds.world_model import WorldModel
from tests.doubles import TOY, ToyPolicy, ToySimulator, toy_state

# The camera looks straight down from afar, so that action maps have their peaks where the dot is drawn.
SEEN = TOY.model_copy(
    update={
        "camera": TOY.camera.model_copy(
            update={"lookat": (7.0, 7.0, 0.0), "distance": 200.0, "azimuth": 90.0, "fovy": 4.5815}
        )
    }
)
LONG = Interface.parse(SEEN.model_dump() | {"chunk": 8, "horizon": 32}, "toy")
"""4 frames a chunk, 4 chunks: what a codec of 4 frames per latent frame takes."""

LONGER = SEEN.model_copy(update={"horizon": 16})
"""4 chunks of 2 frames."""

SMALL = NewTransformer(layers=2, heads=2, head_dim=32, ffn_dim=128, patch=4, text_dim=16)


def make_model(seed: int = 0, interface: Interface = SEEN, **choices) -> WorldModel:
    torch.manual_seed(seed)
    config = WorldModelConfig(**(dict(transformer=SMALL, codec=PixelCodec()) | choices))
    return WorldModel(config, interface, "toy/world")


def randomised(model: WorldModel, seed: int = 0) -> WorldModel:
    """The model with every weight that begins at zero drawn at random, so that no condition is without effect."""
    source = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.requires_grad and not weight.any():
                weight.copy_(torch.randn(weight.shape, generator=source) * 0.2)
    return model


def episodes(seed: int = 0, count: int = 24, interface: Interface = SEEN) -> Trajectories:
    """Dots that go left or right as chance has it."""
    states = [toy_state(2.0 + number % 10, interface=interface) for number in range(count)]
    policy = ToyPolicy(speed=0.0, spread=0.7, interface=interface)
    return rollout(ToySimulator(interface), policy, states, stream=(seed, "world"), source="simulator")


def clips_of(model: WorldModel, made: Trajectories, length: torch.Tensor | None = None) -> Clips:
    """With the simulator's success per frame."""
    length = made.length * model.interface.chunk_frames if length is None else length
    instructions = [start.instruction for start in made.starts]
    weights = torch.ones(len(made))
    return prepare(
        model, made.frames, made.actions, made.proprio[:, 0], length, instructions, weights, "cpu",
        success=made.truth.success,
    )  # fmt: skip


def training(**choices) -> WorldTraining:
    return WorldTraining(**(dict(steps=6, batch=8, warmup=2, ema=0.5, checkpoint_every=3) | choices))


def columns(frames: torch.Tensor) -> torch.Tensor:
    """Column of the dot in each frame: the centre of what is white (the goal line has no red)."""
    red = frames[..., 0].float().sum(dim=-2)
    return (red * torch.arange(frames.shape[-2])).sum(-1) / red.sum(-1).clamp_min(1.0) - 0.5


def publish_hub(folder: Path) -> str:
    """A published Wan of random weights: transformer, autoencoder, text encoder and tokenizer, as the hub lays them."""
    from diffusers import WanTransformer3DModel
    from transformers import UMT5Config, UMT5EncoderModel

    torch.manual_seed(0)
    WanTransformer3DModel(
        patch_size=(1, 2, 2), num_attention_heads=2, attention_head_dim=24, in_channels=4, out_channels=4, text_dim=16,
        freq_dim=32, ffn_dim=64, num_layers=2, rope_max_seq_len=32,
    ).save_pretrained(folder / "transformer")
    _publish_codec_and_text(folder, UMT5EncoderModel, UMT5Config)
    assert json.loads((folder / "transformer/config.json").read_text())["_class_name"] == "WanTransformer3DModel"
    return str(folder)


def publish_cosmos(folder: Path, **choices) -> str:
    """The same of Cosmos-Predict2 Video2World, which has Wan's autoencoder and a T5."""
    from diffusers import CosmosTransformer3DModel
    from transformers import T5Config, T5EncoderModel

    torch.manual_seed(0)
    CosmosTransformer3DModel(
        **(
            dict(
                in_channels=5, out_channels=4, num_attention_heads=2, attention_head_dim=24, num_layers=2,
                mlp_ratio=2.0, text_embed_dim=16, adaln_lora_dim=8, max_size=(32, 32, 32), extra_pos_embed_type=None,
            )
            | choices
        )
    ).save_pretrained(folder / "transformer")  # fmt: skip
    _publish_codec_and_text(folder, T5EncoderModel, T5Config)
    return str(folder)


def _publish_codec_and_text(folder: Path, encoder: type, config: type) -> None:
    from diffusers import AutoencoderKLWan
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    AutoencoderKLWan(
        base_dim=8, z_dim=4, dim_mult=[1, 1, 1], num_res_blocks=1, temperal_downsample=[True, True],
        latents_mean=[0.1] * 4, latents_std=[0.5] * 4, scale_factor_spatial=4,
    ).save_pretrained(folder / "vae")
    known = ["<pad>", "</s>", "<unk>", *dict.fromkeys(TOY.instruction.split())]
    words = {word: number for number, word in enumerate(known)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", eos_token="</s>", unk_token="<unk>") \
        .save_pretrained(folder / "tokenizer")
    settings = config(
        vocab_size=len(words), d_model=16, d_kv=8, d_ff=32, num_layers=1, num_heads=2, relative_attention_num_buckets=8
    )
    encoder(settings).save_pretrained(folder / "text_encoder")

"""The Wan transformer of diffusers, conditioned on actions without touching its code or its weight names.

Two modules of it are wrapped after its weights are loaded: the condition embedder, whose per-frame modulation takes
the commanded pose, and the patch embedding, which adds embedded action maps and features. All begin at zero, so a
published model starts as itself.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from diffusers import CosmosTransformer3DModel, WanTransformer3DModel
from einops import rearrange
from jaxtyping import Float, Int64
from torch import Tensor, nn

from coevo.core import text
from coevo.worlds.conditioned import ActionTransformer, PatchesWithMaps, pose_embedding
from coevo.worlds.config import CosmosTransformer, HubTransformer, NewTransformer
from coevo.worlds.cosmos import ActionCosmos


class PoseModulation(nn.Module):
    """Wraps the condition embedder: noise level and commanded pose per frame, spread over the frame's tokens.

    The transformer hands it one timestep per frame; computing the modulation per frame and not per token saves all
    but one of a frame's equal rows.
    """

    def __init__(self, embedder: nn.Module, pose_size: int, dim: int) -> None:
        super().__init__()
        self.embedder = embedder
        self.pose = pose_embedding(pose_size, dim, dim)
        self.poses: Tensor | None = None
        self.tokens_per_frame = 1

    def forward(self, timestep, encoder_hidden_states, encoder_hidden_states_image=None, timestep_seq_len=None):
        inner = self.embedder
        waves = inner.timesteps_proj(timestep).unflatten(0, (-1, timestep_seq_len))
        time = inner.time_embedder(waves.to(encoder_hidden_states.dtype))
        if self.poses is not None:
            time = time + self.pose(self.poses.to(time.dtype)).to(time.dtype)
        projected = inner.time_proj(inner.act_fn(time))
        words = inner.text_embedder(encoder_hidden_states)
        return self._spread(time), self._spread(projected), words, None

    def _spread(self, per_frame: Tensor) -> Tensor:
        return per_frame.repeat_interleave(self.tokens_per_frame, dim=1)


class ActionWan(ActionTransformer):
    """Wan's transformer with actions."""

    def __init__(
        self,
        transformer: WanTransformer3DModel,
        pose_size: int,
        patch_pixels: int,
        words: nn.Module,
        features: int = 0,
    ) -> None:
        super().__init__(transformer, words)
        self.dim = transformer.config.num_attention_heads * transformer.config.attention_head_dim
        self.patch = transformer.config.patch_size[1]
        transformer.condition_embedder = PoseModulation(transformer.condition_embedder, pose_size, self.dim)
        embedding = transformer.patch_embedding
        transformer.patch_embedding = PatchesWithMaps(embedding, self.dim, patch_pixels, features=features)

    def forward(self, latents, sigma, poses, maps, words, features=None):
        """As ActionTransformer."""
        modulation, patches = self.transformer.condition_embedder, self.transformer.patch_embedding
        modulation.tokens_per_frame = (latents.shape[3] // self.patch) * (latents.shape[4] // self.patch)
        modulation.poses, patches.maps, patches.features = poses, maps, features
        try:
            encoded = self.words(words)
            (output,) = self.transformer(
                hidden_states=latents, timestep=sigma * 1000.0, encoder_hidden_states=encoded, return_dict=False
            )
        finally:
            modulation.poses = patches.maps = patches.features = None
        return output


class WordEmbedding(nn.Module):
    """Learned embeddings of hashed words, for models small enough to train them."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.table = nn.Embedding(text.VOCABULARY, dim)

    def forward(self, words: Int64[Tensor, "b l"]) -> Float[Tensor, "b l d"]:
        return self.table(words)


class HubText(nn.Module):
    """The published text encoder's states of each instruction, read once and kept (UMT5 for Wan, T5 for Cosmos).

    They stand in places that never move, so that a captured graph also finds what was read after its capture. An
    instruction that was never read has the states of the first place: not a number, and so nothing goes unnoticed.
    """

    def __init__(self, source: str, dim: int, length: int = 32, places: int = 64) -> None:
        super().__init__()
        self.source, self.length = source, length
        self.known: list[str] = []
        self.register_buffer("rows", torch.full((1 + places, text.LENGTH), -1), persistent=False)
        self.register_buffer("states", torch.full((1 + places, length, dim), float("nan")), persistent=False)

    @torch.no_grad()
    def remember(self, instructions: Sequence[str]) -> None:
        """Read instructions that are new; the encoder is loaded for it and dropped again.

        Raises ValueError when two instructions begin with the same words, or there are more than there are places.
        """
        new = [name for name in dict.fromkeys(instructions) if name not in self.known]
        if not new:
            return
        if len(self.known) + len(new) >= len(self.rows):
            raise ValueError(
                f"a world model with a published text encoder takes {len(self.rows) - 1} instructions, "
                f"{len(self.known) + len(new)} were given; train one for each part of the tasks"
            )
        from transformers import AutoModelForTextEncoding, AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(self.source, subfolder="tokenizer")
        encoder = AutoModelForTextEncoding.from_pretrained(self.source, subfolder="text_encoder")
        encoder = encoder.to(self.states.device).eval()
        for name, row in zip(new, text.words(new).to(self.rows.device), strict=True):
            same = (self.rows == row).all(dim=1)
            if same.any():
                other = self.known[int(same.int().argmax()) - 1]
                raise ValueError(f"{name!r} and {other!r} begin with the same {text.LENGTH} words; reword one of them")
            tokens = tokenizer(name, padding="max_length", max_length=self.length, truncation=True, return_tensors="pt")
            tokens = tokens.to(self.states.device)
            read = encoder(tokens.input_ids, tokens.attention_mask).last_hidden_state[0]
            self.known.append(name)
            # As in Wan's own pipeline, what lies behind the instruction's end is zero.
            self.states[len(self.known)] = read * tokens.attention_mask[0][:, None]
            self.rows[len(self.known)] = row

    def forward(self, words: Int64[Tensor, "b l"]) -> Float[Tensor, "b l2 d"]:
        return self.states[(words[:, None] == self.rows).all(dim=2).int().argmax(dim=1)]


def build_transformer(
    settings: NewTransformer | HubTransformer | CosmosTransformer, channels: int, pose_size: int, factor: int,
    features: int = 0,
) -> ActionTransformer:  # fmt: skip
    """A new transformer, or a published one with the same wrapping."""
    match settings:
        case NewTransformer():
            transformer = WanTransformer3DModel(
                patch_size=(1, settings.patch, settings.patch),
                num_attention_heads=settings.heads,
                attention_head_dim=settings.head_dim,
                in_channels=channels,
                out_channels=channels,
                text_dim=settings.text_dim,
                freq_dim=64,
                ffn_dim=settings.ffn_dim,
                num_layers=settings.layers,
                rope_max_seq_len=64,
            )
            return _wan(transformer, pose_size, factor, WordEmbedding(settings.text_dim), features)
        case HubTransformer():
            transformer = WanTransformer3DModel.from_pretrained(settings.source, subfolder="transformer")
            words = HubText(settings.source, transformer.config.text_dim)
            model: ActionTransformer = _wan(transformer, pose_size, factor, words, features)
        case CosmosTransformer():
            transformer = CosmosTransformer3DModel.from_pretrained(settings.source, subfolder="transformer")
            words = HubText(settings.source, transformer.config.text_embed_dim)
            model = ActionCosmos(transformer, channels, pose_size, factor, words, features)
    if settings.lora_rank:
        _add_lora(model, settings.lora_rank)
    return model


def _wan(transformer: WanTransformer3DModel, pose_size: int, factor: int, words: nn.Module, features: int) -> ActionWan:
    # float64 rotations would promote every attention input to double; float32 holds positions of a short window.
    for name in ("freqs_cos", "freqs_sin"):
        setattr(transformer.rope, name, getattr(transformer.rope, name).float())
    return ActionWan(transformer, pose_size, transformer.config.patch_size[1] * factor, words, features)


def _add_lora(model: ActionTransformer, rank: int) -> None:
    """LoRA on the attention projections; the new condition weights train whole."""
    from peft import LoraConfig

    model.transformer.requires_grad_(False)
    projections = ["to_q", "to_k", "to_v", "to_out.0"]
    model.transformer.add_adapter(LoraConfig(r=rank, lora_alpha=rank, target_modules=projections))
    for name, weight in model.transformer.named_parameters():
        if any(new in name for new in (".pose.", ".map_embedding.", ".feature_embedding.")):
            weight.requires_grad_(True)


def frame_poses(poses: Float[Tensor, "b w s 4"], temporal: int) -> Float[Tensor, "b w2 p"]:
    """Poses of the frames that a latent frame covers, side by side; the first frame stands for a whole group."""
    first = poses[:, :1].expand(-1, temporal, -1, -1)
    groups = torch.cat([first, poses[:, 1:]], dim=1)
    return rearrange(groups, "b (w g) s p -> b w (g s p)", g=temporal)

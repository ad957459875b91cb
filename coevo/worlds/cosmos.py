"""The Cosmos-Predict2 transformer of diffusers (Video2World), conditioned on actions as Wan's is.

Its time embedding and its patch embedding are wrapped after its weights are loaded; both additions begin at zero. Its
own velocity is noise minus clean at x = (1 - t) clean + t noise, with t as it is for a timestep.
"""

from __future__ import annotations

import torch
from diffusers import CosmosTransformer3DModel
from einops import rearrange
from torch import Tensor, nn

from coevo.worlds.conditioned import ActionTransformer, PatchesWithMaps, pose_embedding

FPS = 16
"""What its own pipeline says of every video; positions in time are scaled by it."""


class PoseTime(nn.Module):
    """Wraps the time embedding: adds the commanded pose of each frame to its modulation."""

    def __init__(self, embedding: nn.Module, pose_size: int, dim: int) -> None:
        super().__init__()
        self.embedding = embedding
        self.pose = pose_embedding(pose_size, dim, 3 * dim)
        self.poses: Tensor | None = None

    def forward(self, hidden_states: Tensor, timestep: Tensor) -> tuple[Tensor, Tensor]:
        """Of all frames of all rows, one after the other."""
        modulation, time = self.embedding(hidden_states, timestep)
        if self.poses is not None:
            modulation = modulation + self.pose(self.poses.flatten(0, 1).to(modulation.dtype)).to(modulation.dtype)
        return modulation, time


class CosmosPatches(PatchesWithMaps):
    """As for Wan, behind the channel that marks context frames and the padding mask, which is zero."""

    def __init__(self, embedding: nn.Module, dim: int, patch_pixels: int, features: int) -> None:
        super().__init__(embedding, dim, patch_pixels, features=features)
        self.is_context: Tensor | None = None

    def forward(self, latents: Tensor) -> Tensor:
        """Tokens b w gh gw d."""
        mask = self.is_context[:, None, :, None, None].to(latents).expand(-1, -1, -1, *latents.shape[3:])
        tokens = self.embedding(torch.cat([latents, mask, torch.zeros_like(mask)], dim=1))
        return rearrange(self.added(rearrange(tokens, "b w h v d -> b d w h v")), "b d w h v -> b w h v d")


class ActionCosmos(ActionTransformer):
    """A Video2World transformer with actions. ValueError for one without the channel that marks context frames."""

    def __init__(
        self, transformer: CosmosTransformer3DModel, channels: int, pose_size: int, factor: int, words: nn.Module,
        features: int = 0,
    ) -> None:  # fmt: skip
        super().__init__(transformer, words)
        config = transformer.config
        if config.in_channels != channels + 1 or not config.concat_padding_mask:
            raise ValueError(
                f"this Cosmos transformer takes {config.in_channels} channels and the codec makes {channels}: a "
                "Video2World one is needed, which has one more for the mark of context frames, and a padding mask"
            )
        # The padding mask is concatenated here; the model's own way needs torchvision to make it.
        transformer.register_to_config(concat_padding_mask=False)
        self.patch = config.patch_size[1]
        self.dim = config.num_attention_heads * config.attention_head_dim
        transformer.time_embed = PoseTime(transformer.time_embed, pose_size, self.dim)
        pixels = self.patch * factor
        transformer.patch_embed = CosmosPatches(transformer.patch_embed, self.dim, pixels, features)

    def forward(self, latents, sigma, poses, maps, words, features=None):
        """As ActionTransformer."""
        time, patches = self.transformer.time_embed, self.transformer.patch_embed
        time.poses, patches.maps, patches.features, patches.is_context = poses, maps, features, sigma == 0
        try:
            (output,) = self.transformer(
                hidden_states=latents, timestep=sigma[:, None, :, None, None], encoder_hidden_states=self.words(words),
                fps=FPS, return_dict=False,
            )  # fmt: skip
        finally:
            time.poses = patches.maps = patches.features = patches.is_context = None
        return output

"""What the wrapped transformers share: their interface, poses that are added to a modulation, maps added to tokens."""

from __future__ import annotations

import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float, Int64
from torch import Tensor, nn


class ActionTransformer(nn.Module):
    """Latent frames, their noise levels and their actions in; one output per latent frame out.

    Attributes:
        patch: side of a patch in latent cells.
        dim: size of the features that the output is a linear map of.
    """

    patch: int
    dim: int

    def __init__(self, transformer: nn.Module, words: nn.Module) -> None:
        super().__init__()
        self.transformer, self.words = transformer, words
        self._features: Tensor | None = None

    def forward(
        self,
        latents: Float[Tensor, "b c w h2 w2"],
        sigma: Float[Tensor, "b w"],
        poses: Float[Tensor, "b w p"] | None,
        maps: Float[Tensor, "b 2 w h w3"] | None,
        words: Int64[Tensor, "b l"],
        features: Float[Tensor, "b d v gh gw"] | None = None,
    ) -> Float[Tensor, "b c w h2 w2"]:
        """`sigma` is the noise level per frame in [0, 1]; poses are normalised; maps are at pixel resolution; features
        are those of the first v frames, by patch."""
        raise NotImplementedError

    def keep_features(self) -> None:
        """From now on hold what the output is a linear map of, until `features` takes it."""
        self.transformer.proj_out.register_forward_pre_hook(self._hold)

    def features(self, frames: int) -> Float[Tensor, "b w t d"]:
        """The last output's features, by latent frame."""
        held, self._features = self._features, None
        return rearrange(held, "b (w t) d -> b w t d", w=frames)

    def _hold(self, module: nn.Module, inputs: tuple[Tensor]) -> None:
        (self._features,) = inputs


def pose_embedding(pose_size: int, hidden: int, out: int) -> nn.Sequential:
    """An embedding of poses that is zero at first."""
    layers = nn.Sequential(nn.Linear(pose_size, hidden), nn.SiLU(), nn.Linear(hidden, out))
    nn.init.zeros_(layers[2].weight)
    nn.init.zeros_(layers[2].bias)
    return layers


class PatchesWithMaps(nn.Module):
    """Wraps a patch embedding: adds maps at pixel resolution, one kernel per patch, and features by patch.

    The weights of both are zero at first.
    """

    def __init__(self, embedding: nn.Module, dim: int, patch_pixels: int, maps: int = 2, features: int = 0) -> None:
        super().__init__()
        self.embedding = embedding
        kernel = (1, patch_pixels, patch_pixels)
        self.map_embedding = nn.Conv3d(maps, dim, kernel, stride=kernel, bias=False)
        nn.init.zeros_(self.map_embedding.weight)
        self.feature_embedding = nn.Conv3d(features, dim, 1, bias=False) if features else None
        if features:
            nn.init.zeros_(self.feature_embedding.weight)
        self.maps: Tensor | None = None
        self.features: Tensor | None = None

    def forward(self, latents: Tensor) -> Tensor:
        """Tokens, as the embedding lays them out."""
        return self.added(self.embedding(latents))

    def added(self, tokens: Float[Tensor, "b d w gh gw"]) -> Float[Tensor, "b d w gh gw"]:
        """The tokens with maps and features."""
        if self.maps is not None:
            tokens = tokens + self.map_embedding(self.maps.to(tokens.dtype))
        if self.features is not None:  # of the context frames, which stand first
            seen = self.feature_embedding(self.features.to(tokens.dtype))
            tokens = tokens + F.pad(seen, (0, 0, 0, 0, 0, tokens.shape[2] - seen.shape[2]))
        return tokens

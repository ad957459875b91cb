"""A world model's own reward head: success per drawn frame, from what the frame is drawn from.

World-VLA-Loop maps denoised diffusion latents to a reward by a small MLP, trained together with flow matching. Here
the MLP reads the transformer's last features, of which the denoised latents are a linear map, at the last step of
sampling; recorded frames are read the same way, noised to that step's level.
"""

from __future__ import annotations

import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Bool, Float
from torch import Tensor, nn

from coevo.worlds.config import RewardHeadConfig


class RewardHead(nn.Module):
    """Every token of a latent frame through an MLP, their mean through another.

    Args:
        dim: size of the transformer's features.
        temporal: recorded frames that a latent frame stands for; each gets its own answer.
    """

    def __init__(self, settings: RewardHeadConfig, dim: int, temporal: int) -> None:
        super().__init__()
        self.tokens = nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, settings.hidden), nn.SiLU())
        self.frame = nn.Sequential(
            nn.Linear(settings.hidden, settings.hidden), nn.SiLU(), nn.Linear(settings.hidden, temporal)
        )

    def forward(self, features: Float[Tensor, "b w t d"]) -> Float[Tensor, "b f"]:
        """Logits of success, one per recorded frame (f = temporal w), of `w` latent frames with `t` tokens each."""
        return rearrange(self.frame(self.tokens(features).mean(dim=2)).float(), "b w g -> b (w g)")


def success_loss(logits: Float[Tensor, "b f"], success: Bool[Tensor, "b f"]) -> Float[Tensor, ""]:
    """Binary cross-entropy, the mean over frames."""
    return F.binary_cross_entropy_with_logits(logits, success.float())

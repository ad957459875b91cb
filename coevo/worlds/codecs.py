"""Frames to latents and back.

Every codec has `channels`, `factor` (pixels per latent cell and side) and `temporal` (frames per latent frame after the
first; a window then holds 1 + temporal * j frames). `encode` maps u8 frames to float32 latents of about unit scale, and
`decode` latents to the temporal * f2 frames that follow the frame `present`.
"""

from __future__ import annotations

import torch
from einops import rearrange
from jaxtyping import Float, UInt8
from torch import Tensor, nn

from coevo.core import frames as pixels
from coevo.worlds import config

IMAGES_AT_A_TIME = 64
"""By which the small codec works on a CPU."""


class Pixels(nn.Module):
    """No compression: latents are the pixels in [-1, 1]."""

    channels, factor, temporal = 3, 1, 1

    def encode(self, frames: UInt8[Tensor, "b f h w 3"]) -> Float[Tensor, "b c f h w"]:
        return rearrange(pixels.to_float(frames), "b f c h w -> b c f h w")

    def decode(
        self, latents: Float[Tensor, "b c f h w"], present: UInt8[Tensor, "b h w 3"]
    ) -> UInt8[Tensor, "b f h w 3"]:
        return pixels.to_uint8(rearrange(latents, "b c f h w -> b f c h w"))


class ConvAutoencoder(nn.Module):
    """8 x 8 pixels to one latent vector by three strided convolutions, and back; one frame at a time."""

    factor, temporal = 8, 1

    def __init__(self, settings: config.ConvCodec) -> None:
        super().__init__()
        self.channels = settings.channels
        w = settings.width
        self.encoder = nn.Sequential(
            nn.Conv2d(3, w, 4, 2, 1), nn.SiLU(), _Residual(w),
            nn.Conv2d(w, 2 * w, 4, 2, 1), nn.SiLU(), _Residual(2 * w),
            nn.Conv2d(2 * w, 4 * w, 4, 2, 1), nn.SiLU(), _Residual(4 * w),
            nn.Conv2d(4 * w, settings.channels, 1),
        )  # fmt: skip
        self.decoder = nn.Sequential(
            nn.Conv2d(settings.channels, 4 * w, 3, 1, 1), _Residual(4 * w),
            nn.Conv2d(4 * w, 8 * w, 1), nn.PixelShuffle(2), nn.SiLU(), _Residual(2 * w),
            nn.Conv2d(2 * w, 4 * w, 1), nn.PixelShuffle(2), nn.SiLU(), _Residual(w),
            nn.Conv2d(w, 12, 3, 1, 1), nn.PixelShuffle(2),
        )  # fmt: skip
        self.register_buffer("mean", torch.zeros(settings.channels))
        self.register_buffer("std", torch.ones(settings.channels))
        # Frames arrive with their channels last; weights laid out alike spare the convolutions a third of their time.
        self.to(memory_format=torch.channels_last)

    def encode(self, frames: UInt8[Tensor, "b f h w 3"]) -> Float[Tensor, "b c f h2 w2"]:
        batch = frames.shape[0]
        latents = _in_parts(self.encoder, rearrange(pixels.to_float(frames), "b f c h w -> (b f) c h w"))
        latents = (latents.float() - self.mean[:, None, None]) / self.std[:, None, None]
        return rearrange(latents, "(b f) c h w -> b c f h w", b=batch)

    def decode(
        self, latents: Float[Tensor, "b c f h2 w2"], present: UInt8[Tensor, "b h w 3"]
    ) -> UInt8[Tensor, "b f h w 3"]:
        batch = latents.shape[0]
        images = self.reconstruct(rearrange(latents, "b c f h w -> (b f) c h w"))
        return pixels.to_uint8(rearrange(images, "(b f) c h w -> b f c h w", b=batch))

    def reconstruct(self, latents: Float[Tensor, "b c h2 w2"]) -> Float[Tensor, "b 3 h w"]:
        """Normalised latents to images in [-1, 1], with gradient."""
        return _in_parts(self.decoder, latents * self.std[:, None, None] + self.mean[:, None, None])


def _in_parts(network: nn.Module, images: Float[Tensor, "b c h w"]) -> Float[Tensor, "b c2 h2 w2"]:
    """The network of all images; on a CPU, without gradient, of so few at a time that they stay in its caches."""
    if images.is_cuda or torch.is_grad_enabled():
        return network(images)
    return torch.cat([network(part) for part in images.split(IMAGES_AT_A_TIME)])


class WanVideoCodec(nn.Module):
    """AutoencoderKLWan of diffusers, frozen; latents normalised by the statistics in its configuration."""

    def __init__(self, vae: nn.Module) -> None:
        super().__init__()
        self.vae = vae.requires_grad_(False)
        self.channels = vae.config.z_dim
        self.factor = vae.config.scale_factor_spatial
        self.temporal = vae.config.scale_factor_temporal
        self.register_buffer("mean", torch.tensor(vae.config.latents_mean).view(-1, 1, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(vae.config.latents_std).view(-1, 1, 1, 1), persistent=False)

    def encode(self, frames: UInt8[Tensor, "b f h w 3"]) -> Float[Tensor, "b c f2 h2 w2"]:
        if (frames.shape[1] - 1) % self.temporal:
            raise ValueError(
                f"this codec takes 1 + {self.temporal} j frames, {frames.shape[1]} were given: its causal "
                "convolutions would drop the tail. Choose history and chunk frames that are multiples of it"
            )
        video = rearrange(pixels.to_float(frames), "b f c h w -> b c f h w")
        return (self.vae.encode(video.to(self.vae.dtype)).latent_dist.mode().float() - self.mean) / self.std

    def decode(
        self, latents: Float[Tensor, "b c f2 h2 w2"], present: UInt8[Tensor, "b h w 3"]
    ) -> UInt8[Tensor, "b f h w 3"]:
        # The first latent frame of a video stands for one frame only, so the future is decoded behind the present.
        latents = torch.cat([self.encode(present[:, None]), latents], dim=2)
        video = self.vae.decode((latents * self.std + self.mean).to(self.vae.dtype)).sample
        return pixels.to_uint8(rearrange(video[:, :, 1:], "b c f h w -> b f c h w"))


def build(settings: config.Codec) -> Pixels | ConvAutoencoder | WanVideoCodec:
    """A codec, untrained where it has weights of its own, loaded where it comes from the hub."""
    match settings:
        case config.PixelCodec():
            return Pixels()
        case config.ConvCodec():
            return ConvAutoencoder(settings)
        case config.WanVae():
            from diffusers import AutoencoderKLWan

            return WanVideoCodec(AutoencoderKLWan.from_pretrained(settings.source, subfolder="vae"))


class _Residual(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.GroupNorm(8, channels), nn.SiLU(), nn.Conv2d(channels, channels, 3, 1, 1),
            nn.GroupNorm(8, channels), nn.SiLU(), nn.Conv2d(channels, channels, 3, 1, 1),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x)

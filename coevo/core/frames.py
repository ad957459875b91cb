"""The only place where frames change between uint8 and float."""

from __future__ import annotations

from einops import rearrange
from jaxtyping import Float, UInt8
from torch import Tensor


def to_float(frames: UInt8[Tensor, "*b h w 3"]) -> Float[Tensor, "*b 3 h w"]:
    """uint8 [0, 255], channels last, to float32 [-1, 1], channels first."""
    return rearrange(frames, "... h w c -> ... c h w").float().div_(127.5).sub_(1.0)


def to_uint8(frames: Float[Tensor, "*b 3 h w"]) -> UInt8[Tensor, "*b h w 3"]:
    """The inverse of `to_float`, clamped and rounded to the nearest level."""
    levels = frames.float().add(1.0).mul_(127.5).round_().clamp_(0, 255)
    return rearrange(levels.byte(), "... c h w -> ... h w c").contiguous()

"""Frozen image encoders whose features of the context frames help a world model to draw (World-Env).

World-Env injects VGGT's geometry and CLIP's semantics. An encoder here answers with a map per frame; maps are laid
over the patches of the context frames and added through a projection that begins at zero. DINOv2 is the encoder that
VGGT itself begins with; VGGT has no class in `transformers` and comes in as a class of one's own.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float, UInt8
from torch import Tensor, nn

from coevo.core import frames as pixels
from coevo.core import parts
from coevo.core.layers import strided_convolutions
from coevo.core.parts import PythonPart
from coevo.records.interface import Interface
from coevo.worlds.config import ClipFeatures, DinoFeatures, Features, GeometryFeatures

FRAMES_AT_A_TIME = 64


class Geometry(nn.Module):
    """A small convolutional encoder, trained by `features_training` before the world model that reads it."""

    def __init__(self, settings: GeometryFeatures, interface: Interface) -> None:
        super().__init__()
        layers, _ = strided_convolutions(settings.channels, interface.camera)
        self.net = nn.Sequential(*layers[:-1])  # the map, not flattened
        self.settings, self.channels = settings, settings.channels[-1]
        self.register_buffer("trained", torch.zeros(()))

    def forward(self, frames: UInt8[Tensor, "n h w 3"]) -> Float[Tensor, "n c gh gw"]:
        """One cell per 16 x 16 pixels."""
        return self.net(pixels.to_float(frames))


class _Published(nn.Module):
    """An encoder of `transformers` at the size and with the colour statistics that it was trained with."""

    def __init__(self, model: nn.Module, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        self.model, self.channels = model, model.config.hidden_size
        for name, value in (("mean", mean), ("std", std)):
            self.register_buffer(name, torch.tensor(value).view(3, 1, 1), persistent=False)

    def seen(self, frames: UInt8[Tensor, "n h w 3"]) -> Float[Tensor, "n 3 s s"]:
        size = self.model.config.image_size
        shown = F.interpolate(pixels.to_float(frames), size=(size, size), mode="bilinear", antialias=True)
        return (shown * 0.5 + 0.5 - self.mean) / self.std


class Dino(_Published):
    """Patch features of DINOv2."""

    def __init__(self, settings: DinoFeatures) -> None:
        from transformers import Dinov2Model
        from transformers.image_utils import IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD

        super().__init__(Dinov2Model.from_pretrained(settings.source), IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD)

    def forward(self, frames: UInt8[Tensor, "n h w 3"]) -> Float[Tensor, "n c gh gw"]:
        """One cell per patch."""
        states = self.model(self.seen(frames)).last_hidden_state[:, 1:]
        return rearrange(states, "n (gh gw) c -> n c gh gw", gh=round(states.shape[1] ** 0.5))


class Clip(_Published):
    """CLIP's pooled output: what the frame shows, the same for all of its patches."""

    def __init__(self, settings: ClipFeatures) -> None:
        from transformers import CLIPVisionModel
        from transformers.image_utils import OPENAI_CLIP_MEAN, OPENAI_CLIP_STD

        super().__init__(CLIPVisionModel.from_pretrained(settings.source), OPENAI_CLIP_MEAN, OPENAI_CLIP_STD)

    def forward(self, frames: UInt8[Tensor, "n h w 3"]) -> Float[Tensor, "n c 1 1"]:
        """One cell."""
        return self.model(self.seen(frames)).pooler_output[:, :, None, None]


def build(settings: Features, interface: Interface) -> nn.Module:
    """An encoder: u8 frames [n h w 3] to a map [n c gh gw], with `channels` c. Published ones load from the hub."""
    match settings:
        case GeometryFeatures():
            return Geometry(settings, interface)
        case DinoFeatures():
            return Dino(settings)
        case ClipFeatures():
            return Clip(settings)
        case PythonPart():
            return parts.make(settings.target, settings.options, interface=interface)


class FrameFeatures(nn.Module):
    """All encoders of a world model, frozen. `grid` is set by it: patches per column and row of a latent frame."""

    grid: tuple[int, int]

    def __init__(self, settings: Sequence[Features], interface: Interface) -> None:
        super().__init__()
        self.encoders = nn.ModuleList(build(each, interface) for each in settings)
        self.channels = sum(encoder.channels for encoder in self.encoders)
        self.requires_grad_(False)

    def train(self, mode: bool = True) -> FrameFeatures:
        """Encoders are read as they are also while the world model trains."""
        return super().train(False)

    @torch.no_grad()
    def maps(self, frames: UInt8[Tensor, "b f h w 3"]) -> tuple[Float[Tensor, "b f _ _ _"], ...]:
        """Each encoder's own map of each frame."""
        flat = frames.flatten(0, 1)
        found = []
        for encoder in self.encoders:
            read = torch.cat([encoder(part).float() for part in flat.split(FRAMES_AT_A_TIME)])
            found.append(read.unflatten(0, frames.shape[:2]))
        return tuple(found)

    def laid_out(self, maps: Sequence[Float[Tensor, "b f _ _ _"]]) -> Float[Tensor, "b d f gh gw"]:
        """Maps over the patches, of unit scale, side by side."""
        laid = []
        for each in maps:
            scaled = F.layer_norm(each.movedim(2, -1), each.shape[2:3]).movedim(-1, 2)
            fitted = F.interpolate(scaled.flatten(0, 1), size=self.grid, mode="bilinear", antialias=True)
            laid.append(rearrange(fitted, "(b f) c h w -> b c f h w", b=len(each)))
        return torch.cat(laid, dim=1)

    def forward(self, frames: UInt8[Tensor, "b f h w 3"]) -> Float[Tensor, "b d f gh gw"]:
        """What the transformer is given of these frames."""
        return self.laid_out(self.maps(frames))

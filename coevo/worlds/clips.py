"""Episodes cut into windows: a world model is trained on them, and its reward head reads recorded frames in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Bool, Float32, Int64, UInt8
from torch import Tensor

from coevo.core import kinematics
from coevo.worlds.world_model import Window, WorldModel

MOVED_LEVELS = 8
"""Grey levels (of 255) by which a pixel must differ from the last history frame to count as moved."""


@dataclass(frozen=True)
class Clips:
    """Episodes ready to be cut into windows, on the world model's device."""

    frames: UInt8[Tensor, "n f1 h w 3"]
    latents: Float32[Tensor, "n f1 c h2 w2"] | None
    """Encoded frames, kept where the codec works frame by frame."""
    poses: Float32[Tensor, "n f1 sp"]
    """Normalised commanded poses of the control steps that led to each frame."""
    marks: Float32[Tensor, "n f1 2 2"]
    words: Int64[Tensor, "n l"]
    decisions: Int64[Tensor, " n"]
    """Whole chunks in each episode."""
    weights: Float32[Tensor, " n"]
    """Sampling weight of each episode."""
    twins: Int64[Tensor, "n m"] | None = None
    """Episodes from the same start with the other outcome, where `together` of the training draws them side by side."""
    success: Bool[Tensor, "n f"] | None = None
    """The simulator's outcome per frame after the first, for a reward head."""
    features: tuple[Float32[Tensor, "n f1 _ _ _"], ...] = ()
    """Of each encoder that the world model reads, its map of each frame."""


def prepare(
    model: WorldModel,
    frames: UInt8[Tensor, "n f1 h w 3"],
    actions: Float32[Tensor, "n t a"],
    proprio: Float32[Tensor, "n p"],
    length: Int64[Tensor, " n"],
    instructions: Sequence[str],
    weights: Float32[Tensor, " n"],
    device: str | torch.device,
    twins: Int64[Tensor, "n m"] | None = None,
    success: Bool[Tensor, "n f"] | None = None,
) -> Clips:
    """Encode and condition episodes once.

    Args:
        proprio: at the first frame; commands alone say the rest.
        length: frames after the first. Episodes shorter than a chunk are never drawn; ValueError if that leaves none.
    """
    interface, s = model.interface, model.interface.stride
    start = proprio[:, :4].to(device)
    path = kinematics.commanded_poses(interface.action, start, actions.to(device))
    path = rearrange(path, "n (f s) p -> n f s p", s=s)
    path = torch.cat([start[:, None, None].expand(-1, 1, s, -1), path], dim=1)
    normalised = kinematics.normalised(interface.action, path)
    decisions = (length // interface.chunk_frames).to(device)
    weights = torch.where(decisions > 0, weights.to(device).float(), 0.0)
    if not weights.any():
        raise ValueError(f"none of the {len(length)} episodes holds a whole chunk of {interface.chunk_frames} frames")
    latents = None
    if model.codec.temporal == 1:
        keep = torch.bfloat16 if torch.device(device).type == "cuda" else torch.float32
        with torch.no_grad():
            parts = [model.codec.encode(part.to(device)).to(keep) for part in frames.split(64)]
        latents = rearrange(torch.cat(parts), "n c f h w -> n f c h w").contiguous()
    features: tuple[Tensor, ...] = ()
    if model.features is not None:
        found = [model.features.maps(part.to(device)) for part in frames.split(64)]
        features = tuple(torch.cat(maps) for maps in zip(*found, strict=True))
    return Clips(
        frames=frames.to(device), latents=latents, poses=rearrange(normalised, "n f s p -> n f (s p)"),
        marks=kinematics.marks(interface.camera, path[:, :, -1, :3]), words=model.numbered(instructions),
        decisions=decisions, weights=weights, twins=None if twins is None else twins.to(device),
        success=None if success is None else success.to(device), features=features,
    )  # fmt: skip


class Windows:
    """Windows of clips, by episode and decision: int64 [b] each, on the clips' device."""

    def __init__(self, model: WorldModel, clips: Clips) -> None:
        self.model, self.clips = model, clips
        self.per = model.interface.chunk_frames

    def past(self, decision: Int64[Tensor, " b"]) -> Int64[Tensor, "b v"]:
        """Frame numbers of the context: the initial frame, then history up to the present, never below 0."""
        present = decision[:, None] * self.per
        recent = present + torch.arange(1 - self.model.config.history, 1, device=decision.device)
        return torch.cat([torch.zeros_like(present), recent.clamp_min(0)], dim=1)

    def future(self, decision: Int64[Tensor, " b"]) -> Int64[Tensor, "b kf"]:
        """Frame numbers of what is drawn."""
        return decision[:, None] * self.per + torch.arange(1, self.per + 1, device=decision.device)

    def latents(self, episode: Int64[Tensor, " b"], frames: Int64[Tensor, "b f"]) -> Float32[Tensor, "b c f2 h w"]:
        """Latents of the numbered frames; encoded here where the codec looks across frames."""
        if self.clips.latents is not None:
            return rearrange(self.clips.latents[episode[:, None], frames], "b f c h w -> b c f h w").float()
        shown = self.clips.frames[episode[:, None], frames]
        if (shown.shape[1] - 1) % self.model.codec.temporal:
            # Future frames alone are no video of 1 + 4 j frames: encode them behind the frame before them.
            before = self.clips.frames[episode[:, None], frames[:, :1] - 1]
            return self.model.codec.encode(torch.cat([before, shown], dim=1))[:, :, 1:]
        return self.model.codec.encode(shown)

    def conditions(self, episode: Int64[Tensor, " b"], decision: Int64[Tensor, " b"]) -> Window:
        """What was commanded and said, and features of the recorded context."""
        past = self.past(decision)
        frames = torch.cat([past, self.future(decision)], dim=1)
        poses = self.clips.poses[episode[:, None], frames]
        temporal = self.model.codec.temporal
        if temporal > 1:
            grouped = torch.cat([poses[:, :1].expand(-1, temporal, -1), poses[:, 1:]], dim=1)
            poses = rearrange(grouped, "b (w g) p -> b w (g p)", g=temporal)
        marks = self.clips.marks[episode[:, None], frames[:, ::temporal]]
        features = None
        if self.model.features is not None:
            shown = past[:, ::temporal]
            features = self.model.features.laid_out([maps[episode[:, None], shown] for maps in self.clips.features])
        return Window(poses, marks, self.clips.words[episode], features)

    def success(self, episode: Int64[Tensor, " b"], decision: Int64[Tensor, " b"]) -> Bool[Tensor, "b kf"]:
        """Outcome at each future frame."""
        return self.clips.success[episode[:, None], self.future(decision) - 1]

    def moved(self, episode: Int64[Tensor, " b"], decision: Int64[Tensor, " b"]) -> Float32[Tensor, "b 1 f h w"]:
        """1 in latent cells where a pixel of the future differs from the last history frame."""
        codec = self.model.codec
        future = self.clips.frames[episode[:, None], self.future(decision)]
        present = self.clips.frames[episode, decision * self.per][:, None]
        changed = (future.short() - present.short()).abs().amax(-1).gt(MOVED_LEVELS).float()
        return F.max_pool3d(changed[:, None], (codec.temporal, codec.factor, codec.factor))

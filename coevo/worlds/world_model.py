"""A world model: codec, action-conditioned transformer, window and interface in one artifact."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from einops import rearrange
from jaxtyping import Float, Int64, UInt8
from torch import Tensor, nn

from coevo.core import kinematics, text
from coevo.records.interface import Interface
from coevo.worlds import codecs, wan
from coevo.worlds.config import WorldModelConfig
from coevo.worlds.features import FrameFeatures
from coevo.worlds.reward_head import RewardHead


@dataclass(frozen=True)
class Window:
    """Conditions of a batch of windows: 1 initial + history + future frames."""

    poses: Float[Tensor, "b w p"]
    """Normalised commanded poses of the control steps that led to each latent frame."""
    marks: Float[Tensor, "b w m 2"]
    """Pixels of the commanded position and its floor point, from which action maps are drawn."""
    words: Int64[Tensor, "b l"]
    features: Float[Tensor, "b d v gh gw"] | None = None
    """Of the context frames, by patch; none for a model that reads none."""


@dataclass(frozen=True)
class Prediction:
    """What the model sees behind noise."""

    clean: Float[Tensor, "b c f h w"]
    success: Float[Tensor, "b kf"] | None
    """Logits of success per recorded frame, from a reward head."""


class WorldModel(nn.Module):
    """Draws the frames that follow an action chunk from 1 initial frame and `history` frames before the chunk.

    All frames stand in one sequence; context frames have noise level 0 and only future frames are drawn.
    """

    def __init__(self, config: WorldModelConfig, interface: Interface, id: str = "world_model") -> None:
        super().__init__()
        self.config, self.interface, self.id = config, interface, id
        self.codec = codecs.build(config.codec)
        temporal = self.codec.temporal
        for name, count in (("history", config.history), ("frames per chunk", interface.chunk_frames)):
            if count % temporal:
                raise ValueError(
                    f"{name} = {count} is no multiple of the codec's {temporal} frames per latent frame; "
                    "choose 'history' in the world model's file and 'chunk', 'stride' in the simulator's to fit"
                )
        self.history, self.future = config.history // temporal, interface.chunk_frames // temporal
        pose_size = 4 * interface.stride * temporal
        self.features = FrameFeatures(config.features, interface) if config.features else None
        self.net = wan.build_transformer(
            config.transformer, self.codec.channels, pose_size, self.codec.factor,
            self.features.channels if self.features else 0,
        )  # fmt: skip
        if self.features is not None:
            pixels = self.codec.factor * self.net.patch
            self.features.grid = (interface.camera.height // pixels, interface.camera.width // pixels)
        self.reward_head: RewardHead | None = None
        if config.reward_head is not None:
            self.reward_head = RewardHead(config.reward_head, self.net.dim, temporal)
            self.net.keep_features()

    def on(self, device: str | torch.device) -> WorldModel:
        """This model, moved; on a GPU its blocks are compiled where the configuration says so."""
        if self.config.compile and torch.device(device).type == "cuda":
            # One process may hold models of several forms; each form and batch size is a compilation of the same code.
            torch._dynamo.config.recompile_limit = 64
            self.net.transformer.compile_repeated_blocks(fullgraph=True)
        return self.to(device)

    @property
    def context(self) -> int:
        """Latent frames before the future ones."""
        return 1 + self.history

    def numbered(self, instructions: Sequence[str]) -> Int64[Tensor, "n l"]:
        """Words of instructions as numbers. A published text encoder reads new instructions here, once."""
        if isinstance(self.net.words, wan.HubText):
            self.net.words.remember(instructions)
        return text.words(instructions).to(next(self.parameters()).device)

    def features_of(self, frames: UInt8[Tensor, "b f h w 3"]) -> Float[Tensor, "b d v gh gw"] | None:
        """Features of latent frames: of the last recorded frame of each, frames being whole groups of them."""
        if self.features is None:
            return None
        return self.features(frames[:, self.codec.temporal - 1 :: self.codec.temporal])

    def context_features(self, frames: UInt8[Tensor, "b f h w 3"]) -> Float[Tensor, "b d v gh gw"] | None:
        """The same of the initial frame, which stands for itself, and the history."""
        return None if self.features is None else self.features(frames[:, :: self.codec.temporal])

    def conditions(self, poses: Float[Tensor, "b w s 4"], words: Int64[Tensor, "b l"]) -> Window:
        """Conditions from commanded poses in metres, per recorded frame, and numbered words."""
        temporal = self.codec.temporal
        normalised = wan.frame_poses(kinematics.normalised(self.interface.action, poses), temporal)
        last = poses[:, ::temporal, -1, :3]  # the position at the end of each latent frame
        return Window(normalised, kinematics.marks(self.interface.camera, last), words)

    @property
    def last_level(self) -> float:
        """Noise level of sampling's last step, at which a reward head is read."""
        return 1.0 / self.config.sampling_steps

    def predict(
        self, context: Float[Tensor, "b c v h w"], noisy: Float[Tensor, "b c f h w"], sigma: Float[Tensor, " b"],
        window: Window,
    ) -> Prediction:  # fmt: skip
        """The clean future frames and their success, as the model sees them behind `noisy` at noise level `sigma`."""
        levels = torch.cat([sigma.new_zeros(len(sigma), context.shape[2]), sigma[:, None].expand(-1, self.future)], 1)
        poses = window.poses if self.config.pose_condition else None
        frames = torch.cat([context, noisy], dim=2)
        output = self.net(frames, levels, poses, self._maps(window), window.words, window.features)
        output = output[:, :, context.shape[2] :].float()
        if self.config.prediction == "clean":
            clean = context[:, :, -1:] + output
        else:
            clean = noisy - sigma.view(-1, 1, 1, 1, 1) * output
        if self.reward_head is None:
            return Prediction(clean, None)
        features = self.net.features(frames.shape[2])
        return Prediction(clean, self.reward_head(features[:, context.shape[2] :]))

    def sample(
        self, context: Float[Tensor, "b c v h w"], noise: Float[Tensor, "b c f h w"], window: Window, steps: int
    ) -> Prediction:
        """Future latents by `steps` Euler steps of the flow from noise level 1 to 0; success as of the last step."""
        drawn, seen = self.config.noise * noise, None
        for step in range(steps):
            level, below = 1.0 - step / steps, 1.0 - (step + 1) / steps
            seen = self.predict(context, drawn, drawn.new_full((len(drawn),), level), window)
            drawn = seen.clean + (drawn - seen.clean) * (below / level)
        return Prediction(drawn, seen.success)

    def noised(self, clean: Tensor, noise: Tensor, level: float | Tensor) -> Tensor:
        """The flow's state at a noise level: on the straight way from `clean` to the noise that sampling begins with.

        Args:
            clean, noise: [b c f h w].
            level: one number, or one per row as [b 1 1 1 1].
        """
        return clean + level * (self.config.noise * noise - clean)

    def read(
        self, context: Float[Tensor, "b c v h w"], clean: Float[Tensor, "b c f h w"],
        noise: Float[Tensor, "b c f h w"], window: Window,
    ) -> Float[Tensor, "b kf"]:  # fmt: skip
        """Probability of success of frames that are known (teacher forcing), noised as before sampling's last step."""
        level = self.last_level
        seen = self.predict(context, self.noised(clean, noise, level), clean.new_full((len(clean),), level), window)
        return seen.success.sigmoid()

    def _maps(self, window: Window) -> Float[Tensor, "b 2 w h w2"] | None:
        if not self.config.action_maps:
            return None
        camera = self.interface.camera
        drawn = kinematics.gaussians(window.marks, camera.height, camera.width, self.config.map_sigma)
        return rearrange(drawn, "b w m h w2 -> b m w h w2")

    def latent_shape(self) -> tuple[int, int, int, int]:
        """Channels, future latent frames, rows and columns of one row's noise."""
        camera, factor = self.interface.camera, self.codec.factor
        return self.codec.channels, self.future, camera.height // factor, camera.width // factor

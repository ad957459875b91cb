"""A world model as an environment: what it draws after an action chunk, with nobody moving but in the frames."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float32, Int64, UInt8
from torch import Tensor

from coevo.core import kinematics, random
from coevo.core.capture import Captured
from coevo.core.types import InitialState, Observation, Step
from coevo.worlds.world_model import Window, WorldModel


class Dream:
    """Environment over a frozen world model. History is kept as latents; frames are decoded once.

    Noise is keyed by the row's key and the decision, so a row's dream does not depend on its batch. On a GPU batches
    are padded to a multiple of `granule` so that a few captured graphs serve every size; there, results may differ
    between batch sizes by the rounding of bf16 matrix products.
    """

    def __init__(
        self, model: WorldModel, batch: int | None = None, granule: int = 64, steps: int | None = None
    ) -> None:
        self.model, self.interface, self.granule = model.eval(), model.interface, granule
        self.steps = steps or model.config.sampling_steps
        self.device = next(model.parameters()).device
        # Rows at a time: on a CPU what its caches hold.
        self.batch = batch or (512 if self.device.type == "cuda" else 64)
        self._draw = Captured(self._sample)

    @torch.no_grad()
    def reset(self, starts: Sequence[InitialState], keys: Int64[Tensor, " n"]) -> Observation:
        """Context from the starts' frames, actions and proprioception: the first frame that is known and the last ones;
        missing history repeats the first."""
        interface, s = self.interface, self.interface.stride
        history = torch.arange(-self.model.config.history, 0)
        self.keys, self.decision = keys.to(self.device), starts[0].decision
        if any(start.decision != self.decision for start in starts):
            raise ValueError("starts of one dream must lie at the same decision; group them by InitialState.decision")
        frames, poses, proprio = [], [], []
        for start in starts:
            index = torch.cat([torch.zeros(1, dtype=torch.int64), (len(start.frames) + history).clamp_min(0)])
            own = start.proprio[:1, :4]
            path = own[:, None].expand(-1, s, -1)
            if len(start.frames) > 1:
                later = kinematics.commanded_poses(interface.action, own, start.actions[None])
                path = torch.cat([path, later.view(-1, s, 4)])
            frames.append(start.frames[index])
            poses.append(path[index])
            proprio.append(start.proprio[-1:])
        shown = torch.stack(frames).to(self.device)
        self.latents = self.model.codec.encode(shown).float()
        self.features = self.model.context_features(shown)
        self.poses = torch.stack(poses).float().to(self.device)
        self.instructions = tuple(start.instruction for start in starts)
        self.words = self.model.numbered(self.instructions)
        self.present = shown[:, -1]
        return Observation(shown[:, -1:], torch.stack(proprio).to(self.device), self.instructions)

    @torch.no_grad()
    def step(self, actions: Float32[Tensor, "n k a"]) -> Step:
        """Draw the chunk's frames for every present row."""
        interface, model = self.interface, self.model
        commanded = kinematics.commanded_poses(interface.action, self.poses[:, -1, -1], actions.to(self.device))
        future = commanded.view(len(commanded), interface.chunk_frames, interface.stride, 4)
        noise = random.normal(random.fold(self.keys, self.decision), *model.latent_shape())
        path = torch.cat([self.poses, future], dim=1)
        drawn, frames, read = [], [], []
        for first in range(0, len(path), self.batch):
            rows = slice(first, first + self.batch)
            # Conditions are computed outside the captured graph: their constants come from the host.
            window = self.model.conditions(path[rows], self.words[rows])
            features = () if self.features is None else (self.features[rows],)
            latents, images, *success = self._padded(
                self.latents[rows], noise[rows], window.poses, window.marks, window.words, self.present[rows], *features
            )
            drawn.append(latents)
            frames.append(images)
            read += success
        new, frames = torch.cat(drawn), torch.cat(frames)
        self.present = frames[:, -1]
        self.latents = self._moved_on(self.latents, new)
        if self.features is not None:
            self.features = self._moved_on(self.features, model.features_of(frames))
        history = torch.cat([self.poses[:, 1:], future], dim=1)[:, -model.config.history :]
        self.poses = torch.cat([self.poses[:, :1], history], dim=1)
        proprio = kinematics.proprio_after(interface, commanded, self.decision)
        self.decision += 1
        observation = Observation(frames[:, -1:], proprio[:, -1:], self.instructions)
        return Step(observation, frames, proprio, probability=torch.cat(read) if read else None)

    @torch.no_grad()
    def hold(self, frames: UInt8[Tensor, "n f h w 3"]) -> None:
        """Let the history be these frames, from the start to the present, in place of what was drawn.

        Commanded poses are exact in a dream and stay as they are; a missing history repeats the first frame.
        """
        history = self.model.config.history
        index = torch.arange(frames.shape[1] - history, frames.shape[1]).clamp_min(0)
        window = frames[:, torch.cat([torch.zeros(1, dtype=torch.int64), index])].to(self.device)
        self.latents = self.model.codec.encode(window).float()
        self.features = self.model.context_features(window)
        self.present = window[:, -1]

    def keep(self, rows: Int64[Tensor, " m"]) -> None:
        """Drop all other rows."""
        kept = rows.to(self.device)
        self.latents, self.poses, self.keys, self.words, self.present = (
            item[kept] for item in (self.latents, self.poses, self.keys, self.words, self.present)
        )
        self.features = None if self.features is None else self.features[kept]
        self.instructions = tuple(self.instructions[row] for row in rows.tolist())

    def _moved_on(self, context: Tensor, new: Tensor) -> Tensor:
        """The context with the latest frames for history; frames stand in the third place."""
        recent = torch.cat([context[:, :, 1:], new], dim=2)[:, :, -self.model.history :]
        return torch.cat([context[:, :, :1], recent], dim=2)

    def _padded(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        count = len(inputs[0])
        if self.device.type == "cuda":
            missing = -count % self.granule
            inputs = tuple(torch.cat([item, item[:1].expand(missing, *item.shape[1:])]) for item in inputs)
        return tuple(item[:count] for item in self._draw(*inputs))

    def _sample(
        self, context: Tensor, noise: Tensor, poses: Tensor, marks: Tensor, words: Tensor, present: Tensor,
        features: Tensor | None = None,
    ) -> tuple[Tensor, ...]:  # fmt: skip
        """Latents, frames and, with a reward head, the probability of success per frame."""
        window = Window(poses, marks, words, features)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda", cache_enabled=False):
            drawn = self.model.sample(context, noise, window, self.steps)
            latents = drawn.clean.float()
            frames = self.model.codec.decode(latents, present)
        return (latents, frames) if drawn.success is None else (latents, frames, drawn.success.sigmoid())

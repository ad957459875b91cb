"""What a world model's reward head says of frames that are known (teacher forcing)."""

from __future__ import annotations

import torch
from jaxtyping import Float32
from torch import Tensor

from coevo.core import random
from coevo.core.types import Seen
from coevo.worlds.clips import Windows, prepare
from coevo.worlds.world_model import WorldModel


class HeadReader:
    """Reads episodes chunk by chunk, each behind the frames before it, noised to the level of sampling's last step.

    The noise is the same for every episode and every reading, so that an episode's reading depends on nothing beside
    it. Raises ValueError for a world model without a reward head.
    """

    def __init__(self, model: WorldModel, batch: int = 64) -> None:
        if model.reward_head is None:
            raise ValueError(
                f"{model.id} has no reward head; train it with one: 'form: {{reward_head: {{}}, sampling_steps: 2}}' "
                "of train_world_model, 2 steps or more"
            )
        self.model, self.batch = model.eval().requires_grad_(False), batch

    @torch.no_grad()
    def __call__(self, seen: Seen) -> Float32[Tensor, "n f1"]:
        """Probability of success per frame; the start's own frame reads 0."""
        frames, per = seen.frames.shape[1] - 1, self.model.interface.chunk_frames
        if frames % per:
            raise ValueError(
                f"episodes of {frames} frames after the first are no whole number of the {per} frames of a chunk; "
                f"{self.model.id} reads whole chunks"
            )
        parts = [self._part(seen, slice(first, first + self.batch)) for first in range(0, len(seen.frames), self.batch)]
        return torch.cat(parts)

    def _part(self, seen: Seen, rows: slice) -> Float32[Tensor, "b f1"]:
        model, device = self.model, next(self.model.parameters()).device
        frames, count = seen.frames[rows], len(seen.frames[rows])
        length = torch.full((count,), frames.shape[1] - 1)
        clips = prepare(
            model, frames, seen.actions[rows], seen.proprio[rows], length, seen.instructions[rows], torch.ones(count),
            device,
        )  # fmt: skip
        windows, index = Windows(model, clips), torch.arange(count, device=device)
        key = random.row_keys("reward head", rows=["reading"], device=device)
        read = [torch.zeros(count, 1, device=device)]
        for number in range((frames.shape[1] - 1) // model.interface.chunk_frames):
            decision = torch.full_like(index, number)
            noise = random.normal(random.fold(key, number), *model.latent_shape()).expand(count, -1, -1, -1, -1)
            with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
                context = windows.latents(index, windows.past(decision))
                clean = windows.latents(index, windows.future(decision))
                read.append(model.read(context, clean, noise, windows.conditions(index, decision)).float())
        return torch.cat(read, dim=1)

"""Training a world model: flow matching on the future frames of windows, half of them behind its own history."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float32, Int64, UInt8
from torch import Tensor

from coevo.core import kinematics, random
from coevo.core.capture import Captured
from coevo.core.schedule import cosine
from coevo.worlds.config import WorldTraining
from coevo.worlds.twins import side_by_side
from coevo.worlds.world_model import Window, WorldModel

MOVED_LEVELS = 8
"""Grey levels (of 255) by which a pixel must differ from the last history frame to count as moved."""


@dataclass(frozen=True)
class Clips:
    """Episodes ready to be cut into windows, on the training device."""

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


def prepare(
    model: WorldModel,
    frames: UInt8[Tensor, "n f1 h w 3"],
    actions: Float32[Tensor, "n t a"],
    proprio: Float32[Tensor, "n f1 p"],
    length: Int64[Tensor, " n"],
    instructions: Sequence[str],
    weights: Float32[Tensor, " n"],
    device: str | torch.device,
    twins: Int64[Tensor, "n m"] | None = None,
) -> Clips:
    """Encode and condition episodes once, before training. `length` counts frames after the first.

    Episodes shorter than a chunk are never drawn; ValueError if that leaves none.
    """
    interface, s = model.interface, model.interface.stride
    start = proprio[:, 0, :4].to(device)
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
    return Clips(
        frames=frames.to(device), latents=latents, poses=rearrange(normalised, "n f s p -> n f (s p)"),
        marks=kinematics.marks(interface.camera, path[:, :, -1, :3]), words=model.numbered(instructions),
        decisions=decisions, weights=weights, twins=None if twins is None else twins.to(device),
    )  # fmt: skip


class WorldTrainer:
    """The training loop of one world model over one set of clips.

    Every step draws its batch and noise from (seed, step), so a resumed run continues as if never stopped.
    """

    def __init__(self, model: WorldModel, clips: Clips, settings: WorldTraining, seed: int) -> None:
        self.model, self.clips, self.settings, self.seed = model.train(), clips, settings, seed
        model.codec.requires_grad_(False)
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        self.average = [p.detach().clone() for p in self.parameters]
        self.device = self.parameters[0].device
        on_gpu = self.device.type == "cuda"
        self.optimiser = torch.optim.AdamW(
            self.parameters, lr=torch.tensor(settings.learning_rate, device=self.device) if on_gpu else 0.0,
            weight_decay=settings.weight_decay, betas=(0.9, 0.99), fused=True, capturable=on_gpu,
        )  # fmt: skip
        self.step = 0
        self.losses: list[Tensor] = []
        self.reported: list[tuple[int, float]] = []
        if settings.together and clips.twins is None:
            raise ValueError("'together' draws episodes of opposite outcome, and nothing says how these ended")
        self._update = Captured(self._update_once, self._state)
        self.own_rows = int(settings.batch * settings.self_rollout)

    def run(self, report: Callable[[int, float], None], checkpoint: Path | None = None) -> None:
        """Train to the last step, calling report(step, loss); resume from `checkpoint` if it exists.

        A resumed run reports again what was reported before it was stopped, so that its log is whole.
        """
        if checkpoint is not None and checkpoint.exists():
            self._restore(torch.load(checkpoint, map_location=self.device, weights_only=True))
        for line in self.reported:
            report(*line)
        while self.step < self.settings.steps:
            self.losses.append(self._advance())
            self.step += 1
            if self.step % 50 == 0 or self.step == self.settings.steps:
                self.reported.append((self.step, torch.stack(self.losses).mean().item()))
                self.losses.clear()
                report(*self.reported[-1])
            if checkpoint is not None and self.step % self.settings.checkpoint_every == 0:
                self._save(checkpoint)
        with torch.no_grad():
            for parameter, mean in zip(self.parameters, self.average, strict=True):
                parameter.copy_(mean)
        self.model.eval()

    def _advance(self) -> Tensor:
        """One step: draw the batch on the device, then update."""
        batch, settings = self.settings.batch, self.settings
        source = random.generator(self.seed, "world", self.step, device=self.device)
        episode = torch.multinomial(self.clips.weights, batch, replacement=True, generator=source)
        alike = None
        if settings.together:
            episode, follows = side_by_side(episode, self.clips.twins, settings.together, source)
            rows = torch.arange(batch, device=self.device)
            alike = torch.where(follows, rows - 1, rows)
        spread = torch.rand(batch, generator=source, device=self.device)
        # Rows with a history of the model's own start at the second chunk; the first has none but the start itself.
        first = (torch.arange(batch, device=self.device) < self.own_rows).long()
        decisions = self.clips.decisions[episode]
        first = torch.minimum(first, decisions - 1)
        decision = first + (spread * (decisions - first)).long()
        level = torch.randn(batch, generator=source, device=self.device).add_(settings.sigma_mean).sigmoid_()
        pure = torch.rand(batch, generator=source, device=self.device) < settings.pure_noise
        level = torch.where(pure, torch.ones_like(level), level)
        shape = self.model.latent_shape()
        noise = torch.randn(batch, *shape, generator=source, device=self.device)
        if alike is not None:
            decision = torch.minimum(decision[alike], decisions - 1)
            level, noise = level[alike], noise[alike]
        own_noise = torch.randn(max(self.own_rows, 1), *shape, generator=source, device=self.device)
        blur = torch.rand(batch, generator=source, device=self.device) * settings.history_noise
        context = (shape[0], self.model.history, *shape[2:])
        history_noise = torch.randn(batch, *context, generator=source, device=self.device) * blur.view(-1, 1, 1, 1, 1)
        self._set_rate()
        return self._update(episode, decision, level, noise, own_noise, history_noise)[0]

    def _update_once(self, episode, decision, level, noise, own_noise, history_noise) -> tuple[Tensor, ...]:
        """Loss, gradient, optimiser and averaged weights; captured as one graph on a GPU."""
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda", cache_enabled=False):
            context = self._context(episode, decision, own_noise)
            history = context[:, :, 1:] + history_noise
            context = torch.cat([context[:, :, :1], history], dim=2)
            clean = self._latents(episode, self._future(decision))
            moved = self._moved(episode, decision)
            noisy = clean + level.view(-1, 1, 1, 1, 1) * (noise - clean)
            predicted = self.model.predict_clean(context, noisy, level, self._window(episode, decision))
        error = (predicted - clean) / level.clamp_min(0.2).view(-1, 1, 1, 1, 1)
        weight = 1.0 + (self.settings.moved_weight - 1.0) * moved
        loss = (error.square() * weight).sum() / (weight.sum() * clean.shape[1])
        for parameter in self.parameters:
            parameter.grad = None
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.parameters, self.settings.gradient_clip)
        self.optimiser.step()
        torch._foreach_lerp_(self.average, [p.detach() for p in self.parameters], 1.0 - self.settings.ema)
        return (loss.detach(),)

    def _context(self, episode: Tensor, decision: Tensor, own_noise: Tensor) -> Tensor:
        """Initial and history latents; in the first rows the history is the model's own sample of the last chunk."""
        context = self._latents(episode, self._past(decision))
        if not self.own_rows:
            return context
        own = slice(0, self.own_rows)
        earlier = (decision[own] - 1).clamp_min(0)
        with torch.no_grad():
            before = self._latents(episode[own], self._past(earlier))
            window = self._window(episode[own], earlier)
            drawn = self.model.sample(before, own_noise, window, self.settings.self_rollout_steps)
            history = torch.cat([before[:, :, 1:], drawn], dim=2)[:, :, -self.model.history :]
        # An episode of one chunk has no chunk before it: its history is the start, as in the rows without their own.
        began = decision[own].view(-1, 1, 1, 1, 1) > 0
        history = torch.where(began, history, context[own, :, 1:])
        mixed = torch.cat([history, context[self.own_rows :, :, 1:]])
        return torch.cat([context[:, :, :1], mixed], dim=2)

    def _past(self, decision: Tensor) -> Tensor:
        """Frame numbers of the context: the initial frame, then history up to the present, never below 0."""
        history = self.model.config.history
        present = decision[:, None] * self.model.interface.chunk_frames
        recent = present + torch.arange(1 - history, 1, device=decision.device)
        return torch.cat([torch.zeros_like(present), recent.clamp_min(0)], dim=1)

    def _future(self, decision: Tensor) -> Tensor:
        per = self.model.interface.chunk_frames
        return decision[:, None] * per + torch.arange(1, per + 1, device=decision.device)

    def _latents(self, episode: Tensor, frames: Tensor) -> Tensor:
        """Latents b c f h w of the numbered frames; encoded here where the codec looks across frames."""
        if self.clips.latents is not None:
            return rearrange(self.clips.latents[episode[:, None], frames], "b f c h w -> b c f h w").float()
        shown = self.clips.frames[episode[:, None], frames]
        if (shown.shape[1] - 1) % self.model.codec.temporal:
            # Future frames alone are no video of 1 + 4 j frames: encode them behind the frame before them.
            before = self.clips.frames[episode[:, None], frames[:, :1] - 1]
            return self.model.codec.encode(torch.cat([before, shown], dim=1))[:, :, 1:]
        return self.model.codec.encode(shown)

    def _window(self, episode: Tensor, decision: Tensor) -> Window:
        frames = torch.cat([self._past(decision), self._future(decision)], dim=1)
        poses = self.clips.poses[episode[:, None], frames]
        temporal = self.model.codec.temporal
        if temporal > 1:
            grouped = torch.cat([poses[:, :1].expand(-1, temporal, -1), poses[:, 1:]], dim=1)
            poses = rearrange(grouped, "b (w g) p -> b w (g p)", g=temporal)
        marks = self.clips.marks[episode[:, None], frames[:, ::temporal]]
        return Window(poses, marks, self.clips.words[episode])

    def _moved(self, episode: Tensor, decision: Tensor) -> Tensor:
        """b 1 f h w: 1 in latent cells where a pixel of the future differs from the last history frame."""
        codec = self.model.codec
        future = self.clips.frames[episode[:, None], self._future(decision)]
        present = self.clips.frames[episode, decision * self.model.interface.chunk_frames][:, None]
        changed = (future.short() - present.short()).abs().amax(-1).gt(MOVED_LEVELS).float()
        pooled = F.max_pool3d(changed[:, None], (codec.temporal, codec.factor, codec.factor))
        return pooled

    def _set_rate(self) -> None:
        settings, done = self.settings, self.step
        warm = min(1.0, (done + 1) / min(settings.warmup, settings.steps))
        rate = settings.learning_rate * warm * cosine(done, settings.steps)
        group = self.optimiser.param_groups[0]
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate

    def _state(self) -> list[Tensor]:
        moments = [item for p in self.parameters for item in self.optimiser.state.get(p, {}).values()]
        return [*self.parameters, *self.average, *moments]

    def _save(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        state = dict(
            step=self.step, tensors=[item.detach().cpu() for item in self._state()], reported=self.reported,
            losses=[loss.cpu() for loss in self.losses],
        )
        temporary = path.with_suffix(".writing")
        with temporary.open("wb") as file:  # a full disk is then an OSError
            torch.save(state, file)
        temporary.replace(path)

    def _restore(self, state: dict) -> None:
        """Continue from a checkpoint; one idle step makes the optimiser's own tensors first."""
        for parameter in self.parameters:
            parameter.grad = torch.zeros_like(parameter)
        self.optimiser.step()
        with torch.no_grad():
            for item, saved in zip(self._state(), state["tensors"], strict=True):
                item.copy_(saved)
        self.step, self.reported = state["step"], state["reported"]
        self.losses = [loss.to(self.device) for loss in state["losses"]]

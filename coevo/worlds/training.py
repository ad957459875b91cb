"""Training a world model: flow matching on the future frames of windows, half of them behind its own history."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from coevo.core import random
from coevo.core.capture import Captured
from coevo.core.schedule import cosine
from coevo.worlds.clips import Clips, Windows
from coevo.worlds.config import WorldTraining
from coevo.worlds.own_past import OwnPast
from coevo.worlds.reward_head import success_loss
from coevo.worlds.twins import side_by_side
from coevo.worlds.world_model import WorldModel


class WorldTrainer:
    """The training loop of one world model over one set of clips.

    Every step draws its batch and noise from (seed, step), so a resumed run continues as if never stopped.
    """

    def __init__(self, model: WorldModel, clips: Clips, settings: WorldTraining, seed: int) -> None:
        self.model, self.clips, self.settings, self.seed = model.train(), clips, settings, seed
        self.windows = Windows(model, clips)
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
        if model.reward_head is not None and clips.success is None:
            raise ValueError("a reward head learns success per frame, and nothing says at which frames these succeeded")
        self.own = OwnPast(self.windows, settings)
        self._require_one_step()
        self._update = Captured(self._update_once, self._state)

    def _require_one_step(self) -> None:
        """Without noise a level below 1 is a share of the answer itself."""
        settings = self.settings
        if self.model.config.noise or (settings.pure_noise == 1 and (not self.own.rows or self.own.steps == 1)):
            return
        raise ValueError(
            f"a world model without noise ('noise: 0') was given pure_noise = {settings.pure_noise:g} and "
            f"self_rollout_steps = {settings.self_rollout_steps}: below noise level 1 it would be shown its answer. "
            "Set both to 1, or give the model its noise back ('noise: 1.0' in its file, or in the 'form' of "
            "train_world_model)"
        )

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
        episode = self.own.candidates(episode, source)
        alike = None
        if settings.together:
            episode, follows = side_by_side(episode, self.clips.twins, settings.together, source)
            rows = torch.arange(batch, device=self.device)
            alike = torch.where(follows, rows - 1, rows)
        spread = torch.rand(batch, generator=source, device=self.device)
        # Rows with a history of the model's own start at the second chunk; the first has none but the start itself.
        first = (torch.arange(batch, device=self.device) < self.own.rows).long()
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
        own_noise = torch.randn(max(self.own.rows, 1), *shape, generator=source, device=self.device)
        blur = torch.rand(batch, generator=source, device=self.device) * settings.history_noise
        context = (shape[0], self.model.history, *shape[2:])
        history_noise = torch.randn(batch, *context, generator=source, device=self.device) * blur.view(-1, 1, 1, 1, 1)
        self._set_rate()
        return self._update(episode, decision, level, noise, own_noise, history_noise)[0]

    def _update_once(self, episode, decision, level, noise, own_noise, history_noise) -> tuple[Tensor, ...]:
        """Loss, gradient, optimiser and averaged weights; captured as one graph on a GPU."""
        level = self._levels(level)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda", cache_enabled=False):
            episode, decision, context, window = self.own.advance(episode, decision, own_noise)
            history = context[:, :, 1:] + history_noise
            context = torch.cat([context[:, :, :1], history], dim=2)
            clean = self.windows.latents(episode, self.windows.future(decision))
            moved = self.windows.moved(episode, decision)
            noisy = self.model.noised(clean, noise, level.view(-1, 1, 1, 1, 1))
            predicted = self.model.predict(context, noisy, level, window)
        error = (predicted.clean - clean) / level.clamp_min(0.2).view(-1, 1, 1, 1, 1)
        weight = 1.0 + (self.settings.moved_weight - 1.0) * moved
        loss = (error.square() * weight).sum() / (weight.sum() * clean.shape[1])
        if predicted.success is not None:
            success = self.windows.success(episode, decision)
            loss = loss + self.settings.reward_weight * success_loss(predicted.success, success)
        for parameter in self.parameters:
            parameter.grad = None
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.parameters, self.settings.gradient_clip)
        self.optimiser.step()
        torch._foreach_lerp_(self.average, [p.detach() for p in self.parameters], 1.0 - self.settings.ema)
        return (loss.detach(),)

    def _levels(self, level: Tensor) -> Tensor:
        """With a reward head, the level of sampling's last step in a share of the rows, spread over the batch."""
        if self.model.reward_head is None:
            return level
        rows = torch.arange(1, len(level) + 1, device=level.device)
        share = self.settings.last_step
        last = (rows * share).floor() > ((rows - 1) * share).floor()
        return torch.where(last, self.model.last_level, level)

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
        return [*self.parameters, *self.average, *self.own.state(), *moments]

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

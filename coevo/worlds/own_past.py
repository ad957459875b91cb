"""A history of the model's own in the first rows of a training batch, as a dream will have it."""

from __future__ import annotations

from dataclasses import replace

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from coevo.worlds.clips import Windows
from coevo.worlds.config import WorldTraining
from coevo.worlds.world_model import Window

NOT_BEGUN = -1
"""Decision of a row before a training's first step."""


class OwnPast:
    """Draws the last chunk's frames in the first rows and puts them in place of the recorded history, without gradient.

    With `self_rollout_from: recorded` each row draws one chunk behind recorded frames, and another episode every step
    (scheduled sampling, Bengio et al., 2015). With `start` a row walks its episode, one chunk a training step, behind
    what it drew itself, as in a dream; this costs no more, since a step's context is the next one's start. What such a
    row stands behind was drawn with the weights of up to an episode's steps ago. In the first step of a training rows
    are taken up all over their episodes, there behind recorded frames, so that they do not walk abreast.
    """

    def __init__(self, windows: Windows, settings: WorldTraining) -> None:
        self.windows, self.model = windows, windows.model
        self.rows, self.steps = int(settings.batch * settings.self_rollout), settings.self_rollout_steps
        self.walks = settings.self_rollout_from == "start" and self.rows > 0
        clips, model = windows.clips, windows.model
        # A walking row stays with an episode for all its decisions but the first: drawn by weight, long ones would
        # fill the rows.
        self.weights = clips.weights / (clips.decisions - 1).clamp_min(1)
        self.episode = torch.zeros(self.rows, dtype=torch.int64, device=clips.frames.device)
        self.decision = torch.full_like(self.episode, NOT_BEGUN)
        shape = model.latent_shape()
        self.context = torch.zeros(self.rows, shape[0], model.context, *shape[2:], device=clips.frames.device)
        self.seen: tuple[Tensor, ...] = ()
        """Features of the context and the present frame, of a model that reads features."""
        if self.walks and model.features is not None:
            first = torch.zeros_like(self.episode)
            self.seen = (torch.zeros_like(windows.conditions(first, first).features), clips.frames[first, 0])

    def state(self) -> list[Tensor]:
        """What a step changes and a resumed run needs."""
        return [self.episode, self.decision, self.context, *self.seen] if self.walks else []

    def candidates(self, episode: Int64[Tensor, " b"], source: torch.Generator) -> Int64[Tensor, " b"]:
        """The episodes drawn for a batch; those that rows may walk next are drawn so that their weight holds."""
        if not self.walks:
            return episode
        own = torch.multinomial(self.weights, self.rows, replacement=True, generator=source)
        return torch.cat([own, episode[self.rows :]])

    @torch.no_grad()
    def advance(
        self, episode: Int64[Tensor, " b"], decision: Int64[Tensor, " b"], noise: Float[Tensor, "r c f h w"]
    ) -> tuple[Int64[Tensor, " b"], Int64[Tensor, " b"], Float[Tensor, "b c v h w"], Window]:
        """Episode, decision, initial and history latents, and conditions of a batch drawn at `episode`, `decision`.

        Walking rows stand a decision further than in the last call, until their episode ends. An episode of one chunk
        has no chunk before it: its history is the start, as in the rows without their own.
        """
        windows, model, own = self.windows, self.model, slice(0, self.rows)
        if self.walks:
            going = self._going()
            episode, decision = self._placed(episode, decision, going)
        context, window = windows.latents(episode, windows.past(decision)), windows.conditions(episode, decision)
        if not self.rows:
            return episode, decision, context, window
        earlier = (decision[own] - 1).clamp_min(0)
        before = windows.latents(episode[own], windows.past(earlier))
        conditions = windows.conditions(episode[own], earlier)
        present = windows.clips.frames[episode[own], earlier * model.interface.chunk_frames]
        if self.walks:
            before = _where(going, self.context, before)
            if self.seen:
                conditions = replace(conditions, features=_where(going, self.seen[0], conditions.features))
                present = _where(going, self.seen[1], present)
        drawn = model.sample(before, noise, conditions, self.steps).clean
        context = self._behind_own(context, torch.cat([before, drawn], dim=2), decision)
        after: list[Tensor] = [episode[own], decision[own], context[own]]
        if model.features is not None:
            frames = model.codec.decode(drawn, present)
            features = torch.cat([conditions.features, model.features_of(frames)], dim=2)
            window = replace(window, features=self._behind_own(window.features, features, decision))
            after += [window.features[own], frames[:, -1]]
        if self.walks:
            for place, value in zip(self.state(), after, strict=True):
                place.copy_(value)
        return episode, decision, context, window

    def _going(self) -> Tensor:
        """Rows whose episode has a further chunk."""
        return (self.decision >= 0) & (self.decision + 1 < self.windows.clips.decisions[self.episode])

    def _placed(self, episode: Tensor, decision: Tensor, going: Tensor) -> tuple[Tensor, Tensor]:
        """Where the rows stand: as drawn, walking ones a decision on, or at the second chunk of a new episode."""
        rows, decisions = self.rows, self.windows.clips.decisions
        second = (decisions[episode[:rows]] - 1).clamp_max(1)
        first = torch.where(self.decision == NOT_BEGUN, decision[:rows], second)
        own = torch.where(going, self.episode, episode[:rows])
        at = torch.where(going, self.decision + 1, first)
        return torch.cat([own, episode[rows:]]), torch.cat([at, decision[rows:]])

    def _behind_own(self, recorded: Tensor, own: Tensor, decision: Tensor) -> Tensor:
        """The recorded context with the end of `own` for history in the first rows."""
        rows = len(own)
        history = _where(decision[:rows] > 0, own[:, :, -self.model.history :], recorded[:rows, :, 1:])
        return torch.cat([recorded[:, :, :1], torch.cat([history, recorded[rows:, :, 1:]])], dim=2)


def _where(rows: Tensor, ours: Tensor, theirs: Tensor) -> Tensor:
    return torch.where(rows.view(-1, *[1] * (ours.dim() - 1)), ours, theirs)

"""The one update loop: clipped policy gradient, with a critic where the estimator has one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from coevo.core import random
from coevo.core.types import take_rows
from coevo.rl.config import Algorithm, Ppo
from coevo.rl.packing import Decisions


@dataclass(frozen=True)
class Part:
    """Rows of a minibatch whose gradient is computed at once."""

    decisions: Decisions
    """With the advantage as it is learned from."""
    share: float
    """Of the minibatch's rows; gradients and metrics are weighted by it, so that those of all parts add up."""
    algorithm: Algorithm
    warming: bool
    """Only the critic learns."""


@dataclass(frozen=True)
class Gradient:
    """What a part adds to the gradient of its minibatch, per parameter; none where it has no effect."""

    actor: tuple[Tensor | None, ...]
    critic: tuple[Tensor | None, ...]
    metrics: dict[str, Tensor]


Gradients = Callable[[Sequence[Part]], list[Gradient]]
"""Gradients of the present policy for these parts, in order; wherever they are computed."""


class Learner:
    """Updates a policy in place from packed decisions.

    The policy offers `evaluate(frames, proprio, words, draw) -> (log_prob [b m], value [b] or none)`,
    `config.segments` and, for PPO, `critic`. A minibatch is cut into parts of `part_rows` decisions (none: it is one
    part), whose gradients are summed in order before the step.
    """

    def __init__(
        self, policy, algorithm: Algorithm, seed: int, part_rows: int | None = None, gradients: Gradients | None = None
    ) -> None:
        self.policy, self.algorithm, self.seed = policy, algorithm, seed
        self.part_rows = part_rows or algorithm.minibatch
        self.gradients = gradients or (lambda parts: [gradient(policy, part) for part in parts])
        self.updates = 0
        actor, critic = parameters(policy)
        self.actor = torch.optim.Adam(actor, lr=algorithm.learning_rate)
        self.critic = None
        if isinstance(algorithm.estimator, Ppo):
            if not critic:
                raise ValueError("PPO needs a policy with a critic; set 'critic: true' in the policy's file")
            self.critic = torch.optim.Adam(critic, lr=algorithm.estimator.value_learning_rate)

    def state(self) -> dict[str, Any]:
        """What a checkpoint holds of it, the policy's weights aside."""
        return dict(
            updates=self.updates, actor=self.actor.state_dict(),
            critic=None if self.critic is None else self.critic.state_dict(),
        )  # fmt: skip

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        self.updates = state["updates"]
        self.actor.load_state_dict(state["actor"])
        if self.critic is not None:
            self.critic.load_state_dict(state["critic"])

    def update(self, decisions: Decisions) -> dict[str, float]:
        """All epochs over one batch; returns metrics, taken before any clamping. An empty batch is skipped."""
        algorithm = self.algorithm
        if not len(decisions):
            return {"skipped": 1.0}
        warming = isinstance(algorithm.estimator, Ppo) and self.updates < algorithm.estimator.critic_warmup
        advantage = decisions.advantage
        if isinstance(algorithm.estimator, Ppo):
            advantage = (advantage - advantage.mean()) / (advantage.std(correction=0) + 1e-6)
        sums: dict[str, Tensor] = {}
        count = 0
        for epoch in range(algorithm.epochs):
            source = random.generator(self.seed, "update", self.updates, epoch)
            order = torch.randperm(len(decisions), generator=source).to(decisions.draw.device)
            for rows in order.split(algorithm.minibatch):
                for name, value in self._minibatch(decisions, advantage, rows, warming).items():
                    sums[name] = sums.get(name, 0.0) + value
                count += 1
        self.updates += 1
        return {"skipped": 0.0} | {name: (value / count).item() for name, value in sums.items()}

    def _minibatch(self, decisions: Decisions, advantage: Tensor, rows: Tensor, warming: bool) -> dict[str, Tensor]:
        chosen = replace(take_rows(decisions, rows), advantage=advantage[rows])
        parts = [
            Part(take_rows(chosen, own), len(own) / len(rows), self.algorithm, warming)
            for own in torch.arange(len(rows)).split(self.part_rows)
        ]
        made = self.gradients(parts)
        metrics = {name: sum(part.metrics[name] for part in made) for name in made[0].metrics}
        divergence = metrics.pop("kl")
        clipped = {"clipped": metrics.pop("clipped")}
        actor, critic = parameters(self.policy)
        if not warming:
            _put_sum(actor, [part.actor for part in made])
            clipped["gradient_norm"] = torch.nn.utils.clip_grad_norm_(actor, self.algorithm.gradient_clip).detach()
            self.actor.step()
        if self.critic is not None:
            _put_sum(critic, [part.critic for part in made])
            self.critic.step()
            metrics["explained_variance"] = _explained(chosen)
        return clipped | metrics | {"kl": divergence}


def parameters(policy) -> tuple[list[Tensor], list[Tensor]]:
    """Those of the actor, and those of the critic (empty if there is none)."""
    critic = list(policy.critic.parameters()) if policy.critic is not None else []
    own = {id(p) for p in critic}
    return [p for p in policy.parameters() if id(p) not in own], critic


def moving_weights(policy) -> dict[str, Tensor]:
    """A copy of all that training may move: parameters that no update touches, of a published model, are left out."""
    still = {name for name, weight in policy.named_parameters() if not weight.requires_grad}
    return {name: value.detach().clone() for name, value in policy.state_dict().items() if name not in still}


def put_weights(policy, weights: dict[str, Tensor]) -> None:
    """Give a policy the weights that `moving_weights` took."""
    policy.load_state_dict(policy.state_dict() | weights)


def gradient(policy, part: Part) -> Gradient:
    """Gradient of a part's share in the losses, and its share in the metrics, taken before any clamping."""
    algorithm, rows = part.algorithm, part.decisions
    log_prob, value = policy.evaluate(rows.frames, rows.proprio, rows.words, rows.draw)
    loss, metrics = clipped_loss(
        ratio_terms(log_prob - rows.log_prob, algorithm.ratio, policy.config.segments), rows.advantage, algorithm.clip
    )
    if algorithm.kl_weight:
        loss = loss + algorithm.kl_weight * (log_prob - rows.log_prob).square().sum(dim=1).mean() / 2.0
    policy.zero_grad()
    if not part.warming:
        (loss * part.share).backward()
    if isinstance(algorithm.estimator, Ppo):
        metrics |= _critic_gradient(value, rows, algorithm.estimator.value_clip, part.share)
    metrics["kl"] = (rows.log_prob - log_prob).detach().sum(dim=1).mean()
    actor, critic = (tuple(p.grad for p in group) for group in parameters(policy))
    policy.zero_grad()
    return Gradient(actor, critic, {name: value * part.share for name, value in metrics.items()})


def _critic_gradient(value: Tensor, rows: Decisions, clip: float, share: float) -> dict[str, Tensor]:
    change = value - rows.value
    clamped = rows.value + change.clamp(-clip, clip)
    loss = torch.maximum((value - rows.returns).square(), (clamped - rows.returns).square()).mean() / 2.0
    (loss * share).backward()
    return {"value_loss": loss.detach(), "value_clipped": (change.abs() > clip).float().mean()}


def _explained(rows: Decisions) -> Tensor:
    spread = rows.returns.var(unbiased=False)
    explained = 1.0 - (rows.returns - rows.value).var(unbiased=False) / spread.clamp_min(1e-8)
    return torch.where(spread > 1e-8, explained, torch.zeros_like(explained))


def _put_sum(weights: Sequence[Tensor], parts: Sequence[tuple[Tensor | None, ...]]) -> None:
    """Let each weight's gradient be the sum of the parts', in their order."""
    for index, weight in enumerate(weights):
        given = [part[index] for part in parts if part[index] is not None]
        weight.grad = sum(given[1:], start=given[0]) if given else None


def ratio_terms(difference: Float[Tensor, "b m"], level: str, actions: int) -> Float[Tensor, "b r"]:
    """Log-ratios over tokens (r = m), held actions (r = `actions`) or the chunk (r = 1): sums of the terms in each."""
    match level:
        case "token":
            return difference
        case "action":
            return difference.unflatten(1, (actions, -1)).sum(dim=2)
        case "chunk":
            return difference.sum(dim=1, keepdim=True)
    raise ValueError(f"ratio = {level!r} is not one of token, action, chunk")


def clipped_loss(
    log_ratio: Float[Tensor, "b r"], advantage: Float[Tensor, " b"], clip: float
) -> tuple[Tensor, dict[str, Tensor]]:
    """The clipped surrogate (Schulman et al., 2017), summed over a decision's ratios and averaged over decisions.

    The share of clipped ratios is counted before clamping.
    """
    ratio = log_ratio.exp()
    gain = advantage[:, None] * ratio
    bounded = advantage[:, None] * ratio.clamp(1.0 - clip, 1.0 + clip)
    clipped = (bounded < gain).float().mean()
    return -torch.minimum(gain, bounded).sum(dim=1).mean(), {"clipped": clipped.detach()}

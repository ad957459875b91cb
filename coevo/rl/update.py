"""The one update loop: clipped policy gradient, with a critic where the estimator has one."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from coevo.core import random
from coevo.rl.config import Algorithm, Ppo
from coevo.rl.packing import Decisions


class Learner:
    """Updates a policy in place from packed decisions.

    The policy offers `evaluate(frames, proprio, words, draw) -> (log_prob [b m], value [b] or none)`,
    `config.segments` and, for PPO, `critic`.
    """

    def __init__(self, policy, algorithm: Algorithm, seed: int) -> None:
        self.policy, self.algorithm, self.seed = policy, algorithm, seed
        self.updates = 0
        critic = list(policy.critic.parameters()) if policy.critic is not None else []
        own = {id(p) for p in critic}
        actor = [p for p in policy.parameters() if id(p) not in own]
        self.actor = torch.optim.Adam(actor, lr=algorithm.learning_rate)
        self.critic = None
        if isinstance(algorithm.estimator, Ppo):
            if not critic:
                raise ValueError("PPO needs a policy with a critic; set 'critic: true' in the policy's file")
            self.critic = torch.optim.Adam(critic, lr=algorithm.estimator.value_learning_rate)

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
        algorithm = self.algorithm
        log_prob, value = self.policy.evaluate(
            decisions.frames[rows], decisions.proprio[rows], decisions.words[rows], decisions.draw[rows]
        )
        old = decisions.log_prob[rows]
        loss, metrics = clipped_loss(
            ratio_terms(log_prob - old, algorithm.ratio, self.policy.config.segments), advantage[rows], algorithm.clip
        )
        if algorithm.kl_weight:
            loss = loss + algorithm.kl_weight * (log_prob - old).square().sum(dim=1).mean() / 2.0
        if not warming:
            self.actor.zero_grad()
            loss.backward()
            parameters = [p for group in self.actor.param_groups for p in group["params"]]
            metrics["gradient_norm"] = torch.nn.utils.clip_grad_norm_(parameters, algorithm.gradient_clip).detach()
            self.actor.step()
        if self.critic is not None:
            metrics |= self._critic_step(value, decisions, rows)
        metrics["kl"] = (old - log_prob).detach().sum(dim=1).mean()
        return metrics

    def _critic_step(self, value: Tensor, decisions: Decisions, rows: Tensor) -> dict[str, Tensor]:
        clip = self.algorithm.estimator.value_clip
        target, old = decisions.returns[rows], decisions.value[rows]
        change = value - old
        clamped = old + change.clamp(-clip, clip)
        loss = torch.maximum((value - target).square(), (clamped - target).square()).mean() / 2.0
        self.critic.zero_grad()
        loss.backward()
        self.critic.step()
        spread = target.var(unbiased=False)
        explained = 1.0 - (target - old).var(unbiased=False) / spread.clamp_min(1e-8)
        return {
            "value_loss": loss.detach(),
            "value_clipped": (change.abs() > clip).float().mean(),
            "explained_variance": torch.where(spread > 1e-8, explained, torch.zeros_like(explained)),
        }


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

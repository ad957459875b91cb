"""From trajectories and their verdicts to a flat batch of decisions that carry gradient."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float32, Int64, UInt8
from torch import Tensor

from coevo.core import text
from coevo.core.types import Trajectories, Verdicts
from coevo.rl import advantages, payment
from coevo.rl.config import Algorithm, Ppo


@dataclass(frozen=True)
class Decisions:
    """Rows of an update: what the policy saw, what it drew, and how that turned out."""

    frames: UInt8[Tensor, "b h w 3"]
    proprio: Float32[Tensor, "b p"]
    words: Int64[Tensor, "b l"]
    draw: Float32[Tensor, "b d"]
    log_prob: Float32[Tensor, "b m"]
    advantage: Float32[Tensor, " b"]
    returns: Float32[Tensor, " b"] | None
    value: Float32[Tensor, " b"] | None

    def __len__(self) -> int:
        return len(self.draw)


@dataclass(frozen=True)
class Usefulness:
    """How much of what was dreamed carries gradient."""

    frames: float
    """Share of all dreamed frames that stand in the update."""
    groups: float
    """Share of groups whose returns differ: with one reward at the first success, those with both outcomes."""
    dreamed: int
    """Decisions that were dreamed."""


def valid_decisions(trajectories: Trajectories, verdicts: Verdicts, per: int) -> Bool[Tensor, "n q"]:
    """Decisions that were taken before the episode read as a success: what follows it earned nothing."""
    n, q = trajectories.draw.shape[:2]
    device = verdicts.first_success.device
    decision = torch.arange(q, device=device)
    taken = decision[None] < trajectories.length.to(device)[:, None]
    taken &= decision[None] >= begun(trajectories).to(device)[:, None]
    return taken & (decision[None] * per < verdicts.first_success[:, None])


def begun(trajectories: Trajectories) -> Int64[Tensor, " n"]:
    """Decisions that lay before each row's start."""
    return torch.tensor([start.decision for start in trajectories.starts])


def groups_of(state_ids: Sequence[str], device) -> Int64[Tensor, " n"]:
    """Number of each row's group: rows that share an initial state."""
    numbers = {state: number for number, state in enumerate(dict.fromkeys(state_ids))}
    return torch.tensor([numbers[state] for state in state_ids], device=device)


def pack(
    trajectories: Trajectories,
    verdicts: Verdicts,
    algorithm: Algorithm,
    per: int,
    final_value: Float32[Tensor, " n"] | None = None,
) -> tuple[Decisions, Usefulness]:
    """Decisions with their advantages; without a critic, those of groups whose returns are all the same are left out.

    `per` is frames per decision, `final_value` the critic's estimate after the last decision, used where the horizon
    counts as a truncation.
    """
    device = trajectories.draw.device
    valid = valid_decisions(trajectories, verdicts, per).to(device)
    rewards = payment.rewards(verdicts, valid, per, algorithm.payment)
    outcome = rewards.sum(dim=1)
    group = groups_of(trajectories.state_ids, device)
    mean, _ = advantages.group_mean(outcome, group)
    mixed = advantages.group_mean((outcome - mean).square(), group)[0] > 1e-12
    returns = values = None
    match algorithm.estimator:
        case Ppo() as ppo:
            if final_value is None or ppo.horizon == "termination":
                final_value = torch.zeros_like(outcome)
            else:
                won = verdicts.success.to(device).float()
                final_value = final_value * (1.0 - won)  # a read success ends the episode under either meaning
            values = trajectories.value
            advantage, returns = advantages.generalised(
                rewards, values, valid, final_value, ppo.discount, ppo.gae_lambda
            )
            used = valid
        case estimator:
            if estimator.kind == "grpo":
                per_row = advantages.group_relative(outcome, group, estimator.normalise)
            else:
                per_row = advantages.leave_one_out(outcome, group)
            advantage = per_row[:, None].expand(valid.shape)
            used = valid & mixed[:, None]
    rows, decision = used.nonzero(as_tuple=True)
    frame = decision * per
    words = text.words([start.instruction for start in trajectories.starts]).to(device)
    packed = Decisions(
        frames=trajectories.frames[rows, frame], proprio=trajectories.proprio[rows, frame], words=words[rows],
        draw=trajectories.draw[rows, decision], log_prob=trajectories.log_prob[rows, decision],
        advantage=advantage[rows, decision], returns=None if returns is None else returns[rows, decision],
        value=None if values is None else values[rows, decision],
    )  # fmt: skip
    dreamed = max(int(trajectories.length.sum() - begun(trajectories).sum()), 1)
    groups = len(torch.unique(group))
    return packed, Usefulness(len(packed) / dreamed, len(torch.unique(group[mixed])) / groups, dreamed)

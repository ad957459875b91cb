"""Advantage estimators. Each is a few lines, and each is tested against numbers worked by hand."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float32, Int64
from torch import Tensor


def group_relative(
    returns: Float32[Tensor, " n"], group: Int64[Tensor, " n"], normalise: bool = True
) -> Float32[Tensor, " n"]:
    """Return minus the mean return of the same start, over the group's standard deviation if `normalise`.

    Groups that all won or all lost give zeros (GRPO; Shao et al., 2024).
    """
    mean, size = group_mean(returns, group)
    centred = returns - mean
    if not normalise:
        return centred
    variance, _ = group_mean(centred.square(), group)
    return torch.where(variance > 1e-12, centred / variance.clamp_min(1e-12).sqrt(), torch.zeros_like(centred))


def leave_one_out(returns: Float32[Tensor, " n"], group: Int64[Tensor, " n"]) -> Float32[Tensor, " n"]:
    """Return minus the mean return of the others of the same start (RLOO; Kool et al., 2019)."""
    mean, size = group_mean(returns, group)
    if (size < 2).any():
        raise ValueError("leave-one-out needs at least two episodes from every start; raise 'group'")
    return (returns - mean) * size / (size - 1)


def generalised(
    rewards: Float32[Tensor, "n q"],
    values: Float32[Tensor, "n q"],
    valid: Bool[Tensor, "n q"],
    final_value: Float32[Tensor, " n"],
    discount: float,
    gae_lambda: float,
) -> tuple[Float32[Tensor, "n q"], Float32[Tensor, "n q"]]:
    """Advantages and returns by generalised advantage estimation (Schulman et al., 2016).

    `valid` marks the decisions taken, which follow on one another. `final_value` is what the critic expects after the
    last of them: zero where the episode terminates there, the critic's estimate where it is only cut off.
    """
    advantages = torch.zeros_like(rewards)
    following = torch.zeros_like(final_value)
    next_value = final_value
    for decision in reversed(range(rewards.shape[1])):
        taken = valid[:, decision]
        error = rewards[:, decision] + discount * next_value - values[:, decision]
        following = torch.where(taken, error + discount * gae_lambda * following, following)
        next_value = torch.where(taken, values[:, decision], next_value)
        advantages[:, decision] = torch.where(taken, following, torch.zeros_like(following))
    return advantages, torch.where(valid, advantages + values, torch.zeros_like(values))


def group_mean(values: Tensor, group: Tensor) -> tuple[Tensor, Tensor]:
    """Mean over each row's group, and the group's size, per row."""
    count = int(group.max()) + 1
    size = torch.zeros(count, device=values.device).index_add_(0, group, torch.ones_like(values))
    total = torch.zeros(count, device=values.device).index_add_(0, group, values)
    return (total / size.clamp_min(1))[group], size[group]

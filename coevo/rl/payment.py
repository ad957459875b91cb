"""What a decision is paid, from one reading of its episode: reward, success and end are read off the same Verdicts."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float32
from torch import Tensor

from coevo.core.types import Verdicts
from coevo.rl.config import Continuous, Differences, Payment


def rewards(verdicts: Verdicts, valid: Bool[Tensor, "n q"], per: int, payment: Payment) -> Float32[Tensor, "n q"]:
    """Per decision; 0 where `valid`, decisions that follow on one another, is false. `per` is frames per decision."""
    rows, last = torch.arange(len(valid), device=valid.device), valid.long().cumsum(1).argmax(1)
    paid = torch.zeros(valid.shape, device=valid.device)
    match payment:
        case Continuous():
            paid[rows, last] = levels(verdicts, per).to(valid.device)[rows, last]
        case Differences():
            level = levels(verdicts, per).to(valid.device)
            before = torch.cat([verdicts.probability[:, :1].to(valid.device), level[:, :-1]], dim=1)
            paid = (level - before) * valid
        case _:
            paid[rows, last] = verdicts.success.to(valid.device).float()
    return paid


def levels(verdicts: Verdicts, per: int) -> Float32[Tensor, "n q"]:
    """The largest reading among the frames that each decision led to: that which decides its success, too."""
    return verdicts.probability[:, 1:].unflatten(1, (-1, per)).amax(dim=2)

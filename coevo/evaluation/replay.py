"""Closed-loop replay: what a policy achieves in a dream, done again unchanged in the simulator.

Fidelity on recorded actions cannot see whether an updated policy has moved to where the world model is wrong; this can.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Int64, UInt8
from torch import Tensor

from coevo.core import random
from coevo.core.protocols import Environment
from coevo.core.types import Trajectories, Verdicts
from coevo.evaluation.drive import drive, reached
from coevo.evaluation.intervals import counts_per_state, share_interval
from coevo.records.outcomes import Mismatch


@dataclass(frozen=True)
class Replay:
    """The dreamed successes beside their replays."""

    record: Mismatch
    rows: Int64[Tensor, " r"]
    """Which of the dreamed episodes were replayed: those read as success."""
    succeeded: Bool[Tensor, " r"]
    """Whether each replay succeeded in the simulator."""
    frames: UInt8[Tensor, "r f1 h w 3"]
    """The replays as the simulator showed them."""


def replay(
    dreamed: Trajectories,
    verdicts: Verdicts,
    simulator: Environment,
    *,
    world_model: str,
    stream: tuple[int | str, ...],
) -> Replay:
    """Drive the simulator with the actions of every dreamed episode that was read as success.

    Args:
        dreamed: full episodes of one policy, none ended early (an ended row's later actions are not the policy's).
    """
    if bool((dreamed.length < simulator.interface.decisions).any()):
        raise ValueError("a dreamed episode ended before the horizon; replay needs rollouts without a monitor")
    rows = verdicts.success.cpu().nonzero().flatten()
    starts = [dreamed.starts[row] for row in rows.tolist()]
    if starts:
        names = [f"{dreamed.starts[row].id}#{dreamed.sample[row]}" for row in rows.tolist()]
        keys = random.row_keys(*stream, "replay", rows=names)
        driven = drive(simulator, starts, dreamed.actions[rows.to(dreamed.actions.device)].cpu(), keys)
        succeeded, frames = reached(driven.success, simulator.interface.success_from), driven.frames
    else:
        succeeded, frames = torch.zeros(0, dtype=torch.bool), dreamed.frames[:0].cpu()
    failed = np.asarray(~succeeded)
    interval = share_interval(
        *counts_per_state(tuple(start.id for start in starts), failed, np.ones_like(failed)),
        random.stream(*stream, "mismatch"),
    )
    record = Mismatch(
        policy=dreamed.policy, world_model=world_model, dreamed=len(dreamed),
        dreamed_success=float(verdicts.success.float().mean()), mismatch=interval,
    )
    return Replay(record, rows, succeeded, frames)

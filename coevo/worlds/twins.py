"""Episodes from one start with opposite outcomes, drawn side by side: what differs between them is what actions did."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Int64
from torch import Tensor

MOST = 8
"""Twins of an episode that are kept; from a start with more, those that come next after it."""


def twins(states: Sequence[str], success: Sequence[bool]) -> Int64[Tensor, "n m"]:
    """Rows of the episodes that began as each one did and ended otherwise; repeated to fill, -1 where there are none.

    Args:
        states: id of the initial state of each episode.
        success: its outcome.
    """
    alike: dict[tuple[str, bool], list[int]] = {}
    for row, key in enumerate(zip(states, success, strict=True)):
        alike.setdefault((key[0], bool(key[1])), []).append(row)
    table = torch.full((len(states), MOST), -1, dtype=torch.int64)
    for (state, won), rows in alike.items():
        others = alike.get((state, not won), [])
        if others:
            for place, row in enumerate(rows):
                table[row] = torch.tensor([others[(place + step) % len(others)] for step in range(MOST)])
    return table


def side_by_side(
    episode: Int64[Tensor, " b"], table: Int64[Tensor, "n m"], share: float, source: torch.Generator
) -> tuple[Int64[Tensor, " b"], Bool[Tensor, " b"]]:
    """Put twins into the second rows of so many of the batch's pairs of rows.

    Rows 2 i and 2 i + 1 are a pair. Returns the episodes, and which rows are to take decision and noise from the row
    before them. A row without a twin keeps its neighbour.
    """
    pairs = len(episode) // 2
    first = episode[: 2 * pairs : 2]
    which = torch.randint(table.shape[1], (pairs,), generator=source, device=episode.device)
    wanted = torch.rand(pairs, generator=source, device=episode.device) < share
    twin = table[first, which]
    paired = wanted & (twin >= 0)
    drawn, follows = episode.clone(), torch.zeros_like(episode, dtype=torch.bool)
    drawn[1 : 2 * pairs : 2] = torch.where(paired, twin, episode[1 : 2 * pairs : 2])
    follows[1 : 2 * pairs : 2] = paired
    return drawn, follows

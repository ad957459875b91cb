"""Learning rates along training."""

from __future__ import annotations

import math


def cosine(step: int, steps: int) -> float:
    """Factor of the learning rate at `step` of `steps`: 1 at the first, towards 0 at the last (Loshchilov, 2017)."""
    return 0.5 * (1.0 + math.cos(math.pi * step / steps))

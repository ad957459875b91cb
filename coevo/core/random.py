"""Randomness keyed by the work item, never by the worker, the batch slot or the time.

`stream` gives a NumPy generator for host-side draws. `row_keys` and `normal` give counter-based noise for a batch in
one vectorised call, the same for a row whichever batch it stands in and on whichever device (the integers are exact;
the floats differ between devices by rounding).
"""

from __future__ import annotations

import hashlib
import math
import operator
from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float32, Int64
from torch import Tensor

Part = int | np.integer | str

_GOLDEN = -7046029254386353131  # 0x9E3779B97F4A7C15 as int64: the increment of splitmix64 (Steele et al., 2014)
_MIX1 = -4658895280553007687  # 0xBF58476D1CE4E5B9
_MIX2 = -7723592293110705685  # 0x94D049BB133111EB


def key(*parts: Part) -> int:
    """A 64-bit key (signed) of what the randomness is for, for example key(seed, "collect", state_id, sample)."""
    # A NumPy integer prints unlike the same Python integer, and both must give the same key.
    plain = tuple(part if isinstance(part, str) else operator.index(part) for part in parts)
    digest = hashlib.blake2b(repr(plain).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)


def stream(*parts: Part) -> np.random.Generator:
    """A NumPy generator for one work item."""
    return np.random.Generator(np.random.Philox(key=key(*parts) % 2**64))


def generator(*parts: Part, device: str | torch.device = "cpu") -> torch.Generator:
    """A torch generator for one work item."""
    return torch.Generator(device=device).manual_seed(key(*parts) % 2**63)


def row_keys(*parts: Part, rows: Sequence[Part], device: str | torch.device = "cpu") -> Int64[Tensor, " n"]:
    """One key per row, for example row_keys(seed, "dream", rows=[state.id ...])."""
    return torch.tensor([key(*parts, row) for row in rows], dtype=torch.int64, device=device)


def fold(keys: Int64[Tensor, " n"], data: int | Int64[Tensor, " n"]) -> Int64[Tensor, " n"]:
    """New keys from old ones and a counter, for example fold(keys, chunk)."""
    return _mix(keys + _mix(torch.as_tensor(data, dtype=torch.int64, device=keys.device) + _GOLDEN))


def uniform(keys: Int64[Tensor, " n"], *shape: int) -> Float32[Tensor, "n ..."]:
    """Uniform draws in (0, 1), one block of `shape` per key."""
    count = math.prod(shape)
    counter = torch.arange(1, count + 1, dtype=torch.int64, device=keys.device) * _GOLDEN
    bits = _mix(keys[:, None] + counter[None, :])
    # The top 24 bits fill a float32 mantissa; the half step keeps 0 out, so that a logarithm is finite. At the highest
    # level it rounds up to 1, where a quantile is infinite.
    levels = (((bits >> 40) & 0xFFFFFF).to(torch.float32) + 0.5).mul_(2.0**-24)
    return levels.clamp_max_(1.0 - 2.0**-24).view(len(keys), *shape)


def normal(keys: Int64[Tensor, " n"], *shape: int) -> Float32[Tensor, "n ..."]:
    """Standard normal draws by Box and Muller (1958), one block of `shape` per key."""
    count = math.prod(shape)
    pairs = uniform(keys, 2, (count + 1) // 2)
    radius = (-2.0 * pairs[:, 0].log()).sqrt_()
    angle = pairs[:, 1] * (2.0 * math.pi)
    both = torch.cat([radius * angle.cos(), radius * angle.sin()], dim=1)
    return both[:, :count].reshape(len(keys), *shape)


def _mix(x: Tensor) -> Tensor:
    """The finaliser of splitmix64; torch's int64 wraps, and the masks make the right shifts logical."""
    x = (x ^ ((x >> 30) & 0x3FFFFFFFF)) * _MIX1
    x = (x ^ ((x >> 27) & 0x1FFFFFFFFF)) * _MIX2
    return x ^ ((x >> 31) & 0x1FFFFFFFF)

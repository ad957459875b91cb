"""Words of an instruction as numbers, without a download: for the small models' own embeddings."""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence

import torch
from jaxtyping import Int64
from torch import Tensor

VOCABULARY = 512
"""Buckets that words are hashed into; 0 is the padding."""


LENGTH = 8
"""Words of an instruction that count."""


def words(instructions: Sequence[str], length: int = LENGTH) -> Int64[Tensor, "n l"]:
    """Bucket of each word, cut or padded to `length`; the same word gives the same bucket on every machine."""
    rows = torch.zeros(len(instructions), length, dtype=torch.int64)
    for row, text in enumerate(instructions):
        found = re.findall(r"[a-z0-9]+", text.lower())[:length]
        for column, word in enumerate(found):
            rows[row, column] = 1 + zlib.crc32(word.encode()) % (VOCABULARY - 1)
    return rows

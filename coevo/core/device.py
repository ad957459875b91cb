"""Where tensors live."""

from __future__ import annotations

import torch


def best_device() -> torch.device:
    """The first CUDA device if there is one, else the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")

"""A world model's own reward head as a reward model: what it said while it drew, or what it says of recorded frames."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float32
from torch import Tensor

from coevo.core.types import Seen, Verdicts
from coevo.records.interface import Interface
from coevo.records.outcomes import Calibration
from coevo.rewards.calibration import Looked
from coevo.rewards.classifier import read_peak
from coevo.rewards.config import WorldModelHeadConfig


class OwnHeadReward:
    """EpisodeReader. Without a calibration it gives probabilities but no verdicts.

    Args:
        read: probability per recorded frame by teacher forcing, with the frozen world model that is part of it.
        world_model: id of that world model.
        world_model_sha256: hash of its manifest.
        window: frames that a reading looks at: initial, history and drawn ones.
    """

    def __init__(
        self,
        config: WorldModelHeadConfig,
        interface: Interface,
        read: Callable[[Seen], Float32[Tensor, "n f1"]],
        world_model: str,
        world_model_sha256: str,
        window: int,
        id: str = "reward",
    ) -> None:
        self.config, self.interface, self.id = config, interface, id
        self.read, self.world_model, self.world_model_sha256 = read, world_model, world_model_sha256
        self.window = window
        self.calibration: Calibration | None = None

    def looked(self) -> Looked:
        """What stands in front of the head for one reading."""
        return Looked(self.window, self.window, self.interface.fps, self.window)

    def readings(self, seen: Seen) -> Float32[Tensor, "n f1"]:
        """Probability of success per frame; the start's own frame reads 0."""
        if seen.probability is None:
            return self.read(seen)
        return torch.cat([torch.zeros_like(seen.probability[:, :1]), seen.probability], dim=1)

    def judge(self, seen: Seen) -> Verdicts:
        """Judge episodes by the peak from the interface's `success_from` on."""
        if self.calibration is None:
            raise ValueError(f"{self.id} has no calibration yet; run the stage calibrate_reward")
        return read_peak(self.readings(seen), self.calibration.threshold, self.interface.success_from, self.id)

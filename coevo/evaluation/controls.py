"""Repairs on the reward's side, as negative controls: none of them can mend a world model that draws wrongly.

A frozen reward is right about the frames it is given. If a missed grasp is drawn as a lift, reading the frames more
strictly (k in a row) costs recall and leaves the lift; reading the actions alone (their geometry) is the same whatever
is drawn, so it cannot tell a start from another. Both stand in the fidelity table beside the reward itself.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float32
from torch import Tensor, nn

from coevo.core import random
from coevo.core.protocols import RewardModel
from coevo.core.types import Verdicts


class Consecutive:
    """RewardModel that asks for `k` positive frames in a row of another's reading."""

    def __init__(self, reward: RewardModel, k: int) -> None:
        if k < 1:
            raise ValueError(f"'k' = {k}: at least one positive frame makes a success")
        self.reward, self.k, self.interface = reward, k, reward.interface
        self.id = f"{reward.id}, {k} in a row"

    def verdicts(self, frames: Tensor, instructions: Sequence[str]) -> Verdicts:
        """Success at the k-th positive frame in a row, counted from the interface's `success_from` on."""
        read = self.reward.verdicts(frames, instructions)
        hit = read.probability >= read.threshold
        hit[:, : self.interface.success_from] = False
        runs = hit.unfold(1, self.k, 1).all(dim=2)
        first = torch.where(runs.any(dim=1), runs.long().argmax(dim=1) + self.k - 1, frames.shape[1])
        return Verdicts(read.probability, runs.any(dim=1), first, read.threshold, self.id)


class ActionGeometry(nn.Module):
    """A small classifier of commanded poses alone: what the outcome is worth guessing at without looking."""

    id = "action geometry"

    def __init__(self, poses: Float32[Tensor, "n f1 4"], width: int = 64) -> None:
        super().__init__()
        flat = poses.flatten(1)
        self.register_buffer("mean", flat.mean(dim=0))
        self.register_buffer("std", flat.std(dim=0).clamp_min(1e-4))
        self.net = nn.Sequential(nn.Linear(flat.shape[1], width), nn.SiLU(), nn.Linear(width, 1))
        self.threshold = 0.5

    def probabilities(self, poses: Float32[Tensor, "n f1 4"]) -> Float32[Tensor, " n"]:
        """Of success, per episode."""
        return self.net((poses.flatten(1) - self.mean) / self.std)[:, 0].sigmoid()

    @torch.no_grad()
    def success(self, poses: Float32[Tensor, "n f1 4"]) -> Bool[Tensor, " n"]:
        """Verdict on each episode."""
        return self.probabilities(poses) >= self.threshold


def fit_geometry(
    poses: Float32[Tensor, "n f1 4"], truth: Bool[Tensor, " n"], seed: int, steps: int = 400
) -> ActionGeometry:
    """Train on four fifths of simulator episodes, set the threshold on the rest by balanced accuracy.

    Args:
        poses: commanded position (metres) and gripper command at every frame.
        truth: the simulator's outcome. ValueError unless both outcomes occur in both parts.
    """
    held = torch.arange(len(poses)) % 5 == 4
    for part, members in (("training", ~held), ("threshold", held)):
        if not (truth[members].any() and (~truth[members]).any()):
            raise ValueError(f"the {part} part of {len(poses)} episodes holds one outcome only; collect more rollouts")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(random.key(seed, "action geometry") % 2**63)
        model = ActionGeometry(poses[~held])
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=1e-2)
    labels = truth[~held].float()
    balance = (~truth[~held]).sum() / truth[~held].sum()
    for _ in range(steps):
        probability = model.probabilities(poses[~held])
        weight = torch.where(labels > 0, balance, 1.0)
        loss = F.binary_cross_entropy(probability, labels, weight=weight)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    with torch.no_grad():
        guessed = model.probabilities(poses[held])
    levels = torch.linspace(0.05, 0.95, 19)
    accuracy = [_balanced(guessed >= level, truth[held]) for level in levels]
    model.threshold = float(levels[int(torch.tensor(accuracy).argmax())])
    return model


def _balanced(read: Bool[Tensor, " n"], truth: Bool[Tensor, " n"]) -> float:
    return 0.5 * (read[truth].float().mean() + (~read[~truth]).float().mean()).item()

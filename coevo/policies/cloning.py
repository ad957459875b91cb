"""Behaviour cloning of a small policy."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float32, Int64, UInt8
from torch import Tensor

from coevo.core import random
from coevo.core.schedule import cosine
from coevo.policies.config import Cloning
from coevo.policies.small import SmallPolicy


def clone(
    policy: SmallPolicy,
    settings: Cloning,
    frames: UInt8[Tensor, "n h w 3"],
    proprio: Float32[Tensor, "n p"],
    words: Int64[Tensor, "n l"],
    label: Float32[Tensor, "n k a"],
    seed: int,
    report: Callable[[int, float], None],
) -> None:
    """Fit the head's mean to noise-free expert actions by maximum likelihood, one row per decision."""
    device = policy.mean.weight.device
    frames, proprio, words = frames.to(device), proprio.to(device), words.to(device)
    target = policy.targets(label.to(device))
    optimiser = torch.optim.AdamW(policy.parameters(), lr=settings.learning_rate, weight_decay=settings.weight_decay)
    policy.train()
    losses: list[Tensor] = []
    for step in range(settings.steps):
        source = random.generator(seed, "clone", step, device=device)
        rows = torch.randint(len(frames), (settings.batch,), generator=source, device=device)
        shown, pose = frames[rows], proprio[rows].clone()
        noise = torch.randn((len(rows), 3, *shown.shape[1:3]), generator=source, device=device) * settings.image_noise
        pose[:, :3] += torch.randn((len(rows), 3), generator=source, device=device) * settings.command_noise
        rate = settings.learning_rate * cosine(step, settings.steps)
        optimiser.param_groups[0]["lr"] = rate
        features = policy.features(shown, pose, words[rows], noise)
        # The likelihood of a fixed-scale head, divided by its curvature so that losses compare between scales.
        error = policy.distribution(features).mean - target[rows]
        loss = error.square().mean() if policy.config.head.kind == "gaussian" else error.abs().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.detach())
        if (step + 1) % 100 == 0 or step + 1 == settings.steps:
            report(step + 1, torch.stack(losses).mean().item())
            losses.clear()
    policy.eval()

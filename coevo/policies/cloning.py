"""Behaviour cloning of a small policy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float32, Int64, UInt8
from torch import Tensor

from coevo.core import random, text
from coevo.core.schedule import cosine
from coevo.policies.config import Cloning
from coevo.policies.small import SmallPolicy


@runtime_checkable
class Arrays(Protocol):
    """The fields of episode arrays that cloning reads."""

    frames: Tensor
    proprio: Tensor
    labels: Tensor
    length: Tensor
    instructions: tuple[str, ...]


def clone_episodes(
    policy: SmallPolicy, settings: Cloning, arrays: Arrays, seed: int, report: Callable[[int, float], None]
) -> None:
    """Clone whole episodes, one training row per decision."""
    per, k = policy.interface.chunk_frames, policy.interface.chunk
    decisions = arrays.length // per
    taken = torch.arange(int(decisions.max()))[None] < decisions[:, None]
    episode, decision = taken.nonzero(as_tuple=True)
    words = text.words(arrays.instructions)
    clone(
        policy, settings, arrays.frames[episode, decision * per], arrays.proprio[episode, decision * per],
        words[episode], arrays.labels.unflatten(1, (-1, k))[episode, decision], seed, report,
    )  # fmt: skip


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
    """Fit the head's mean to the labels (noise-free expert actions, or what a policy did) by maximum likelihood."""
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

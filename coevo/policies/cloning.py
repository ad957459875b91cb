"""Behaviour cloning of a policy, whatever its head."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float32, Int64, UInt8
from torch import Tensor

from coevo.core import random, text
from coevo.core.checkpoints import Checkpoint
from coevo.core.schedule import cosine
from coevo.policies.config import Cloning
from coevo.policies.policy import LearnedPolicy


@runtime_checkable
class Arrays(Protocol):
    """The fields of episode arrays that cloning reads."""

    frames: Tensor
    proprio: Tensor
    labels: Tensor
    length: Tensor
    instructions: tuple[str, ...]


def clone_episodes(
    policy: LearnedPolicy, settings: Cloning, arrays: Arrays, seed: int, report: Callable[[int, float], None],
    checkpoint: Checkpoint | None = None,
) -> None:  # fmt: skip
    """Clone whole episodes, one training row per decision; goes on from `checkpoint` if it holds something."""
    per, k = policy.interface.chunk_frames, policy.interface.chunk
    decisions = arrays.length // per
    taken = torch.arange(int(decisions.max()))[None] < decisions[:, None]
    episode, decision = taken.nonzero(as_tuple=True)
    words = text.words(arrays.instructions)
    policy.backbone.remember(arrays.instructions)
    clone(
        policy, settings, arrays.frames[episode, decision * per], arrays.proprio[episode, decision * per],
        words[episode], arrays.labels.unflatten(1, (-1, k))[episode, decision], seed, report, checkpoint,
    )  # fmt: skip


def clone(
    policy: LearnedPolicy,
    settings: Cloning,
    frames: UInt8[Tensor, "n h w 3"],
    proprio: Float32[Tensor, "n p"],
    words: Int64[Tensor, "n l"],
    label: Float32[Tensor, "n k a"],
    seed: int,
    report: Callable[[int, float], None],
    checkpoint: Checkpoint | None = None,
) -> None:
    """Fit the head to the labels (noise-free expert actions, or what a policy did) by its own loss.

    A resumed run reports again what was reported before it was stopped, so that its log is whole.
    """
    device = policy.device
    frames, proprio, words = frames.to(device), proprio.to(device), words.to(device)
    target = policy.targets(label.to(device))
    optimiser = torch.optim.AdamW(policy.parameters(), lr=settings.learning_rate, weight_decay=settings.weight_decay)
    policy.train()
    losses: list[Tensor] = []
    checkpoint = checkpoint or Checkpoint(None)
    began, reported = 0, []
    if (saved := checkpoint.load()) is not None:
        policy.load_state_dict(saved["policy"])
        optimiser.load_state_dict(saved["optimiser"])
        began, reported, losses = saved["step"], saved["reported"], [loss.to(device) for loss in saved["losses"]]
    for line in reported:
        report(*line)
    for step in range(began, settings.steps):
        source = random.generator(seed, "clone", step, device=device)
        rows = torch.randint(len(frames), (settings.batch,), generator=source, device=device)
        shown, pose = frames[rows], proprio[rows].clone()
        noise = torch.randn((len(rows), 3, *shown.shape[1:3]), generator=source, device=device) * settings.image_noise
        pose[:, :3] += torch.randn((len(rows), 3), generator=source, device=device) * settings.command_noise
        rate = settings.learning_rate * cosine(step, settings.steps)
        optimiser.param_groups[0]["lr"] = rate
        loss = policy.cloning_loss(shown, pose, words[rows], target[rows], noise, source)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.detach())
        if (step + 1) % 100 == 0 or step + 1 == settings.steps:
            reported.append((step + 1, torch.stack(losses).mean().item()))
            report(*reported[-1])
            losses.clear()
        if checkpoint.is_due():
            checkpoint.save(dict(
                step=step + 1, policy=policy.state_dict(), optimiser=optimiser.state_dict(), reported=reported,
                losses=losses,
            ))  # fmt: skip
    policy.eval()

"""Training the small geometry encoder on what recorded episodes know of where things are.

Episodes hold no depth and no place of the object. What they hold exactly is the commanded gripper: its pixel, the
pixel of the floor point below it (the two say how far away it is), and its place in metres; and from a simulator how
near the object is to its goal. The encoder learns to tell these from one frame.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float32, UInt8
from torch import Tensor, nn

from coevo.core import kinematics, random
from coevo.core.schedule import cosine
from coevo.records.interface import Interface
from coevo.worlds.features import Geometry


@dataclass(frozen=True)
class Labelled:
    """Frames and what is known of each."""

    frames: UInt8[Tensor, "n h w 3"]
    proprio: Float32[Tensor, "n p"]
    progress: Float32[Tensor, " n"]
    """Nearness to the goal, 0 to 1."""
    known: Bool[Tensor, " n"]
    """Whether progress is."""


def train_geometry(
    encoder: Geometry,
    interface: Interface,
    labelled: Labelled,
    seed: int,
    report: Callable[[int, float], None],
) -> None:
    """Mean squared error of gripper and nearness by a linear layer on the map, which is thrown away afterwards."""
    settings, device = encoder.settings, encoder.trained.device
    target, known = (part.to(device) for part in targets(interface, labelled))
    frames = labelled.frames.to(device)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(random.key(seed, "geometry head") % 2**63)
        head = nn.Linear(encoder(frames[:1]).numel(), target.shape[1]).to(device)
    weights = [*encoder.net.requires_grad_(True).parameters(), *head.parameters()]
    optimiser = torch.optim.AdamW(weights, lr=settings.learning_rate, weight_decay=1e-4, fused=True)
    for step in range(settings.steps):
        source = random.generator(seed, "geometry", step, device=device)
        rows = torch.randint(len(frames), (settings.batch,), generator=source, device=device)
        error = (head(encoder(frames[rows]).flatten(1)) - target[rows]).square() * known[rows]
        loss = error.sum() / known[rows].sum().clamp_min(1.0)
        optimiser.param_groups[0]["lr"] = settings.learning_rate * cosine(step, settings.steps)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        if (step + 1) % 50 == 0 or step + 1 == settings.steps:
            report(step + 1, loss.item())
    encoder.requires_grad_(False)
    encoder.trained.fill_(1.0)


def targets(interface: Interface, labelled: Labelled) -> tuple[Float32[Tensor, "n 8"], Float32[Tensor, "n 8"]]:
    """Pixels of gripper and floor point (the picture is [-1, 1]), place in the workspace box, nearness; which count."""
    camera, proprio = interface.camera, labelled.proprio
    size = torch.tensor([camera.width, camera.height], device=proprio.device)
    marks = kinematics.marks(camera, proprio[:, :3]) / size * 2.0 - 1.0
    place = kinematics.normalised(interface.action, proprio[:, :4])[:, :3]
    known = torch.ones(len(proprio), 8, device=proprio.device)
    known[:, 7] = labelled.known.to(known)
    return torch.cat([marks.flatten(1), place, labelled.progress[:, None]], dim=1), known

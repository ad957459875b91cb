"""Training the small convolutional codec, before the world model that will live in its latents."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import UInt8
from torch import Tensor

from coevo.core import frames as pixels
from coevo.core import random
from coevo.core.checkpoints import Checkpoint
from coevo.core.schedule import cosine
from coevo.worlds.codecs import ConvAutoencoder
from coevo.worlds.config import ConvCodec

FOREGROUND_WEIGHT = 8.0
"""Loss weight of pixels that differ from the median frame: the object is some 20 of 4,096 pixels."""


def train_codec(
    codec: ConvAutoencoder,
    settings: ConvCodec,
    frames: UInt8[Tensor, "n h w 3"],
    seed: int,
    report: Callable[[int, float], None],
    checkpoint: Checkpoint | None = None,
) -> None:
    """Reconstruction with noise on normalised latents; sets the codec's latent statistics at the end.

    Goes on from `checkpoint` if it holds something, and reports again what was reported before it was stopped.
    """
    device = next(codec.parameters()).device
    frames = frames.to(device)
    usual = frames[:: max(1, len(frames) // 256)].float().median(dim=0).values
    optimiser = torch.optim.AdamW(codec.parameters(), lr=settings.learning_rate, weight_decay=1e-4, fused=True)
    codec.train()
    checkpoint = checkpoint or Checkpoint(None)
    began, reported = 0, []
    if (saved := checkpoint.load()) is not None:
        codec.load_state_dict(saved["codec"])
        optimiser.load_state_dict(saved["optimiser"])
        began, reported = saved["step"], saved["reported"]
    for line in reported:
        report(*line)
    for step in range(began, settings.steps):
        source = random.generator(seed, "codec", step, device=device)
        rows = torch.randint(len(frames), (settings.batch,), generator=source, device=device)
        shown = frames[rows]
        differs = (shown.float() - usual).abs().amax(-1) > 16
        weight = 1.0 + (FOREGROUND_WEIGHT - 1.0) * differs[:, None].float()
        target = pixels.to_float(shown)
        rate = settings.learning_rate * min(1.0, (step + 1) / 50)
        optimiser.param_groups[0]["lr"] = rate * cosine(step, settings.steps)
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            latents = codec.encoder(target).float()
            scale = latents.detach().std(dim=(0, 2, 3), keepdim=True)
            noise = torch.randn(latents.shape, generator=source, device=device) * scale * settings.latent_noise
            error = codec.decoder(latents + noise).float() - target
        loss = ((error.square() + 0.1 * error.abs()) * weight).sum() / weight.sum()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        if (step + 1) % 50 == 0 or step + 1 == settings.steps:
            reported.append((step + 1, loss.item()))
            report(*reported[-1])
        # The last one stays for a stage that goes on to train the transformer.
        if checkpoint.is_due() or step + 1 == settings.steps:
            checkpoint.save(dict(
                step=step + 1, codec=codec.state_dict(), optimiser=optimiser.state_dict(), reported=reported,
            ))  # fmt: skip
    codec.eval()
    with torch.no_grad():
        sample = pixels.to_float(frames[:: max(1, len(frames) // 2048)])
        latents = torch.cat([codec.encoder(part).float() for part in sample.split(256)])
        codec.mean.copy_(latents.mean(dim=(0, 2, 3)))
        codec.std.copy_(latents.std(dim=(0, 2, 3)))

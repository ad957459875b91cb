"""The frame classifier: one probability per frame, read by its peak against a calibrated threshold."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float32, UInt8
from torch import Tensor, nn

from coevo.core import frames as pixels
from coevo.core import random
from coevo.core.checkpoints import Checkpoint
from coevo.core.layers import strided_convolutions
from coevo.core.schedule import cosine
from coevo.core.types import Verdicts
from coevo.records.interface import Interface
from coevo.records.outcomes import Calibration
from coevo.rewards.config import ClassifierTraining, FrameClassifierConfig, ResNetConfig


class FrameClassifier(nn.Module):
    """RewardModel protocol. Without a calibration it gives probabilities but no verdicts."""

    def __init__(self, config: FrameClassifierConfig | ResNetConfig, interface: Interface, id: str = "reward") -> None:
        super().__init__()
        self.config, self.interface, self.id = config, interface, id
        self.calibration: Calibration | None = None
        if isinstance(config, ResNetConfig):
            self.net = ResNet(config)
        else:
            layers, features = strided_convolutions(config.channels, interface.camera)
            self.net = nn.Sequential(*layers, nn.Linear(features, 64), nn.SiLU(), nn.Linear(64, 1))

    def logits(self, frames: Float32[Tensor, "n 3 h w"]) -> Float32[Tensor, " n"]:
        """Of success, per frame in [-1, 1]."""
        return self.net(frames)[:, 0]

    @torch.no_grad()
    def probabilities(self, frames: UInt8[Tensor, "n f h w 3"]) -> Float32[Tensor, "n f"]:
        """Of success, per frame."""
        device = next(self.parameters()).device
        flat = frames.flatten(0, 1)
        parts = [self.logits(pixels.to_float(part.to(device))).sigmoid() for part in flat.split(2048)]
        return torch.cat(parts).view(frames.shape[:2])

    def verdicts(self, frames: UInt8[Tensor, "n f1 h w 3"], instructions: Sequence[str]) -> Verdicts:
        """Judge episodes by the peak from the interface's `success_from` on."""
        if self.calibration is None:
            raise ValueError(f"{self.id} has no calibration yet; run the stage calibrate_reward")
        return read_peak(
            self.probabilities(frames), self.calibration.threshold, self.interface.success_from, self.id
        )


class ResNet(nn.Module):
    """The ResNet of `transformers`, with one number per frame."""

    def __init__(self, config: ResNetConfig) -> None:
        super().__init__()
        from transformers import ResNetConfig as Settings
        from transformers import ResNetForImageClassification

        self.model = ResNetForImageClassification(
            Settings(
                embedding_size=config.stem, hidden_sizes=list(config.widths), depths=list(config.depths),
                layer_type=config.layer, num_labels=1,
            )
        )  # fmt: skip

    def forward(self, frames: Float32[Tensor, "n 3 h w"]) -> Float32[Tensor, "n 1"]:
        """A logit per frame."""
        return self.model(pixel_values=frames).logits


def read_peak(probability: Float32[Tensor, "n f1"], threshold: float, success_from: int, id: str) -> Verdicts:
    """Success where the peak over frames from `success_from` on reaches the threshold, and the first such frame."""
    counts = probability >= threshold
    counts[:, :success_from] = False
    success = counts.any(dim=1)
    frames = probability.shape[1]
    first = torch.where(success, counts.long().argmax(dim=1), torch.full_like(success, frames, dtype=torch.int64))
    return Verdicts(probability, success, first, threshold, id)


def fit(
    model: FrameClassifier,
    settings: ClassifierTraining,
    frames: UInt8[Tensor, "n f1 h w 3"],
    success: Bool[Tensor, "n f"],
    seed: int,
    report: Callable[[int, float], None],
    checkpoint: Checkpoint | None = None,
) -> None:
    """Train on per-frame labels of simulator episodes; the frames after the first are labelled by `success`.

    Goes on from `checkpoint` if it holds something, and reports again what was reported before it was stopped.
    """
    device = next(model.parameters()).device
    shown, labels = frames[:, 1:].flatten(0, 1).to(device), success.flatten().to(device)
    position = torch.arange(1, success.shape[1] + 1, device=device).expand(len(success), -1).flatten()
    pools = [
        (labels, settings.positives),
        (~labels & (position >= model.interface.success_from), settings.late_negatives),
        (~labels, settings.any_negatives),
    ]
    if not all(pool.any() for pool, _ in pools):
        late = int(pools[1][0].sum())
        raise ValueError(
            f"the rollouts hold {int(labels.sum())} frames of success and {int((~labels).sum())} without, {late} of "
            "them late enough to count; a reward model needs all three: collect more rollouts, or from a policy that "
            "sometimes succeeds"
        )
    indices = [(pool.nonzero().flatten(), count) for pool, count in pools]
    optimiser = torch.optim.AdamW(model.parameters(), lr=settings.learning_rate, weight_decay=1e-3)
    model.train()
    checkpoint = checkpoint or Checkpoint(None)
    began, reported = 0, []
    if (saved := checkpoint.load()) is not None:
        model.load_state_dict(saved["model"])
        optimiser.load_state_dict(saved["optimiser"])
        began, reported = saved["step"], saved["reported"]
    for line in reported:
        report(*line)
    for step in range(began, settings.steps):
        source = random.generator(seed, "reward", step, device=device)
        rows = torch.cat(
            [pool[torch.randint(len(pool), (count,), generator=source, device=device)] for pool, count in indices]
        )
        images = pixels.to_float(shown[rows])
        scale = torch.rand(len(rows), 1, 1, 1, generator=source, device=device) * settings.image_noise
        images = images + torch.randn(images.shape, generator=source, device=device) * scale
        optimiser.param_groups[0]["lr"] = settings.learning_rate * cosine(step, settings.steps)
        loss = F.binary_cross_entropy_with_logits(model.logits(images), labels[rows].float())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        if (step + 1) % 50 == 0 or step + 1 == settings.steps:
            reported.append((step + 1, loss.item()))
            report(*reported[-1])
        if checkpoint.is_due():
            checkpoint.save(dict(
                step=step + 1, model=model.state_dict(), optimiser=optimiser.state_dict(), reported=reported,
            ))  # fmt: skip
    model.eval()

"""Training of reward models of windows, on windows of simulator episodes that end where readings are taken."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Bool, Float32, Int64, UInt8
from torch import Tensor

from coevo.core import random
from coevo.core.checkpoints import Checkpoint
from coevo.core.schedule import cosine
from coevo.rewards.config import WindowTraining
from coevo.rewards.windowed import WindowReward
from coevo.rewards.windows import reading_frames


def fit(
    model: WindowReward,
    settings: WindowTraining,
    frames: UInt8[Tensor, "n f1 h w 3"],
    success: Bool[Tensor, "n f"],
    progress: Float32[Tensor, "n f"],
    instructions: Sequence[str],
    seed: int,
    report: Callable[[int, float], None],
    checkpoint: Checkpoint | None = None,
) -> None:
    """Train what the model leaves open; a model that is frozen whole is left as it is.

    Half of each batch are windows that end at a success, a quarter are such as end where success counts and is not
    there: among all others those are few, and a model that never sees them learns to tell the time. Goes on from
    `checkpoint` if it holds something. Raises ValueError if the episodes hold one outcome only at the frames that are
    read.
    """
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    if not weights:
        return
    ends = reading_frames(model.interface, model.config.every)
    at = torch.tensor(ends) - 1
    labels, nearness = success[:, at].flatten(), progress[:, at].flatten()
    counts = (torch.tensor(ends) >= model.interface.success_from).repeat(len(success))
    pools = _Pools(labels, counts)
    device = weights[0].device
    taken = _Taken(model, frames, model.windows(ends), instructions)
    optimiser = torch.optim.AdamW(weights, lr=settings.learning_rate, weight_decay=1e-3)
    model.train()
    checkpoint = checkpoint or Checkpoint(None)
    began, reported = 0, []
    if (saved := checkpoint.load()) is not None:
        model.load_kept(saved["model"])
        optimiser.load_state_dict(saved["optimiser"])
        began, reported = saved["step"], saved["reported"]
    for line in reported:
        report(*line)
    for step in range(began, settings.steps):
        rows = pools.draw(settings.batch, random.generator(seed, "window reward", step))
        optimiser.param_groups[0]["lr"] = settings.learning_rate * cosine(step, settings.steps)
        found = taken(rows, settings.image_noise, random.generator(seed, "window noise", step, device=device))
        loss = model.loss(found, labels[rows].to(found.device), nearness[rows].to(found.device))
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(weights, 1.0)
        optimiser.step()
        if (step + 1) % 25 == 0 or step + 1 == settings.steps:
            reported.append((step + 1, loss.item()))
            report(*reported[-1])
        if checkpoint.is_due():
            checkpoint.save(dict(
                step=step + 1, model=model.kept(), optimiser=optimiser.state_dict(), reported=reported,
            ))  # fmt: skip
    model.eval()


class _Pools:
    """Windows that end at a success, that end where success counts and is not there, and all that end at none."""

    def __init__(self, labels: Bool[Tensor, " w"], counts: Bool[Tensor, " w"]) -> None:
        late = ~labels & counts
        self.pools = [pool.nonzero().flatten() for pool in (labels, late if late.any() else ~labels, ~labels)]
        if not all(len(pool) for pool in self.pools):
            raise ValueError(
                f"{len(self.pools[0])} of {len(labels)} windows end at a success; a reward model needs both outcomes: "
                "collect more rollouts, or from a policy that sometimes succeeds"
            )

    def draw(self, batch: int, source: torch.Generator) -> Int64[Tensor, " b"]:
        """Half of them, a quarter, and the rest."""
        half, quarter = batch // 2, batch // 4
        return torch.cat([
            pool[torch.randint(len(pool), (count,), generator=source)]
            for pool, count in zip(self.pools, (half, quarter, batch - half - quarter), strict=True)
        ])  # fmt: skip


class _Taken:
    """What the loss is made of, per window; behind a frozen model computed once and kept."""

    def __init__(
        self, model: WindowReward, frames: Tensor, windows: Int64[Tensor, "e win"], instructions: Sequence[str]
    ) -> None:
        self.model, self.frames, self.windows, self.instructions = model, frames, windows, list(instructions)
        frozen = not any(weight.requires_grad for weight in model.reader.parameters())
        self.kept = None
        if frozen:
            with torch.no_grad():
                parts = [
                    model.look(frames[first : first + 32], windows, self.instructions[first : first + 32])
                    for first in range(0, len(frames), 32)
                ]
            self.kept = torch.cat(parts).flatten(0, 1)

    def __call__(self, rows: Int64[Tensor, " b"], image_noise: float, source: torch.Generator) -> Tensor:
        if self.kept is not None:
            return self.kept[rows.to(self.kept.device)]
        episode, end = rows // len(self.windows), rows % len(self.windows)
        chosen = self.frames[episode[:, None], self.windows[end]]
        chosen = chosen.to(source.device)
        scale = torch.rand(len(chosen), 1, 1, 1, 1, generator=source, device=source.device) * image_noise * 127.5
        noisy = chosen + torch.randn(chosen.shape, generator=source, device=source.device) * scale
        chosen = noisy.round().clamp(0, 255).to(torch.uint8)
        own = [self.instructions[row] for row in episode.tolist()]
        return self.model.look(chosen, torch.arange(chosen.shape[1])[None], own)[:, 0]

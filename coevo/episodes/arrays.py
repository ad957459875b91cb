"""Many episodes as tensors of one length, for training and evaluation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float32, Int64, UInt8
from torch import Tensor

from coevo.core.types import Episode
from coevo.episodes.outcomes import NEAR, episode_outcome
from coevo.records.interface import Interface


@dataclass(frozen=True)
class EpisodeArrays:
    """Episodes side by side. Short ones are padded: frames, proprio and truth repeat their last value, actions are
    the null action. `length` says where the padding begins."""

    frames: UInt8[Tensor, "n f1 h w 3"]
    actions: Float32[Tensor, "n t a"]
    labels: Float32[Tensor, "n t a"]
    """What cloning should learn: the noise-free expert action where it is known, else the executed one."""
    proprio: Float32[Tensor, "n f1 p"]
    has_truth: Bool[Tensor, " n"]
    """False for dreams: their success is all false and their progress 0."""
    success: Bool[Tensor, "n f"]
    progress: Float32[Tensor, "n f"]
    length: Int64[Tensor, " n"]
    """Frames after the first."""
    instructions: tuple[str, ...]
    states: tuple[str, ...]
    """Initial state ids."""
    outcome: tuple[str, ...]
    perturbation: tuple[str, ...]
    policy: tuple[str, ...]
    pair: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.states)

    def require_truth(self, where: str) -> None:
        """Raise ValueError unless a simulator watched every episode: the others did not fail, nobody knows."""
        unknown = int((~self.has_truth).sum())
        if unknown:
            raise ValueError(
                f"{unknown} of the {len(self)} episodes in {where} were dreamed or imported without their outcome; "
                "episodes of a simulator are needed here"
            )


def stack(episodes: Sequence[Episode], interface: Interface, near: float = NEAR) -> EpisodeArrays:
    """Episodes in memory as arrays, padded to the longest."""
    if not episodes:
        raise ValueError("no episodes to put side by side; check what was selected")
    longest = max(len(episode.frames) for episode in episodes)
    filler = Filler(interface, len(episodes), longest - 1, tuple(episodes[0].frames.shape[1:3]))
    for row, episode in enumerate(episodes):
        filler.frames[row, : len(episode.frames)] = episode.frames
        filler.put(row, episode, episode_outcome(episode, interface, near))
    return filler.arrays()


class Filler:
    """Fills EpisodeArrays row by row, without a second copy of the frames."""

    def __init__(self, interface: Interface, rows: int, frames: int, size: tuple[int, int]) -> None:
        self.stride = interface.stride
        null = torch.tensor(interface.action.null, dtype=torch.float32)
        self.frames = torch.zeros(rows, frames + 1, *size, 3, dtype=torch.uint8)
        self.actions = null.repeat(rows, frames * self.stride, 1)
        self.labels = self.actions.clone()
        self.proprio = torch.zeros(rows, frames + 1, len(interface.proprio))
        self.has_truth = torch.zeros(rows, dtype=torch.bool)
        self.success = torch.zeros(rows, frames, dtype=torch.bool)
        self.progress = torch.zeros(rows, frames)
        self.length = torch.zeros(rows, dtype=torch.int64)
        self.words: list[tuple[str, ...]] = [()] * rows

    def put(self, row: int, episode: Episode, outcome: str) -> None:
        """Everything of an episode but its frames, which the caller writes to `frames[row, :length + 1]`."""
        length = len(episode.actions) // self.stride
        self.length[row] = length
        self.actions[row, : length * self.stride] = episode.actions
        self.labels[row, : length * self.stride] = episode.actions if episode.label is None else episode.label
        self.proprio[row, : length + 1], self.proprio[row, length + 1 :] = episode.proprio, episode.proprio[-1]
        self.has_truth[row] = episode.success is not None
        for target, values in ((self.success, episode.success), (self.progress, episode.progress)):
            if values is not None and length:
                target[row, :length], target[row, length:] = values, values[-1]
        self.words[row] = (
            episode.start.instruction, episode.start.id, outcome, episode.perturbation, episode.policy, episode.pair,
        )

    def arrays(self) -> EpisodeArrays:
        """The whole, once every row is filled."""
        for row, length in enumerate(self.length.tolist()):
            self.frames[row, length + 1 :] = self.frames[row, length]
        instructions, states, outcome, perturbation, policy, pair = zip(*self.words, strict=True)
        return EpisodeArrays(
            frames=self.frames, actions=self.actions, labels=self.labels, proprio=self.proprio,
            has_truth=self.has_truth, success=self.success, progress=self.progress, length=self.length,
            instructions=instructions, states=states, outcome=outcome, perturbation=perturbation, policy=policy,
            pair=pair,
        )

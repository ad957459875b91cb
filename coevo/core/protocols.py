"""What a room must answer to take part in a rollout. Parts of a user's own implement these."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from jaxtyping import Bool, Float32, Int64
from torch import Tensor

from coevo.core.types import ActionChunk, InitialState, Observation, Sampling, Seen, Step, Verdicts
from coevo.records.interface import Interface


@runtime_checkable
class Environment(Protocol):
    """A simulator or a dream. Both answer the same calls, so one rollout function drives both."""

    interface: Interface

    def reset(self, starts: Sequence[InitialState], keys: Int64[Tensor, " n"]) -> Observation:
        """Put row i at starts[i]. `keys` are the rows' randomness (unused by a deterministic simulator)."""
        ...

    def step(self, actions: Float32[Tensor, "n k a"]) -> Step:
        """Apply one chunk to every row that is still present."""
        ...

    def keep(self, rows: Int64[Tensor, " m"]) -> None:
        """Drop all other rows; later calls speak of the kept ones, in this order."""
        ...


@runtime_checkable
class Policy(Protocol):
    """Image, proprioception and instruction to an action chunk."""

    id: str
    interface: Interface

    def act(self, observation: Observation, keys: Int64[Tensor, " n"], sampling: Sampling) -> ActionChunk:
        """Decide. `keys` are the rows' randomness at this decision; greedy ignores them."""
        ...


@runtime_checkable
class Monitor(Protocol):
    """Watches a rollout and may end rows (dynamic termination). Reward models implement it."""

    def begin(self, observation: Observation, starts: Sequence[InitialState]) -> None:
        """A rollout begins."""
        ...

    def ended(self, step: Step) -> Bool[Tensor, " n"]:
        """Which of the present rows end here."""
        ...

    def keep(self, rows: Int64[Tensor, " m"]) -> None:
        """As Environment.keep."""
        ...


@runtime_checkable
class RewardModel(Protocol):
    """Reads frames. Frozen before reinforcement learning begins."""

    id: str
    interface: Interface

    def verdicts(self, frames: Tensor, instructions: Sequence[str]) -> Verdicts:
        """Judge episodes: frames u8[n f1 h w 3]."""
        ...


@runtime_checkable
class EpisodeReader(Protocol):
    """A reward model that reads more than frames. Frozen as RewardModel is."""

    id: str
    interface: Interface

    def judge(self, seen: Seen) -> Verdicts:
        """Judge episodes."""
        ...


Judge = RewardModel | EpisodeReader
"""Whatever judges episodes; `core.judging.judge` calls it."""

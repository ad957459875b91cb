"""The types that stages and rooms exchange.

Letters: n trajectories, b batch rows, t control steps in an episode, q decisions, k control steps in a chunk
(t = q k before cutting), s control steps per frame, f = t / s frames after the first, m scored terms per decision,
c context frames, h w pixels, a action size, p proprioception size, l words of an instruction.

Frames are uint8 RGB here, on disk and between processes; they become float only in `core/frames.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool, Float32, Float64, Int64, UInt8
from torch import Tensor

Sampling = Literal["sampled", "greedy"]


@dataclass(frozen=True)
class InitialState:
    """Where an episode begins, complete: a simulator can be put there and a world model has its context."""

    id: str
    task: str
    instruction: str
    seed: int
    simulator_state: Float64[np.ndarray, " z"]
    """Opaque to all but the simulator that wrote it."""
    frames: UInt8[Tensor, "c h w 3"]
    """Context; the last one is the present. One frame at a reset."""
    actions: Float32[Tensor, "ca a"]
    """Actions between the context frames, (c - 1) s of them."""
    proprio: Float32[Tensor, "c p"]
    decision: int = 0
    """Decisions already taken: 0 at a reset."""

    def up_to_now(self, count: int) -> tuple[UInt8[Tensor, "g h w 3"], Float32[Tensor, "g p"]]:
        """The last `count` frames up to the present, and proprioception there; the first known one stands in for those
        before it."""
        index = torch.arange(len(self.frames) - count, len(self.frames)).clamp_min(0)
        return self.frames[index], self.proprio[index]


@dataclass(frozen=True)
class Observation:
    """What a policy sees, for a batch."""

    frames: UInt8[Tensor, "n c h w 3"]
    proprio: Float32[Tensor, "n c p"]
    instructions: tuple[str, ...]


@dataclass(frozen=True)
class ActionChunk:
    """One decision of a policy, for a batch."""

    actions: Float32[Tensor, "n k a"]
    draw: Float32[Tensor, "n d"]
    """What was sampled (token ids, noise chain or held actions): enough to score the decision again."""
    log_prob: Float32[Tensor, "n m"]
    value: Float32[Tensor, " n"] | None = None


@dataclass(frozen=True)
class Truth:
    """What the simulator knows, per frame."""

    success: Bool[Tensor, "n f"]
    progress: Float32[Tensor, "n f"]
    """Nearness to the goal, 0 far to 1 reached, as the task defines it."""


@dataclass(frozen=True)
class Step:
    """What follows an action chunk. Reward, success and termination are derived elsewhere, from one Verdicts."""

    observation: Observation
    frames: UInt8[Tensor, "n kf h w 3"]
    """The k / s frames that the chunk led to."""
    proprio: Float32[Tensor, "n kf p"]
    """Proprioception at those frames."""
    truth: Truth | None = None
    """From a simulator only."""
    probability: Float32[Tensor, "n kf"] | None = None
    """From a world model with a reward head of its own only."""


@dataclass(frozen=True)
class Seen:
    """Episodes as a reward model may read them: what was shown, said and done."""

    frames: UInt8[Tensor, "n f1 h w 3"]
    instructions: tuple[str, ...]
    proprio: Float32[Tensor, "n p"]
    """At the first frame."""
    actions: Float32[Tensor, "n t a"]
    probability: Float32[Tensor, "n f"] | None = None
    """What the world model's own head said while it drew the frames; none of frames from elsewhere."""


@dataclass(frozen=True)
class Trajectories:
    """Episodes as they come out of a rollout. Rows that ended early are padded to the horizon; `length` says where."""

    actions: Float32[Tensor, "n t a"]
    frames: UInt8[Tensor, "n f1 h w 3"]
    proprio: Float32[Tensor, "n f1 p"]
    draw: Float32[Tensor, "n q d"]
    log_prob: Float32[Tensor, "n q m"]
    value: Float32[Tensor, "n q"] | None
    truth: Truth | None
    """Success and progress over the f frames after the first."""
    probability: Float32[Tensor, "n f"] | None
    """The world model's own head, where it has one."""
    length: Int64[Tensor, " n"]
    """Decisions up to the row's end, counted from the reset, those before its start included; q if it never ended."""
    starts: tuple[InitialState, ...]
    sample: tuple[int, ...]
    """Which of the repetitions from the same start a row is."""
    policy: str
    source: Literal["simulator", "dream"]
    perturbation: tuple[str, ...]
    """Kind of deliberate perturbation per row, 'none' where the policy acted by itself."""

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def state_ids(self) -> tuple[str, ...]:
        """Initial state of each row; rows that share one form a group."""
        return tuple(start.id for start in self.starts)

    @property
    def seen(self) -> Seen:
        """What a reward model reads."""
        said = tuple(start.instruction for start in self.starts)
        return Seen(self.frames, said, self.proprio[:, 0], self.actions, self.probability)


@dataclass(frozen=True)
class Episode:
    """One trajectory cut at its length: what is stored."""

    actions: Float32[Tensor, "t a"]
    frames: UInt8[Tensor, "f1 h w 3"]
    proprio: Float32[Tensor, "f1 p"]
    success: Bool[Tensor, " f"] | None
    """Per frame after the first; none for a dream."""
    progress: Float32[Tensor, " f"] | None
    probability: Float32[Tensor, " f1"] | None
    """A reward model's reading per frame, where one was made."""
    start: InitialState
    sample: int
    policy: str
    source: Literal["simulator", "dream", "imported"]
    perturbation: str
    pair: str = ""
    """Id shared by a nominal success and its perturbed failures from the same start; '' where not paired."""
    label: Float32[Tensor, "t a"] | None = None
    """A scripted expert's noise-free action at each step, what behaviour cloning should learn; none for a policy."""


@dataclass(frozen=True)
class Verdicts:
    """A reward model's reading of trajectories. Everything paid or ended in a dream follows from this."""

    probability: Float32[Tensor, "n f1"]
    success: Bool[Tensor, " n"]
    first_success: Int64[Tensor, " n"]
    """Index of the first frame that reads as success; f + 1 if none does."""
    threshold: float
    reward_model: str


def take_rows(item, rows: Tensor | Sequence[int]):
    """The same dataclass with only `rows` of every batched field (tensors, tuples and nested dataclasses)."""
    index = torch.as_tensor(rows)
    if index.dtype == torch.bool:
        index = index.nonzero().flatten()
    index_list = index.tolist()
    changes = {}
    for field in fields(item):
        value = getattr(item, field.name)
        if isinstance(value, Tensor):
            changes[field.name] = value[index.to(value.device)]
        elif isinstance(value, tuple):
            changes[field.name] = tuple(value[i] for i in index_list)
        elif hasattr(value, "__dataclass_fields__"):
            changes[field.name] = take_rows(value, index)
    return replace(item, **changes)


def join_rows(first, second):
    """Rows of two values of the same dataclass, one after the other; fields that are not batched stay the first's."""
    changes = {}
    for field in fields(first):
        ours, theirs = getattr(first, field.name), getattr(second, field.name)
        if isinstance(ours, Tensor):
            changes[field.name] = torch.cat([ours, theirs])
        elif isinstance(ours, tuple):
            changes[field.name] = ours + theirs
        elif hasattr(ours, "__dataclass_fields__"):
            changes[field.name] = join_rows(ours, theirs)
    return replace(first, **changes)


def to_device(item, device: torch.device | str):
    """The same dataclass with its tensors on `device`, those inside nested dataclasses too."""
    changes = {}
    for field in fields(item):
        value = getattr(item, field.name)
        if isinstance(value, Tensor):
            changes[field.name] = value.to(device)
        elif hasattr(value, "__dataclass_fields__"):
            changes[field.name] = to_device(value, device)
    return replace(item, **changes)

"""Many episodes side by side in a simulator whose whole state can be put back: a row is a state vector."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np
import torch
from jaxtyping import Bool, Float32, Float64, Int64, UInt8
from torch import Tensor

from coevo.core.types import Episode, InitialState, Observation, Step, Truth
from coevo.records.interface import Interface
from coevo.simulators.perturbations import Perturbation


@dataclass(frozen=True)
class Advanced:
    """Where one chunk of actions led, per row."""

    states: Float64[np.ndarray, "n z"]
    frames: UInt8[np.ndarray, "n kf h w 3"]
    poses: Float32[np.ndarray, "n kf 4"]
    """Commanded position (metres) and gripper command at the frames, read from the simulator."""
    success: Bool[np.ndarray, "n kf"]
    progress: Float32[np.ndarray, "n kf"]

    @classmethod
    def join(cls, parts: Sequence[Self]) -> Self:
        """The rows of several, in order."""
        names = ("states", "frames", "poses", "success", "progress")
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


class Simulator(Protocol):
    """What a simulator answers beside `Environment`: everything here is a function of its arguments alone."""

    interface: Interface

    def initial_state(self, seed: int, role: str, index: int) -> InitialState:
        """State number `index` of the set `role`, with its frame."""
        ...

    def advance(self, states: Float64[np.ndarray, "n z"], actions: Float32[np.ndarray, "n k a"]) -> Advanced:
        """Apply one chunk to each state."""
        ...

    def demonstrate(self, start: InitialState, perturbation: Perturbation, stream: Sequence[int | str]) -> Episode:
        """An episode of the scripted expert; `stream` keys the perturbation's draws. ValueError if it has none."""
        ...

    def shifted(self, state: Float64[np.ndarray, " z"], offset: Float64[np.ndarray, " 2"]) -> Float64[np.ndarray, " z"]:
        """The state with its object `offset` metres (x, y) further. ValueError if it has none that can be moved."""
        ...

    def close(self) -> None:
        """Free what is not memory, a renderer for example."""
        ...


class Rows(ABC):
    """`Environment` on top of a stateless `advance`."""

    interface: Interface

    @abstractmethod
    def advance(self, states: Float64[np.ndarray, "n z"], actions: Float32[np.ndarray, "n k a"]) -> Advanced:
        """As in Simulator."""

    def reset(self, starts: Sequence[InitialState], keys: Int64[Tensor, " n"] | None = None) -> Observation:
        """Put row i at starts[i]. The frame shown is the one stored with the start."""
        faults = [start.id for start in starts if start.task != self.interface.task]
        if faults:
            raise ValueError(
                f"{len(faults)} initial states (the first is {faults[0]}) belong to another task than "
                f"'{self.interface.task}'; make them with this simulator's file in configs/simulator"
            )
        self._states = np.stack([start.simulator_state for start in starts])
        self._decisions = torch.tensor([start.decision for start in starts])
        self._instructions = tuple(start.instruction for start in starts)
        return Observation(
            torch.stack([start.frames[-1:] for start in starts]),
            torch.stack([start.proprio[-1:] for start in starts]), self._instructions,
        )

    def step(self, actions: Float32[Tensor, "n k a"]) -> Step:
        """Apply one chunk (control steps at the interface's rate) to every row that is still present."""
        chunk = actions.detach().cpu().to(torch.float32).numpy()
        if chunk.shape[0] != len(self._states) or chunk.shape[1] != self.interface.chunk:
            raise ValueError(
                f"actions of shape {tuple(chunk.shape)} were given to {len(self._states)} rows with chunks of "
                f"{self.interface.chunk} control steps; policy and simulator need the same 'chunk'"
            )
        made = self.advance(self._states, chunk)
        self._states = made.states
        proprio = self._proprio(torch.from_numpy(made.poses))
        self._decisions = self._decisions + 1
        frames = torch.from_numpy(made.frames)
        return Step(
            observation=Observation(frames[:, -1:], proprio[:, -1:], self._instructions),
            frames=frames, proprio=proprio,
            truth=Truth(torch.from_numpy(made.success), torch.from_numpy(made.progress)),
        )

    def keep(self, rows: Int64[Tensor, " m"]) -> None:
        """Drop all other rows."""
        index = rows.cpu()
        self._states, self._decisions = self._states[index.numpy()], self._decisions[index]
        self._instructions = tuple(self._instructions[i] for i in index.tolist())

    def _proprio(self, poses: Float32[Tensor, "n kf 4"]) -> Float32[Tensor, "n kf 5"]:
        steps = torch.arange(1, self.interface.chunk_frames + 1) * self.interface.stride
        time = (self._decisions[:, None] * self.interface.chunk + steps) / self.interface.horizon
        return torch.cat([poses, time[:, :, None].to(poses)], dim=2)

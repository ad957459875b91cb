"""Toys with answers one can work out by hand: a dot that moves by the action.

Frames are 16 x 16. A white dot of 2 x 2 pixels stands at (column, row); one unit of action x moves it by one column
per control step. It has succeeded at every frame where its column is at least GOAL (a blue line). An episode is 8
control steps in 2 decisions of 4, with a frame every 2 steps: at full speed the dot moves 8 columns.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from coevo.core import kinematics, random
from coevo.core.types import ActionChunk, InitialState, Observation, Sampling, Step, Truth, Verdicts
from coevo.records.interface import ActionSpace, Camera, Interface

SIZE, GOAL = 16, 10

TOY = Interface(
    task="dot",
    instruction="move the dot to the line",
    action=ActionSpace(metres_per_unit=1.0, low=(0.0, 0.0, 0.0), high=(14.0, 14.0, 1.0)),
    camera=Camera(width=SIZE, height=SIZE, lookat=(0.0, 0.0, 0.0), distance=1.0, azimuth=0.0, elevation=-90.0),
    control_hz=8.0, chunk=4, stride=2, horizon=8, success_from=2,
)


def toy_state(column: float, row: float = 7.0, interface: Interface = TOY) -> InitialState:
    """A reset with the dot at (column, row). It wins at full speed if column >= GOAL - 8."""
    return InitialState(
        id=f"dot-{column:g}-{row:g}", task=interface.task, instruction=interface.instruction, seed=0,
        simulator_state=np.array([column, row], dtype=np.float64), frames=draw(torch.tensor([[column, row]])),
        actions=torch.zeros(0, 4), proprio=torch.tensor([[float(column), float(row), 0.0, -1.0, 0.0]]),
    )


def draw(dots: Tensor) -> Tensor:
    """u8[n 16 16 3] with the goal line and a dot at each (column, row)."""
    frames = torch.zeros(len(dots), SIZE, SIZE, 3, dtype=torch.uint8)
    frames[:, :, GOAL, 2] = 255
    for frame, (column, row) in zip(frames, dots.round().long().clamp(0, SIZE - 2).tolist(), strict=True):
        frame[row : row + 2, column : column + 2] = 255
    return frames


class ToySimulator:
    """Environment whose outcome is arithmetic. Randomness is ignored."""

    def __init__(self, interface: Interface = TOY) -> None:
        self.interface = interface

    def __enter__(self) -> ToySimulator:
        return self

    def __exit__(self, *fault: object) -> None:
        pass

    def reset(self, starts: Sequence[InitialState], keys: Tensor) -> Observation:
        """Put each row's dot where its start has it."""
        self.starts, self.decision = tuple(starts), starts[0].decision
        self.pose = torch.stack([start.proprio[-1, :4] for start in starts])
        frames = torch.stack([start.frames[-1:] for start in starts])
        return self._observation(frames, torch.stack([start.proprio[-1:] for start in starts]))

    def step(self, actions: Tensor) -> Step:
        """Move the dots."""
        poses = kinematics.commanded_poses(self.interface.action, self.pose, actions)
        proprio = kinematics.proprio_after(self.interface, poses, self.decision)
        self.pose, self.decision = poses[:, -1], self.decision + 1
        dots = self.shown(proprio[..., :2])
        frames = draw(dots.flatten(0, 1)).unflatten(0, dots.shape[:2])
        return Step(self._observation(frames[:, -1:], proprio[:, -1:]), frames, proprio, truth=self.truth(dots))

    def keep(self, rows: Tensor) -> None:
        """Drop all other rows."""
        self.pose, self.starts = self.pose[rows], tuple(self.starts[row] for row in rows.tolist())

    def shown(self, dots: Tensor) -> Tensor:
        """Where the dots are drawn: where they are."""
        return dots

    def truth(self, dots: Tensor) -> Truth | None:
        """Success and nearness per frame."""
        return Truth(dots[..., 0] >= GOAL, (dots[..., 0] / GOAL).clamp(0, 1))

    def _observation(self, frames: Tensor, proprio: Tensor) -> Observation:
        return Observation(frames, proprio, tuple(start.instruction for start in self.starts))


class ToyDream(ToySimulator):
    """A world model that draws the dot where it is, except from the states it is told to be wrong about.

    Args:
        fakes: states whose episodes end on the goal line whatever was done ('all' for every state).
        misses: states whose dots never cross it.
    """

    def __init__(
        self,
        interface: Interface = TOY,
        fakes: Collection[str] | str = (),
        misses: Collection[str] | str = (),
        id: str = "toy/dream",
    ) -> None:
        super().__init__(interface)
        self.fakes, self.misses, self.id = fakes, misses, id

    def shown(self, dots: Tensor) -> Tensor:
        """Where the dots are drawn."""
        dots = dots.clone()
        for row, start in enumerate(self.starts):
            if (self.fakes == "all" or start.id in self.fakes) and self.decision == self.interface.decisions:
                dots[row, :, 0] = dots[row, :, 0].clamp_min(GOAL)
            if self.misses == "all" or start.id in self.misses:
                dots[row, :, 0] = dots[row, :, 0].clamp_max(GOAL - 2)
        return dots

    def truth(self, dots: Tensor) -> None:
        """A dream knows no truth."""
        return None


class ToyPolicy:
    """Moves right at `speed`, with Gaussian noise of `spread` per decision when sampled."""

    def __init__(
        self, speed: float = 1.0, spread: float = 0.0, id: str = "toy/policy", interface: Interface = TOY
    ) -> None:
        self.speed, self.spread, self.id, self.interface = speed, spread, id, interface

    def act(self, observation: Observation, keys: Tensor, sampling: Sampling) -> ActionChunk:
        """One speed per decision, held for the chunk."""
        noise = random.normal(keys, 1) if sampling == "sampled" else torch.zeros(len(keys), 1)
        speed = self.speed + self.spread * noise
        actions = torch.tensor(self.interface.action.null).repeat(len(keys), self.interface.chunk, 1)
        actions[:, :, 0] = speed
        return ActionChunk(actions, draw=speed, log_prob=-0.5 * noise**2)


class ToyReward:
    """Reads the dot's column off the pixels. Probability 1 at or past the goal, and column / (2 GOAL) before it."""

    threshold = 0.75

    def __init__(self, interface: Interface = TOY, id: str = "toy/reward") -> None:
        self.interface, self.id = interface, id

    def verdicts(self, frames: Tensor, instructions: Sequence[str]) -> Verdicts:
        """Judge episodes, from the interface's `success_from` on."""
        white = frames[..., 0].amax(dim=2)  # the goal line has no red
        column = white.float().argmax(dim=-1)
        probability = torch.where(column >= GOAL, 1.0, column / (2 * GOAL))
        counted = probability.clone()
        counted[:, : self.interface.success_from] = 0.0
        hit = counted >= self.threshold
        first = torch.where(hit.any(dim=1), hit.float().argmax(dim=1), frames.shape[1])
        return Verdicts(probability, hit.any(dim=1), first, self.threshold, self.id)


def with_id(state: InitialState, id: str) -> InitialState:
    """The same physical start under another name."""
    return replace(state, id=id)

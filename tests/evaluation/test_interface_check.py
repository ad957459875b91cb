"""Every interface fault that has cost somebody a policy is planted here, caught, and called by its name."""

from dataclasses import replace

import pytest
import torch

from coevo.evaluation.interface_check import interface_faults
from coevo.records.interface import Interface
from tests.doubles import TOY, ToyDream, ToySimulator, toy_state


def test_an_aligned_dream_has_no_interface_faults():
    assert interface_faults(ToySimulator(), ToyDream(), toy_state(2)) == ()


class Remapped(ToyDream):
    """Reads the numbers of an action otherwise than the simulator does."""

    def __init__(self, order=(0, 1, 2, 3), factors=(1.0, 1.0, 1.0, 1.0)):
        super().__init__()
        self.order, self.factors = list(order), torch.tensor(factors)

    def step(self, actions):
        return super().step(actions[..., self.order] * self.factors)


class EchoesLastCommand(ToyDream):
    """Reports the command before the reset as if it were the reset's."""

    def reset(self, starts, keys):
        observation = super().reset(starts, keys)
        proprio = observation.proprio.clone()
        proprio[..., 3] = 1.0
        return replace(observation, proprio=proprio)


class EndsAtFirstReward(ToyDream):
    """Rows leave once the dot stands on the line."""

    def step(self, actions):
        step = super().step(actions)
        rows = (self.pose[:, 0] < 10).nonzero().flatten()
        return replace(step, frames=step.frames[rows], proprio=step.proprio[rows])


class Shown(ToyDream):
    """Shows its frames otherwise than they are: from the reset on, or only those that it draws."""

    def __init__(self, view, at_reset=True):
        super().__init__()
        self.view, self.at_reset = view, at_reset

    def reset(self, starts, keys):
        observation = super().reset(starts, keys)
        return replace(observation, frames=self.view(observation.frames)) if self.at_reset else observation

    def step(self, actions):
        step = super().step(actions)
        return replace(step, frames=self.view(step.frames))


class EveryStep(ToyDream):
    """A frame for each control step, where the interface says one for every second."""

    def step(self, actions):
        step = super().step(actions)
        doubled = (part.repeat_interleave(2, dim=1) for part in (step.frames, step.proprio))
        return replace(step, **dict(zip(("frames", "proprio"), doubled, strict=True)))


class WrongSteps(ToyDream):
    """As many frames as asked for, but of the chunk's first control steps."""

    def step(self, actions):
        step = super().step(actions)
        proprio = step.proprio.clone()
        proprio[:, :, 4] -= torch.tensor([1.0, 2.0]) / TOY.horizon
        return replace(step, proprio=proprio)


class Blind(ToyDream):
    def shown(self, dots):
        return dots * 0


class Forgetful(ToyDream):
    """Every chunk begins where the episode did."""

    def step(self, actions):
        self.pose = torch.stack([start.proprio[-1, :4] for start in self.starts])
        return super().step(actions)


LONGER = Interface.parse(TOY.model_dump() | {"horizon": 16}, "toy")


@pytest.mark.parametrize(
    ("dream", "said"),
    [
        (Remapped(order=(1, 0, 2, 3)), "'x' acts as 'y', 'y' acts as 'x' (order of the action blocks)"),
        (Remapped(order=(3, 0, 1, 2)), "order of the action blocks"),
        (Remapped(factors=(1.0, 1.0, 1.0, -1.0)), "the sign of 'gripper' is turned (open is closed)"),
        (Remapped(factors=(-0.5, 1.0, 1.0, 1.0)), "the sign of 'x' is turned, 'x' moves 0.5 times as far"),
        (EchoesLastCommand(), "gripper is 1.000 for -1.000 (does reset echo the last command?)"),
        (ToyDream(interface=LONGER), "an episode has 16 control steps in the dream and 8 in the simulator"),
        (EndsAtFirstReward(), "the dream ended 1 of 5 episodes before control step 8 of 8"),
        (EveryStep(), "gives 4 frames of (16, 16, 3) in the dream and 2"),
        (EveryStep(), "is its stride 1 for 2?"),
        (WrongSteps(), "frames stand at control steps [1, 2] in the dream and [2, 4] elsewhere: stride"),
        (Shown(lambda frames: frames.flip(-1)), "11 grey levels off the simulator's: red and blue are exch"),
        (Shown(lambda frames: frames.flip(-1), at_reset=False), "shows wrong: red and blue are exchanged"),
        (Shown(lambda frames: frames.flip(-2)), "its columns are mirrored"),
        (Shown(lambda frames: frames.flip(-3, -2), at_reset=False), "shows wrong: it is turned by 180 degrees"),
        (Shown(lambda frames: 255 - frames), "another state, or another camera?"),
        (Blind(), "different actions draw the same frames"),
        (Forgetful(), "in the chunk from control step 4: its commands do not go on from the chunk before"),
    ],
)  # fmt: skip
def test_a_planted_fault_is_called_by_its_name(dream, said):
    # Row 3 of the picture, so that a picture upside down is another picture; column 3 lies near the middle of the box.
    faults = interface_faults(ToySimulator(), dream, toy_state(3, 3))
    assert any(said in fault for fault in faults), faults

"""Reward-side repairs: what they can do, and that they cannot mend a world model."""

import pytest
import torch

from coevo.core import kinematics, random
from coevo.evaluation.controls import Consecutive, fit_geometry
from coevo.evaluation.drive import drive, reached
from tests.doubles import TOY, ToyDream, ToyReward, ToySimulator, toy_state


def episodes(columns, speeds):
    starts = [toy_state(column) for column in columns]
    actions = torch.tensor(TOY.action.null).repeat(len(starts), TOY.horizon, 1)
    actions[:, :, 0] = torch.tensor(speeds)[:, None]
    return starts, actions, random.row_keys("test", rows=[f"{start.id}#{i}" for i, start in enumerate(starts)])


def poses_of(starts, actions):
    first = torch.stack([start.proprio[-1, :4] for start in starts])
    path = kinematics.commanded_poses(TOY.action, first, actions)
    return torch.cat([first[:, None], path[:, TOY.stride - 1 :: TOY.stride]], dim=1)


def test_two_in_a_row_asks_for_one_frame_more():
    # From column 6 the dot is at 8, 10, 12, 14: positive at frames 2, 3, 4. From column 2 only at frame 4.
    starts, actions, keys = episodes((6, 2), (1.0, 1.0))
    frames = drive(ToySimulator(), starts, actions, keys).frames
    one, two = ToyReward().verdicts(frames, ["", ""]), Consecutive(ToyReward(), 2).verdicts(frames, ["", ""])
    assert one.first_success.tolist() == [2, 4] and two.first_success.tolist() == [3, 5]
    assert one.success.tolist() == [True, True] and two.success.tolist() == [True, False]
    assert Consecutive(ToyReward(), 1).verdicts(frames, ["", ""]).first_success.tolist() == [2, 4]


def test_frames_in_a_row_do_not_mend_a_dream_that_draws_the_goal():
    starts, actions, keys = episodes((0, 1), (1.0, 1.0))
    drawn = drive(ToyDream(fakes="all"), starts, actions, keys).frames
    assert Consecutive(ToyReward(), 2).verdicts(drawn, ["", ""]).success.tolist() == [True, True]


def test_action_geometry_knows_what_commands_tell_and_nothing_of_what_is_drawn():
    columns = [float(column) for column in range(8)] * 10
    speeds = [0.3 + 0.1 * (row % 7) for row in range(80)]
    starts, actions, keys = episodes(columns, speeds)
    truth = reached(drive(ToySimulator(), starts, actions, keys).success, TOY.success_from)
    model = fit_geometry(poses_of(starts, actions), truth, seed=0)
    # Here the commanded pose is the dot, so commands tell everything.
    assert (model.success(poses_of(starts, actions)) == truth).float().mean() > 0.9
    again = fit_geometry(poses_of(starts, actions), truth, seed=0)
    assert torch.equal(again.net[0].weight, model.net[0].weight) and again.threshold == model.threshold


def test_one_outcome_alone_cannot_be_learned():
    with pytest.raises(ValueError, match="one outcome only"):
        fit_geometry(torch.zeros(10, 5, 4), torch.ones(10, dtype=torch.bool), seed=0)
    with pytest.raises(ValueError, match="'k' = 0"):
        Consecutive(ToyReward(), 0)

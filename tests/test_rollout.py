"""The one rollout that drives both worlds, on dots that one can follow by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from coevo.core.protocols import Environment, Monitor, Policy, RewardModel
from coevo.core.types import take_rows
from coevo.episodes.keyframes import keyframe
from coevo.episodes.split import from_trajectories
from coevo.rollout import count_samples, rollout
from tests.doubles import GOAL, TOY, ToyDream, ToyPolicy, ToyReward, ToySimulator, toy_state, with_id

STARTS = [toy_state(column) for column in (0, 1, 2, 5, 9)]


def roll(starts, policy=None, world=None, **more):
    policy = policy or ToyPolicy(spread=0.5)
    return rollout(world or ToySimulator(), policy, starts, stream=(0, "test"), source="simulator", **more)


class EndAtTheLine:
    """Ends a row when its last frame shows the dot at the line or past it."""

    def begin(self, observation, starts):
        self.seen = []

    def ended(self, step):
        self.seen.append(len(step.frames))
        return step.truth.success[:, -1]

    def keep(self, rows):
        self.kept = rows


def test_doubles_and_monitors_answer_the_protocols():
    assert isinstance(ToySimulator(), Environment) and isinstance(ToyDream(), Environment)
    assert isinstance(ToyPolicy(), Policy) and isinstance(ToyReward(), RewardModel)
    assert isinstance(EndAtTheLine(), Monitor)


def test_a_dot_at_full_speed_moves_two_columns_a_frame():
    episodes = roll([toy_state(1), toy_state(3)], ToyPolicy(speed=1.0))
    columns = episodes.proprio[..., 0]
    assert columns.tolist() == [[1, 3, 5, 7, 9], [3, 5, 7, 9, 11]]
    assert episodes.truth.success.tolist() == [[False] * 4, [False, False, False, True]]
    assert episodes.proprio[0, :, 4].tolist() == [0, 0.25, 0.5, 0.75, 1.0]
    assert episodes.actions.shape == (2, 8, 4) and episodes.draw.shape == (2, 2, 1)
    assert episodes.length.tolist() == [2, 2]
    assert episodes.frames.dtype == torch.uint8 and episodes.frames.shape == (2, 5, 16, 16, 3)


@settings(max_examples=15, deadline=None)
@given(st.permutations(range(5)), st.integers(1, 4), st.sampled_from([ToySimulator, ToyDream]))
def test_an_episode_does_not_depend_on_its_batch(order, cut, world):
    whole = roll(STARTS, world=world())
    shuffled = [STARTS[index] for index in order]
    parts = [roll(part, world=world()) for part in (shuffled[:cut], shuffled[cut:])]
    for row, index in enumerate(order):
        part, place = (parts[0], row) if row < cut else (parts[1], row - cut)
        for name in ("actions", "frames", "proprio", "draw", "log_prob"):
            assert torch.equal(getattr(part, name)[place], getattr(whole, name)[index]), name


def test_samples_of_one_start_differ_and_are_counted_per_start():
    starts = [toy_state(1), toy_state(2), toy_state(1), toy_state(1)]
    assert count_samples(starts) == (0, 0, 1, 2)
    episodes = roll(starts)
    assert episodes.sample == (0, 0, 1, 2)
    assert len(torch.unique(episodes.draw[:, 0])) == 4
    again = roll([toy_state(1)], samples=[2])
    assert torch.equal(again.draw[0], episodes.draw[3])


def test_another_stream_gives_other_noise_and_greedy_gives_none():
    sampled = roll(STARTS)
    other = rollout(ToySimulator(), ToyPolicy(spread=0.5), STARTS, stream=(1, "test"), source="simulator")
    assert not torch.equal(sampled.draw, other.draw)
    assert (roll(STARTS, sampling="greedy").draw == 1.0).all()


def test_finished_rows_leave_the_batch_and_are_padded_with_nothing():
    monitor = EndAtTheLine()
    starts = [toy_state(0), toy_state(8), toy_state(1), toy_state(7)]
    ended = roll(starts, ToyPolicy(speed=1.0), monitor=monitor)
    whole = roll(starts, ToyPolicy(speed=1.0))
    assert monitor.seen == [4, 2]  # two rows are past the line after the first decision
    assert monitor.kept.tolist() == [0, 2]
    assert ended.length.tolist() == [2, 1, 2, 1]
    for name in ("frames", "proprio"):
        kept, full = getattr(ended, name), getattr(whole, name)
        assert torch.equal(kept[[0, 2]], full[[0, 2]])
        assert torch.equal(kept[[1, 3], :3], full[[1, 3], :3]) and not kept[[1, 3], 3:].any()
    assert torch.equal(ended.draw[:, 0], whole.draw[:, 0]) and not ended.draw[[1, 3], 1].any()
    assert not ended.actions[[1, 3], 4:].any() and not ended.truth.success[[1, 3], 2:].any()
    assert ended.truth.success[[1, 3], :2].tolist() == whole.truth.success[[1, 3], :2].tolist()


def test_rows_that_stay_see_the_same_noise_when_others_leave():
    policy = ToyPolicy(speed=0.7, spread=0.6)
    starts = [toy_state(column) for column in (8, 0, 7, 1, 9)]
    whole, ended = roll(starts, policy), roll(starts, policy, monitor=EndAtTheLine())
    stayed = (ended.length == 2).nonzero().flatten()
    assert 0 < len(stayed) < 5
    assert torch.equal(take_rows(whole, stayed).frames, take_rows(ended, stayed).frames)


def test_a_rollout_ends_when_every_row_has():
    monitor = EndAtTheLine()
    episodes = roll([toy_state(GOAL), toy_state(GOAL)], ToyPolicy(speed=0.0), monitor=monitor)
    assert monitor.seen == [2] and episodes.length.tolist() == [1, 1]


def test_a_dream_has_no_truth_and_a_simulator_no_probability():
    dreamed = rollout(ToyDream(), ToyPolicy(), STARTS, stream=(0,), source="dream")
    assert dreamed.truth is None and dreamed.source == "dream"
    assert roll(STARTS).probability is None and roll(STARTS).truth is not None


def test_a_policy_for_another_interface_is_refused_by_name():
    policy = ToyPolicy(interface=TOY.model_copy(update={"stride": 4}))
    with pytest.raises(ValueError, match="toy/policy and the simulator.*\n.*'stride'.*4.*2"):
        roll(STARTS, policy)


def test_the_noise_of_a_start_is_keyed_by_its_name():
    renamed = replace(toy_state(1), id="another")
    assert not torch.equal(roll([toy_state(1)]).draw, roll([renamed]).draw)


@pytest.mark.parametrize("world", [ToySimulator, ToyDream])
def test_an_episode_that_is_gone_on_from_in_its_middle_ends_as_it_would_have(world):
    whole = roll(STARTS, world=world())
    cut = [keyframe(each, 1, np.array([row, 0.0]), TOY) for row, each in enumerate(from_trajectories(whole))]
    assert [len(start.frames) for start in cut] == [3] * 5 and len({start.id for start in cut}) == 5
    again = roll([with_id(start, own.id) for start, own in zip(cut, STARTS, strict=True)], world=world())
    for name in ("frames", "proprio", "length"):
        assert torch.equal(getattr(again, name), getattr(whole, name)), name
    assert torch.equal(again.draw[:, 1], whole.draw[:, 1]) and not again.draw[:, 0].any()


def test_what_is_not_known_of_the_past_is_the_first_frame_that_is():
    start = replace(toy_state(5), decision=1)
    made = roll([start])
    assert torch.equal(made.frames[0, :3], start.frames.expand(3, -1, -1, -1)) and made.length.tolist() == [2]
    with pytest.raises(ValueError, match=r"lie at decisions \[0, 1\]; roll out those of each by"):
        roll([start, toy_state(3)])
    with pytest.raises(ValueError, match="trained on, not stored"):
        from_trajectories(made)

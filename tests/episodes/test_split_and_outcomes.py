"""Cutting rollouts into episodes, and what they came to."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from coevo.core.types import Trajectories
from coevo.episodes.outcomes import episode_outcome, outcome
from coevo.episodes.split import from_trajectories
from coevo.rollout import rollout
from tests.doubles import TOY, ToyPolicy, ToyReward, ToySimulator, toy_state


def trajectories(**changes) -> Trajectories:
    starts = [toy_state(4.0), toy_state(1.0)]
    made = rollout(ToySimulator(), ToyPolicy(), starts, stream=(0, "test"), source="simulator")
    return replace(made, **changes)


def test_rows_are_cut_at_their_length():
    made = trajectories(length=torch.tensor([1, 2]))
    short, whole = from_trajectories(made)
    assert (len(short.actions), len(short.frames), len(short.success)) == (4, 3, 2)
    assert (len(whole.actions), len(whole.frames), len(whole.success)) == (8, 5, 4)
    assert short.start is made.starts[0]
    assert torch.equal(short.frames, made.frames[0, :3])


def test_a_cut_episode_does_not_hold_the_whole_batch():
    episode = from_trajectories(trajectories())[0]
    assert episode.frames.untyped_storage().nbytes() == episode.frames.numel()


def test_the_dot_that_reaches_the_line_is_a_success():
    won, lost = from_trajectories(trajectories())
    # From column 4 the dot ends at 12, from column 1 at 9; the line is at 10.
    assert episode_outcome(won, TOY) == "success"
    assert episode_outcome(lost, TOY) == "near"
    assert episode_outcome(lost, TOY, near=0.95) == "failure"


def test_success_before_the_first_counted_frame_is_none():
    early = torch.tensor([True, False, False])
    assert outcome(early, torch.zeros(3), success_from=2) == "failure"
    assert outcome(early, torch.zeros(3), success_from=1) == "success"


def test_a_dream_has_no_outcome():
    dreamed = from_trajectories(trajectories(truth=None, source="dream"))[0]
    assert dreamed.success is None
    assert episode_outcome(dreamed, TOY) == "unknown"


def test_a_head_of_the_world_model_does_not_read_the_first_frame():
    made = from_trajectories(trajectories(probability=torch.full((2, 4), 0.25)))[0]
    assert made.probability[0].isnan() and made.probability[1:].tolist() == [0.25] * 4


def test_verdicts_are_stored_as_read():
    rolled = trajectories()
    verdicts = ToyReward().verdicts(rolled.frames, ["move"] * 2)
    assert torch.equal(from_trajectories(rolled, verdicts=verdicts)[0].probability, verdicts.probability[0])


def test_pairs_are_one_id_a_row():
    assert [episode.pair for episode in from_trajectories(trajectories(), pair=("p", "p"))] == ["p", "p"]
    with pytest.raises(ValueError, match="1 pair ids for 2"):
        from_trajectories(trajectories(), pair=("p",))

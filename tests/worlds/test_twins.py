"""Twins: episodes from one start that ended differently, drawn side by side."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from coevo.worlds.training import WorldTrainer
from coevo.worlds.twins import MOST, side_by_side, twins
from tests.worlds.examples import clips_of, episodes, make_model, training


def test_a_twin_began_alike_and_ended_otherwise():
    table = twins(["a", "a", "a", "b", "b", "c"], [True, False, False, True, True, False])
    assert set(table[0].tolist()) == {1, 2}
    assert table[1].tolist() == [0] * MOST and table[2].tolist() == [0] * MOST
    assert (table[3:] == -1).all()  # b only won, c was tried once


@given(
    ended=st.lists(st.tuples(st.integers(0, 3), st.booleans()), min_size=1, max_size=30), share=st.floats(0, 1),
    seed=st.integers(0, 99),
)  # fmt: skip
def test_every_row_that_follows_is_a_twin_of_the_row_before_it(ended, share, seed):
    states, success = [str(state) for state, _ in ended], [won for _, won in ended]
    source = torch.Generator().manual_seed(seed)
    episode = torch.randint(len(ended), (9,), generator=source)
    drawn, follows = side_by_side(episode, twins(states, success), share, source)
    assert not follows[::2].any() and torch.equal(drawn[~follows], episode[~follows])
    for row in follows.nonzero().flatten().tolist():
        one, other = int(drawn[row - 1]), int(drawn[row])
        assert states[one] == states[other] and success[one] != success[other]


def test_twins_share_decision_level_and_noise():
    model = make_model()
    clips = clips_of(model, episodes(count=4))
    clips = replace(clips, twins=twins(["a", "a", "b", "b"], [True, False, True, False]))
    trainer = WorldTrainer(model, clips, training(batch=8, together=1.0, self_rollout=0.5), 0)
    seen = []
    trainer._update = lambda *drawn: seen.append(drawn) or (torch.zeros(()),)
    trainer._advance()
    episode, decision, level, noise, own_noise, _ = seen[0]
    assert (episode[::2] // 2 == episode[1::2] // 2).all() and (episode[::2] != episode[1::2]).all()
    for shared in (decision, level, noise):
        assert torch.equal(shared[::2], shared[1::2])
    assert not torch.equal(noise[0], noise[2])


def test_drawing_together_needs_to_know_how_episodes_ended():
    model = make_model()
    with pytest.raises(ValueError, match="nothing says how these ended"):
        WorldTrainer(model, clips_of(model, episodes(count=4)), training(together=0.5), 0)

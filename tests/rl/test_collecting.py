"""The episodes of one update: scouts, refilled groups, and states that were mixed before."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from coevo.rl import advantages
from coevo.rl.collecting import collect, single_outcome
from coevo.rl.packing import pack
from coevo.rl.starts import StartSampler
from tests.doubles import TOY, toy_state
from tests.rl.examples import dream_roll, judged, make_policy, small

STATES = [toy_state(column) for column in range(8)]
MIXED = {"dot-1-7", "dot-3-7", "dot-4-7", "dot-6-7"}


def told(rolled, mixed=MIXED):
    """A roll whose episodes win in turn from the states `mixed` and never from others."""
    inner = dream_roll(make_policy())

    def roll(starts, key):
        rolled.append((key, [start.id for start in starts]))
        episodes, _ = inner(starts, key)
        wins = [episodes.sample[row] % 2 == 0 and start.id in mixed for row, start in enumerate(starts)]
        return episodes, judged(episodes, [4 if won else 5 for won in wins])

    return roll


def test_groups_are_refilled_until_the_batch_holds_so_many_that_are_mixed():
    rolled, sampler = [], StartSampler(STATES, 0)
    algorithm = small(states=4, group=4, refill=4)
    episodes, verdicts = collect(algorithm, told(rolled), sampler, 1)
    assert [key for key, _ in rolled] == [(1, turn) for turn in range(len(rolled))] and len(rolled) > 1
    drawn = [name for _, names in rolled for name in names[::4]]
    assert len(set(drawn)) == len(drawn) <= 8 and len(episodes) == 4 * len(drawn)
    mixed = len(drawn) - len(single_outcome(episodes, verdicts))
    assert mixed == 4 or len(drawn) == 8
    _, useful = pack(episodes, verdicts, algorithm, TOY.chunk_frames)
    assert useful.groups == pytest.approx(mixed / len(drawn)) and useful.dreamed == 2 * len(episodes)


def test_a_group_whose_scouts_ended_alike_is_not_completed():
    rolled, sampler = [], StartSampler(STATES, 0)
    algorithm = small(states=8, group=6, scouts=2)
    episodes, verdicts = collect(algorithm, told(rolled), sampler, 1)
    (first, scouts), (second, rest) = rolled
    assert first == (1, 0) and second == (1, 0, "rest")
    assert len(scouts) == 16 and len(rest) == 4 * 4 and set(rest) == MIXED
    assert len(episodes) == 32 and set(single_outcome(episodes, verdicts)) == {s.id for s in STATES} - MIXED
    packed, useful = pack(episodes, verdicts, algorithm, TOY.chunk_frames)
    # 4 groups of 6 of the 32 episodes, each of 2 decisions: a success at frame 4 still takes both.
    assert len(packed) == 48 and useful.frames == 48 / 64 and useful.groups == 0.5


def test_scouts_that_all_ended_alike_are_all_there_is():
    episodes, _ = collect(small(states=3, group=6, scouts=2), told([], mixed=()), StartSampler(STATES, 0), 1)
    assert len(episodes) == 6


def test_scouts_must_leave_some_of_the_group():
    for scouts in (1, 4, 5):
        with pytest.raises(ValueError, match=f"scouts = {scouts} of a group of 4"):
            small(group=4, scouts=scouts)


@given(st.floats(0.05, 0.95), st.sampled_from([(4, 2), (5, 2), (5, 3)]), st.sampled_from(["grpo", "leave_one_out"]))
def test_scouting_changes_how_much_a_state_counts_and_never_which_way_it_pulls(p, sizes, kind):
    """The gradient of log-probability is 1 / p for a success and -1 / (1 - p) for a failure, in units of dp."""
    group, scouts = sizes
    pull, total = 0.0, 0.0
    for outcomes in product([0.0, 1.0], repeat=group):
        if len(set(outcomes[:scouts])) == 1:
            continue
        returns, number = torch.tensor(outcomes), torch.zeros(group, dtype=torch.int64)
        estimator = advantages.group_relative if kind == "grpo" else advantages.leave_one_out
        advantage = estimator(returns, number)
        chance = p ** sum(outcomes) * (1 - p) ** (group - sum(outcomes))
        score = torch.where(returns > 0, 1 / p, -1 / (1 - p))
        pull, total = pull + chance * float((advantage * score).sum()), total + chance
    assert total > 0 and pull > 0


def test_the_asked_share_of_states_comes_back_while_their_outcomes_are_mixed():
    sampler = StartSampler(STATES, 0, returning=0.5)
    names = [state.id for state in STATES for _ in range(2)]
    sampler.record(names, [name in MIXED and row % 2 == 0 for row, name in enumerate(names)])
    for step in range(20):
        drawn = [state.id for state in sampler.draw(4, step)]
        assert len(set(drawn)) == 4 and set(drawn[:2]) <= MIXED
    assert set(state.id for state in sampler.draw(2, 20, without=list(MIXED))).isdisjoint(MIXED)
    sampler.record([state.id for state in STATES], [True] * 8)
    assert len({state.id for state in sampler.draw(8, 0)}) == 8 and not sampler.last_was_mixed.any()


def test_rows_that_ended_carry_no_frames_into_the_count():
    roll = dream_roll(make_policy())
    episodes, _ = roll([STATES[3]] * 4, (1,))
    episodes.length[:] = torch.tensor([1, 2, 2, 2])
    _, useful = pack(episodes, judged(episodes, [2, 5, 5, 5]), small(), TOY.chunk_frames)
    assert useful.dreamed == 7 and useful.frames == 1.0


def test_states_at_different_decisions_are_rolled_apart_and_what_lay_before_is_not_learned_from():
    rolled, late = [], replace(toy_state(5), id="late", decision=1)
    episodes, verdicts = collect(
        small(states=2, group=2), told(rolled, {"late", STATES[4].id}), StartSampler([late, STATES[4]], 0), 1
    )
    assert sorted(names for _, names in rolled) == [["dot-4-7"] * 2, ["late"] * 2]
    assert len({key for key, _ in rolled}) == 1
    packed, useful = pack(episodes, verdicts, small(), TOY.chunk_frames)
    # Two decisions from the reset, one from the middle, in two episodes each; all groups are mixed.
    assert useful.dreamed == 6 and len(packed) == 6 and useful.frames == 1.0
    assert torch.equal(packed.frames[-1], episodes.frames[-1, 2])

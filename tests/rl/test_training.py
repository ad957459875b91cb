"""A whole run: which starts it draws, that it learns, when it stops, and what it keeps."""

from __future__ import annotations

from collections import Counter

import pytest
import torch

from coevo.rl import training
from coevo.rl.config import Curriculum, Grpo, LeaveOneOut, Ppo
from coevo.rl.starts import StartSampler
from tests.doubles import toy_state
from tests.rl.examples import changed, dream_roll, make_policy, small, weights_of

STATES = [toy_state(column) for column in range(8)]


def test_a_draw_has_no_state_twice_and_none_that_is_named():
    sampler = StartSampler(STATES, 0)
    drawn = sampler.draw(5, 1, without=[STATES[0].id])
    assert len({state.id for state in drawn}) == 5 and STATES[0].id not in {state.id for state in drawn}
    again = StartSampler(STATES, 0).draw(5, 1, without=["dot-0-7"])
    assert [state.id for state in drawn] == [state.id for state in again]
    assert len(sampler.draw(99, 2)) == 8
    assert sampler.draw(3, 3, without=[state.id for state in STATES]) == []


def test_states_of_mixed_outcomes_are_preferred():
    sampler = StartSampler(STATES, 0)
    for _ in range(4):
        for number, state in enumerate(STATES):
            wins = {0: 4, 1: 2}.get(number, 0)  # the first always wins, the second half the time, the others never
            sampler.record([state.id] * 4, [True] * wins + [False] * (4 - wins))
    count = Counter(sampler.draw(1, step)[0].id for step in range(600))
    # p (1 - p) + 0.05 with one imagined success and failure each: 0.30 for the mixed one, about 0.14 for the others
    assert count["dot-1-7"] > 1.6 * max(count[state.id] for state in STATES if state.id != "dot-1-7")
    assert min(count[state.id] for state in STATES) > 0
    even = StartSampler(STATES, 0, prefer_mixed=False)
    even.record(["dot-0-7"] * 4, [True] * 4)
    spread = Counter(even.draw(1, step)[0].id for step in range(800))
    assert max(spread.values()) < 1.6 * min(spread.values())


def test_old_outcomes_count_half():
    sampler = StartSampler(STATES[:1], 0)
    sampler.record(["dot-0-7"] * 4, [True, True, True, True])
    sampler.record(["dot-0-7"] * 4, [False, False, False, False])
    assert sampler.successes[0] == 1 + 0.5 * 4 and sampler.episodes[0] == 2 + 0.5 * 4 + 4


def test_a_curriculum_draws_from_the_first_share_of_the_set_which_grows():
    curriculum = Curriculum(begin=0.25, updates=3)
    assert [curriculum.share(update) for update in (1, 2, 3, 4, 9)] == pytest.approx([0.25, 0.5, 0.75, 1.0, 1.0])
    sampler = StartSampler(STATES, 0, curriculum=curriculum)

    def reach(update: int, count: int = 1, without=()) -> set[str]:
        draws = [sampler.draw(count, update, number, without=without) for number in range(200)]
        return {state.id for drawn in draws for state in drawn}

    names = [state.id for state in STATES]
    assert [reach(update) == set(names[:reached]) for update, reached in ((1, 2), (2, 4), (3, 6), (4, 8))] == [True] * 4
    # An update that needs more states than are admitted gets the next ones.
    assert reach(1, 3) == set(names[:3]) and reach(1, 1, without=names[:2]) == {names[2]}


def test_a_run_draws_from_what_its_curriculum_admits():
    policy, rolled = make_policy(), []
    inner = dream_roll(policy)

    def roll(starts, key):
        rolled.append({start.id for start in starts})
        return inner(starts, key)

    algorithm = small(updates=3, states=2, curriculum=Curriculum(begin=0.25, updates=2))
    training.train(policy, algorithm, roll, STATES, 0, lambda update, numbers: None)
    names = [state.id for state in STATES]
    assert rolled[0] == set(names[:2]) and rolled[1] <= set(names[:5]) and len(rolled) == 3


def test_dull_groups_are_refilled_by_other_states():
    policy = make_policy()
    rolled = []
    inner = dream_roll(policy)

    def roll(starts, key):
        rolled.append((key, [start.id for start in starts]))
        return inner(starts, key)

    lines = []
    far = [toy_state(-column) for column in range(8)]  # nothing can win from there: every group is dull
    outcome = training.train(
        policy, small(updates=1, states=3, refill=2), roll, far, 0, lambda update, numbers: lines.append(numbers)
    )
    (first, drawn), (second, more) = rolled
    assert first == (1, 0) and second == (1, 1)
    assert len(drawn) == 12 and len(more) == 8 and not set(drawn) & set(more)
    assert outcome.episodes == 20
    assert lines[0]["skipped"] == 1.0 and lines[0]["mixed_groups"] == 0 and lines[0]["decisions"] == 0


def test_a_refill_when_every_state_was_drawn_is_no_fault():
    policy = make_policy()
    outcome = training.train(
        policy, small(updates=1, states=3, refill=2), dream_roll(policy), STATES[:3], 0, lambda *line: None
    )
    assert outcome.episodes == 12


@pytest.mark.parametrize("estimator", [Grpo(), LeaveOneOut(), Ppo(critic_warmup=2, value_learning_rate=1e-3)])
def test_a_policy_learns_to_move_the_dot_to_the_line(estimator):
    policy = make_policy(critic=estimator.kind == "ppo")
    algorithm = small(estimator=estimator, updates=14, states=8, group=8, epochs=2, learning_rate=3e-3)
    success = []
    training.train(
        policy, algorithm, dream_roll(policy), [toy_state(column) for column in range(3, 11)], 0,
        lambda update, numbers: success.append(numbers["success"]),
    )  # fmt: skip
    assert sum(success[-3:]) / 3 > sum(success[:3]) / 3 + 0.2


def test_the_best_check_is_kept_the_start_included():
    checks = iter([0.4, 0.3, 0.7, 0.5])
    policy, kept = make_policy(), {}

    def check(update):
        kept[update] = weights_of(policy)
        return next(checks)

    algorithm = small(updates=3, states=8, group=8)
    outcome = training.train(
        policy, algorithm, dream_roll(policy), [toy_state(column) for column in range(3, 11)], 0, lambda *line: None,
        training.Validation(check, 1, 2, episodes=10_000),
    )  # fmt: skip
    assert outcome.checks == [(0, 0.4), (1, 0.3), (2, 0.7), (3, 0.5)]
    assert (outcome.best_update, outcome.best_success, outcome.stopped) == (2, 0.7, "")
    assert not changed(kept[2], policy) and changed(kept[3], policy)


def test_training_stops_after_so_many_checks_below_the_start():
    checks = iter([0.5, 0.4, 0.6, 0.4, 0.3, 0.9])
    policy = make_policy()
    outcome = training.train(
        policy, small(updates=9), dream_roll(policy), STATES, 0, lambda *line: None,
        training.Validation(lambda update: next(checks), 1, 2, episodes=100),
    )  # fmt: skip
    assert [update for update, _ in outcome.checks] == [0, 1, 2, 3, 4]  # 0.4 alone was one in a row, 0.6 began anew
    said = (
        "after update 4: validation success 0.300 was clearly below the start policy's 0.500 at 2 checks in a row "
        "(100 episodes each)"
    )
    assert outcome.stopped == said
    assert outcome.best_update == 2 and next(checks) == 0.9


def test_a_run_that_only_gets_worse_ends_as_it_began():
    checks = iter([0.5, 0.4, 0.3])
    policy = make_policy()
    before = weights_of(policy)
    outcome = training.train(
        policy, small(updates=9, states=8, group=8), dream_roll(policy), STATES, 0, lambda *line: None,
        training.Validation(lambda update: next(checks), 1, 2, episodes=100),
    )  # fmt: skip
    assert outcome.best_update == 0 and not changed(before, policy)


def test_checks_come_every_so_many_updates_after_the_warm_up_and_at_the_end():
    policy, seen = make_policy(critic=True), []
    algorithm = small(estimator=Ppo(critic_warmup=3), updates=5)
    training.train(
        policy, algorithm, dream_roll(policy), STATES, 0, lambda *line: None,
        training.Validation(lambda update: seen.append(update) or 0.5, 2, 2, episodes=100),
    )  # fmt: skip
    assert seen == [0, 5, 7, 8]


def test_a_run_repeats_itself():
    found = []
    for _ in range(2):
        policy = make_policy()
        training.train(policy, small(), dream_roll(policy), [toy_state(c) for c in range(3, 11)], 0, lambda *line: None)
        found.append(weights_of(policy))
    assert all(torch.equal(weight, found[1][name]) for name, weight in found[0].items())


def test_a_check_within_the_standard_error_is_not_below():
    rule = training.Validation(lambda update: 0.0, 1, 1, episodes=50)
    # The standard error of 0.45 - 0.5 over 50 episodes each is sqrt((0.2475 + 0.25) / 50) = 0.0998.
    assert not rule.is_below(0.45, 0.5)
    assert rule.is_below(0.39, 0.5)

"""When a check raises an alarm, and when alarms stop a run."""

from __future__ import annotations

import pytest

from coevo.rl import training
from coevo.rl.alarms import Check, Probed, Validation, drop, fell, is_alarm, rose
from tests.doubles import toy_state
from tests.rl.examples import changed, dream_roll, make_policy, small, weights_of

STATES = [toy_state(column) for column in range(3, 11)]


def test_a_share_rose_if_it_rose_by_more_than_the_error_of_the_difference():
    # The standard error of 0.6 - 0.5 over 50 episodes each is sqrt((0.25 + 0.24) / 50) = 0.0990.
    assert rose(0.5, 50, 0.6, 50) and not rose(0.5, 50, 0.598, 50)
    assert not rose(0.5, 50, 0.5, 50) and rose(0.0, 8, 1.0, 8)


def test_what_a_probe_says_of_itself():
    probed = Probed(dreamed=16, won=12, confirmed=9)
    assert probed.dreamed_success == 0.75 and probed.mismatch == 0.25
    assert Probed(dreamed=16, won=0, confirmed=0).mismatch is None


THEN = Check(0, 0.5, Probed(64, 32, 24))


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        (Check(4, 0.45, Probed(64, 60, 40)), True),  # dreamed 0.94, replayed 0.67: neither witness rose
        (Check(4, 0.45, Probed(64, 33, 20)), False),  # dreamed success did not rise
        (Check(4, 0.55, Probed(64, 60, 40)), False),  # the simulator rose too
        (Check(4, 0.45, Probed(64, 60, 58)), False),  # replays confirm 0.97, against 0.75 before
        (Check(4, 0.45, None), False),
    ],
)
def test_an_alarm_needs_dreams_that_rise_and_no_witness_that_does(now, expected):
    assert is_alarm(THEN, now) == expected
    assert not is_alarm(Check(0, 0.5, None), now)


def test_dreams_that_begin_without_a_success_are_witnessed_by_validation_alone():
    assert is_alarm(Check(0, 0.5, Probed(64, 0, 0)), Check(4, 0.45, Probed(64, 60, 40)))


def test_a_drop_is_measured_in_errors_of_the_difference():
    # (48 + 1) / 98 = 0.5 and (38 + 1) / 98 = 0.398: sqrt((0.25 + 0.2396) / 96) = 0.0714.
    assert drop(48 / 96, 96, 38 / 96, 96) == pytest.approx((10 / 96) / 0.0714, abs=0.002)
    assert drop(0.5, 96, 0.5, 96) == 0.0 and drop(0.5, 96, 0.6, 96) < 0


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        (Check(12, 40 / 64, Probed(16, 16, 11)), False),  # 3 of 64 fewer, 11 of 16 replayed: chance
        (Check(12, 39 / 64, Probed(16, 16, 9)), True),  # a little of both is enough
        (Check(12, 33 / 64, None), True),  # ten fewer of 64, without a probe
        (Check(12, 43 / 64, Probed(16, 16, 13)), False),
    ],
)
def test_witnesses_are_heard_together(now, expected):
    assert fell(Check(4, 43 / 64, Probed(16, 13, 11)), now, 64) == expected


def test_alarms_without_a_loss_stop_nothing():
    low, high = Probed(16, 8, 6), Probed(16, 15, 11)
    _, _, outcome, lines = run([0.50, 0.49, 0.48, 0.49], [low, high, high, high], updates=3)
    assert outcome.stopped == "" and [numbers.get("alarm") for _, numbers in lines] == [None, 1.0, 1.0, 1.0]


def run(successes, probes, patience=2, updates=9):
    """A run whose checks and probes are these."""
    policy, kept, answers = make_policy(), {}, iter(zip(successes, probes, strict=True))
    lines = []
    now = {}

    def check(update):
        kept[update] = weights_of(policy)
        now["success"], now["probe"] = next(answers)
        return now["success"]

    outcome = training.train(
        policy, small(updates=updates, states=8, group=8), dream_roll(policy), STATES, 0,
        lambda update, numbers: lines.append((update, numbers)),
        Validation(check, 1, patience, episodes=96, probe=lambda update: now["probe"]),
    )  # fmt: skip
    return policy, kept, outcome, lines


def test_a_run_that_uses_the_dreams_errors_is_stopped_and_its_best_check_kept():
    probes = [Probed(64, 32, 24), Probed(64, 36, 30), Probed(64, 56, 30), Probed(64, 60, 30)]
    policy, kept, outcome, lines = run([0.50, 0.55, 0.54, 0.52], probes)
    assert outcome.stopped == (
        "after update 3: since update 1 dreamed success rose from 0.562 to 0.938 while validation success went from "
        "0.550 to 0.520 and 30 of 60 dreamed successes replayed (30 of 36 then), at 2 checks in a row: the policy uses "
        "the world model's errors"
    )
    assert outcome.best_update == 1 and not changed(kept[1], policy)
    assert [update for update, _ in lines] == [0, 1, 2, 3]
    assert [numbers.get("alarm") for _, numbers in lines] == [None, 0.0, 1.0, 1.0]
    assert lines[3][1]["probe_mismatch"] == 0.5 and lines[3][1]["probe_dreamed_success"] == 0.9375


def test_one_alarm_alone_does_not_stop_a_run():
    high, low = Probed(64, 60, 30), Probed(64, 32, 24)
    _, _, outcome, _ = run([0.50, 0.48, 0.49, 0.48], [low, high, low, high], updates=3)
    assert outcome.stopped == "" and outcome.best_update == 0

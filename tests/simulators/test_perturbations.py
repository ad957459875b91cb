"""Deliberate faults of the expert."""

from __future__ import annotations

import numpy as np
import pytest

from coevo.core import random
from coevo.records.base import Config
from coevo.simulators.perturbations import FAMILIES, Disturbance, Perturbation
from tests.simulators.scenes import noisy_episodes, pick_place, starts

INTENDED = np.array([0.5, -0.25, 0.0, 1.0])


def drawn(kind: str, low: float, high: float, row: int = 0) -> Disturbance:
    return Disturbance(Perturbation(kind=kind, severity=(low, high)), random.stream("test", row))


def test_no_perturbation_changes_nothing():
    disturbance = drawn("none", 0.0, 0.0)
    assert disturbance.executed(INTENDED, 0, 0.0).tolist() == INTENDED.tolist()
    assert disturbance.object_seen(np.ones(3)).tolist() == [1.0, 1.0, 1.0]


def test_perception_offset_is_horizontal_and_as_long_as_drawn():
    for row in range(20):
        offset = drawn("perception", 0.01, 0.04, row).object_seen(np.zeros(3))
        assert offset[2] == 0.0 and 0.01 <= np.linalg.norm(offset) <= 0.04


def test_overshoot_aims_past_the_goal_by_its_share_of_the_way():
    assert drawn("overshoot", 0.5, 0.5).goal_seen(np.array([2.0, 0, 0]), np.zeros(3)).tolist() == [3.0, 0.0, 0.0]


def test_slow_moves_less_and_grips_the_same():
    assert drawn("slow", 0.5, 0.5).executed(INTENDED, 0, 0.0).tolist() == [0.25, -0.125, 0.0, 1.0]


def test_weak_grip_lacks_its_share_of_closing_alone():
    assert drawn("weak_grip", 0.75, 0.75).executed(INTENDED, 0, 0.0)[3] == 0.25
    assert drawn("weak_grip", 0.75, 0.75).executed(np.array([0, 0, 0, -1.0]), 0, 0.0)[3] == -1.0


def test_early_release_lets_go_where_its_share_of_the_way_is_left_and_for_good():
    disturbance = drawn("early_release", 0.25, 0.25)
    assert [disturbance.executed(INTENDED, 0, progress)[3] for progress in (0.5, 0.74, 0.76, 0.1)] == [1, 1, -1, -1]


def test_noise_is_held_for_four_steps():
    disturbance = drawn("noise", 0.2, 0.2)
    actions = np.stack([disturbance.executed(np.zeros(4), step, 0.0) for step in range(8)])
    assert (actions[:4] == actions[0]).all() and (actions[4:] == actions[4]).all() and (actions[0] != actions[4]).all()


def test_laplace_noise_has_the_asked_scale_and_is_held():
    """The mean of the absolute deviation is the scale, the standard deviation its square root of two times."""
    disturbance = drawn("laplace", 0.02, 0.02)
    actions = np.stack([disturbance.executed(np.zeros(4), step, 0.0) for step in range(4 * 4000)])[::4]
    assert np.abs(actions[:, :3]).mean() == pytest.approx(0.02, rel=0.03)
    assert actions[:, :3].std() == pytest.approx(0.02 * 2**0.5, rel=0.05)
    assert np.abs(actions[:, 3]).mean() == pytest.approx(0.005, rel=0.05)


def test_actions_stay_in_range_and_in_float32():
    action = drawn("noise", 5.0, 5.0).executed(INTENDED, 0, 0.0)
    assert action.dtype == np.float32 and np.abs(action).max() <= 1.0


def test_an_unknown_kind_and_a_decreasing_severity_are_refused():
    assert issubclass(Perturbation, Config)
    with pytest.raises(ValueError, match="kind"):
        Perturbation.parse({"kind": "earthquake"}, "params.yaml")
    with pytest.raises(ValueError, match="severity"):
        Perturbation.parse({"kind": "slow", "severity": [0.5, 0.1]}, "params.yaml")


def test_the_label_is_what_the_expert_meant_before_the_noise():
    for episode in noisy_episodes():
        difference = (episode.actions - episode.label).abs()
        assert episode.label.shape == episode.actions.shape and difference.max() > 0.05
        assert (episode.label.abs() <= 1.0).all()


def test_weak_grips_fail_where_the_undisturbed_expert_succeeds():
    first = pick_place().interface.success_from - 1
    for start in starts()[:2]:
        weak = pick_place().demonstrate(start, Perturbation(kind="weak_grip", severity=(1.0, 1.0)), (0,))
        nominal = pick_place().demonstrate(start, Perturbation(), (0,))
        assert nominal.success[first:].any() and not weak.success.any()


SEVERE = {"approach_offset": 0.06, "early_release": 0.9, "weak_grip": 1.0, "overshoot": 1.5, "lateral_slip": 1.0}
MILD = {"approach_offset": 0.005, "early_release": 0.05, "weak_grip": 0.2, "overshoot": 0.1, "lateral_slip": 0.1}


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_wins_when_mild_and_mostly_fails_when_severe(family):
    # Success by severity over 16 states, at five levels each: benchmarks/perturbation_families.py
    first = pick_place().interface.success_from - 1
    wins = {}
    for name, severity in (("mild", MILD[family]), ("severe", SEVERE[family])):
        fault = Perturbation(kind=FAMILIES[family], severity=(severity, severity))
        episodes = [pick_place().demonstrate(start, fault, (0, family, start.id)) for start in starts()]
        wins[name] = sum(bool(episode.success[first:].any()) for episode in episodes)
        assert all(episode.success.shape == (pick_place().interface.frames,) for episode in episodes)
    assert wins["mild"] == 4 and wins["severe"] <= 2

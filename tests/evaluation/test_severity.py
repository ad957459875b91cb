"""Screens of perturbation families."""

import numpy as np
import pytest

from coevo.evaluation.severity import screen


def won(*counts, states=20):
    """Outcomes by level: the first so many states win."""
    return np.stack([np.arange(states) < count for count in counts])


def test_a_family_whose_success_falls_passes():
    found = screen("weak_grip", (0.2, 0.5, 1.0), won(20, 12, 1), (0,))
    assert found.passes and [level.value for level in found.success] == [1.0, 0.6, 0.05]


def test_a_fault_that_the_task_forgives_is_refused():
    found = screen("overshoot", (0.2, 1.0), won(20, 20), (0,))
    assert found.faults == ("success does not fall from severity 0.2 (1.00) to 1 (1.00, n=20)",)


def test_a_rise_beyond_chance_is_named_with_its_levels():
    found = screen("slip", (0.1, 0.5, 0.9), won(12, 20, 2), (0,))
    assert found.faults == ("success rises from 0.60 at severity 0.1 to 1.00 at 0.5 (n=20)",)


def test_a_rise_within_chance_is_none():
    assert screen("slip", (0.1, 0.5, 0.9), won(18, 19, 2), (0,)).passes


def test_severities_that_do_not_increase_are_refused():
    with pytest.raises(ValueError, match="'slip': severities .* must increase"):
        screen("slip", (0.5, 0.1), won(20, 2), (0,))

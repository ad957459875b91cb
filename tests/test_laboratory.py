"""Experiments keep what they made by name, and never tell figures of one thing that were measured on another."""

from __future__ import annotations

import pytest

from scripts.laboratory import Laboratory

SIMULATOR = "configs/simulator/pick_place.yaml"


def states(lab: Laboratory, count: int, seed: int = 0, workers: int = 0):
    params = dict(role="train", count=count, workers=workers)
    return lab.make("make_initial_states", "states", params, seed=seed, simulator=SIMULATOR)


def test_what_is_there_is_not_made_again_however_many_workers_make_it(tmp_path):
    made = states(Laboratory(tmp_path), 2)
    again = states(Laboratory(tmp_path), 2, workers=1)
    assert again.manifest.sha256 == made.manifest.sha256
    assert Laboratory(tmp_path).seconds(lambda name: name == "states") > 0.0


@pytest.mark.parametrize(("change", "says"), [(dict(count=3), "params"), (dict(count=2, seed=1), "seed = 0")])
def test_the_same_name_with_other_parameters_or_another_seed_is_refused(tmp_path, change, says):
    states(Laboratory(tmp_path), 2)
    with pytest.raises(ValueError, match=says) as refused:
        states(Laboratory(tmp_path), **change)
    assert "another --lab" in str(refused.value)

"""The blocks of docs/training.md: stages know every parameter, and what they yield is what the text says."""

from __future__ import annotations

import importlib
import re
import typing
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import yaml

from coevo.core.types import Episode
from coevo.episodes.mixture import Mixture, weights
from coevo.workers.collection import Tally
from coevo.workers.experts import plan
from tests.doubles import TOY, toy_state
from tests.toy_artifacts import rolled_out

PAGE = Path(__file__).resolve().parents[1] / "docs/training.md"
SECTION = PAGE.read_text().split("## Data of the four systems")[1].split("\n## ")[0]
BLOCKS = [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", SECTION, re.S)]
FAILURES, CONTROL, SANS, PERTURBED = BLOCKS


@pytest.mark.parametrize(("task", "values"), [pair for block in BLOCKS for pair in block.items()])
def test_a_stage_knows_every_parameter(task, values):
    parameters(task, values)


def parameters(task: str, values: dict):
    function = getattr(importlib.import_module(f"tasks.{task}"), task)
    return typing.get_type_hints(function)["params"].parse(values, task)


def stored(params, parts, own: dict[str, int], disturbed: dict[str, int]) -> Counter:
    """What is stored of so many policy and expert episodes of each outcome, by name and outcome."""
    keep = {"none": getattr(params, "keep", {})} | {part.name: part.keep for part in parts}
    won, lost = rolled_out([toy_state(4), toy_state(0)], 1.0, 0.0)
    made = [
        Episode(**vars(won if outcome == "success" else lost) | {"perturbation": name})
        for name, outcomes in [("none", own), *((part.name, disturbed) for part in parts)]
        for outcome, count in outcomes.items()
        for _ in range(count)
    ]
    kept = Tally(TOY, len(made), 8, keep).watch(made)
    return Counter((each.perturbation, "success" if each.success[-1] else "near") for each in kept)


def drawn(block: dict, *rows: tuple[str, str, str]) -> dict[tuple[str, str, str], float]:
    """Share of the draws by (who, perturbation, outcome), one episode of each."""
    mixture = Mixture.parse({key: value for key, value in block["build_dataset"].items()}, "block")
    episodes = [SimpleNamespace(policy=who, perturbation=name, outcome=end, pair="", age=0) for who, name, end in rows]
    return dict(zip(rows, np.round(weights(episodes, mixture, "block"), 6).tolist(), strict=True))


OWN = [("p", "none", "success"), ("p", "none", "failure"), ("expert", "clean", "success")]


def test_natural_failures_are_half_of_the_draws_and_none_of_the_controls():
    assert list(drawn(FAILURES, *OWN).values()) == [0.35, 0.5, 0.15]
    assert list(drawn(CONTROL, *OWN).values()) == [0.7, 0.0, 0.3]


def test_sans_holds_fifty_of_each_and_draws_them_evenly():
    params = parameters("collect_rollouts", SANS["collect_rollouts"])
    kept = stored(params, params.near_success, {"success": 90, "near": 110}, {"success": 30, "near": 50})
    assert kept == {("none", "success"): 50, ("none", "near"): 25, ("end_effector", "near"): 25}
    rows = [("p", "none", "success"), ("p", "none", "near"), ("expert", "end_effector", "failure")]
    assert list(drawn(SANS, *rows).values()) == [0.5, 0.25, 0.25]


def test_perturbed_actions_are_planned_and_their_failures_drawn():
    params = parameters("collect_demonstrations", PERTURBED["collect_demonstrations"])
    rows = plan([toy_state(column) for column in range(120)], params.episodes, ())
    assert Counter(row[2] for row in rows) == {"clean": 100, "laplace": 200}
    assert {row[1].kind for row in rows} == {"none", "laplace"}
    ends = [("expert", "clean", "success"), ("expert", "laplace", "success"), ("expert", "laplace", "failure")]
    assert list(drawn(PERTURBED, *ends).values()) == [0.25, 0.25, 0.5]

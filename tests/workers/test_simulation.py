"""A simulator spread over processes."""

from __future__ import annotations

import os
import signal

import numpy as np
import pytest
import torch

from coevo.records.base import read_yaml
from coevo.simulators.build import read_config, read_config_file
from coevo.simulators.perturbations import Perturbation
from coevo.workers.experts import Demonstrations, Pairs, plan
from coevo.workers.simulation import ParallelSimulator, expert_streams
from tests.simulators.scenes import PICK_PLACE, noisy_episodes, pick_place, starts

CONFIG = read_config_file(PICK_PLACE)


@pytest.fixture(scope="module")
def two_workers():
    with ParallelSimulator(CONFIG, 2) as simulator:
        yield simulator


def frames_of(simulator) -> torch.Tensor:
    actions = torch.stack([episode.actions for episode in noisy_episodes()])
    simulator.reset(starts())
    return torch.cat([simulator.step(actions[:, at : at + 8]).frames for at in range(0, 80, 8)], dim=1)


def test_no_one_and_two_workers_give_the_same_episodes(two_workers):
    expected = torch.stack([episode.frames[1:] for episode in noisy_episodes()])
    with ParallelSimulator(CONFIG, 1) as one:
        assert torch.equal(frames_of(one), expected)
    assert torch.equal(frames_of(pick_place()), expected)
    assert torch.equal(frames_of(two_workers), expected)


def test_states_and_expert_episodes_do_not_depend_on_workers(two_workers):
    states = two_workers.initial_states(0, "train", range(4))
    assert [state.id for state in states] == [start.id for start in starts()]
    noise = [Perturbation(kind="noise", severity=(0.1, 0.3))] * 4
    streams = [(0, "test", start.id) for start in states]
    for made, expected in zip(two_workers.demonstrate(states, noise, streams), noisy_episodes(), strict=True):
        assert torch.equal(made.frames, expected.frames) and torch.equal(made.label, expected.label)


def test_a_worker_that_dies_costs_nothing_but_time(two_workers):
    expected = frames_of(two_workers)
    before = two_workers.crew.restarts
    os.kill(two_workers.crew.pids()[0], signal.SIGKILL)
    assert torch.equal(frames_of(two_workers), expected)
    assert two_workers.crew.restarts == before + 1


def test_silent_workers_are_given_up_after_one_repetition():
    with ParallelSimulator(CONFIG, 1, patience=0.01) as hurried:
        with pytest.raises(RuntimeError, match="no worker answered.*twice over the same rows"):
            hurried.initial_states(0, "train", [0])


def test_a_fault_that_a_user_can_mend_reaches_the_caller_as_it_is():
    config = read_config(read_yaml(PICK_PLACE) | {"env": "pick-plase-v3"}, "test")
    with ParallelSimulator(config, 1) as simulator:
        with pytest.raises(ValueError, match="did you mean pick-place-v3"):
            simulator.initial_states(0, "train", [0])


def test_chunks_of_the_wrong_length_are_refused():
    simulator = pick_place()
    simulator.reset(starts())
    with pytest.raises(ValueError, match="the same 'chunk'"):
        simulator.step(torch.zeros(4, 5, 4))


def test_expert_rows_are_keyed_by_start_name_and_repetition():
    a, b = starts()[:2]
    streams = expert_streams([a, b, a], ["noise", "noise", "noise"], (7,))
    assert streams == [(7, a.id, "noise", 0), (7, b.id, "noise", 0), (7, a.id, "noise", 1)]


def test_collected_expert_episodes_differ_between_repetitions():
    noise = Perturbation(kind="noise", severity=(0.2, 0.2))
    twice = [starts()[0]] * 2
    with ParallelSimulator(CONFIG, 0) as simulator:
        first, second = simulator.demonstrate(twice, [noise] * 2, expert_streams(twice, ["noise"] * 2, (0,)))
    assert not torch.equal(first.actions, second.actions) and np.isfinite(first.proprio.numpy()).all()
    assert torch.equal(first.frames[0], second.frames[0])


def test_a_plan_takes_starts_in_turn_and_shares_the_nominal_episode_of_pairs():
    noise, slip = Perturbation(kind="noise", severity=(0.1, 0.1)), Perturbation(kind="slip", severity=(1.0, 1.0))
    rows = plan(
        starts(),
        [Demonstrations(name=name, perturbation=noise, count=count) for name, count in (("a", 3), ("b", 2))],
        [Pairs(name="slip", perturbation=slip, states=1, per_state=2),
         Pairs(name="noisy", perturbation=noise, states=1)],
    )
    ids = [start.id for start in starts()]
    assert [(row[0].id, row[2], row[3]) for row in rows] == [
        (ids[0], "a", ""), (ids[1], "a", ""), (ids[2], "a", ""), (ids[3], "b", ""), (ids[0], "b", ""),
        (ids[0], "nominal", ids[0]), (ids[0], "slip", ids[0]), (ids[0], "slip", ids[0]), (ids[0], "noisy", ids[0]),
    ]


def test_undisturbed_episodes_that_would_repeat_are_refused():
    with pytest.raises(ValueError, match="5 undisturbed episodes from 4 start states"):
        plan(starts(), [Demonstrations(name="clean", count=5)], [])

"""The stages that draw states and collect episodes."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from coevo.core import artifacts
from coevo.core.stage import run_stage
from coevo.core.states import read_states
from coevo.episodes.store import read_episodes
from coevo.policies.build import build, save
from coevo.policies.config import SmallPolicyConfig
from coevo.simulators.build import read_config_file
from coevo.workers.collection import Tally
from coevo.workers.simulation import ParallelSimulator
from tasks import collect_demonstrations, collect_rollouts, cut_keyframes, make_initial_states
from tests.doubles import TOY, ToySimulator, toy_state
from tests.simulators.scenes import PICK_PLACE
from tests.toy_artifacts import rolled_out

NOISE = {"kind": "noise", "severity": [0.1, 0.1]}
PAIRS = [{"name": "weak", "perturbation": {"kind": "weak_grip", "severity": [1.0, 1.0]}, "states": 1}]


def states(folder, role: str, exclude=()):
    params = make_initial_states.Params(role=role, count=3, workers=0)
    inputs = make_initial_states.Inputs(simulator=PICK_PLACE, exclude=tuple(exclude))
    parents = {f"exclude.{index}": other for index, other in enumerate(exclude)}
    return run_stage(make_initial_states.make_initial_states, inputs, params, folder / role, seed=5, parents=parents)


@pytest.fixture(scope="module")
def train(tmp_path_factory):
    return states(tmp_path_factory.mktemp("data"), "train")


@pytest.fixture(scope="module")
def policy(tmp_path_factory):
    out = tmp_path_factory.mktemp("data") / "policy"
    with artifacts.writing(out) as folder:
        save(build(SmallPolicyConfig(), read_config_file(PICK_PLACE).interface, 0), folder)
        return artifacts.publish(
            folder, out, kind="policy", id="policy", stage="test", parents={}, config={}, seed=0, source_sha256="",
            metrics={}, states=[],
        )


def test_roles_hold_different_states_and_the_manifest_lists_them(train, tmp_path):
    sealed = states(tmp_path, "sealed", exclude=[train])
    assert not set(sealed.manifest.states) & set(train.manifest.states)
    assert [state.id for state in read_states(train)[0]] and len(train.manifest.states) == 3


def test_a_state_that_another_set_holds_is_refused_and_nothing_is_written(train, tmp_path):
    with pytest.raises(ValueError, match="3 of the train states .* are also in"):
        states(tmp_path, "train", exclude=[train])
    assert list(tmp_path.iterdir()) == []


def test_demonstrations_carry_labels_pairs_and_replay(train, tmp_path):
    params = collect_demonstrations.Params(
        episodes=[{"name": "demonstration", "perturbation": NOISE, "count": 2}], pairs=PAIRS, workers=0,
    )
    inputs = collect_demonstrations.Inputs(simulator=PICK_PLACE, starts=train)
    made = run_stage(
        collect_demonstrations.collect_demonstrations, inputs, params, tmp_path / "demos", seed=5,
        parents={"starts": train},
    )
    metrics, episodes = made.manifest.metrics, list(read_episodes(made.path))
    assert metrics["replayed_alike"] == 1.0 and metrics["success/nominal"] == 1.0 and metrics["success/weak"] == 0.0
    assert [episode.perturbation for episode in episodes] == ["demonstration", "demonstration", "nominal", "weak"]
    assert not episodes[0].pair and episodes[2].pair == episodes[3].pair == episodes[2].start.id
    assert all(episode.label is not None for episode in episodes)
    assert set(made.manifest.states) == {episode.start.id for episode in episodes}


def test_keyframes_are_the_simulators_states_in_the_middle_of_episodes(train, tmp_path):
    params = collect_demonstrations.Params(episodes=[{"name": "noise", "perturbation": NOISE, "count": 2}], workers=0)
    inputs = collect_demonstrations.Inputs(simulator=PICK_PLACE, starts=train)
    demonstrations = run_stage(
        collect_demonstrations.collect_demonstrations, inputs, params, tmp_path / "demos", seed=5,
        parents={"starts": train},
    )  # fmt: skip
    made = run_stage(
        cut_keyframes.cut_keyframes, cut_keyframes.Inputs(PICK_PLACE, demonstrations),
        cut_keyframes.Params(decisions=(2, 3), workers=0), tmp_path / "keyframes", seed=5,
        parents={"episodes": demonstrations},
    )  # fmt: skip
    states, interface = read_states(made)
    assert [state.decision for state in states] == [2, 2, 3, 3]
    assert set(made.manifest.states) > {episode.start.id for episode in read_episodes(demonstrations.path)}
    first = read_episodes(demonstrations.path).episode(0)
    with ParallelSimulator(read_config_file(PICK_PLACE), 0) as simulator:
        simulator.reset([states[2]])
        step = simulator.step(first.actions[None, 3 * interface.chunk : 4 * interface.chunk])
    frames = slice(1 + 3 * interface.chunk_frames, 1 + 4 * interface.chunk_frames)
    assert torch.equal(step.frames[0], first.frames[frames])
    torch.testing.assert_close(step.proprio[0], first.proprio[frames])


def test_of_each_outcome_no_more_are_stored_than_asked_for_and_all_that_ran_are_counted():
    def toys(columns, policy, perturbation):
        made = rolled_out([toy_state(column) for column in columns], 1.0, 0.0, policy)
        return [replace(episode, perturbation=perturbation) for episode in made]

    # At full speed the dot moves 8 columns: from 2 it reaches the line at 10, from 1 or 0 it comes near.
    own = toys([2, 3, 4, 1, 0, 1.2, 1.4], "toy/policy", "none")
    expert = toys([2, 1, 0], "expert", "end_effector")
    tally = Tally(TOY, 10, 8, {"none": {"success": 2, "near": 1, "failure": 1}, "end_effector": {"failure": 9}})
    stored = list(tally.watch([*own, *expert]))
    columns = [float(episode.start.id.split("-7")[0].removeprefix("dot-")) for episode in stored]
    assert columns == [2, 3, 1, 0, 1, 0]  # 'failure' takes near successes too, once 'near' is full or absent
    metrics = tally.metrics(ToySimulator())
    assert metrics["episodes"] == 6 and metrics["simulator_episodes"] == 10
    assert metrics["success/none"] == 0.5 and metrics["near/none"] == 0.5 and metrics["success/end_effector"] == 0.0


def test_rollouts_repeat_each_start_and_are_the_same_with_more_workers(train, policy, tmp_path):
    inputs = collect_rollouts.Inputs(simulator=PICK_PLACE, policy=policy, starts=train)
    files = []
    for workers in (0, 2):
        params = collect_rollouts.Params(states=2, repeats=2, pairs=PAIRS, workers=workers)
        out = tmp_path / str(workers) / "data/rollouts"
        made = run_stage(collect_rollouts.collect_rollouts, inputs, params, out, seed=5, parents={"starts": train})
        rows = read_episodes(out).rows
        assert [row.sample for row in rows[:4]] == [0, 1, 0, 1] and {row.policy for row in rows} == {"policy", "expert"}
        files.append({entry.path: entry.sha256 for entry in made.manifest.files})
    assert files[0] == files[1]


def test_greedy_copies_are_refused():
    with pytest.raises(ValueError, match="set repeats to 1"):
        collect_rollouts.Params.parse({"sampling": "greedy", "repeats": 2}, "params.yaml")

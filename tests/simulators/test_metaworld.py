"""MetaWorld behind the simulator protocol."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch

from coevo.core.kinematics import commanded_poses, project, proprio_after
from coevo.records.base import read_yaml
from coevo.records.interface import Camera
from coevo.simulators import drawing
from coevo.simulators.build import build, read_config, read_config_file
from coevo.simulators.metaworld import MetaWorld
from coevo.simulators.perturbations import Perturbation
from coevo.simulators.replay import reproduces
from tests.simulators.scenes import PICK_PLACE, ROOT, centroid, noisy_episodes, pick_place, starts

CONFIGS = sorted((ROOT / "configs/simulator").glob("*.yaml"))

DIGEST = """
import hashlib, sys
import torch
from tests.simulators.scenes import pick_place, starts, noisy_episodes
order = [int(i) for i in sys.argv[1].split(",")]
simulator, digest = pick_place(), {}
chosen = [starts()[i] for i in order]
actions = torch.stack([noisy_episodes()[i].actions for i in order])
simulator.reset(chosen)
made = {i: hashlib.sha256() for i in order}
for at in range(0, 80, 8):
    step = simulator.step(actions[:, at : at + 8])
    for row, i in enumerate(order):
        made[i].update(step.frames[row].numpy().tobytes())
        made[i].update(simulator._states[row].tobytes())
print(" ".join(made[i].hexdigest() for i in sorted(made)))
"""


def digests(order: str) -> str:
    run = subprocess.run(
        [sys.executable, "-c", DIGEST, order], cwd=ROOT, capture_output=True, text=True, timeout=120, check=True
    )
    return run.stdout.strip()


def test_frames_and_states_are_equal_to_the_bit_in_another_process_and_row_order():
    assert digests("0,1,2,3") == digests("2,0,3,1")


def test_an_episode_replays_to_the_bit_from_its_start_and_actions():
    assert reproduces(pick_place(), noisy_episodes()) == [True] * 4


def test_a_replay_with_one_other_action_is_noticed():
    episodes = [replace(episode, actions=episode.actions.clone()) for episode in noisy_episodes()]
    episodes[2].actions[:40, 0] += 0.5
    assert reproduces(pick_place(), episodes) == [True, True, False, True]


def test_keep_leaves_the_other_rows_as_they_were():
    simulator, actions = pick_place(), torch.stack([episode.actions for episode in noisy_episodes()])
    simulator.reset(starts())
    for at in range(0, 40, 8):
        simulator.step(actions[:, at : at + 8])
    simulator.keep(torch.tensor([3, 1]))
    step = simulator.step(actions[[3, 1], 40:48])
    for row, index in enumerate((3, 1)):
        assert torch.equal(step.frames[row], noisy_episodes()[index].frames[11:13])


def test_proprioception_equals_the_running_sum_of_commands():
    interface = pick_place().interface
    for episode in noisy_episodes():
        poses = commanded_poses(interface.action, episode.start.proprio[:, :4], episode.actions[None])
        assert torch.allclose(poses[0, 3::4], episode.proprio[1:, :4], atol=1e-5)
        second = proprio_after(interface, poses[:, 8:16], decision=1)
        assert torch.allclose(second[0], episode.proprio[3:5], atol=1e-5)


def test_commands_stop_at_the_declared_box():
    simulator, interface = pick_place(), pick_place().interface
    down = torch.tensor([0.0, -1.0, -1.0, -1.0]).expand(1, 8, 4)
    simulator.reset(starts()[:1])
    for _ in range(5):
        step = simulator.step(down)
    assert step.proprio[0, -1, :3].tolist() == pytest.approx([0.0, interface.action.low[1], interface.action.low[2]])
    assert step.proprio[0, -1, 4] == pytest.approx(5 * 8 / 80)


def test_the_camera_model_meets_the_drawn_object_and_goal():
    camera = pick_place().interface.camera
    for start in starts():
        pick_place()._load(start.simulator_state)
        pick_place()._frame()
        points = torch.tensor(np.stack([pick_place()._object(), pick_place()._goal]), dtype=torch.float32)
        expected = project(camera, points)
        for point, channel in zip(expected, (1, 2), strict=True):
            seen = torch.tensor(centroid(start.frames[0].numpy(), channel))
            assert (seen - point).abs().max() < 1.5


def test_a_start_lies_still_under_the_null_action():
    simulator = pick_place()
    null = np.array(simulator.interface.action.null, np.float32)
    for start in starts():
        simulator._load(start.simulator_state)
        simulator._mujoco.mj_kinematics(simulator._model, simulator._data)
        before = simulator._object()
        for _ in range(20):
            simulator._move(null)
        simulator._mujoco.mj_kinematics(simulator._model, simulator._data)
        assert np.abs(simulator._object() - before).max() < 1e-3


def test_a_start_depends_on_seed_role_and_index_alone():
    again = pick_place().initial_state(0, "train", 2)
    assert again.simulator_state.tobytes() == starts()[2].simulator_state.tobytes()
    assert torch.equal(again.frames, starts()[2].frames) and again.id == starts()[2].id
    ids = {pick_place().initial_state(0, role, 2).id for role in ("train", "validation", "admission", "sealed")}
    assert len(ids) == 4


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_every_task_is_solved_by_its_expert_and_not_at_the_start(path):
    simulator = build(read_config_file(path))
    for index in range(3):
        start = simulator.initial_state(1, "train", index)
        episode = simulator.demonstrate(start, Perturbation(), (0,))
        counted = episode.success[simulator.interface.success_from - 1 :]
        assert counted.any() and not episode.success[0] and episode.progress[0] < 0.5
        assert torch.equal(episode.progress == 1.0, episode.success)
        assert len(episode.frames) == simulator.interface.frames + 1
    simulator.close()


def test_a_door_opened_past_its_goal_stays_open():
    simulator = build(read_config_file(ROOT / "configs/simulator/door_open.yaml"))
    episode = simulator.demonstrate(simulator.initial_state(0, "train", 0), Perturbation(), (0,))
    first = int(episode.success.int().argmax())
    assert episode.success[first:].all() and episode.progress[-1] == 1.0
    simulator.close()


def test_beyond_needs_to_know_along_which_axis():
    values = read_yaml(PICK_PLACE)
    values["success"]["beyond"] = True
    with pytest.raises(ValueError, match="'beyond' needs one axis"):
        read_config(values, "test")


def test_an_unknown_task_is_answered_with_near_names():
    values = read_yaml(PICK_PLACE) | {"env": "pick-plase-v3"}
    with pytest.raises(ValueError, match="no task 'pick-plase-v3'; did you mean pick-place-v3"):
        build(read_config(values, "test"))


def test_an_unknown_kind_and_an_unknown_key_are_named():
    with pytest.raises(ValueError, match="did you mean 'metaworld'"):
        read_config({"kind": "metawrld"}, "here.yaml")
    with pytest.raises(ValueError, match="here.yaml: unknown key 'setle'; did you mean 'settle'"):
        read_config(read_yaml(PICK_PLACE) | {"setle": 3}, "here.yaml")


def test_a_wrong_workspace_box_is_refused_with_both_values():
    values = read_yaml(PICK_PLACE)
    values["interface"]["action"]["low"] = [0.0, 0.4, 0.05]
    with pytest.raises(ValueError, match=re.escape("low = [0.0, 0.4, 0.05], pick-place-v3 has [-0.5, 0.4, 0.05]")):
        MetaWorld(read_config(values, "test"))


def test_a_null_action_that_closes_the_gripper_is_refused():
    values = read_yaml(PICK_PLACE)
    values["interface"]["action"]["null"] = [0.0, 0.0, 0.0, 0.0]
    with pytest.raises(ValueError, match="does not hold the gripper as pick-place-v3 does"):
        MetaWorld(read_config(values, "test"))


def test_states_of_another_task_are_refused():
    foreign = replace(starts()[0], task="push")
    with pytest.raises(ValueError, match="belong to another task than 'pick-place'"):
        pick_place().reset([foreign])
    with pytest.raises(ValueError, match="a state of 3 numbers"):
        pick_place().advance(np.zeros((1, 3)), np.zeros((1, 8, 4), np.float32))


def test_a_missing_renderer_is_answered_with_the_command_that_brings_it(monkeypatch):
    monkeypatch.setenv("MUJOCO_GL", "osmesa")
    monkeypatch.setattr(drawing, "_library", lambda name: False)
    with pytest.raises(ValueError, match="sudo apt-get install -y libosmesa6.*MUJOCO_GL=egl"):
        build(read_config_file(PICK_PLACE))


def test_a_shifted_start_differs_in_the_objects_place_alone():
    state = starts()[0].simulator_state
    moved = pick_place().shifted(state, np.array([0.002, -0.001]))
    changed = np.flatnonzero(moved != state)
    assert len(changed) == 2
    np.testing.assert_allclose((moved - state)[changed], [0.002, -0.001], atol=1e-12)


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_geoms_that_are_not_drawn_are_not_missed(path, monkeypatch):
    simulator = build(read_config_file(path))
    simulator._load(simulator.initial_state(0, "view", 0).simulator_state)
    hidden = []
    rng = np.random.default_rng(0)
    for _ in range(10):
        for _ in range(8):
            simulator._move(rng.uniform(-1, 1, 4).astype(np.float32))
        frame = simulator._frame()
        hidden.append((simulator._model.geom_group == drawing.HIDDEN).sum())
        simulator._model.geom_group[:] = simulator._painter._groups
        with monkeypatch.context() as patch:
            patch.setattr(drawing.Painter, "_hide_what_is_out_of_view", lambda self: None)
            assert np.array_equal(simulator._frame(), frame)
    assert max(hidden) > 0
    simulator.close()


def test_a_sphere_beside_the_view_is_told_from_one_that_reaches_into_it():
    camera = Camera(height=64, width=64, lookat=(0, 1, 0), distance=1, azimuth=90, elevation=0, fovy=90)
    centres = np.array([[0, 2, 0], [2, 1, 0], [2, 1, 0], [0, -1, 0], [0, 1, -3.0]])
    # From the origin along y with 45 degrees to each side: (2, 1) lies 1 / sqrt(2) = 0.707 beside the right plane.
    assert drawing.View(camera).touches(centres, np.array([0, 0.7, 0.71, 0.5, 0.1])).tolist() == [
        True, False, True, False, False,
    ]  # fmt: skip

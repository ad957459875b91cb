"""Proprioception and action maps from commands alone."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from coevo.core import kinematics
from coevo.records.interface import ActionSpace, Camera, Interface

ACTION = ActionSpace(metres_per_unit=0.01, low=(-0.1, 0.0, 0.0), high=(0.1, 0.2, 0.3))
CAMERA = Camera(width=64, height=64, fovy=90.0, lookat=(0.0, 0.0, 0.0), distance=1.0, azimuth=90.0, elevation=0.0)


def test_the_commanded_position_is_the_sum_of_the_clipped_moves():
    start = torch.tensor([[0.0, 0.1, 0.1, -1.0]])
    actions = torch.tensor([[[1.0, 0.0, -0.5, 1.0], [3.0, 0.0, 0.0, 2.0]]])
    poses = kinematics.commanded_poses(ACTION, start, actions)
    expected = torch.tensor([[[0.01, 0.1, 0.095, 1.0], [0.02, 0.1, 0.095, 1.0]]])
    torch.testing.assert_close(poses, expected)


def test_the_commanded_position_stops_at_the_box_and_comes_back_at_once():
    start = torch.tensor([[0.095, 0.1, 0.1, -1.0]])
    actions = torch.tensor([[[1.0, 0, 0, 0], [1.0, 0, 0, 0], [-1.0, 0, 0, 0]]])
    assert kinematics.commanded_poses(ACTION, start, actions)[0, :, 0].tolist() == pytest.approx([0.1, 0.1, 0.09])


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**31), st.integers(1, 7))
def test_a_path_cut_in_two_is_the_same_path(seed, cut):
    source = torch.Generator().manual_seed(seed)
    actions = torch.randn(3, 8, 4, generator=source) * 2
    start = torch.tensor([[0.0, 0.1, 0.1, -1.0]]).expand(3, -1)
    whole = kinematics.commanded_poses(ACTION, start, actions)
    first = kinematics.commanded_poses(ACTION, start, actions[:, :cut])
    second = kinematics.commanded_poses(ACTION, first[:, -1], actions[:, cut:])
    assert torch.equal(whole, torch.cat([first, second], dim=1))


def test_proprioception_stands_at_the_frames_and_counts_time():
    interface = Interface(task="t", instruction="i", action=ACTION, camera=CAMERA, chunk=8, stride=4, horizon=80)
    poses = torch.arange(8.0)[None, :, None].expand(1, 8, 4)
    proprio = kinematics.proprio_after(interface, poses, decision=1)
    torch.testing.assert_close(proprio, torch.tensor([[[3, 3, 3, 3, 12 / 80], [7, 7, 7, 7, 16 / 80]]]))


def test_the_box_is_normalised_to_its_corners():
    corners = torch.tensor([[-0.1, 0.0, 0.0, -1.0], [0.1, 0.2, 0.3, 1.0], [0.0, 0.1, 0.15, 0.5]])
    expected = torch.tensor([[-1.0, -1, -1, -1], [1, 1, 1, 1], [0, 0, 0, 0.5]])
    torch.testing.assert_close(kinematics.normalised(ACTION, corners), expected)


@pytest.mark.parametrize(
    ("point", "pixel"),
    [
        ((0.0, 0.0, 0.0), (32.0, 32.0)),  # what the camera looks at is the middle
        ((0.5, 0.0, 0.0), (48.0, 32.0)),  # looking along +y, +x is to the right: focal length 32 pixels, depth 1 m
        ((0.0, 0.0, 0.5), (32.0, 16.0)),  # up is towards row 0
        ((0.5, 1.0, 0.0), (40.0, 32.0)),  # twice as far, half as much
    ],
)
def test_a_point_is_projected_where_the_camera_sees_it(point, pixel):
    assert kinematics.project(CAMERA, torch.tensor(point)).tolist() == pytest.approx(pixel, abs=1e-4)


@settings(max_examples=30, deadline=None)
@given(st.floats(-179, 179), st.floats(-85, 85), st.floats(0.3, 3.0))
def test_the_look_at_point_is_the_middle_from_everywhere(azimuth, elevation, distance):
    camera = Camera(lookat=(0.1, 0.5, 0.2), distance=distance, azimuth=azimuth, elevation=elevation)
    assert kinematics.project(camera, torch.tensor([0.1, 0.5, 0.2])).tolist() == pytest.approx([32, 32], abs=1e-3)


def test_marks_are_the_position_and_its_floor_point():
    marks = kinematics.marks(CAMERA, torch.tensor([[0.5, 0.0, 0.5]]))
    torch.testing.assert_close(marks, torch.tensor([[[48.0, 16.0], [48.0, 32.0]]]))


def test_a_map_has_its_peak_at_the_mark_and_falls_as_a_gaussian():
    drawn = kinematics.gaussians(torch.tensor([[5.5, 2.5]]), height=8, width=10, sigma=1.5)[0]
    assert drawn.shape == (8, 10) and drawn.argmax().item() == 2 * 10 + 5  # row 2, column 5: centres lie at + 0.5
    assert drawn[2, 5].item() == pytest.approx(1.0)
    assert drawn[2, 8].item() == pytest.approx(math.exp(-(3**2) / (2 * 1.5**2)))
    assert drawn[4, 5].item() == pytest.approx(math.exp(-(2**2) / (2 * 1.5**2)))

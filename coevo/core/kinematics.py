"""Proprioception and action maps from commands alone, exact in simulator and dream alike.

The commanded gripper position is the running sum of the clipped actions, clipped to the workspace box, so a dream
needs no model of proprioception (measured agreement with MetaWorld's own: 2e-7 m).
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float32
from torch import Tensor

from coevo.records.interface import ActionSpace, Camera, Interface


def commanded_poses(
    action: ActionSpace, start: Float32[Tensor, "n 4"], actions: Float32[Tensor, "n t 4"]
) -> Float32[Tensor, "n t 4"]:
    """Commanded position (metres) and gripper command after each control step, from those before the first."""
    low, high = (torch.tensor(corner, device=actions.device) for corner in (action.low, action.high))
    moves = actions.clamp(-1.0, 1.0)
    position, poses = start[:, :3], []
    for step in range(actions.shape[1]):
        position = (position + moves[:, step, :3] * action.metres_per_unit).clamp(low, high)
        poses.append(torch.cat([position, moves[:, step, 3:4]], dim=1))
    return torch.stack(poses, dim=1)


def proprio_after(
    interface: Interface, poses: Float32[Tensor, "n k 4"], decision: int
) -> Float32[Tensor, "n kf p"]:
    """Proprioception at the frames of the chunk that was decision number `decision` (from 0)."""
    at_frames = poses[:, interface.stride - 1 :: interface.stride]
    steps = torch.arange(1, interface.chunk_frames + 1, device=poses.device) * interface.stride
    time = (decision * interface.chunk + steps) / interface.horizon
    return torch.cat([at_frames, time.view(1, -1, 1).expand(len(poses), -1, -1)], dim=2)


def normalised(action: ActionSpace, poses: Float32[Tensor, "*n 4"]) -> Float32[Tensor, "*n 4"]:
    """Commanded poses with the workspace box mapped to [-1, 1]."""
    low, high = (torch.tensor(corner, device=poses.device) for corner in (action.low, action.high))
    return torch.cat([(poses[..., :3] - low) / (high - low) * 2.0 - 1.0, poses[..., 3:]], dim=-1)


def project(camera: Camera, points: Float32[Tensor, "*n 3"]) -> Float32[Tensor, "*n 2"]:
    """Pixel coordinates (column, row) of world points in metres; MuJoCo's free-camera convention."""
    azimuth, elevation = math.radians(camera.azimuth), math.radians(camera.elevation)
    forward = torch.tensor(
        [
            math.cos(elevation) * math.cos(azimuth),
            math.cos(elevation) * math.sin(azimuth),
            math.sin(elevation),
        ],
        device=points.device,
    )
    right = torch.tensor([math.sin(azimuth), -math.cos(azimuth), 0.0], device=points.device)
    up = torch.linalg.cross(right, forward)
    eye = torch.tensor(camera.lookat, device=points.device) - camera.distance * forward
    relative = points - eye
    depth = (relative @ forward).clamp_min(1e-3)
    focal = camera.height / (2.0 * math.tan(math.radians(camera.fovy) / 2.0))
    column = camera.width / 2.0 + focal * (relative @ right) / depth
    row = camera.height / 2.0 - focal * (relative @ up) / depth
    return torch.stack([column, row], dim=-1)


def marks(camera: Camera, positions: Float32[Tensor, "*n 3"]) -> Float32[Tensor, "*n 2 2"]:
    """Pixels (column, row) of positions in metres and of their floor points: where action maps have their peaks."""
    floor = torch.cat([positions[..., :2], torch.zeros_like(positions[..., 2:])], dim=-1)
    return project(camera, torch.stack([positions, floor], dim=-2))


def gaussians(
    pixels: Float32[Tensor, "*n m 2"], height: int, width: int, sigma: float
) -> Float32[Tensor, "*n m h w"]:
    """One Gaussian map (standard deviation in pixels, peak 1) per mark."""
    rows = torch.arange(height, device=pixels.device) + 0.5
    columns = torch.arange(width, device=pixels.device) + 0.5
    across = torch.exp(-((columns - pixels[..., 0:1]) ** 2) / (2 * sigma**2))
    down = torch.exp(-((rows - pixels[..., 1:2]) ** 2) / (2 * sigma**2))
    return down[..., :, None] * across[..., None, :]

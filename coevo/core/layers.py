"""What the small networks of several rooms are made of."""

from __future__ import annotations

from torch import nn

from coevo.records.interface import Camera

SHRINKS = 16
"""Pixels per cell and side after the four convolutions."""


def strided_convolutions(channels: tuple[int, int, int, int], camera: Camera) -> tuple[list[nn.Module], int]:
    """Four convolutions of stride 2 over RGB frames, flattened at the end, and the number of features that come out."""
    layers: list[nn.Module] = []
    last = 3
    for kernel, width in zip((5, 3, 3, 3), channels, strict=True):
        layers += [nn.Conv2d(last, width, kernel, 2, kernel // 2), nn.GroupNorm(8, width), nn.SiLU()]
        last = width
    return [*layers, nn.Flatten()], last * (camera.height // SHRINKS) * (camera.width // SHRINKS)

"""Whether simulator and dream answer the same calls in the same way: run before any policy is trained in a dream.

Interface errors alone turn a gain of 21 states in 144 into a loss of 29, so they are ruled out first. Both worlds are
driven with the same probe actions: each action dimension in turn, then the gripper closed.
"""

from __future__ import annotations

import torch
from jaxtyping import Float32
from torch import Tensor

from coevo.core import random
from coevo.core.protocols import Environment
from coevo.core.types import InitialState
from coevo.records.interface import Interface

PROPRIO_TOLERANCE = 1e-4
"""Metres (or command units): rounding between two sums of float32."""
RESET_TOLERANCE = 8.0
"""Mean grey levels between a start's own frame and a dream's echo of it: room for a codec's loss."""


@torch.no_grad()
def interface_faults(simulator: Environment, dream: Environment, start: InitialState) -> tuple[str, ...]:
    """One sentence for each way in which the dream's interface departs from the simulator's; empty if it agrees.

    Covers the reset echo (frame and proprioception), frames per chunk, the effect of each action dimension on
    proprioception (order, sign, scale, gripper), and whether different actions draw different frames at all.
    """
    interface = simulator.interface
    probes = probe_actions(interface)
    starts = [start] * len(probes)
    keys = random.row_keys("interface", rows=[start.id] * len(probes))  # equal noise, so only the actions differ
    real, drawn = simulator.reset(starts, keys), dream.reset(starts, keys)
    said = []
    sizes = tuple(drawn.frames.shape[2:]), tuple(real.frames.shape[2:])
    if sizes[0] != sizes[1]:
        return (f"frames are {sizes[0]} in the dream and {sizes[1]} in the simulator",)
    echo = (drawn.frames[:, -1].cpu().float() - real.frames[:, -1].cpu().float()).abs().mean().item()
    if echo > RESET_TOLERANCE:
        said.append(
            f"the dream's frame at reset is {echo:.0f} grey levels off the simulator's (colour order, flip, state?)"
        )
    if not _near(drawn.proprio[:, -1], real.proprio[:, -1]):
        said.append("proprioception at reset differs between dream and simulator (does reset echo the last command?)")
    frames, agreed = [], True
    for first in range(0, interface.horizon, interface.chunk):
        chunk = probes[:, first : first + interface.chunk]
        one, other = simulator.step(chunk), dream.step(chunk)
        if other.frames.shape != one.frames.shape:
            sizes = tuple(other.frames.shape), tuple(one.frames.shape)
            return (*said, f"a chunk gives frames {sizes[0]} in the dream and {sizes[1]} in the simulator")
        frames.append(other.frames.cpu())
        if agreed and not _near(other.proprio, one.proprio):
            agreed, names = False, ", ".join(interface.action.names)
            said.append(
                f"after the same actions ({names}) proprioception differs between dream and simulator, first in the "
                f"chunk from control step {first}"
            )
    drawn_frames = torch.cat(frames, dim=1)
    if (drawn_frames[1:] == drawn_frames[:1]).all():
        said.append("different actions draw the same frames: the actions do not reach the world model")
    return tuple(said)


def probe_actions(interface: Interface) -> Float32[Tensor, "n t a"]:
    """An episode of the null action, then one per dimension that pushes it to +1 throughout."""
    null = torch.tensor(interface.action.null, dtype=torch.float32)
    probes = null.repeat(1 + len(null), interface.horizon, 1)
    for dimension in range(len(null)):
        probes[1 + dimension, :, dimension] = 1.0
    return probes


def _near(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and bool((one.cpu() - other.cpu()).abs().max() <= PROPRIO_TOLERANCE)

"""Whether simulator and dream answer the same calls in the same way: run before any policy is trained in a dream.

Interface errors alone turn a gain of 21 states in 144 into a loss of 29, so they are ruled out first. Both worlds are
driven with the same probe actions: the null action, then each action dimension in turn. A fault is named by the mistake
that would explain it (blocks swapped, sign turned, colours exchanged), since the name is what one mends it by.
"""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float32, UInt8
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from coevo.core import random
from coevo.core.protocols import Environment
from coevo.core.types import InitialState, Observation
from coevo.records.interface import Interface

PROPRIO_TOLERANCE = 1e-4
"""Metres (or command units): rounding between two sums of float32."""
RESET_TOLERANCE = 8.0
"""Mean grey levels between a start's own frame and a dream's echo of it: room for a codec's loss."""
EXPLAINS = 0.5
"""Share of the error that must remain, at most, for a turned picture or exchanged colours to be named its cause."""
VIEWS = {
    "its rows are upside down": lambda frames: frames.flip(-3),
    "its columns are mirrored": lambda frames: frames.flip(-2),
    "it is turned by 180 degrees": lambda frames: frames.flip(-3, -2),
    "red and blue are exchanged (BGR for RGB)": lambda frames: frames.flip(-1),
}
"""Orientations and colour orders that pictures come in, and how each is undone."""


@torch.no_grad()
def interface_faults(simulator: Environment, dream: Environment, start: InitialState) -> tuple[str, ...]:
    """One sentence for each way in which the dream's interface departs from the simulator's; empty if it agrees.

    Covers episode length and early end, frames per chunk and their stride, the reset echo (frame and proprioception),
    orientation and colour order at the reset and in what is drawn, order, sign and scale of the action dimensions with
    the gripper by name, and whether different actions draw different frames at all.
    """
    interface = simulator.interface
    if dream.interface.horizon != interface.horizon:
        return (
            f"an episode has {dream.interface.horizon} control steps in the dream and {interface.horizon} in the "
            "simulator",
        )
    probes = probe_actions(interface)
    starts = [start] * len(probes)
    keys = random.row_keys("interface", rows=[start.id] * len(probes))  # equal noise, so only the actions differ
    real, drawn = simulator.reset(starts, keys), dream.reset(starts, keys)
    sizes = tuple(drawn.frames.shape[2:]), tuple(real.frames.shape[2:])
    if sizes[0] != sizes[1]:
        return (f"frames are {sizes[0]} in the dream and {sizes[1]} in the simulator",)
    said = _reset_faults(real, drawn, interface)
    pictures: list[tuple[Tensor, Tensor]] = []
    for first in range(0, interface.horizon, interface.chunk):
        chunk = probes[:, first : first + interface.chunk]
        one, other = simulator.step(chunk), dream.step(chunk)
        if fault := _shape_fault(one.frames, other.frames, first, interface):
            return (*said, fault)
        pictures.append((one.frames.cpu(), other.frames.cpu()))
        if not any("after the same actions" in fault for fault in said):
            said += _command_faults(one.proprio, other.proprio, first, interface)
    shown, made = (torch.cat(side, dim=1) for side in zip(*pictures, strict=True))
    if not any("at reset" in fault for fault in said) and (view := _view(shown[0], made[0])):
        said.append(f"the dream draws right and shows wrong: {view}")
    if (made[1:] == made[:1]).all():
        said.append("different actions draw the same frames: the actions do not reach the world model")
    return tuple(said)


def probe_actions(interface: Interface) -> Float32[Tensor, "n t a"]:
    """An episode of the null action, then one per dimension that pushes it to +1 throughout."""
    null = torch.tensor(interface.action.null, dtype=torch.float32)
    probes = null.repeat(1 + len(null), interface.horizon, 1)
    for dimension in range(len(null)):
        probes[1 + dimension, :, dimension] = 1.0
    return probes


def _reset_faults(real: Observation, drawn: Observation, interface: Interface) -> list[str]:
    """What the dream shows and reports before anything was done."""
    said = []
    shown, made = real.frames[:, -1].cpu(), drawn.frames[:, -1].cpu()
    echo = _apart(shown, made)
    if echo > RESET_TOLERANCE:
        why = _view(shown, made) or "another state, or another camera?"
        said.append(f"the dream's frame at reset is {echo:.0f} grey levels off the simulator's: {why}")
    one, other = real.proprio[:, -1].cpu(), drawn.proprio[:, -1].cpu()
    if one.shape != other.shape:
        said.append(f"proprioception at reset has {other.shape[1]} numbers in the dream, {one.shape[1]} elsewhere")
    elif not _near(one, other):
        wrong = [
            f"{name} is {theirs:.3f} for {ours:.3f}"
            for name, ours, theirs in zip(interface.proprio, one[0].tolist(), other[0].tolist(), strict=True)
            if abs(ours - theirs) > PROPRIO_TOLERANCE
        ]
        said.append(
            f"proprioception at reset differs between dream and simulator: {', '.join(wrong)} "
            "(does reset echo the last command?)"
        )
    return said


def _shape_fault(shown: Tensor, made: Tensor, first: int, interface: Interface) -> str:
    """Rows that ended or frames that are missing in one chunk; '' if there are none."""
    if made.shape[0] != shown.shape[0]:
        return (
            f"the dream ended {shown.shape[0] - made.shape[0]} of {shown.shape[0]} episodes before control step "
            f"{first + interface.chunk} of {interface.horizon}: an episode lasts to the horizon, whatever is read in it"
        )
    if made.shape != shown.shape:
        return (
            f"a chunk of {interface.chunk} control steps gives {made.shape[1]} frames of {tuple(made.shape[2:])} in "
            f"the dream and {shown.shape[1]} of {tuple(shown.shape[2:])} in the simulator: is its stride "
            f"{interface.chunk / max(made.shape[1], 1):g} for {interface.stride}?"
        )
    return ""


def _command_faults(
    real: Float32[Tensor, "n kf p"],
    drawn: Float32[Tensor, "n kf p"],
    first: int,
    interface: Interface,
) -> list[str]:
    """What the same commands did to proprioception in one chunk."""
    real, drawn = real.cpu(), drawn.cpu()
    if _near(real, drawn):
        return []
    names = interface.action.names
    where = f"after the same actions ({', '.join(names)})"
    if real.shape == drawn.shape and "time" in interface.proprio:
        time = interface.proprio.index("time")
        if not _near(real[..., time], drawn[..., time]):
            steps = [(side[0, :, time] * interface.horizon).round().int().tolist() for side in (drawn, real)]
            return [f"{where} frames stand at control steps {steps[0]} in the dream and {steps[1]} elsewhere: stride"]
    if first == 0 and real.shape == drawn.shape:
        # What each dimension does beyond the null action, one row per dimension.
        effects = [side[1:, -1] - side[:1, -1] for side in (real, drawn)]
        if why := _explained(*effects, names):
            return [f"{where} the dream moves otherwise: {why}"]
    return [
        f"{where} proprioception differs between dream and simulator, first in the chunk from control step {first}"
        + ("" if first == 0 else ": its commands do not go on from the chunk before")
    ]


def _explained(real: Float32[Tensor, "a p"], drawn: Float32[Tensor, "a p"], names: tuple[str, ...]) -> str:
    """The order, signs and scales of action dimensions that turn the simulator's effects into the dream's."""
    # Dimension i of the dream acts as some dimension j of the simulator, times a factor: the least left over decides.
    factor = drawn @ real.T / real.pow(2).sum(dim=1).clamp_min(1e-12)
    left = (drawn[:, None] - factor[..., None] * real[None]).norm(dim=2)
    order = linear_sum_assignment(left.numpy() - 1e-6 * np.eye(len(names)))[1].tolist()
    chosen = range(len(names)), order
    if not (left[chosen] <= 1e-2 * torch.minimum(drawn.norm(dim=1), real[order].norm(dim=1))).all():
        return ""
    moves = [(name, names[other]) for name, other in zip(names, order, strict=True) if name != names[other]]
    said = [f"'{name}' acts as '{other}'" for name, other in moves]
    if said:
        said[-1] += " (order of the action blocks)"
    for name, times in zip(names, factor[chosen].tolist(), strict=True):
        if times < 0:
            said.append(f"the sign of '{name}' is turned" + (" (open is closed)" if name == "gripper" else ""))
        if abs(abs(times) - 1.0) > 1e-2:
            said.append(f"'{name}' moves {abs(times):.2g} times as far")
    return ", ".join(said)


def _view(shown: UInt8[Tensor, "*f h w 3"], made: UInt8[Tensor, "*f h w 3"]) -> str:
    """The turned picture or exchanged colours that explain most of the difference; '' if none does."""
    plain = _apart(shown, made)
    undone = {name: _apart(shown, undo(made)) for name, undo in VIEWS.items()}
    best = min(undone, key=undone.get)
    return best if undone[best] < EXPLAINS * plain else ""


def _apart(one: Tensor, other: Tensor) -> float:
    return (one.float() - other.float()).abs().mean().item()


def _near(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and bool((one.cpu() - other.cpu()).abs().max() <= PROPRIO_TOLERANCE)

"""Hold a class of one's own against what the rest of the project expects of it, before any stage uses it.

    coevo check simulator my_robots.sim:MySimulator
    coevo check policy my_robots.policy:MyPolicy --options '{"width": 64}' --simulator configs/simulator/push.yaml

The class is made for the interface (action space, camera, chunk, horizon) of --simulator and driven as stages drive
it: shapes and types, randomness keyed by row, rows that do not depend on each other, weights that can be kept. Says
every fault that was found; ends with 0 only if there is none.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from coevo.core import parts, random
from coevo.core.protocols import Environment, Policy, RewardModel
from coevo.core.types import ActionChunk, InitialState, Observation, Step
from coevo.records.interface import Interface
from coevo.simulators.build import read_config_file
from coevo.simulators.rows import Rows

ROWS = 3
SIMULATOR_CALLS = ("initial_state", "advance", "demonstrate", "close", "reset", "step", "keep")


def main() -> int:
    """0 when no fault was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=CHECKS)
    parser.add_argument("target", help="package.module:Class")
    parser.add_argument("--options", type=json.loads, default={}, help="further arguments of the class, as JSON")
    parser.add_argument("--simulator", type=Path, default=Path("configs/simulator/pick_place.yaml"))
    args = parser.parse_args()
    try:
        interface = read_config_file(args.simulator).interface
        named = {} if args.kind == "simulator" else {"id": f"check/{args.kind}"}
        part = parts.make(args.target, args.options, interface=interface, **named)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    faults = list(found(CHECKS[args.kind], part, interface))
    for fault in faults:
        print(f"- {fault}")
    print(f"{args.target} {'has faults' if faults else 'can be used'} as a {args.kind} with {args.simulator}")
    return 1 if faults else 0


def found(check: Callable[[Any, Interface], Iterator[str]], part: Any, interface: Interface) -> Iterator[str]:
    """The faults that a check finds; one that keeps it from going on is the last."""
    try:
        yield from check(part, interface)
    except Exception as error:  # whatever a foreign class raises is a finding
        yield f"raised {type(error).__name__}: {error}"


def simulator(part: Any, interface: Interface) -> Iterator[str]:
    """Starts that can be made again, stateless advances, one chunk's frames, and the calls of an environment."""
    missing = [call for call in SIMULATOR_CALLS if not callable(getattr(part, call, None))]
    if missing:
        hint = "" if isinstance(part, Rows) else "; derive from coevo.simulators.rows.Rows for reset, step and keep"
        yield f"has no {', '.join(missing)}{hint}"
        return
    if getattr(part, "interface", None) != interface:
        yield "its 'interface' is not the one that it was given"
    starts = [part.initial_state(0, "train", index) for index in range(ROWS)]
    for start in starts:
        yield from _start_faults(start, interface)
    again = part.initial_state(0, "train", 1)
    if not (
        torch.equal(again.frames, starts[1].frames) and np.array_equal(again.simulator_state, starts[1].simulator_state)
    ):
        yield "initial_state gives another state the second time; draw from (seed, role, index) alone"
    if np.array_equal(starts[0].simulator_state, starts[1].simulator_state):
        yield "initial_state gives the same state for index 0 and 1"
    if len({start.id for start in starts}) < ROWS:
        yield "initial states share an id"
    states = np.stack([start.simulator_state for start in starts])
    actions = random_actions(interface, ROWS).numpy()
    together = part.advance(states, actions)
    alone = part.advance(states[1:2], actions[1:2])
    shape = (ROWS, interface.chunk_frames, interface.camera.height, interface.camera.width, 3)
    yield from _array("advance().frames", together.frames, shape, np.uint8)
    for name, kind in (("success", np.bool_), ("progress", np.float32)):
        yield from _array(f"advance().{name}", getattr(together, name), shape[:2], kind)
    for name in ("states", "frames", "success"):
        if not np.array_equal(getattr(together, name)[1], getattr(alone, name)[0]):
            yield f"advance().{name} of a row depends on rows beside it or on an earlier call; it must be stateless"
    yield from environment(part, interface, starts)


def policy(part: Any, interface: Interface) -> Iterator[str]:
    """Chunks that fit, noise keyed by row, a greedy mode, weights that can be kept, draws that can be scored again."""
    yield from _named(part, Policy, interface)
    yield from _module(part)
    seen, keys = observation(interface, ROWS), random.row_keys("check", rows=[str(row) for row in range(ROWS)])
    with torch.no_grad():
        made = part.act(seen, keys, "sampled")
        yield from _chunk_faults(made, interface)
        if not torch.equal(made.actions, part.act(seen, keys, "sampled").actions):
            yield "act gives other actions for the same keys; draw from 'keys' alone (coevo.core.random)"
        if torch.equal(made.draw, part.act(seen, keys + 1, "sampled").draw):
            yield "act draws the same whatever the keys are, so that all samples from a start are one"
        order = torch.tensor(list(reversed(range(ROWS))))
        turned = Observation(seen.frames[order], seen.proprio[order], tuple(seen.instructions[row] for row in order))
        if not torch.allclose(part.act(turned, keys[order], "sampled").actions[order], made.actions, atol=1e-4):
            yield "a row's actions depend on where it stands in the batch; noise is keyed by row, not by slot"
        if not torch.equal(part.act(seen, keys, "greedy").actions, part.act(seen, keys + 1, "greedy").actions):
            yield "greedy actions depend on the keys"
    if not callable(getattr(part, "evaluate", None)):
        yield "has no evaluate(frames, proprio, words, draw): it can be evaluated, and not trained by train_policy"
        return
    from coevo.core import text

    again, _ = part.evaluate(seen.frames[:, -1], seen.proprio[:, -1], text.words(seen.instructions), made.draw)
    if again.shape != made.log_prob.shape or not torch.allclose(again.detach(), made.log_prob, atol=1e-3):
        yield "evaluate scores a draw otherwise than act did; the ratio before the first update would not be 1"
    elif not again.requires_grad:
        yield "evaluate gives no gradient"


def reward(part: Any, interface: Interface) -> Iterator[str]:
    """Verdicts that fit each other, and episodes that do not depend on those beside them."""
    yield from _named(part, RewardModel, interface)
    yield from _module(part)
    frames = _frames(ROWS, interface.frames + 1, interface)
    said = [interface.instruction] * ROWS
    with torch.no_grad():
        read, alone = part.verdicts(frames, said), part.verdicts(frames[1:2], said[:1])
    yield from _array("verdicts().probability", read.probability, (ROWS, interface.frames + 1), torch.float32)
    yield from _array("verdicts().success", read.success, (ROWS,), torch.bool)
    yield from _array("verdicts().first_success", read.first_success, (ROWS,), torch.int64)
    if float(read.probability.min()) < 0 or float(read.probability.max()) > 1:
        yield f"probabilities reach from {float(read.probability.min()):.3g} to {float(read.probability.max()):.3g}"
    if not torch.allclose(read.probability[1:2], alone.probability, atol=1e-4):
        yield "an episode's probabilities depend on the episodes beside it"
    length = interface.frames + 1
    if bool((read.success != (read.first_success < length)).any()):
        yield f"first_success must be {length}, the number of frames, exactly where success is false"
    if bool((read.first_success < interface.success_from).any()):
        yield f"a success is read before frame {interface.success_from}, where the interface says it begins to count"


def world_model(part: Any, interface: Interface) -> Iterator[str]:
    """The calls of an environment from starts that a simulator made, and futures that differ by action."""
    yield from _module(part)
    starts = [_some_start(interface, row) for row in range(ROWS)]
    yield from environment(part, interface, starts)
    keys = random.row_keys("check", rows=["0"] * ROWS)
    drawn = []
    for sign in (-1.0, 1.0):
        part.reset(starts, keys)
        drawn.append(part.step(torch.full((ROWS, interface.chunk, len(interface.action.names)), sign)).frames)
    if torch.equal(*drawn):
        yield "opposite actions give the same frames: the action is not wired in (or the weights are still zero)"


CHECKS = {"simulator": simulator, "policy": policy, "reward": reward, "world_model": world_model}


def environment(part: Any, interface: Interface, starts: list[InitialState]) -> Iterator[str]:
    """reset, step to the horizon, keep: what one rollout does in either world."""
    if not isinstance(part, Environment):
        yield "is no Environment: reset(starts, keys), step(actions), keep(rows) and 'interface' are needed"
        return
    keys = random.row_keys("check", rows=[start.id for start in starts])
    seen = part.reset(starts, keys)
    yield from _observation_faults("reset()", seen, len(starts), interface)
    if not torch.equal(seen.frames[:, -1].cpu(), torch.stack([start.frames[-1] for start in starts])):
        echo = (
            (seen.frames[:, -1].cpu().float() - torch.stack([start.frames[-1] for start in starts]).float())
            .abs()
            .mean()
        )
        if echo > 8.0:
            yield f"the frame at reset is {echo:.0f} grey levels off the start's own"
    actions = [random_actions(interface, len(starts), decision) for decision in range(interface.decisions)]
    steps = [part.step(chunk) for chunk in actions]
    for step in steps[:1]:
        yield from _step_faults(step, len(starts), interface)
    part.reset(starts, keys)
    again = part.step(actions[0])
    if not torch.equal(again.frames, steps[0].frames):
        yield "the same start, keys and actions give other frames the second time"
    part.reset(starts, keys)
    part.keep(torch.tensor([0, 2]))
    kept = part.step(actions[0][[0, 2]])
    if kept.frames.shape[0] != 2 or not torch.allclose(kept.frames.float(), steps[0].frames[[0, 2]].float(), atol=2.0):
        yield "after keep([0, 2]) the rows are not the first and the third"


def random_actions(interface: Interface, rows: int, decision: int = 0) -> Tensor:
    """Actions f32[n k a] in [-1, 1]."""
    drawn = random.generator(0, "check actions", decision)
    return torch.rand(rows, interface.chunk, len(interface.action.names), generator=drawn) * 2 - 1


def observation(interface: Interface, rows: int) -> Observation:
    """What a policy is shown, with arbitrary content."""
    drawn = random.generator(0, "check proprio")
    proprio = torch.rand(rows, 1, len(interface.proprio), generator=drawn)
    return Observation(_frames(rows, 1, interface), proprio, (interface.instruction,) * rows)


def _frames(rows: int, count: int, interface: Interface) -> Tensor:
    shape = (rows, count, interface.camera.height, interface.camera.width, 3)
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=random.generator(0, "check frames"))


def _some_start(interface: Interface, row: int) -> InitialState:
    low, high = (torch.tensor(corner) for corner in (interface.action.low, interface.action.high))
    proprio = torch.cat([(low + high) / 2, torch.tensor([interface.action.gripper_open, 0.0])])[None]
    return InitialState(
        id=f"check/{row}", task=interface.task, instruction=interface.instruction, seed=row,
        simulator_state=np.zeros(1), frames=_frames(row + 1, 1, interface)[row],
        actions=torch.zeros(0, len(interface.action.names)), proprio=proprio[:, : len(interface.proprio)],
    )  # fmt: skip


def _start_faults(start: Any, interface: Interface) -> Iterator[str]:
    if not isinstance(start, InitialState):
        yield f"initial_state gives {type(start).__name__}, coevo.core.types.InitialState is needed"
        return
    if start.task != interface.task:
        yield f"a start's task is '{start.task}', the interface's '{interface.task}'"
    size = (interface.camera.height, interface.camera.width, 3)
    yield from _array("a start's frames", start.frames, (len(start.frames), *size), torch.uint8)
    yield from _array("a start's proprio", start.proprio, (len(start.frames), len(interface.proprio)), torch.float32)


def _observation_faults(where: str, seen: Observation, rows: int, interface: Interface) -> Iterator[str]:
    shown = seen.frames.shape[1] if seen.frames.dim() == 5 else "c"
    size = (rows, shown, interface.camera.height, interface.camera.width, 3)
    yield from _array(f"{where}: frames", seen.frames, size, torch.uint8)
    yield from _array(f"{where}: proprio", seen.proprio, (rows, shown, len(interface.proprio)), torch.float32)
    if len(seen.instructions) != rows:
        yield f"{where}: {len(seen.instructions)} instructions for {rows} rows"


def _step_faults(step: Step, rows: int, interface: Interface) -> Iterator[str]:
    count = interface.chunk_frames
    size = (rows, count, interface.camera.height, interface.camera.width, 3)
    yield from _array("step(): frames", step.frames, size, torch.uint8)
    yield from _array("step(): proprio", step.proprio, (rows, count, len(interface.proprio)), torch.float32)
    yield from _observation_faults("step()", step.observation, rows, interface)


def _chunk_faults(made: ActionChunk, interface: Interface) -> Iterator[str]:
    shape = (ROWS, interface.chunk, len(interface.action.names))
    yield from _array("act().actions", made.actions, shape, torch.float32)
    if made.actions.dim() == 3 and float(made.actions.abs().max()) > 1.0:
        yield f"actions reach {float(made.actions.abs().max()):.3g}; they lie in [-1, 1]"
    for name in ("draw", "log_prob"):
        value = getattr(made, name)
        if value.dim() != 2 or len(value) != ROWS:
            yield f"act().{name} has shape {tuple(value.shape)}, ({ROWS}, ...) is needed"


def _named(part: Any, protocol: type, interface: Interface) -> Iterator[str]:
    if not isinstance(part, protocol):
        wanted = sorted(name for name in dir(protocol) if not name.startswith("_"))
        yield f"is no {protocol.__name__}: it needs {', '.join({*wanted, 'id', 'interface'})}"
    elif part.interface != interface:
        yield "its 'interface' is not the one that it was given"


def _module(part: Any) -> Iterator[str]:
    if not isinstance(part, nn.Module):
        yield "is no torch.nn.Module: weights are read and written by state_dict"


def _array(what: str, value: Any, shape: tuple[int | str, ...], kind: Any) -> Iterator[str]:
    if tuple(value.shape) != tuple(shape):
        yield f"{what} has shape {tuple(value.shape)}, {tuple(shape)} is needed"
    if value.dtype != kind:
        yield f"{what} is {value.dtype}, {getattr(kind, '__name__', kind)} is needed"


if __name__ == "__main__":
    sys.exit(main())

"""The one rollout that drives both worlds: a simulator and a dream answer the same calls."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from coevo.core import random
from coevo.core.protocols import Environment, Monitor, Policy
from coevo.core.types import InitialState, Sampling, Step, Trajectories, Truth, take_rows
from coevo.records.interface import require_same


@torch.no_grad()
def rollout(
    environment: Environment,
    policy: Policy,
    starts: Sequence[InitialState],
    *,
    stream: Sequence[int | str],
    source: str,
    samples: Sequence[int] | None = None,
    sampling: Sampling = "sampled",
    monitor: Monitor | None = None,
) -> Trajectories:
    """Episodes of `policy` from `starts`, one row each, to the horizon or to where the monitor ends them.

    Args:
        stream: what the randomness is for, for example (seed, "collect", "i003"). A row's noise is keyed by it, its
            initial state and its sample, so neither batch size nor number of workers changes an episode.
        source: 'simulator' or 'dream'.
        samples: which repetition from its start each row is; counted per start when left out.

    Rows that end leave the batch. A start in the middle of an episode is gone on from: what was recorded before it
    fills the row up to there, or is a repetition of the first frame that is known.

    Raises ValueError if policy and environment were made for different interfaces, or if starts lie at different
    decisions.
    """
    require_same(policy.interface, policy.id, environment.interface, f"the {source}")
    interface, n = environment.interface, len(starts)
    samples = tuple(samples) if samples is not None else count_samples(starts)
    rows = [f"{start.id}#{sample}" for start, sample in zip(starts, samples, strict=True)]
    policy_keys = random.row_keys(*stream, "policy", rows=rows)
    world_keys = random.row_keys(*stream, "world", rows=rows)
    observation = environment.reset(starts, world_keys)
    if monitor is not None:
        monitor.begin(observation, starts)
    record = _Record(interface, observation, n)
    present, begun = torch.arange(n), one_decision(starts)
    if begun:
        record.fill(starts, begun)
    for decision in range(begun, interface.decisions):
        keys = random.fold(policy_keys[present], decision)
        chunk = policy.act(observation, keys, sampling)
        step = environment.step(chunk.actions)
        record.add(present, decision, chunk, step)
        done = monitor.ended(step).cpu() if monitor is not None else torch.zeros(len(present), dtype=torch.bool)
        observation = step.observation
        if done.any():
            kept = (~done).nonzero().flatten()
            present = present[kept]
            if not len(present):
                break
            environment.keep(kept)
            monitor.keep(kept)
            observation = take_rows(observation, kept)
    return record.trajectories(starts, samples, policy.id, source)


def one_decision(starts: Sequence[InitialState]) -> int:
    """Decisions taken before these starts; ValueError if they differ."""
    found = sorted({start.decision for start in starts})
    if len(found) > 1:
        raise ValueError(f"starts of one rollout lie at decisions {found}; roll out those of each by themselves")
    return found[0]


def count_samples(starts: Sequence[InitialState]) -> tuple[int, ...]:
    """0, 1, 2, ... for the rows of each start, in order."""
    seen: dict[str, int] = {}
    counted = []
    for start in starts:
        counted.append(seen.get(start.id, 0))
        seen[start.id] = counted[-1] + 1
    return tuple(counted)


class _Record:
    """Buffers of a rollout, on the device where the frames arrive; rows are written where they stand in the whole."""

    def __init__(self, interface, observation, n: int) -> None:
        self.interface, self.n = interface, n
        frames = observation.frames[:, -1:]
        height, width = frames.shape[2:4]
        self.frames = frames.new_zeros(n, interface.frames + 1, height, width, 3)
        self.frames[:, 0] = frames[:, 0]
        proprio = observation.proprio[:, -1]
        self.proprio = proprio.new_zeros(n, interface.frames + 1, proprio.shape[-1])
        self.proprio[:, 0] = proprio
        self.length = torch.zeros(n, dtype=torch.int64)
        self.columns: dict[str, Tensor] = {}

    def fill(self, starts: Sequence[InitialState], decisions: int) -> None:
        """Frames and proprioception of what was recorded before the starts."""
        count = 1 + decisions * self.interface.chunk_frames
        for row, start in enumerate(starts):
            frames, proprio = start.up_to_now(count)
            self.frames[row, :count], self.proprio[row, :count] = frames.to(self.frames), proprio.to(self.proprio)

    def add(self, present: Tensor, decision: int, chunk, step: Step) -> None:
        """Write decision number `decision` of the rows `present`."""
        per, k = self.interface.chunk_frames, self.interface.chunk
        first = 1 + decision * per
        rows = present.to(self.frames.device)
        self.frames[rows, first : first + per] = step.frames
        self.proprio[rows, first : first + per] = step.proprio
        self._write("actions", self.interface.horizon, present, decision * k, chunk.actions)
        self._write("draw", self.interface.decisions, present, decision, chunk.draw[:, None])
        self._write("log_prob", self.interface.decisions, present, decision, chunk.log_prob[:, None])
        if chunk.value is not None:
            self._write("value", self.interface.decisions, present, decision, chunk.value[:, None])
        if step.truth is not None:
            self._write("success", self.interface.frames, present, decision * per, step.truth.success)
            self._write("progress", self.interface.frames, present, decision * per, step.truth.progress)
        if step.probability is not None:
            self._write("probability", self.interface.frames, present, decision * per, step.probability)
        self.length[present] = decision + 1

    def _write(self, name: str, span: int, present: Tensor, first: int, values: Tensor) -> None:
        if name not in self.columns:
            self.columns[name] = values.new_zeros(self.n, span, *values.shape[2:])
        self.columns[name][present.to(values.device), first : first + values.shape[1]] = values

    def trajectories(self, starts, samples, policy: str, source) -> Trajectories:
        columns = self.columns
        truth = Truth(columns["success"], columns["progress"]) if "success" in columns else None
        return Trajectories(
            actions=columns["actions"], frames=self.frames, proprio=self.proprio, draw=columns["draw"],
            log_prob=columns["log_prob"], value=columns.get("value"), truth=truth,
            probability=columns.get("probability"), length=self.length, starts=tuple(starts), sample=tuple(samples),
            policy=policy, source=source, perturbation=("none",) * self.n,
        )

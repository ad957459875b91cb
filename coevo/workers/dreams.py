"""Dreams and gradients by workers that hold a policy, a world model and a reward model each.

An update's episodes are cut into shards of a fixed number of rows, and a minibatch into parts of a fixed number of
decisions, whatever the number of workers. Without Ray this process takes them one after the other; with it, actors
share them out, a GPU each where the cluster has any. Parts come back in order and gradients are summed in that order,
so on CPUs neither the number of workers nor where they run changes a bit of the result. On GPUs shapes and order are
the same too, but some of PyTorch's backward kernels add in no fixed order there, on one GPU already, so results agree
to rounding only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

import torch
from torch import Tensor

from coevo import judges
from coevo.core.artifacts import Artifact
from coevo.core.device import best_device
from coevo.core.judging import judge
from coevo.core.protocols import Environment, Judge
from coevo.core.types import InitialState, Trajectories, Verdicts, join_rows, to_device
from coevo.policies import build as policies
from coevo.rl import update
from coevo.rl.update import Gradient, Part
from coevo.rollout import count_samples, rollout
from coevo.workers import cluster
from coevo.workers.actors import Actors
from coevo.workers.crew import Here
from coevo.workers.parcels import Parcel, pack, unpacked
from coevo.worlds import build as worlds

PATIENCE_SECONDS = 1800.0
"""How long all workers may stay silent: loading models, capturing graphs, or one shard."""


@dataclass(frozen=True)
class Models:
    """What a worker holds."""

    policy: Any
    dream: Environment
    reward: Judge


class Dreamers:
    """`workers` workers where the machine chose Ray (`coevo.workers.cluster`), else this process. A context manager.

    Args:
        models: those of this process. The policy is the one in training; workers elsewhere get its weights before
            each shard and each gradient step, once a worker.
        sources: artifacts that the models of workers elsewhere are loaded from: policy, world model, reward model.
        shard_rows: episodes dreamed at a time; none takes all at once.
        end_at_success: end rows where they first read as a success, if the reward model reads single frames.
    """

    def __init__(
        self,
        models: Models,
        sources: tuple[Artifact, Artifact, Artifact],
        workers: int,
        shard_rows: int | None,
        end_at_success: bool,
    ) -> None:
        self.models, self.shard_rows, self.end_at_success = models, shard_rows, end_at_success
        self.crew: Here | Actors = _actors(sources, models.policy.id, workers) if _elsewhere(workers) else Here(models)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.crew.close()

    def roll(self, starts: Sequence[InitialState], stream: Sequence[int | str]) -> tuple[Trajectories, Verdicts]:
        """Episodes of the present policy from these starts, judged; on the policy's device."""
        samples, rows = count_samples(starts), self.shard_rows or len(starts)
        shards = [slice(first, first + rows) for first in range(0, len(starts), rows)]
        self._send_weights()
        dream = _dream_shard if isinstance(self.crew, Here) else _dream_shard_away
        made = self.crew.run(
            [(dream, starts[shard], samples[shard], tuple(stream), self.end_at_success) for shard in shards]
        )
        device = _device(self.models.policy)
        episodes, verdicts = (to_device(part, device) for part in made[0])
        for more, judged in made[1:]:
            episodes = join_rows(episodes, to_device(more, device))
            verdicts = join_rows(verdicts, to_device(judged, device))
        return episodes, verdicts

    def gradients(self, parts: Sequence[Part]) -> list[Gradient]:
        """Gradients of the present policy for the parts of a minibatch, in order."""
        if isinstance(self.crew, Here):
            return [update.gradient(self.models.policy, part) for part in parts]
        self._send_weights()
        made = self.crew.run([(_part_gradient, _moved(part, "cpu")) for part in parts])
        device = _device(self.models.policy)
        return [_gradient_on(gradient, device) for gradient in made]

    def _send_weights(self) -> None:
        if isinstance(self.crew, Actors):
            state = self.models.policy.state_dict()
            self.crew.tell(_take_weights, {name: weight.detach().cpu() for name, weight in state.items()})


def _elsewhere(workers: int) -> bool:
    return workers > 0 and cluster.chosen()


def _actors(sources: tuple[Artifact, Artifact, Artifact], id: str, workers: int) -> Actors:
    ray = cluster.connect()
    single = len([node for node in ray.nodes() if node["Alive"]]) == 1
    parcels = tuple(pack(artifact, single) for artifact in sources)
    gpus = 1.0 if ray.cluster_resources().get("GPU") else 0.0
    make = partial(_load, parcels, id, torch.get_num_threads())
    return Actors(make, workers, "dreams", PATIENCE_SECONDS, gpus=gpus)


def _device(policy) -> torch.device:
    return next(policy.parameters()).device


def _moved(part: Part, device: torch.device | str) -> Part:
    return replace(part, decisions=to_device(part.decisions, device))


def _gradient_on(gradient: Gradient, device: torch.device | str) -> Gradient:
    def moved(tensors: tuple[Tensor | None, ...]) -> tuple[Tensor | None, ...]:
        return tuple(None if tensor is None else tensor.to(device) for tensor in tensors)

    metrics = {name: value.to(device) for name, value in gradient.metrics.items()}
    return Gradient(moved(gradient.actor), moved(gradient.critic), metrics)


# --- in a worker ---


def _load(parcels: tuple[Parcel, Parcel, Parcel], id: str, threads: int) -> Models:
    torch.set_num_threads(threads)  # as many as the stage has: a sum split over another number rounds otherwise
    device = best_device()
    with unpacked(parcels[0]) as policy, unpacked(parcels[1]) as world_model, unpacked(parcels[2]) as reward:
        models = Models(policies.load(policy, device), worlds.dream(world_model, device), judges.load(reward, device))
    models.policy.id = id
    return models


def _take_weights(models: Models, weights: dict[str, Tensor]) -> None:
    models.policy.load_state_dict(weights)


def _dream_shard(
    models: Models,
    starts: Sequence[InitialState],
    samples: Sequence[int],
    stream: tuple[int | str, ...],
    end_at_success: bool,
) -> tuple[Trajectories, Verdicts]:
    """Dream and judge, while the episodes are drawn or after."""
    monitor = judges.monitor(models.reward) if end_at_success else None
    episodes = rollout(
        models.dream, models.policy, starts, samples=samples, stream=stream, source="dream", monitor=monitor
    )
    if monitor is not None:
        return episodes, monitor.verdicts()
    return episodes, judge(models.reward, episodes.seen)


def _dream_shard_away(models: Models, *arguments: Any) -> tuple[Trajectories, Verdicts]:
    episodes, verdicts = _dream_shard(models, *arguments)
    return to_device(episodes, "cpu"), to_device(verdicts, "cpu")


def _part_gradient(models: Models, part: Part) -> Gradient:
    return _gradient_on(update.gradient(models.policy, _moved(part, _device(models.policy))), "cpu")

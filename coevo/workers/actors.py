"""Workers as Ray actors, spread over the nodes of a cluster."""

from __future__ import annotations

import os
import pickle
import platform
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

from coevo.core import source
from coevo.workers import cluster
from coevo.workers.crew import Call, Progress, Replaceable

AHEAD = 2
"""Calls that lie at an actor: the one it works on, and the next, so that it need not wait for the network."""
FETCH_SECONDS = 300.0
"""How long a result that is ready may take to arrive."""
LIBRARIES = ("torch", "numpy", "diffusers", "mujoco", "metaworld")
"""Whose versions a node must share: results depend on them."""


class Actors(Replaceable):
    """`size` actors of one CPU, and `gpus` GPUs, each. One that dies or hangs is replaced, the others go on.

    Arguments and results are pickled whole, as between processes: arrays of Ray's own would arrive read-only.
    ValueError if they find no room in `cluster.wait_seconds()`, or if a node has other code or libraries than this
    process: it would compute other results.
    """

    def __init__(self, make: Callable[[], Any], size: int, what: str, patience: float, gpus: float = 0.0) -> None:
        super().__init__(what, patience)
        self._make, self._size, self._gpus = make, size, gpus
        self._ray = cluster.connect()
        self._actors: list[Any] = []
        self._told: Any = None
        self._heard: dict[Any, Any] = {}

    def close(self) -> None:
        """End the actors; none is waited for."""
        for actor in self._actors:
            self._ray.kill(actor)
        self._actors, self._heard = [], {}

    def tell(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Have every worker make this call once before its next one, also a worker that replaces another later.

        The arguments lie in the cluster's object store once, whatever the number of workers. What an earlier `tell`
        said is forgotten.
        """
        self._told = self._ray.put(pickle.dumps((function, *arguments)))
        self._heard = {}

    def pids(self) -> list[int]:
        """Process ids of the workers that were started, each on its own node."""
        return self._ray.get([actor.pid.remote() for actor in self._actors], timeout=self.patience)

    def _attempt(self, calls: Sequence[Call], results: dict[int, Any], report: Progress) -> str | None:
        self._start_missing()
        ray, fault = self._ray, None
        waiting = deque(index for index in range(len(calls)) if index not in results)
        sent: dict[Any, tuple[int, Any]] = {}
        while True:
            for depth in range(1, AHEAD + 1):  # one for everybody before a second for anybody
                for actor in self._actors:
                    if waiting and sum(other == actor for _, other in sent.values()) < depth:
                        index = waiting.popleft()
                        sent[actor.call.remote(pickle.dumps(calls[index]), self._after(actor))] = index, actor
            if not sent:
                return fault
            done, _ = ray.wait(list(sent), num_returns=1, timeout=self.patience)
            if not done:
                for actor in {id(actor): actor for _, actor in sent.values()}.values():
                    self._drop(actor)
                sent.clear()
                fault = f"no worker answered for {self.patience:.0f} s"
            for ref in done:
                index, actor = sent.pop(ref)
                try:
                    results[index] = pickle.loads(ray.get(ref, timeout=FETCH_SECONDS))
                except ray.exceptions.RayError as error:
                    own = _own_fault(error, ray.exceptions.RayTaskError)
                    if not isinstance(own, ray.exceptions.RayError):
                        raise own from error
                    # The calls that lie at it fail in the same way, and all of them are due again.
                    fault = f"a worker died ({type(own).__name__})"
                    self._drop(actor)
                else:
                    report(len(results), len(calls))

    def _mend(self) -> None:
        """Nothing more: a dead or silent actor has been dropped, and those that live are kept."""

    def _after(self, actor: Any) -> Any:
        """What the actor's next call waits for: that it has heard what was told. If that fails, so does the call."""
        if self._told is not None and actor not in self._heard:
            self._heard[actor] = actor.hear.remote(self._told)
        return self._heard.get(actor)

    def _drop(self, actor: Any) -> None:
        if actor in self._actors:
            self._actors.remove(actor)
            self._heard.pop(actor, None)
            self._ray.kill(actor)

    def _start_missing(self) -> None:
        ray, wait = self._ray, cluster.wait_seconds()
        kind = ray.remote(Worker).options(num_cpus=1, num_gpus=self._gpus, scheduling_strategy="SPREAD", max_restarts=0)
        new = [kind.remote(self._make) for _ in range(self._size - len(self._actors))]
        started = {actor.fingerprint.remote(): actor for actor in new}
        if not new:
            return
        ready, late = ray.wait(list(started), num_returns=len(new), timeout=min(wait, 20.0))
        if late and wait > 20.0:
            cluster.say(f"{self.what}: waiting for {self._sought(len(late))} to start; {cluster.room(ray)}")
            ready, late = ray.wait(list(started), num_returns=len(new), timeout=wait - 20.0)
        have = cluster.room(ray)
        for ref in late:
            ray.kill(started[ref])
        if late and not self._actors:
            for ref in ready:
                ray.kill(started[ref])
            raise ValueError(
                f"{self.what}: waited {wait:.0f} s for {self._sought(len(new))}, {len(late)} did not start; {have}. "
                f"Ask for fewer workers in the parameters, add nodes, or wait longer ({cluster.WAIT}=SECONDS)"
            )
        if late:
            cluster.say(f"{self.what}: goes on with {len(late)} workers fewer; {have}")
        try:
            for ref in ready:
                self._require_same_code(ray.get(ref, timeout=FETCH_SECONDS))
        except BaseException:
            for actor in new:
                ray.kill(actor)
            raise
        self._actors += [started[ref] for ref in ready]

    def _sought(self, count: int) -> str:
        gpu = f" and {self._gpus:g} GPU" if self._gpus else ""
        return f"{count} {'worker' if count == 1 else 'workers'} of 1 CPU{gpu} each"

    def _require_same_code(self, theirs: dict[str, str]) -> None:
        ours = fingerprint(self._make)
        for name, own in ours.items():
            if theirs[name] != own:
                raise ValueError(
                    f"{self.what}: node {theirs['node']} has {name} {theirs[name]}, this process {own}; results would "
                    "depend on the node. Install the same on all of them"
                )


def _own_fault(error: Exception, wrapper: type[Exception]) -> Exception:
    """The call's own fault, without Ray's wrapping: one layer for the call, one for what it was told before."""
    while isinstance(error, wrapper) and error.cause is not None:
        error = error.cause
    return error


class Worker:
    """What runs in an actor."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make, self._held = make, []

    def fingerprint(self) -> dict[str, str]:
        """Code and versions of this node, and its name."""
        return fingerprint(self._make) | {"node": platform.node()}

    def pid(self) -> int:
        """This worker's process."""
        return os.getpid()

    def call(self, packed: bytes, _heard: None) -> bytes:
        """Answer one call."""
        function, *arguments = pickle.loads(packed)
        return pickle.dumps(function(self._made(), *arguments))

    def hear(self, packed: bytes) -> None:
        """Make one call for its effect on what is held."""
        function, *arguments = pickle.loads(packed)
        function(self._made(), *arguments)

    def _made(self) -> Any:
        # Made at the first call, whose caller then sees what is wrong with it.
        if not self._held:
            self._held.append(self._make())
        return self._held[0]


def fingerprint(make: Callable[[], Any]) -> dict[str, str]:
    """What decides a result beside the inputs: the code behind `make`, and the libraries that calculate and draw."""
    function = make.func if isinstance(make, partial) else make
    versions = {name: version(name) for name in LIBRARIES if find_spec(name) is not None}
    return dict.fromkeys(LIBRARIES, "none") | versions | {"code": source.source_sha256(function.__module__)[:12]}

"""Filtered behaviour cloning: a policy learns from its own successes in the simulator, and dreams nothing.

The baseline that reinforcement learning on the same episodes has to beat.
"""

from __future__ import annotations

from dataclasses import dataclass

from coevo.core import artifacts, stage
from coevo.core.artifacts import Artifact
from coevo.core.checkpoints import Checkpoint
from coevo.core.device import best_device
from coevo.core.stage import Result, Run
from coevo.episodes import store
from coevo.episodes.arrays import EpisodeArrays, Filler
from coevo.policies import build, cloning
from coevo.policies.config import Cloning
from coevo.records.base import Config
from coevo.records.interface import require_same


@dataclass(frozen=True)
class Inputs:
    policy: Artifact = stage.artifact("policy", "the policy to go on from")
    episodes: tuple[Artifact, ...] = stage.artifact_list("episodes", "whose successes are cloned")


class Params(Config):
    """How the successes are cloned."""

    cloning: Cloning = Cloning(steps=500, learning_rate=3e-4)


def clone_successes(inputs: Inputs, params: Params, run: Run) -> Result:
    """Behaviour cloning from the policy's weights on the successful episodes of all sources."""
    policy = build.load(inputs.policy, best_device())
    arrays = _successes(inputs, policy)

    def report(step: int, loss: float) -> None:
        run.log(step=step, **{"clone_successes/loss": loss})
        run.progress("cloning", step, params.cloning.steps, f"loss {loss:.4f}")

    checkpoint = Checkpoint(run.scratch / "cloning.pt")
    cloning.clone_episodes(policy, params.cloning, arrays, run.seed, report, checkpoint)
    build.save(policy, run.folder)
    behind, uncounted = artifacts.simulator_episodes([inputs.policy, *inputs.episodes], inputs.policy)
    metrics = dict(
        outcome="cloned", successes=len(arrays), simulator_episodes=0, simulator_episodes_in_all=behind,
        uncounted_sources=uncounted,
    )
    return Result("policy", metrics, sorted(set(arrays.states)))


def _successes(inputs: Inputs, policy) -> EpisodeArrays:
    """The successful episodes of all sources; ValueError if there are none."""
    sets = [store.read_episodes(source.path) for source in inputs.episodes]
    for source, episodes in zip(inputs.episodes, sets, strict=True):
        require_same(policy.interface, inputs.policy.id, episodes.interface, source.id)
    chosen = [[row for row in episodes.rows if row.success] for episodes in sets]
    total = sum(len(rows) for rows in chosen)
    if not total:
        names = ", ".join(source.id for source in inputs.episodes) or "no episodes"
        raise ValueError(f"there is no success to clone in {names}; collect more, or from a policy that succeeds")
    longest = max(row.frames for rows in chosen for row in rows)
    filler = Filler(policy.interface, total, longest, sets[0].size)
    first = 0
    for episodes, rows in zip(sets, chosen, strict=True):
        episodes.fill(filler, [row.index for row in rows], range(first, first + len(rows)))
        first += len(rows)
    return filler.arrays()


if __name__ == "__main__":
    stage.main(clone_successes)

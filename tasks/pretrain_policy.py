"""Clone the scripted expert: the policy that reinforcement learning starts from (SFT)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pydantic import PositiveInt

from coevo.core import stage
from coevo.core.artifacts import Artifact
from coevo.core.checkpoints import Checkpoint
from coevo.core.device import best_device
from coevo.core.stage import Result, Run
from coevo.episodes import store
from coevo.policies import build, cloning
from coevo.policies.config import Cloning
from coevo.records.base import Config


@dataclass(frozen=True)
class Inputs:
    demonstrations: Artifact = stage.artifact("episodes", "episodes of the expert")
    config: Path = stage.config_file("policy configuration, a file of configs/policy")


class Params(Config):
    """How the policy is cloned."""

    episodes: PositiveInt | None = None
    """Successful demonstrations to use, the first so many; none uses all."""
    cloning: Cloning = Cloning()


def pretrain_policy(inputs: Inputs, params: Params, run: Run) -> Result:
    """Behaviour cloning on the successful demonstrations, one training row per decision."""
    episodes = store.read_episodes(inputs.demonstrations.path)
    interface = episodes.interface
    rows = [row.index for row in episodes.rows if row.success][: params.episodes]
    wanted = params.episodes or 1
    if len(rows) < wanted:
        raise ValueError(
            f"{inputs.demonstrations.id} holds {len(rows)} successful demonstrations, {wanted} are needed; "
            "collect more, or lower 'episodes' in the section pretrain_policy"
        )
    arrays = episodes.arrays(rows)
    device = best_device()
    policy = build.build(build.read_config_file(inputs.config), interface, run.seed)
    policy = policy.to(device)

    def report(step: int, loss: float) -> None:
        run.log(step=step, **{"pretrain_policy/loss": loss})
        run.progress("cloning", step, params.cloning.steps, f"loss {loss:.4f}")

    checkpoint = Checkpoint(run.scratch / "cloning.pt")
    cloning.clone_episodes(policy, params.cloning, arrays, run.seed, report, checkpoint)
    build.save(policy, run.folder)
    return Result("policy", {"outcome": "cloned", "demonstrations": len(rows)}, sorted(set(arrays.states)))


if __name__ == "__main__":
    stage.main(pretrain_policy)

"""A model that was made elsewhere, verified and taken in as what a loop starts from; its lineage comes along."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from coevo.core import models, stage
from coevo.core.artifacts import Artifact
from coevo.core.stage import Result, Run
from coevo.records.base import Config
from coevo.records.interface import require_same
from coevo.simulators.build import read_config_file


@dataclass(frozen=True)
class Inputs:
    """Exactly one of the models."""

    policy: Artifact | None = stage.artifact("policy", "a policy to take in", optional=True)
    world_model: Artifact | None = stage.artifact("world_model", "a world model to take in", optional=True)
    reward: Artifact | None = stage.artifact("reward_model", "a reward model to take in", optional=True)
    simulator: Path | None = stage.config_file("the simulator that it must have been made for", optional=True)


class Params(Config):
    """Nothing to choose."""


def import_start(inputs: Inputs, params: Params, run: Run) -> Result:
    """Copy the payload. What the model's ancestors saw stays known, so that a leak is found as if all was made here."""
    given = [model for model in (inputs.policy, inputs.world_model, inputs.reward) if model is not None]
    if len(given) != 1:
        raise ValueError(f"{len(given)} models were given; give one of --policy, --world-model, --reward")
    if inputs.simulator is not None:
        _require_made_for(given[0], inputs.simulator)
    for entry in given[0].manifest.files:
        target = run.folder / entry.path
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(given[0].path / entry.path, target)
    return Result(given[0].manifest.kind, metrics=dict(given[0].manifest.metrics))


def _require_made_for(model: Artifact, simulator: Path) -> None:
    """ValueError if the model belongs to another simulator, with the command that makes one for this."""
    interface = models.interface_of(model)
    try:
        require_same(interface, str(model.path), read_config_file(simulator).interface, str(simulator))
    except ValueError as error:
        raise ValueError(
            f"{error}\nThe weights that ship are for pick_place. Make those of {simulator.stem} with "
            f"'python -m scripts.make_start_weights --task {simulator.stem} --out weights' ('Another task' in "
            "docs/pipeline.md)"
        ) from None


if __name__ == "__main__":
    stage.main(import_start)

"""Fine-tune a world model on the round's mixture: the failure mix first, later the evolved policy's own rollouts."""

from __future__ import annotations

from dataclasses import dataclass

from coevo.core import stage
from coevo.core.artifacts import Artifact
from coevo.core.device import best_device
from coevo.core.stage import Result, Run
from coevo.episodes import dataset as datasets
from coevo.records.base import Config
from coevo.records.interface import require_same
from coevo.worlds import build, fitting
from coevo.worlds.config import Form, WorldTraining


@dataclass(frozen=True)
class Inputs:
    dataset: Artifact = stage.artifact("dataset", "episodes and their mixture")
    world_model: Artifact = stage.artifact("world_model", "the world model to start from")


class Params(Config):
    """How the world model is fine-tuned."""

    training: WorldTraining
    form: Form = Form()
    """Changes of the parent's configuration."""


def train_world_model(inputs: Inputs, params: Params, run: Run) -> Result:
    """Flow matching on windows of the dataset's mixture, from the parent's weights; the codec stays as it is.

    With `form` the model goes on in another form: a longer history, a reward head, features.
    """
    data = datasets.read_dataset(inputs.dataset)
    model = build.load(inputs.world_model, best_device(), params.form, run.seed)
    require_same(model.interface, inputs.world_model.id, data.interface, inputs.dataset.id)
    model.id = run.id
    arrays = data.arrays("train")
    fitting.fit(model, arrays, data.weights("train"), params.training, run)
    build.save(model, run.folder)
    return Result("world_model", {"steps": params.training.steps}, sorted(set(arrays.states)))


if __name__ == "__main__":
    stage.main(train_world_model)

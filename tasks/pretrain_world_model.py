"""Train a world model from nothing: first its codec where it has one, then the transformer."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from coevo.core import stage
from coevo.core.artifacts import Artifact
from coevo.core.checkpoints import Checkpoint
from coevo.core.device import best_device
from coevo.core.stage import Result, Run
from coevo.episodes import dataset as datasets
from coevo.records.base import Config, read_yaml
from coevo.worlds import build, fitting
from coevo.worlds.codec_training import train_codec
from coevo.worlds.config import ConvCodec, WorldModelConfig, WorldTraining


@dataclass(frozen=True)
class Inputs:
    dataset: Artifact = stage.artifact("dataset", "episodes and their mixture")
    config: Path = stage.config_file("world model configuration, a file of configs/world_model")
    codec: Artifact | None = stage.artifact("world_model", "take the codec from this world model", optional=True)


class Params(Config):
    """How the world model is trained."""

    training: WorldTraining
    half_precision: bool = False
    """Store weights in bfloat16, half the size."""


def pretrain_world_model(inputs: Inputs, params: Params, run: Run) -> Result:
    """Codec, then flow matching on windows of the dataset's mixture."""
    data = datasets.read_dataset(inputs.dataset)
    config = WorldModelConfig.parse(read_yaml(inputs.config), str(inputs.config))
    model = build.make(config, data.interface, run.seed, run.id)
    device = best_device()
    arrays = data.arrays("train")
    if inputs.codec is not None:
        model.codec.load_state_dict(build.load(inputs.codec).codec.state_dict())
    elif isinstance(config.codec, ConvCodec):
        model.codec.to(device)

        def report_codec(step: int, loss: float) -> None:
            run.log(step=step, **{"codec/loss": loss})
            run.progress("codec", step, config.codec.steps, f"loss {loss:.4f}")

        checkpoint = Checkpoint(run.scratch / "codec.pt")
        train_codec(model.codec, config.codec, arrays.frames.flatten(0, 1), run.seed, report_codec, checkpoint)
    fitting.fit(model.on(device), arrays, data.weights("train"), params.training, run)
    build.save(model, run.folder, torch.bfloat16 if params.half_precision else torch.float32)
    return Result("world_model", {"steps": params.training.steps}, sorted(set(arrays.states)))


if __name__ == "__main__":
    stage.main(pretrain_world_model)

"""Whatever judges episodes: a reward model of frames, or a world model's own head with the world model in it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import nn

from coevo.core import artifacts, models
from coevo.core.artifacts import Artifact
from coevo.core.protocols import Judge
from coevo.records.base import Config
from coevo.records.outcomes import Calibration
from coevo.rewards import build as rewards
from coevo.rewards.config import WorldModelHeadConfig
from coevo.rewards.ending import Ending, FirstSuccess, FrameReader, OwnHead
from coevo.rewards.own_head import OwnHeadReward
from coevo.worlds.config import WorldModelConfig

if TYPE_CHECKING:
    from coevo.worlds.reading import HeadReader

ORIGIN = "world_model.json"


class Origin(Config):
    """The world model whose head a reward is; its weights and interface lie beside this record."""

    id: str
    sha256: str
    """Of its manifest."""
    config: WorldModelConfig


def load(artifact: Artifact, device: str | torch.device = "cpu") -> Judge:
    """The frozen reward model of an artifact; refused when its weights are not those that were calibrated."""
    if not (artifact.path / ORIGIN).exists():
        return rewards.load(artifact, device)
    # Video transformers take seconds to import, which readers of frames need not wait for.
    from coevo.worlds import build as worlds
    from coevo.worlds.reading import HeadReader

    config, interface, state = models.read(artifact, WorldModelHeadConfig)
    origin = Origin.parse(json.loads((artifact.path / ORIGIN).read_text()), f"{artifact.path}/{ORIGIN}")
    model = worlds.restore(origin.config, interface, state, origin.id).on(device)
    reward = _own_head(config, HeadReader(model), origin.id, origin.sha256, artifact.id)
    reward.calibration = Calibration.model_validate_json((artifact.path / rewards.CALIBRATION).read_text())
    rewards.require_calibrated(artifact, reward.calibration)
    return reward


def own_head(world_model: Artifact, config: WorldModelHeadConfig, device: str | torch.device = "cpu") -> OwnHeadReward:
    """The head of a world model, not yet calibrated. ValueError if it has none."""
    from coevo.worlds import build as worlds
    from coevo.worlds.reading import HeadReader

    reader = HeadReader(worlds.load(world_model, device))
    return _own_head(config, reader, world_model.id, world_model.manifest.sha256, "reward")


def save(reward: nn.Module | OwnHeadReward, folder: Path, source: Artifact | None = None) -> str:
    """Write a reward model's files; returns the hash of its weights, which the calibration names.

    Args:
        source: for a world model's head, the artifact that it came from: the world model, or an earlier reward model.
            Its files are taken over to the byte.
    """
    if not isinstance(reward, OwnHeadReward):
        return rewards.save_weights(reward, folder)
    for name in (models.INTERFACE, models.WEIGHTS):
        shutil.copyfile(source.path / name, folder / name)
    origin = Origin(id=reward.world_model, sha256=reward.world_model_sha256, config=reward.read.model.config)
    (folder / ORIGIN).write_text(origin.model_dump_json(indent=1) + "\n")
    (folder / models.CONFIG).write_text(reward.config.model_dump_json(indent=1) + "\n")
    return artifacts.file_sha256(folder / models.WEIGHTS)


def monitor(reward: Judge) -> Ending | None:
    """What ends dreamed rows where they first read as a success; none for a reward that reads whole episodes only."""
    if isinstance(reward, OwnHeadReward):
        return OwnHead(reward.interface, reward.calibration, reward.id)
    return FirstSuccess(reward) if isinstance(reward, FrameReader) else None


def require_own(reward: Judge, world_model: Artifact) -> None:
    """Raise ValueError if the reward is the head of another world model than the one that draws."""
    if isinstance(reward, OwnHeadReward) and reward.world_model_sha256 != world_model.manifest.sha256:
        raise ValueError(
            f"{reward.id} is the head of {reward.world_model} ({reward.world_model_sha256[:12]}), and "
            f"{world_model.id} ({world_model.manifest.sha256[:12]}) would draw; a threshold holds for the head that it "
            f"was found for: run calibrate_reward with --world-model for {world_model.id}"
        )


def _own_head(
    config: WorldModelHeadConfig, reader: HeadReader, world_model: str, sha256: str, id: str
) -> OwnHeadReward:
    interface = reader.model.interface
    window = 1 + reader.model.config.history + interface.chunk_frames
    return OwnHeadReward(config, interface, reader, world_model, sha256, window, id)

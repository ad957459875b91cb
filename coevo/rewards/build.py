"""Reward models to and from artifact folders."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from coevo.core import artifacts, models, parts, random
from coevo.core.artifacts import Artifact
from coevo.core.parts import PythonPart
from coevo.records.base import parse_kind
from coevo.records.interface import Interface
from coevo.records.outcomes import Calibration
from coevo.rewards.classifier import FrameClassifier
from coevo.rewards.config import FrameClassifierConfig, ResNetConfig, WindowConfig, WorldModelHeadConfig, kinds

RewardConfig = FrameClassifierConfig | ResNetConfig | WindowConfig | WorldModelHeadConfig | PythonPart
"""Discriminated by `kind`."""

CALIBRATION = "calibration.json"

KINDS: dict[str, type[RewardConfig]] = {**kinds(), "python": PythonPart}


def read_config(values: dict[str, Any], where: str) -> RewardConfig:
    """Validate the content of a file in configs/reward; ValueError says where and what is wrong."""
    return parse_kind(KINDS, values, "frame_classifier", "reward model", where)


def build(config: RewardConfig, interface: Interface, seed: int, id: str = "reward") -> nn.Module:
    """A reward model with weights initialised from `seed`."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(random.key(seed, "reward weights") % 2**63)
        return _make(config, interface, id)


def save_weights(model: nn.Module, folder: Path) -> str:
    """Write config, interface and weights; returns the hash of the weights, which the calibration names."""
    models.save(folder, model.config, model.interface, _kept(model))
    return artifacts.file_sha256(folder / models.WEIGHTS)


def load(artifact: Artifact, device: str | torch.device = "cpu") -> nn.Module:
    """The frozen reward model of an artifact; refused when its weights are not those that were calibrated."""
    folder = artifact.path
    values = json.loads((folder / models.CONFIG).read_text())
    config, interface, state = models.read(artifact, type(read_config(values, f"{folder}/{models.CONFIG}")))
    model = _make(config, interface, artifact.id)
    if isinstance(config, WindowConfig):
        model.load_kept(state)
    else:
        model.load_state_dict(state)
    model.calibration = Calibration.model_validate_json((folder / CALIBRATION).read_text())
    require_calibrated(artifact, model.calibration)
    return model.to(device).eval().requires_grad_(False)


def require_calibrated(artifact: Artifact, calibration: Calibration) -> None:
    """Raise ValueError if the weights of an artifact are not those that were calibrated."""
    if calibration.weights_sha256 != artifacts.file_sha256(artifact.path / models.WEIGHTS):
        raise ValueError(f"{artifact.id} was calibrated with other weights than it holds; run calibrate_reward again")


def _kept(model: nn.Module) -> dict[str, Tensor]:
    return model.kept() if isinstance(model.config, WindowConfig) else model.state_dict()


def _make(config: RewardConfig, interface: Interface, id: str) -> nn.Module:
    if isinstance(config, PythonPart):
        model = parts.make(config.target, config.options, interface=interface, id=id)
        model.config = config  # what `save_weights` writes beside the weights
        return model
    if isinstance(config, WorldModelHeadConfig):
        raise ValueError(f"{id} is a world model's own head, which needs that world model: see coevo.judges")
    if isinstance(config, FrameClassifierConfig | ResNetConfig):
        return FrameClassifier(config, interface, id)
    # Vision-language models take seconds to import, which stages with a classifier need not wait for.
    from coevo.rewards import windowed

    made = {
        "topreward": windowed.TopReward,
        "dense_progress": windowed.DenseProgress,
        "completion": windowed.Completion,
    }
    return made[config.kind](config, interface, id)

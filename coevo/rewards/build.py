"""Reward models to and from artifact folders."""

from __future__ import annotations

from pathlib import Path

import torch

from coevo.core import artifacts, models, parts, random
from coevo.core.artifacts import Artifact
from coevo.core.parts import PythonPart
from coevo.core.protocols import RewardModel
from coevo.records.interface import Interface
from coevo.records.outcomes import Calibration
from coevo.rewards.classifier import FrameClassifier
from coevo.rewards.config import FrameClassifierConfig

RewardConfig = FrameClassifierConfig | PythonPart
"""Discriminated by `kind`."""


def build(config: RewardConfig, interface: Interface, seed: int, id: str = "reward") -> RewardModel:
    """A reward model with weights initialised from `seed`."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(random.key(seed, "reward weights") % 2**63)
        return _make(config, interface, id)


def save_weights(model: RewardModel, folder: Path) -> str:
    """Write config, interface and weights; returns the hash of the weights, which the calibration names."""
    models.save(folder, model.config, model.interface, model.state_dict())
    return artifacts.file_sha256(folder / models.WEIGHTS)


def load(artifact: Artifact, device: str | torch.device = "cpu") -> RewardModel:
    """The frozen reward model of an artifact; refused when its weights are not those that were calibrated."""
    folder = artifact.path
    config, interface, state = models.read(artifact, parts.settings_type(artifact, FrameClassifierConfig))
    model = _make(config, interface, artifact.id)
    model.load_state_dict(state)
    model.calibration = Calibration.model_validate_json((folder / "calibration.json").read_text())
    if model.calibration.weights_sha256 != artifacts.file_sha256(folder / models.WEIGHTS):
        raise ValueError(f"{artifact.id} was calibrated with other weights than it holds; run calibrate_reward again")
    return model.to(device).eval().requires_grad_(False)


def _make(config: RewardConfig, interface: Interface, id: str) -> RewardModel:
    if isinstance(config, PythonPart):
        model = parts.make(config.target, config.options, interface=interface, id=id)
        model.config = config  # what `save_weights` writes beside the weights
        return model
    return FrameClassifier(config, interface, id)

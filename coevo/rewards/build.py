"""Reward models to and from artifact folders."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from coevo.core import artifacts, random
from coevo.core.artifacts import Artifact
from coevo.records.interface import Interface
from coevo.records.outcomes import Calibration
from coevo.rewards.classifier import FrameClassifier
from coevo.rewards.config import FrameClassifierConfig

WEIGHTS = "weights.safetensors"


def build(config: FrameClassifierConfig, interface: Interface, seed: int, id: str = "reward") -> FrameClassifier:
    """A reward model with weights initialised from `seed`."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(random.key(seed, "reward weights") % 2**63)
        return FrameClassifier(config, interface, id)


def save_weights(model: FrameClassifier, folder: Path) -> str:
    """Write config, interface and weights; returns the hash of the weights, which the calibration names."""
    (folder / "config.json").write_text(model.config.model_dump_json(indent=1) + "\n")
    (folder / "interface.json").write_text(model.interface.model_dump_json(indent=1) + "\n")
    save_file({name: value.detach().cpu().contiguous() for name, value in model.state_dict().items()}, folder / WEIGHTS)
    return artifacts.file_sha256(folder / WEIGHTS)


def load(artifact: Artifact, device: str | torch.device = "cpu") -> FrameClassifier:
    """The frozen reward model of an artifact; refused when its weights are not those that were calibrated."""
    folder = artifact.path
    config = FrameClassifierConfig.parse(json.loads((folder / "config.json").read_text()), str(folder))
    interface = Interface.parse(json.loads((folder / "interface.json").read_text()), str(folder))
    model = FrameClassifier(config, interface, artifact.id)
    model.load_state_dict(load_file(folder / WEIGHTS))
    model.calibration = Calibration.model_validate_json((folder / "calibration.json").read_text())
    if model.calibration.weights_sha256 != artifacts.file_sha256(folder / WEIGHTS):
        raise ValueError(f"{artifact.id} was calibrated with other weights than it holds; run calibrate_reward again")
    return model.to(device).eval().requires_grad_(False)

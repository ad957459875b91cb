"""World models to and from artifact folders."""

from __future__ import annotations

from pathlib import Path

import torch

from coevo.core import models, parts
from coevo.core.artifacts import Artifact
from coevo.core.parts import PythonPart
from coevo.core.protocols import Environment
from coevo.worlds.config import WorldModelConfig
from coevo.worlds.dream import Dream
from coevo.worlds.world_model import WorldModel


def save(model: WorldModel, folder: Path, dtype: torch.dtype = torch.float32) -> None:
    """Write config.json, interface.json and weights.safetensors."""
    models.save(folder, model.config, model.interface, model.state_dict(), dtype)


def load(artifact: Artifact, device: str | torch.device = "cpu") -> WorldModel:
    """The world model of an artifact, in evaluation mode, float32."""
    config, interface, state = models.read(artifact, WorldModelConfig)
    model = WorldModel(config, interface, artifact.id)
    model.load_state_dict({name: value.float() for name, value in state.items()})
    return model.on(device).eval()


def dream(artifact: Artifact, device: str | torch.device = "cpu") -> Environment:
    """The world model of an artifact as an environment; a user's class is one by itself."""
    if parts.settings_type(artifact, WorldModelConfig) is PythonPart:
        config, interface, state = models.read(artifact, PythonPart)
        world = parts.make(config.target, config.options, interface=interface, id=artifact.id)
        world.load_state_dict(state)
        return world.to(device).eval()
    return Dream(load(artifact, device))

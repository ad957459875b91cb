"""World models to and from artifact folders."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from coevo.core.artifacts import Artifact
from coevo.records.interface import Interface
from coevo.worlds.config import WorldModelConfig
from coevo.worlds.world_model import WorldModel


def save(model: WorldModel, folder: Path, dtype: torch.dtype = torch.float32) -> None:
    """Write config.json, interface.json and weights.safetensors."""
    (folder / "config.json").write_text(model.config.model_dump_json(indent=1) + "\n")
    (folder / "interface.json").write_text(model.interface.model_dump_json(indent=1) + "\n")
    state = {name: value.detach().to("cpu", dtype).contiguous() for name, value in model.state_dict().items()}
    save_file(state, folder / "weights.safetensors")


def load(artifact: Artifact, device: str | torch.device = "cpu") -> WorldModel:
    """The world model of an artifact, in evaluation mode, float32."""
    config = WorldModelConfig.parse(json.loads((artifact.path / "config.json").read_text()), str(artifact.path))
    interface = Interface.parse(json.loads((artifact.path / "interface.json").read_text()), str(artifact.path))
    model = WorldModel(config, interface, artifact.id)
    state = load_file(artifact.path / "weights.safetensors")
    model.load_state_dict({name: value.float() for name, value in state.items()})
    return model.to(device).eval()

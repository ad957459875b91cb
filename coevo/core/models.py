"""A model in an artifact folder: its configuration, the interface it was made for, its weights."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from coevo.core.artifacts import Artifact
from coevo.records.base import Config
from coevo.records.interface import Interface

CONFIG, INTERFACE, WEIGHTS = "config.json", "interface.json", "weights.safetensors"
FILES = (CONFIG, INTERFACE, WEIGHTS)

Settings = TypeVar("Settings", bound=Config)


def save(
    folder: Path, config: Config, interface: Interface, state: Mapping[str, Tensor], dtype: torch.dtype | None = None
) -> None:
    """Write the three files; weights as they are, or as `dtype`."""
    for name, record in ((CONFIG, config), (INTERFACE, interface)):
        (folder / name).write_text(record.model_dump_json(indent=1) + "\n")
    kept = {name: value.detach().to("cpu", dtype or value.dtype).contiguous() for name, value in state.items()}
    save_file(kept, folder / WEIGHTS)


def read(artifact: Artifact, kind: type[Settings]) -> tuple[Settings, Interface, dict[str, Tensor]]:
    """Configuration, interface and weights of an artifact. ValueError names the artifact, the key and the value."""
    config = kind.parse(json.loads((artifact.path / CONFIG).read_text()), f"{artifact.path}/{CONFIG}")
    return config, interface_of(artifact), load_file(artifact.path / WEIGHTS)


def interface_of(artifact: Artifact) -> Interface:
    """The interface that a model was made for."""
    return Interface.parse(json.loads((artifact.path / INTERFACE).read_text()), f"{artifact.path}/{INTERFACE}")

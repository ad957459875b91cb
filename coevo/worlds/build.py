"""World models to and from artifact folders."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from coevo.core import models, parts, random
from coevo.core.artifacts import Artifact
from coevo.core.parts import PythonPart
from coevo.core.protocols import Environment
from coevo.records.interface import Interface
from coevo.worlds.config import Form, WorldModelConfig
from coevo.worlds.dream import Dream
from coevo.worlds.world_model import WorldModel

NEW_PARTS = ("reward_head.", "features.", ".feature_embedding.")
"""In the names of weights that a parent may lack."""


def save(model: WorldModel, folder: Path, dtype: torch.dtype = torch.float32) -> None:
    """Write config.json, interface.json and weights.safetensors."""
    models.save(folder, model.config, model.interface, model.state_dict(), dtype)


def make(config: WorldModelConfig, interface: Interface, seed: int, id: str = "world_model") -> WorldModel:
    """A world model whose new weights are initialised from `seed`."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(random.key(seed, "world weights") % 2**63)
        return WorldModel(config, interface, id)


def load(
    artifact: Artifact, device: str | torch.device = "cpu", form: Form | None = None, seed: int = 0
) -> WorldModel:
    """The world model of an artifact, in evaluation mode, float32.

    Args:
        form: changes of its configuration; parts that the artifact lacks are made from `seed`.

    Raises ValueError if the artifact's weights do not fit the changed configuration.
    """
    config, interface, state = models.read(artifact, WorldModelConfig)
    return restore(form.of(config) if form else config, interface, state, artifact.id, seed).on(device).eval()


def restore(
    config: WorldModelConfig, interface: Interface, state: Mapping[str, Tensor], id: str, seed: int = 0
) -> WorldModel:
    """A world model of these weights; parts of the configuration that they lack are made from `seed`."""
    model = make(config, interface, seed, id)
    own = model.state_dict()
    kept = {name: value.float() for name, value in state.items()}
    for name, value in kept.items():
        if name in own and own[name].shape != value.shape:
            raise ValueError(
                f"{id} has {name} of {tuple(value.shape)}, its 'form' asks for {tuple(own[name].shape)}; "
                "a part that the parent has keeps its sizes"
            )
    # Buffers and weights of a new part may be missing, nothing else.
    new = {name: value for name, value in own.items() if any(part in name for part in NEW_PARTS)}
    model.load_state_dict(new | kept)
    return model


def dream(artifact: Artifact, device: str | torch.device = "cpu") -> Environment:
    """The world model of an artifact as an environment; a user's class is one by itself."""
    if parts.settings_type(artifact, WorldModelConfig) is PythonPart:
        config, interface, state = models.read(artifact, PythonPart)
        world = parts.make(config.target, config.options, interface=interface, id=artifact.id)
        world.load_state_dict(state)
        return world.to(device).eval()
    return Dream(load(artifact, device))

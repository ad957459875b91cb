"""Policies to and from artifact folders."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from coevo.core import random
from coevo.core.artifacts import Artifact
from coevo.policies.config import SmallPolicyConfig
from coevo.policies.small import SmallPolicy
from coevo.records.interface import Interface


def build(config: SmallPolicyConfig, interface: Interface, seed: int, id: str = "policy") -> SmallPolicy:
    """A policy with weights initialised from `seed`."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(random.key(seed, "policy weights") % 2**63)
        return SmallPolicy(config, interface, id)


def save(policy: SmallPolicy, folder: Path) -> None:
    """Write config.json, interface.json and weights.safetensors."""
    (folder / "config.json").write_text(policy.config.model_dump_json(indent=1) + "\n")
    (folder / "interface.json").write_text(policy.interface.model_dump_json(indent=1) + "\n")
    state = {name: value.detach().cpu().contiguous() for name, value in policy.state_dict().items()}
    save_file(state, folder / "weights.safetensors")


def load(artifact: Artifact, device: str | torch.device = "cpu") -> SmallPolicy:
    """The policy of an artifact, in evaluation mode."""
    config = SmallPolicyConfig.parse(json.loads((artifact.path / "config.json").read_text()), str(artifact.path))
    interface = Interface.parse(json.loads((artifact.path / "interface.json").read_text()), str(artifact.path))
    policy = SmallPolicy(config, interface, artifact.id)
    policy.load_state_dict(load_file(artifact.path / "weights.safetensors"))
    return policy.to(device).eval()

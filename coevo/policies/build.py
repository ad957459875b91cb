"""Policies to and from artifact folders."""

from __future__ import annotations

from pathlib import Path

import torch

from coevo.core import models, random
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
    models.save(folder, policy.config, policy.interface, policy.state_dict())


def load(artifact: Artifact, device: str | torch.device = "cpu") -> SmallPolicy:
    """The policy of an artifact, in evaluation mode."""
    config, interface, state = models.read(artifact, SmallPolicyConfig)
    policy = SmallPolicy(config, interface, artifact.id)
    policy.load_state_dict(state)
    return policy.to(device).eval()

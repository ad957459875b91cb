"""Policies to and from artifact folders."""

from __future__ import annotations

from pathlib import Path

import torch

from coevo.core import models, parts, random
from coevo.core.artifacts import Artifact
from coevo.core.parts import PythonPart
from coevo.core.protocols import Policy
from coevo.policies.config import SmallPolicyConfig
from coevo.policies.small import SmallPolicy
from coevo.records.interface import Interface

PolicyConfig = SmallPolicyConfig | PythonPart
"""Discriminated by `kind`."""


def build(config: PolicyConfig, interface: Interface, seed: int, id: str = "policy") -> Policy:
    """A policy with weights initialised from `seed`."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(random.key(seed, "policy weights") % 2**63)
        return _make(config, interface, id)


def save(policy: Policy, folder: Path) -> None:
    """Write config.json, interface.json and weights.safetensors."""
    models.save(folder, policy.config, policy.interface, policy.state_dict())


def load(artifact: Artifact, device: str | torch.device = "cpu") -> Policy:
    """The policy of an artifact, in evaluation mode."""
    config, interface, state = models.read(artifact, parts.settings_type(artifact, SmallPolicyConfig))
    policy = _make(config, interface, artifact.id)
    policy.load_state_dict(state)
    return policy.to(device).eval()


def _make(config: PolicyConfig, interface: Interface, id: str) -> Policy:
    if isinstance(config, PythonPart):
        policy = parts.make(config.target, config.options, interface=interface, id=id)
        policy.config = config  # what `save` writes beside the weights
        return policy
    return SmallPolicy(config, interface, id)

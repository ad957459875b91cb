"""Policies by name of kind, and to and from artifact folders."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from coevo.core import models, parts, random
from coevo.core.artifacts import Artifact
from coevo.core.parts import PythonPart
from coevo.core.protocols import Policy
from coevo.policies.backbone import Backbone
from coevo.policies.config import OpenVlaConfig, PaliGemmaConfig, SmallPolicyConfig
from coevo.policies.policy import LearnedPolicy
from coevo.policies.small import SmallBackbone
from coevo.records.base import parse_kind, read_yaml
from coevo.records.interface import Interface

PolicyConfig = SmallPolicyConfig | OpenVlaConfig | PaliGemmaConfig | PythonPart
"""Discriminated by `kind`; grows as kinds are added here, in `KINDS` and in `_backbone`."""

KINDS: dict[str, type[PolicyConfig]] = {
    "small": SmallPolicyConfig, "openvla": OpenVlaConfig, "paligemma": PaliGemmaConfig, "python": PythonPart,
}  # fmt: skip


def read_config(values: dict[str, Any], where: str) -> PolicyConfig:
    """Validate the content of a file in configs/policy; ValueError says where and what is wrong."""
    return parse_kind(KINDS, values, "small", "policy", where)


def read_config_file(path: Path) -> PolicyConfig:
    """The policy described by a YAML file."""
    return read_config(read_yaml(path), str(path))


def build(config: PolicyConfig, interface: Interface, seed: int, id: str = "policy") -> Policy:
    """A policy with weights initialised from `seed`, or a user's class."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(random.key(seed, "policy weights") % 2**63)
        return _make(config, interface, id)


def save(policy: Policy, folder: Path) -> None:
    """Write config.json, interface.json and weights.safetensors; published weights that never moved are left out."""
    state = policy.saved_state() if isinstance(policy, LearnedPolicy) else policy.state_dict()
    models.save(folder, policy.config, policy.interface, state)


def load(artifact: Artifact, device: str | torch.device = "cpu") -> Policy:
    """The policy of an artifact, in evaluation mode."""
    kind = json.loads((artifact.path / models.CONFIG).read_text()).get("kind", "small")
    config, interface, state = models.read(artifact, KINDS[kind])
    policy = _make(config, interface, artifact.id)
    if isinstance(policy, LearnedPolicy):
        policy.load_saved(state, str(artifact.path))
    else:
        policy.load_state_dict(state)
    return policy.to(device).eval()


def _make(config: PolicyConfig, interface: Interface, id: str) -> Policy:
    if isinstance(config, PythonPart):
        policy = parts.make(config.target, config.options, interface=interface, id=id)
        policy.config = config  # what `save` writes beside the weights
        return policy
    if interface.chunk % config.segments:
        raise ValueError(
            f"segments = {config.segments} does not divide the chunk of {interface.chunk} control steps; "
            "choose 'segments' in the policy's file to fit the simulator's"
        )
    return LearnedPolicy(config, _backbone(config, interface), interface, id)


def _backbone(config: SmallPolicyConfig | OpenVlaConfig | PaliGemmaConfig, interface: Interface) -> Backbone:
    # transformers takes seconds to import, and most loops never need it.
    match config:
        case SmallPolicyConfig():
            return SmallBackbone(config, interface)
        case OpenVlaConfig():
            from coevo.policies.openvla import OpenVlaBackbone

            return OpenVlaBackbone(config, interface)
        case PaliGemmaConfig():
            from coevo.policies.paligemma import PaliGemmaBackbone

            return PaliGemmaBackbone(config, interface)

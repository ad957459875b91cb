"""Variants of the four systems, one change each, for `benchmarks.four_systems`: arms of the published ablations."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from coevo.records.base import read_yaml
from coevo.records.system import System

FOLDER = Path("configs/system")


@dataclass(frozen=True)
class Variant:
    """A system with one change."""

    system: str
    """The one that it is a variant of; its own name for the system as it is."""
    says: str
    """What is changed, for the page."""
    changes: Mapping[str, Any] = field(default_factory=dict)
    """Values by their key in the system's file, dotted; they replace what stands there."""
    demonstrations: int | None = None
    """From which the start policy is cloned; none takes as many as all systems."""


ORIGINAL = {"kind": "ppo", "horizon": "truncation", "critic_warmup": 0, "value_learning_rate": 1e-3}
FRAMES = {"reward.file": None, "reward.own_head": False, "reward.calibration": {}}
TOKEN = {
    "reward.file": "topreward_tiny", "reward.own_head": False,
    "reward.calibration": {"windows": {"steps": 600, "batch": 16, "learning_rate": 1e-3}},
}  # fmt: skip
VARIANTS = {
    "rl_inside_world_models_success_only": Variant(
        "rl_inside_world_models", "the world model sees successes alone, at equal steps",
        {"data.dataset.mixture": {"expert": 0.3, "rollout_success": 0.7}},
    ),
    "rl_inside_world_models_original": Variant(
        "rl_inside_world_models", "the horizon truncates, no warm-up, the critic at the full rate",
        {"algorithm.changes": {"estimator": ORIGINAL}},
    ),
    "rl_inside_world_models_in_simulator": Variant(
        "rl_inside_world_models", "PPO in the simulator", {"training.environment": "simulator"}
    ),
    "worldloop_resnet": Variant(
        "worldloop", "a ResNet of single frames as the reward",
        {"reward.file": "frame_resnet", "reward.calibration": {}},
    ),
    "world_vla_loop_without_head": Variant(
        "world_vla_loop", "no reward head: the frame classifier judges",
        {"world_model.form": {"sampling_steps": 2}, **FRAMES},
    ),
    "world_vla_loop_without_near": Variant(
        "world_vla_loop", "no near successes among the data",
        {"data.dataset.mixture": {"expert": 0.25, "sans_success": 0.2, "rollout_success": 0.55}},
    ),
    "world_vla_loop_token": Variant(
        "world_vla_loop", "a vision-language model's token in place of the head, which is trained all the same", TOKEN
    ),
    "world_env_five_demonstrations": Variant("world_env", "five demonstrations", demonstrations=5),
    "world_env_token": Variant("world_env", "a token of the vision-language model in place of the trained head", TOKEN),
    "world_env_zero_one": Variant(
        "world_env", "0 or 1 in place of the continuous return",
        {"algorithm.changes": {"payment": {"kind": "peak"}}},
    ),
    "world_env_to_the_horizon": Variant(
        "world_env", "dreams go on after success", {"training.end_at_success": False}
    ),
    "world_env_experts_only": Variant(
        "world_env", "a world model of experts alone", {"data.dataset.mixture": {"expert": 1.0}}
    ),
    "world_env_without_features": Variant(
        "world_env", "no features of frozen encoders in the world model", {"world_model.form": {"features": []}}
    ),
    "world_env_in_simulator": Variant(
        "world_env", "LOOP in the simulator, as RIPT-VLA has it", {"training.environment": "simulator"}
    ),
}  # fmt: skip


def plain() -> dict[str, Variant]:
    """The systems as their files have them."""
    return {file.stem: Variant(file.stem, "") for file in sorted(FOLDER.glob("*.yaml"))}


def everything() -> dict[str, Variant]:
    """Systems, then variants of those that have a file."""
    systems = plain()
    return systems | {name: variant for name, variant in VARIANTS.items() if variant.system in systems}


def system(variant: Variant) -> System:
    """The system with its change. ValueError where the change fits it no more."""
    file = FOLDER / f"{variant.system}.yaml"
    values = copy.deepcopy(read_yaml(file))
    for path, value in variant.changes.items():
        *folders, last = path.split(".")
        place = values
        for name in folders:
            place = place.setdefault(name, {})
        place[last] = value
    if variant.changes or variant.demonstrations:
        values["claims"] = []  # they speak of the system as it is
    return System.parse(values, f"{file}, {variant.says}")

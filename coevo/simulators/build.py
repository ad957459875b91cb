"""Simulators by name of kind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from coevo.core import parts
from coevo.records.base import parse_kind, read_yaml
from coevo.simulators.config import MetaWorldConfig, PythonSimulatorConfig
from coevo.simulators.rows import Simulator

SimulatorConfig = MetaWorldConfig | PythonSimulatorConfig
"""Discriminated by `kind`; grows as kinds are added here, in `KINDS` and in `build`."""

KINDS: dict[str, type[SimulatorConfig]] = {"metaworld": MetaWorldConfig, "python": PythonSimulatorConfig}


def read_config(values: dict[str, Any], where: str) -> SimulatorConfig:
    """Validate the content of a file in configs/simulator; ValueError says where and what is wrong."""
    return parse_kind(KINDS, values, "metaworld", "simulator", where)


def read_config_file(path: Path) -> SimulatorConfig:
    """The simulator described by a YAML file."""
    return read_config(read_yaml(path), str(path))


def build(config: SimulatorConfig) -> Simulator:
    """Make a simulator in this process. ValueError if the task, the renderer or the package is missing."""
    match config.kind:
        case "metaworld":
            from coevo.simulators.metaworld import MetaWorld

            return MetaWorld(config)
        case "python":
            return parts.make(config.target, config.options, interface=config.interface)

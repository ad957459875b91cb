"""Import a public dataset (LeRobot, LIBERO, RoboTwin) as episodes, with everything that is ambiguous said in a file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from coevo.core import stage
from coevo.core.stage import Result, Run
from coevo.core.types import Episode
from coevo.episodes.importers import lerobot, libero, robotwin
from coevo.episodes.importers.config import LeRobotImport, LiberoImport, RoboTwinImport, read_config
from coevo.episodes.importers.hdf5 import files_of
from coevo.episodes.store import write_episodes
from coevo.records.base import Config, read_yaml


@dataclass(frozen=True)
class Inputs:
    source: Path = stage.raw_folder("folder (or HDF5 file) of the public dataset")
    mapping: Path = stage.config_file("a file of configs/import: which layout, camera, action, and how to read them")


class Params(Config):
    """An import has no parameters beside its mapping."""


def import_dataset(inputs: Inputs, params: Params, run: Run) -> Result:
    """Read, align and write every episode; a damaged file stops the import and is named."""
    config = read_config(read_yaml(inputs.mapping), str(inputs.mapping))
    states: list[str] = []
    total = count(inputs.source, config)

    def noted() -> Iterator[Episode]:
        for episode in read(inputs.source, config):
            states.append(episode.start.id)
            run.progress("episodes", len(states), total)
            yield episode

    write_episodes(run.folder, noted(), config.interface)
    return Result("episodes", {"episodes": len(states)}, states)


def read(source: Path, config: LeRobotImport | LiberoImport | RoboTwinImport) -> Iterator[Episode]:
    """Episodes of a folder in the layout that the mapping names."""
    match config:
        case LeRobotImport():
            return lerobot.episodes(source, config)
        case LiberoImport():
            return libero.episodes(source, config)
        case RoboTwinImport():
            return robotwin.episodes(source, config)


def count(source: Path, config: LeRobotImport | LiberoImport | RoboTwinImport) -> int:
    """How many episodes there will be, for progress."""
    match config:
        case LeRobotImport():
            return lerobot.count(source, config)
        case LiberoImport():
            return libero.count(source)
        case RoboTwinImport():
            return len(files_of(source))


if __name__ == "__main__":
    stage.main(import_dataset)

"""A loop is a folder: its pipeline, its parameters, its open round, and the records of its closed rounds."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import yaml

from coevo.records.base import Config, read_yaml
from coevo.records.outcomes import Decision
from flows import ROOT, graph

START = "start/dvc.yaml"


class Before(Config):
    """Results of closed rounds, as options of a command: DVC writes {previous: x} as '--previous x', {} as nothing."""

    decision: dict[str, str] = {}
    """{previous: the last round's decision}."""
    reports: dict[str, list[str]] = {}
    """{earlier: reports of all closed rounds, oldest first}."""


class Origin(Config):
    """What a loop was made of."""

    system: str
    """File of configs/system, which stands beside round.yaml as system.yaml."""
    scale: str
    """File of configs/scale."""
    sha256: str
    """Of the system's file."""


class OpenRound(Config):
    """round.yaml: what the pipeline's paths are made of."""

    loop: str
    round: str
    """i001, i002, ..."""
    parents: dict[str, str]
    """Role -> id of the artifact that this round starts from, for example 'start/policy' or 'default/i001/policy/0'."""
    before: Before = Before()
    origin: Origin | None = None
    """Where the loop was made of a published system."""


@dataclass(frozen=True)
class Loop:
    """One loop of the repository. Paths are absolute unless said otherwise."""

    name: str = "default"
    root: Path = ROOT

    @property
    def folder(self) -> Path:
        """Where its files lie: the repository's root for the default loop."""
        return self.root if self.name == "default" else self.root / "loops" / self.name

    @property
    def pipeline(self) -> str:
        """Its dvc.yaml, relative to the root."""
        return str((self.folder / "dvc.yaml").relative_to(self.root))

    @property
    def start(self) -> str:
        """The dvc.yaml of its own start, relative to the root; the default loop's is what all loops begin with."""
        return str((self.folder / START).relative_to(self.root))

    @property
    def files(self) -> tuple[str, ...]:
        """The dvc.yaml files of its stages: what all loops begin with, if it reads that; its own start; its rounds."""
        own = [file for file in dict.fromkeys((self.start, self.pipeline)) if (self.root / file).is_file()]
        shared = START not in own and any("data/start/" in (self.root / file).read_text() for file in own)
        return (*([START] if shared and (self.root / START).is_file() else []), *own)

    @property
    def round_file(self) -> Path:
        """The pointer to its open round."""
        return self.folder / "round.yaml"

    @property
    def rounds(self) -> Path:
        """Records of closed rounds."""
        return self.folder / "rounds"

    def open_round(self) -> OpenRound:
        """The open round; ValueError if there is no such loop."""
        if not (self.root / "round.yaml").is_file():
            raise ValueError(f"there is no round.yaml in {self.root}; run this in the project's repository")
        if not self.round_file.is_file():
            raise ValueError(f"there is no loop '{self.name}'; there is: {', '.join(names(self.root))}")
        opened = OpenRound.parse(read_yaml(self.round_file), str(self.round_file))
        if opened.loop != self.name:
            raise ValueError(
                f"{self.round_file}: 'loop' = {opened.loop!r} names another loop, in whose data this one would write; "
                f"set it to {self.name!r}"
            )
        return opened

    def write_open_round(self, opened: OpenRound) -> None:
        """Replace round.yaml in one step, so that a kill leaves the old one or the new one."""
        comment = "# The open round. Written when a round is opened; dvc.yaml makes its paths of it.\n"
        partial = self.round_file.with_suffix(".yaml.partial")
        partial.write_text(comment + yaml.safe_dump(opened.model_dump(exclude_none=True), sort_keys=False))
        os.replace(partial, self.round_file)

    def stages(self) -> tuple[graph.Stage, ...]:
        """Stages of the start and of the open round, in the order in which they run.

        ValueError where a params.yaml lacks what they read or holds what none of them does, and where they read a file
        or folder that is not there and that none of them makes.
        """
        stages = graph.read(self.root, self.files)
        graph.check_parameters(self.root, self.files, stages)
        graph.check_inputs(self.root, stages, str(self.data(self.open_round().round).relative_to(self.root)))
        return stages

    def data(self, round: str) -> Path:
        """Folder of a round's artifacts."""
        return self.root / "data" / self.name / round

    def decision(self, round: str) -> Decision | None:
        """What a round concluded; none while it is under way."""
        for folder in (self.data(round) / "decision", self.rounds / round):
            if (folder / "decision.json").is_file():
                return Decision.model_validate_json((folder / "decision.json").read_bytes())
        return None


def names(root: Path) -> tuple[str, ...]:
    """Loops of a repository, the default one first."""
    return "default", *sorted(path.parent.name for path in root.glob("loops/*/round.yaml"))


def number(round: str) -> int:
    """3 of 'i003'."""
    return int(round.removeprefix("i"))


def round_id(number: int) -> str:
    """'i003' of 3."""
    return f"i{number:03d}"

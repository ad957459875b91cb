"""Datasets: episodes of several sources in one folder that needs no other, and how they are drawn.

`sources/<NN>-<id>/` holds each source's episodes as hard links (copies where the file system has none),
`sources.json` says which artifacts they are, `mixture.parquet` has one row per episode.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float64

from coevo.core.artifacts import LINEAGE, MANIFEST, Artifact
from coevo.episodes.arrays import EpisodeArrays, Filler
from coevo.episodes.mixture import Mixture, Split, side, weights
from coevo.episodes.store import EpisodeSet, read_episodes
from coevo.records.base import Config
from coevo.records.interface import Interface, require_same

SOURCES, MIXTURE = "sources.json", "mixture.parquet"
NOT_PAYLOAD = (MANIFEST, LINEAGE, "metrics.jsonl")


class Source(Config):
    """One artifact of episodes inside a dataset."""

    folder: str
    """Below sources/."""
    id: str
    sha256: str
    age: int
    """Rounds since it came in: 0 in the dataset that it entered."""


@dataclass(frozen=True)
class DatasetRow:
    """One episode of a dataset."""

    source: int
    """Which of the dataset's sources it lies in."""
    episode: int
    """Its index there."""
    state: str
    outcome: str
    perturbation: str
    policy: str
    pair: str
    age: int
    split: Split
    weight: float
    """Probability of being drawn on its side of the split."""


def write_dataset(
    folder: Path, sources: Sequence[Artifact], mixture: Mixture, previous: Artifact | None = None
) -> list[DatasetRow]:
    """Put sources, and those of a previous dataset a round older, into `folder` and mix them.

    A source that the previous dataset already holds is taken once, at its age there. Returns the rows as written.
    Raises ValueError if there is no source, two were made for different interfaces, or a class of the mixture is empty.
    """
    entries = _gather(sources, mixture, previous)
    if not entries:
        raise ValueError("a dataset needs at least one source of episodes, or a previous dataset")
    described, sets = [], []
    for number, (origin, source) in enumerate(entries):
        name = f"{number:02d}-{source.id.replace('/', '-')}"
        _link(origin, folder / "sources" / name)
        described.append(source.model_copy(update={"folder": name}))
        sets.append(read_episodes(folder / "sources" / name))
        require_same(sets[0].interface, described[0].id, sets[-1].interface, source.id)
    rows = _mix(sets, described, mixture)
    _write_rows(folder / MIXTURE, rows)
    (folder / SOURCES).write_text(json.dumps([source.model_dump() for source in described], indent=1) + "\n")
    return rows


def read_dataset(artifact: Artifact) -> Dataset:
    """Open a dataset artifact."""
    return Dataset(artifact.path)


class Dataset:
    """Episodes of several sources and the probability of drawing each. Frames are read when asked for."""

    def __init__(self, folder: Path) -> None:
        import pyarrow.parquet as pq

        self.sources = tuple(Source(**values) for values in json.loads((folder / SOURCES).read_text()))
        self.sets = [read_episodes(folder / "sources" / source.folder) for source in self.sources]
        self.rows = [DatasetRow(**values) for values in pq.read_table(folder / MIXTURE).to_pylist()]

    @property
    def interface(self) -> Interface:
        """What all sources were made for."""
        return self.sets[0].interface

    def chosen(self, split: Split) -> list[DatasetRow]:
        """Episodes of one side that can be drawn at all, in the order of `arrays` and `weights`."""
        return [row for row in self.rows if row.split == split and row.weight > 0]

    def weights(self, split: Split) -> Float64[np.ndarray, " n"]:
        """Probability of drawing each chosen episode; sums to 1."""
        return np.array([row.weight for row in self.chosen(split)])

    def arrays(self, split: Split) -> EpisodeArrays:
        """The chosen episodes as arrays, padded to the longest; ValueError if there are none on that side."""
        rows = self.chosen(split)
        if not rows:
            raise ValueError(
                f"the dataset has no {split} episodes of any class of its mixture; "
                "collect from more initial states or change 'validation_share'"
            )
        longest = max(self.sets[row.source].rows[row.episode].frames for row in rows)
        filler = Filler(self.interface, len(rows), longest, self.sets[0].size)
        for number, episodes in enumerate(self.sets):
            own = [(row.episode, place) for place, row in enumerate(rows) if row.source == number]
            episodes.fill(filler, [episode for episode, _ in own], [place for _, place in own])
        return filler.arrays()


def _gather(
    sources: Sequence[Artifact], mixture: Mixture, previous: Artifact | None
) -> list[tuple[Path, Source]]:
    """Folder and description of every source: first the carried ones, then the new."""
    entries: list[tuple[Path, Source]] = []
    if previous is not None:
        for values in json.loads((previous.path / SOURCES).read_text()):
            source = Source(**values | {"age": values["age"] + 1})
            if mixture.max_age is None or source.age <= mixture.max_age:
                entries.append((previous.path / "sources" / source.folder, source))
    for artifact in sources:
        if artifact.manifest.sha256 not in {source.sha256 for _, source in entries}:
            source = Source(folder="", id=artifact.id, sha256=artifact.manifest.sha256, age=0)
            entries.append((artifact.path, source))
    return entries


def _mix(sets: Sequence[EpisodeSet], sources: Sequence[Source], mixture: Mixture) -> list[DatasetRow]:
    rows = [
        DatasetRow(
            source=number, episode=row.index, state=row.state, outcome=row.outcome, perturbation=row.perturbation,
            policy=row.policy, pair=row.pair, age=source.age, split=side(row.state, mixture.validation_share),
            weight=0.0,
        )
        for number, (episodes, source) in enumerate(zip(sets, sources, strict=True))
        for row in episodes.rows
    ]
    weighed: dict[int, float] = {}
    for split in ("train", "validation"):
        places = [place for place, row in enumerate(rows) if row.split == split]
        own = [rows[place] for place in places]
        # A small validation side may lack a rare class; the training side must not.
        weighed |= zip(places, weights(own, mixture, f"the {split} side", strict=split == "train"), strict=True)
    return [DatasetRow(**asdict(row) | {"weight": float(weighed[place])}) for place, row in enumerate(rows)]


def _write_rows(path: Path, rows: Sequence[DatasetRow]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.Table.from_pylist([asdict(row) for row in rows]), path)


def _link(origin: Path, target: Path) -> None:
    """Hard-link a folder's payload; nothing here ever writes into a published file, so sharing is safe."""
    for file in sorted(origin.rglob("*")):
        relative = file.relative_to(origin)
        if not file.is_file() or relative.name in NOT_PAYLOAD and relative.parent == Path("."):
            continue
        (target / relative).parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(file, target / relative)
        except OSError:  # another file system, or one without links
            shutil.copyfile(file, target / relative)

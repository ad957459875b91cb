"""Episodes on disk: written as a LeRobotDataset v3.0, read back bit for bit (frames stored as video excepted)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Int64
from torch import Tensor

from coevo.core.types import Episode
from coevo.episodes import layout, pixels, rows
from coevo.episodes.arrays import EpisodeArrays, Filler
from coevo.episodes.outcomes import NEAR
from coevo.episodes.video import read_frames
from coevo.episodes.writer import EpisodeWriter
from coevo.records.interface import Interface


def write_episodes(folder: Path, episodes: Iterable[Episode], interface: Interface, near: float = NEAR) -> None:
    """Write episodes to a new dataset in `folder`, as they come: they need not fit in memory together.

    Args:
        near: progress from which a failure is labelled a near success.

    The same episodes give the same bytes. Raises ValueError if there are none, if one does not fit the interface, or
    if the folder already holds some.
    """
    with EpisodeWriter(folder, interface, near) as writer:
        for episode in episodes:
            writer.append(episode)


def read_episodes(folder: Path) -> EpisodeSet:
    """Open a folder that `write_episodes` made. Raises ValueError if it is unfinished, foreign or damaged."""
    if not (folder / layout.INFO).is_file():
        raise ValueError(f"{folder} holds no finished episodes ({layout.INFO} is missing); make it again")
    if not (folder / layout.INTERFACE).is_file():
        raise ValueError(
            f"{folder} was not written by coevo ({layout.INTERFACE} is missing); import it with tasks.import_dataset"
        )
    info = json.loads((folder / layout.INFO).read_text())
    if info["codebase_version"] != layout.VERSION:
        raise ValueError(f"{folder} has the format version {info['codebase_version']}, {layout.VERSION} is read here")
    return EpisodeSet(folder, info)


@dataclass(frozen=True)
class EpisodeRow:
    """What is known of an episode without opening it."""

    index: int
    frames: int
    """Frames after the first."""
    state: str
    sample: int
    policy: str
    source: str
    perturbation: str
    pair: str
    outcome: str
    """'success', 'near' or 'failure'; 'unknown' where no simulator watched."""
    success: bool


class EpisodeSet:
    """Episodes of one folder. Metadata is in memory, frames are read when asked for."""

    def __init__(self, folder: Path, info: dict[str, Any]) -> None:
        self.folder, self.info = folder, info
        self.interface = Interface.model_validate_json((folder / layout.INTERFACE).read_bytes())
        self.metadata = self._table(layout.EPISODES, lambda name: not name.startswith("stats/"))
        self.starts = self._table(layout.STARTS, lambda name: True)
        self.rows = [_row(metadata) for metadata in self.metadata]
        self._height, self._width, _ = info["features"][layout.CAMERA]["shape"]
        self._first_frames: dict[Path, int] = {}
        for metadata in self.metadata:
            self._first_frames.setdefault(self._data_file(metadata), metadata["dataset_from_index"])

    def __len__(self) -> int:
        return len(self.rows)

    def episode(self, index: int) -> Episode:
        """One episode."""
        frames = torch.empty(self.rows[index].frames + 1, self._height, self._width, 3, dtype=torch.uint8)
        (_, episode), = self._read([index], {index: frames})
        return episode

    def __iter__(self) -> Iterator[Episode]:
        for first in range(0, len(self), 64):
            chosen = range(first, min(first + 64, len(self)))
            targets = {
                index: torch.empty(self.rows[index].frames + 1, self._height, self._width, 3, dtype=torch.uint8)
                for index in chosen
            }
            yield from (episode for _, episode in self._read(chosen, targets))

    def arrays(self, indices: Sequence[int] | None = None) -> EpisodeArrays:
        """Episodes as arrays in the order of `indices` (default: all), padded to the longest of them."""
        chosen = list(range(len(self)) if indices is None else indices)
        if not chosen:
            raise ValueError(f"no episodes were chosen from {self.folder} ({len(self)} are there)")
        longest = max(self.rows[index].frames for index in chosen)
        filler = Filler(self.interface, len(chosen), longest, self.size)
        self.fill(filler, chosen, range(len(chosen)))
        return filler.arrays()

    def first_success(self) -> Int64[np.ndarray, " n"]:
        """Frame at which each episode succeeds, counted from the interface's `success_from` on; 0 if it never does.

        Reads no frames.
        """
        import pyarrow.parquet as pq

        found = np.zeros(len(self), dtype=np.int64)
        for path in self._first_frames:
            table = pq.read_table(self.folder / path, columns=["success", "episode_index", "frame_index"])
            success, episode, frame = (column.to_numpy() for column in table.columns)
            counts = success & (frame >= self.interface.success_from)
            # Rows of an episode ascend, so the last that is written is its first.
            found[episode[counts][::-1]] = frame[counts][::-1]
        return found

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of the frames."""
        return self._height, self._width

    def fill(self, filler: Filler, indices: Sequence[int], places: Sequence[int]) -> None:
        """Put the episodes `indices` into the rows `places` of a filler, which other sets may share."""
        unique = sorted(set(indices))
        place = dict(zip(indices, places, strict=True))
        if len(unique) != len(indices):
            raise ValueError(f"an episode of {self.folder} was chosen twice; repeat rows of the arrays instead")
        targets = {index: filler.frames[place[index], : self.rows[index].frames + 1] for index in unique}
        for index, episode in self._read(unique, targets):
            filler.put(place[index], episode, self.rows[index].outcome)

    def _read(self, indices: Sequence[int], frames: dict[int, Tensor]) -> Iterator[tuple[int, Episode]]:
        """Episodes in ascending order, their frames decoded into the given tensors."""
        with pixels.threads() as pool:
            for group, members in self._groups(sorted(indices)):
                values = _numbers(group)
                as_images = layout.CAMERA in group.column_names
                images = group.column(layout.CAMERA).chunk(0).field("bytes") if as_images else None
                jobs = [
                    pool.submit(self._decode, frames[index].numpy(), index, images, first) for index, first in members
                ]
                for (index, first), job in zip(members, jobs, strict=True):
                    job.result()
                    own = slice(first, first + len(frames[index]))
                    cut = {name: column[own] for name, column in values.items()}
                    yield index, rows.episode(
                        self.metadata[index], self.starts[index], cut, frames[index], self.interface
                    )

    def _decode(self, target: np.ndarray, index: int, images: Any, first: int) -> None:
        if images is not None:
            files = images.slice(first, len(target))
            pixels.decode_into(target, (file.as_buffer() for file in files))
            return
        metadata, key = self.metadata[index], f"videos/{layout.CAMERA}"
        number = metadata[f"{key}/chunk_index"] * layout.FILES_PER_CHUNK + metadata[f"{key}/file_index"]
        path = self.folder / layout.video_file(number)
        target[...] = read_frames(path, metadata[f"{key}/from_timestamp"], len(target), self.interface.fps)

    def _groups(self, indices: Sequence[int]) -> Iterator[tuple[Any, list[tuple[int, int]]]]:
        """Parquet row groups that hold the episodes, each with (episode, its first row in the group)."""
        import pyarrow.parquet as pq

        for path in dict.fromkeys(self._data_file(self.metadata[index]) for index in indices):
            with pq.ParquetFile(self.folder / path) as file:
                sizes = [file.metadata.row_group(g).num_rows for g in range(file.metadata.num_row_groups)]
                ends = self._first_frames[path] + np.cumsum(sizes)
                found: dict[int, list[tuple[int, int]]] = {}
                for index in indices:
                    if self._data_file(self.metadata[index]) == path:
                        begin = self.metadata[index]["dataset_from_index"]
                        group = int(np.searchsorted(ends, begin, side="right"))
                        found.setdefault(group, []).append((index, begin - int(ends[group]) + sizes[group]))
                for group, members in found.items():
                    yield file.read_row_group(group).combine_chunks(), members

    @staticmethod
    def _data_file(metadata: dict[str, Any]) -> Path:
        return layout.data_file(metadata["data/chunk_index"] * layout.FILES_PER_CHUNK + metadata["data/file_index"])

    def _table(self, path: Path, wanted: Any) -> list[dict[str, Any]]:
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            file = pq.ParquetFile(self.folder / path)
            table = file.read([name for name in file.schema_arrow.names if wanted(name)])
        except (OSError, pa.ArrowInvalid) as error:
            raise ValueError(f"{self.folder / path} cannot be read: {error}; make the episodes again") from None
        return table.to_pylist()


def _row(metadata: dict[str, Any]) -> EpisodeRow:
    names = ("state", "sample", "policy", "source", "perturbation", "pair", "outcome")
    return EpisodeRow(
        index=metadata["episode_index"], frames=metadata["length"] - 1, success=metadata["outcome"] == "success",
        **{name: metadata[name] for name in names},
    )


def _numbers(group: Any) -> dict[str, np.ndarray]:
    """The columns that an episode is made of, as arrays with one row per frame."""
    values = {}
    for name in (layout.STATE, layout.ACTION, *rows.OPTIONAL):
        column = group.column(name).chunk(0)
        if hasattr(column.type, "list_size"):
            values[name] = column.flatten().to_numpy().reshape(len(column), column.type.list_size)
        else:
            values[name] = column.to_numpy(zero_copy_only=False)
    return values

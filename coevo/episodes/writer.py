"""Writing episodes: rows stream into Parquet files whose footers, like info.json, are written only at the end."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from coevo.core.types import Episode
from coevo.episodes import layout, pixels, rows, statistics
from coevo.episodes.outcomes import episode_outcome
from coevo.episodes.video import VideoWriter
from coevo.records.interface import Interface

BATCH_FRAMES = 2048
"""Frames per Parquet row group, and what is held in memory before it is encoded."""


class EpisodeWriter:
    """Appends episodes to a new LeRobotDataset v3.0 folder.

    A context manager: a block that ends well leaves a readable dataset, one that fails or is killed leaves a folder
    without meta/info.json, which no reader takes for a dataset.
    """

    def __init__(self, folder: Path, interface: Interface, near: float) -> None:
        if (folder / "meta").exists() or (folder / "data").exists():
            raise ValueError(f"{folder} already holds episodes, or an unfinished attempt; remove it or write elsewhere")
        self.folder, self.interface, self.near = folder, interface, near
        self.columns: dict[str, dict[str, Any]] = {}
        self.pending: list[Episode] = []
        self.tasks: dict[str, int] = {}
        self.episodes = self.frames = 0
        self.data_files, self.data_bytes, self.file_frames = 0, 0, 0
        self.video_files, self.video = 0, None
        self.writers: dict[Path, Any] = {}
        self.parts: list[dict[str, statistics.Stats]] = []
        self.open = ExitStack()

    def __enter__(self) -> EpisodeWriter:
        self.pool = self.open.enter_context(pixels.threads())
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        try:
            if kind is None:
                self._finish()
        finally:
            self.open.close()

    def append(self, episode: Episode) -> None:
        """Add one episode; ValueError if it does not fit the interface or the episodes before it."""
        if not self.columns:
            self.columns = layout.features(self.interface, *episode.frames.shape[1:3])
            self.as_video = self.columns[layout.CAMERA]["dtype"] == "video"
        self._check(episode)
        self.pending.append(episode)
        if sum(len(e.frames) for e in self.pending) >= BATCH_FRAMES:
            self._flush()

    def _check(self, episode: Episode) -> None:
        f = len(episode.frames) - 1
        found = {
            "frames": tuple(episode.frames.shape[1:]), "actions": tuple(episode.actions.shape),
            "proprio": tuple(episode.proprio.shape),
        }
        needed = {
            "frames": tuple(self.columns[layout.CAMERA]["shape"]),
            "actions": (f * self.interface.stride, len(self.interface.action.names)),
            "proprio": (f + 1, len(self.interface.proprio)),
        }
        for name, shape in needed.items():
            if found[name] != shape:
                raise ValueError(
                    f"episode {self.episodes + len(self.pending)} (state {episode.start.id}): {name} have the shape "
                    f"{found[name]}, {shape} is needed for {f + 1} frames at stride {self.interface.stride} "
                    "with this interface"
                )

    def _flush(self) -> None:
        batch, self.pending = self.pending, []
        if not batch:
            return
        first, first_episode = self.frames, self.episodes
        episodes = [self._metadata(episode) for episode in batch]
        # Threads encode the images while this one goes on; results are taken below.
        images = [] if self.as_video else self.pool.map(lambda e: pixels.encode(e.frames.numpy()), batch)
        if self.as_video:
            self._append_video(batch, episodes)
        values = rows.columns(batch, self.interface, self.tasks, first_episode, first)
        stats = [
            self._stats(episode, values, row["dataset_from_index"] - first)
            for episode, row in zip(batch, episodes, strict=True)
        ]
        self.parts.append({key: statistics.together([s[key] for s in stats]) for key in stats[0]})
        for row, each in zip(episodes, stats, strict=True):
            row |= {f"stats/{key}/{name}": v.tolist() for key, part in each.items() for name, v in part.items()}
        self._write_rows(values, [file for files in images for file in files])
        self._append(layout.EPISODES, episodes)
        starts = [rows.start(e, first_episode + i, lossless=not self.as_video) for i, e in enumerate(batch)]
        self._append(layout.STARTS, starts, rows.starts_schema())

    def _metadata(self, episode: Episode) -> dict[str, Any]:
        """A row of meta/episodes: LeRobot's columns, then ours."""
        length, start = len(episode.frames), episode.start
        self.tasks.setdefault(start.instruction, len(self.tasks))
        row = {
            "episode_index": self.episodes, "tasks": [start.instruction], "length": length,
            "dataset_from_index": self.frames, "dataset_to_index": self.frames + length,
            "data/chunk_index": self.data_files // layout.FILES_PER_CHUNK,
            "data/file_index": self.data_files % layout.FILES_PER_CHUNK,
            "meta/episodes/chunk_index": 0, "meta/episodes/file_index": 0,
            "state": start.id, "seed": start.seed, "sample": episode.sample, "policy": episode.policy,
            "source": episode.source, "perturbation": episode.perturbation, "pair": episode.pair,
            "outcome": episode_outcome(episode, self.interface, self.near),
        }
        self.episodes += 1
        self.frames += length
        return row

    def _append_video(self, batch: list[Episode], metadata: list[dict[str, Any]]) -> None:
        """Append the frames to the open video file, and the times at which they stand there to the metadata."""
        key = f"videos/{layout.CAMERA}"
        for episode, row in zip(batch, metadata, strict=True):
            if self.video is not None and self.video.bytes >= layout.VIDEO_FILE_MB * 2**20:
                self.video.close()
                self.video, self.video_files = None, self.video_files + 1
            if self.video is None:
                path = self.folder / layout.video_file(self.video_files)
                self.video = VideoWriter(path, self.interface.fps, *episode.frames.shape[1:3])
            begin, end = self.video.append(episode.frames.numpy())
            row |= {
                f"{key}/chunk_index": self.video_files // layout.FILES_PER_CHUNK,
                f"{key}/file_index": self.video_files % layout.FILES_PER_CHUNK,
                f"{key}/from_timestamp": begin, f"{key}/to_timestamp": end,
            }

    def _stats(self, episode: Episode, values: dict[str, np.ndarray], first: int) -> dict[str, statistics.Stats]:
        own = slice(first, first + len(episode.frames))
        columns = {key: column[own].reshape(len(episode.frames), -1) for key, column in values.items()}
        return {layout.CAMERA: statistics.of_frames(episode.frames.numpy())} | statistics.of_columns(columns)

    def _write_rows(self, values: dict[str, np.ndarray], images: list[bytes]) -> None:
        import pyarrow as pa

        schema = layout.data_schema(self.columns)
        columns = []
        for field in schema:
            if field.name == layout.CAMERA:
                parts = [pa.array(images, pa.binary()), pa.nulls(len(images), pa.string())]
                columns.append(pa.StructArray.from_arrays(parts, fields=list(field.type)))
            elif values[field.name].ndim == 2:
                flat = pa.array(values[field.name].reshape(-1))
                columns.append(pa.FixedSizeListArray.from_arrays(flat, values[field.name].shape[1]))
            else:
                columns.append(pa.array(values[field.name], field.type))
        table = pa.Table.from_arrays(columns, schema=schema)
        path = layout.data_file(self.data_files)
        self._writer(path, schema).write_table(table)
        self.data_bytes += table.nbytes
        if self.data_bytes >= layout.DATA_FILE_MB * 2**20:
            self.writers.pop(path).close()
            self.data_files, self.data_bytes = self.data_files + 1, 0

    def _append(self, path: Path, values: list[dict[str, Any]], schema: Any = None) -> None:
        import pyarrow as pa

        table = pa.Table.from_pylist(values, schema=schema)
        self._writer(path, table.schema).write_table(table)

    def _writer(self, path: Path, schema: Any) -> Any:
        import pyarrow.parquet as pq

        if path not in self.writers:
            (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
            # No dictionary for frames: it would be their copy.
            self.writers[path] = pq.ParquetWriter(
                self.folder / path, schema, compression="snappy", use_dictionary=not path.is_relative_to("data")
            )
        return self.writers[path]

    def _finish(self) -> None:
        self._flush()
        if not self.episodes:
            raise ValueError(f"no episodes to write to {self.folder}; a dataset holds at least one")
        for writer in self.writers.values():
            writer.close()
        if self.video is not None:
            self.video.close()
        import pyarrow.parquet as pq

        pq.write_table(layout.tasks_table(list(self.tasks)), self.folder / layout.TASKS)
        stats = {key: statistics.together([part[key] for part in self.parts]) for key in self.parts[0]}
        self._json(layout.STATS, {key: {n: v.tolist() for n, v in part.items()} for key, part in stats.items()})
        (self.folder / layout.INTERFACE).write_text(self.interface.model_dump_json(indent=1) + "\n")
        info = layout.info(self.interface, self.columns, self.episodes, self.frames, len(self.tasks))
        self._json(layout.INFO.with_suffix(".partial"), info)
        (self.folder / layout.INFO.with_suffix(".partial")).rename(self.folder / layout.INFO)

    def _json(self, path: Path, values: Any) -> None:
        (self.folder / path).write_text(json.dumps(values, indent=4) + "\n")

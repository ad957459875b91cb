"""LeRobotDataset folders, v2.0 and v2.1 (a file an episode) and v3.0 (many episodes a file)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from coevo.core.types import Episode
from coevo.episodes import layout, pixels
from coevo.episodes.importers.assemble import Recording, assemble
from coevo.episodes.importers.config import LeRobotImport
from coevo.episodes.video import read_frames

LEGACY = ("v2.0", "v2.1")


def episodes(folder: Path, config: LeRobotImport) -> Iterator[Episode]:
    """All episodes of a folder, in order. ValueError names the file that is missing, damaged or does not fit."""
    info = _info(folder, config)
    read_metadata = _legacy_metadata if info["codebase_version"] in LEGACY else _metadata
    tasks, entries = read_metadata(folder)
    open_file: tuple[Path, Any] | None = None
    for entry in entries:
        file = folder / info["data_path"].format(**_numbers(entry, info, "data"))
        if open_file is None or open_file[0] != file:
            open_file = (file, _table(file))
        yield assemble(_recording(folder, file, open_file[1], entry, info, tasks, config), config)


def count(folder: Path, config: LeRobotImport) -> int:
    """Number of episodes."""
    return _info(folder, config)["total_episodes"]


def _info(folder: Path, config: LeRobotImport) -> dict[str, Any]:
    path = folder / layout.INFO
    try:
        info = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} cannot be read: {error}; is this a LeRobotDataset folder?") from None
    if info["codebase_version"] not in (*LEGACY, layout.VERSION):
        known = ", ".join((*LEGACY, layout.VERSION))
        raise ValueError(f"{path}: format version {info['codebase_version']} is not known here; known: {known}")
    if info["fps"] != config.interface.control_hz:
        raise ValueError(
            f"{path} has {info['fps']} rows a second, the interface 'control_hz: {config.interface.control_hz:g}'; "
            "every row holds one action, so the two must be equal"
        )
    for feature in filter(None, (config.camera, config.action, config.state, config.success)):
        if feature not in info["features"]:
            raise ValueError(f"{path} has no feature '{feature}'; it has: {', '.join(info['features'])}")
    return info


def _recording(
    folder: Path, file: Path, table: Any, entry: dict[str, Any], info: dict[str, Any], tasks: dict[int, str],
    config: LeRobotImport,
) -> Recording:
    index, where = entry["episode_index"], f"{file}, episode {entry['episode_index']}"
    rows = np.flatnonzero(table.column("episode_index").to_numpy() == index)
    if len(rows) != entry["length"] or len(rows) < 2 or rows[-1] - rows[0] != len(rows) - 1:
        raise ValueError(f"{where}: {len(rows)} rows in the file, {entry['length']} (two or more, together) expected")
    own = table.slice(rows[0], len(rows))
    if config.success is None:
        success = None
    else:
        success = np.array(own.column(config.success).to_pylist(), bool).reshape(-1)
    return Recording(
        where=where,
        instruction=tasks[own.column("task_index")[0].as_py()],
        frames=_frames(folder, own, entry, info, config.camera, where),
        actions=_matrix(own, config.action)[:-1],  # no frame shows what the last action led to
        proprio=_matrix(own, config.state),
        success=success,
    )


def _frames(
    folder: Path, own: Any, entry: dict[str, Any], info: dict[str, Any], camera: str, where: str
) -> np.ndarray:
    if info["features"][camera]["dtype"] == "video":
        # A camera's own file and time: neither is that of the data.
        path = folder / info["video_path"].format(video_key=camera, **_numbers(entry, info, f"videos/{camera}"))
        begin = entry.get(f"videos/{camera}/from_timestamp", 0.0)
        if not path.is_file():
            raise ValueError(f"{where}: its video {path} is missing")
        return read_frames(path, begin, entry["length"], info["fps"])
    files = [
        image["bytes"] if image["bytes"] is not None else (folder / image["path"]).read_bytes()
        for image in own.column(camera).to_pylist()
    ]
    try:
        return pixels.decode(files)
    except (OSError, ValueError) as error:
        raise ValueError(f"{where}: a frame of '{camera}' cannot be decoded: {error}") from None


def _numbers(entry: dict[str, Any], info: dict[str, Any], prefix: str) -> dict[str, int]:
    """What the path templates ask for."""
    if info["codebase_version"] in LEGACY:
        index = entry["episode_index"]
        return {"episode_index": index, "episode_chunk": index // info["chunks_size"]}
    return {name: entry[f"{prefix}/{name}"] for name in ("chunk_index", "file_index")}


def _legacy_metadata(folder: Path) -> tuple[dict[int, str], list[dict[str, Any]]]:
    tasks = {row["task_index"]: row["task"] for row in _lines(folder / "meta/tasks.jsonl")}
    return tasks, sorted(_lines(folder / "meta/episodes.jsonl"), key=lambda row: row["episode_index"])


def _metadata(folder: Path) -> tuple[dict[int, str], list[dict[str, Any]]]:
    table = _table(folder / layout.TASKS)
    (words,) = [name for name in table.column_names if name != "task_index"]
    tasks = dict(zip(table.column("task_index").to_pylist(), table.column(words).to_pylist(), strict=True))
    entries: list[dict[str, Any]] = []
    for file in sorted((folder / "meta/episodes").glob("*/*.parquet")):
        part = _table(file)
        entries += part.select([name for name in part.column_names if not name.startswith("stats/")]).to_pylist()
    return tasks, sorted(entries, key=lambda row: row["episode_index"])


def _matrix(table: Any, name: str) -> np.ndarray:
    return np.array(table.column(name).to_pylist(), np.float32).reshape(len(table), -1)


def _lines(path: Path) -> list[dict[str, Any]]:
    try:
        return [json.loads(line) for line in path.read_text().splitlines() if line]
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} cannot be read: {error}") from None


def _table(path: Path) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.ParquetFile(path).read()
    except (OSError, pa.ArrowInvalid) as error:
        raise ValueError(f"{path} cannot be read: {error}; fetch it again, nothing was imported") from None

"""How episodes lie on disk: a LeRobotDataset v3.0 with our columns beside theirs.

One row per recorded frame, `stride` control steps apart. `action` and `label` of a row are the `stride` actions that
follow its frame, flattened, step by step; the last row of an episode has the null action there. `success` and
`progress` speak of the row's own frame (false and 0 in the first row). What is not known is NaN.
What a start needs and LeRobot has no place for is in meta/coevo/.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from coevo.records.interface import Interface

VERSION = "v3.0"
CAMERA = "observation.image"
STATE, ACTION, LABEL = "observation.state", "action", "label"

INFO = Path("meta/info.json")
STATS = Path("meta/stats.json")
TASKS = Path("meta/tasks.parquet")
EPISODES = Path("meta/episodes/chunk-000/file-000.parquet")
STARTS = Path("meta/coevo/starts.parquet")
INTERFACE = Path("meta/coevo/interface.json")
DATA = "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
VIDEO = "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4"

FILES_PER_CHUNK = 1000
DATA_FILE_MB, VIDEO_FILE_MB = 100, 200
LARGEST_IMAGE = 128
"""Frames up to this many pixels a side are stored without loss; larger ones as video."""


def data_file(number: int) -> Path:
    """Data file by its running number."""
    return Path(DATA.format(chunk_index=number // FILES_PER_CHUNK, file_index=number % FILES_PER_CHUNK))


def video_file(number: int, key: str = CAMERA) -> Path:
    """Video file by its running number, which is not a data file's."""
    return Path(
        VIDEO.format(video_key=key, chunk_index=number // FILES_PER_CHUNK, file_index=number % FILES_PER_CHUNK)
    )


def stored_as_video(height: int, width: int) -> bool:
    """Large frames of even size; the video's colour planes have half the size, so odd ones stay images."""
    return max(height, width) > LARGEST_IMAGE and height % 2 == 0 and width % 2 == 0


def features(interface: Interface, height: int, width: int) -> dict[str, dict[str, Any]]:
    """LeRobot's description of every column."""
    steps = [f"step{step}.{name}" for step in range(interface.stride) for name in interface.action.names]
    single = {"shape": [1], "names": None}
    return {
        CAMERA: {
            "dtype": "video" if stored_as_video(height, width) else "image",
            "shape": [height, width, 3], "names": ["height", "width", "channels"],
        },
        STATE: {"dtype": "float32", "shape": [len(interface.proprio)], "names": list(interface.proprio)},
        ACTION: {"dtype": "float32", "shape": [len(steps)], "names": steps},
        LABEL: {"dtype": "float32", "shape": [len(steps)], "names": steps},
        "success": {"dtype": "bool", **single},
        "progress": {"dtype": "float32", **single},
        "probability": {"dtype": "float32", **single},
        "timestamp": {"dtype": "float32", **single},
        "frame_index": {"dtype": "int64", **single},
        "episode_index": {"dtype": "int64", **single},
        "index": {"dtype": "int64", **single},
        "task_index": {"dtype": "int64", **single},
    }


def info(interface: Interface, columns: dict[str, Any], episodes: int, frames: int, tasks: int) -> dict[str, Any]:
    """meta/info.json."""
    fps = interface.fps
    return {
        "codebase_version": VERSION,
        "robot_type": "simulated",
        "total_episodes": episodes,
        "total_frames": frames,
        "total_tasks": tasks,
        "chunks_size": FILES_PER_CHUNK,
        "data_files_size_in_mb": DATA_FILE_MB,
        "video_files_size_in_mb": VIDEO_FILE_MB,
        "fps": int(fps) if fps == int(fps) else fps,
        "splits": {"train": f"0:{episodes}"},
        "data_path": DATA,
        "video_path": VIDEO if columns[CAMERA]["dtype"] == "video" else None,
        "features": columns,
    }


def tasks_table(tasks: Sequence[str]):
    """meta/tasks.parquet: LeRobot reads it as a pandas frame indexed by the task, which this metadata says."""
    import pyarrow as pa

    table = pa.table({
        "task_index": pa.array(range(len(tasks)), pa.int64()), "task": pa.array(list(tasks), pa.string()),
    })
    column = {"metadata": None}
    described = {
        "index_columns": ["task"],
        "column_indexes": [
            {"name": None, "field_name": None, "pandas_type": "unicode", "numpy_type": "object",
             "metadata": {"encoding": "UTF-8"}}
        ],
        "columns": [
            {"name": "task_index", "field_name": "task_index", "pandas_type": "int64", "numpy_type": "int64"} | column,
            {"name": "task", "field_name": "task", "pandas_type": "unicode", "numpy_type": "object"} | column,
        ],
        "creator": {"library": "pyarrow", "version": pa.__version__},
        "pandas_version": "2.2.0",
    }
    return table.replace_schema_metadata({"pandas": json.dumps(described)})


def data_schema(columns: dict[str, dict[str, Any]]):
    """Arrow schema of the data files; a video column is not in them."""
    import pyarrow as pa

    fields = []
    for name, column in columns.items():
        match column["dtype"]:
            case "video":
                continue
            case "image":
                kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
            case dtype:
                single = pa.bool_() if dtype == "bool" else pa.type_for_alias(dtype)
                width = column["shape"][0]
                vector = name in (STATE, ACTION, LABEL)
                kind = pa.list_(single, width) if vector else single
        fields.append((name, kind))
    return pa.schema(fields)

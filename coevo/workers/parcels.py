"""Artifacts on their way to workers on other nodes: read where the folder is, brought along where it is not."""

from __future__ import annotations

import platform
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coevo.core import artifacts
from coevo.core.artifacts import Artifact
from coevo.workers import cluster

FETCH_SECONDS = 600.0
"""How long one file may take from node to node."""


@dataclass(frozen=True)
class Parcel:
    """Where an artifact lies, and its files in the cluster's object store, fetched one by one where they are needed."""

    path: Path
    id: str
    sha256: str
    files: tuple[tuple[str, Any], ...]
    """Name in the folder and reference; none where the cluster is one node, which has the folder."""


def pack(artifact: Artifact, single_node: bool) -> Parcel:
    """What workers need to open the artifact."""
    names = [] if single_node else [artifacts.MANIFEST, *(entry.path for entry in artifact.manifest.files)]
    put = cluster.connect().put if names else None
    files = tuple((name, put((artifact.path / name).read_bytes())) for name in names)
    return Parcel(artifact.path.absolute(), artifact.id, artifact.manifest.sha256, files)


@contextmanager
def unpacked(parcel: Parcel) -> Iterator[Artifact]:
    """The artifact on this node, verified; what was brought along is removed after the block.

    ValueError if this node has no such folder and nothing was brought along.
    """
    there = _there(parcel)
    if there is not None:
        yield there
        return
    if not parcel.files:
        raise ValueError(f"{parcel.id} is not at {parcel.path} on node {platform.node()}, or is another version of it")
    ray = cluster.connect()
    with tempfile.TemporaryDirectory(prefix="coevo-") as folder:
        for name, reference in parcel.files:
            file = Path(folder, name)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(ray.get(reference, timeout=FETCH_SECONDS))
        yield artifacts.read(Path(folder))


def _there(parcel: Parcel) -> Artifact | None:
    try:
        found = artifacts.read(parcel.path)
    except ValueError:
        return None
    return found if found.manifest.sha256 == parcel.sha256 else None

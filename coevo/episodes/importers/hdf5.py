"""Opening HDF5 files so that a damaged one stops the import and is named."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


def files_of(path: Path) -> list[Path]:
    """The file itself, or the HDF5 files anywhere below a folder, sorted; ValueError if there are none."""
    if path.is_file():
        return [path]
    files = sorted([*path.rglob("*.hdf5"), *path.rglob("*.h5")], key=lambda file: (len(file.name), str(file)))
    if not files:
        raise ValueError(f"{path} has no HDF5 files")
    return files


@contextmanager
def opened(file: Path) -> Iterator[Any]:
    """An open file; faults inside the block that its content causes become ValueErrors with its name."""
    try:
        import h5py
    except ImportError:
        raise ValueError("HDF5 files need the package h5py: pip install 'coevo[hdf5]'") from None
    try:
        with h5py.File(file) as root:
            yield root
    except (OSError, KeyError) as error:
        raise ValueError(f"{file} is damaged or has another layout: {error}; nothing was imported") from error

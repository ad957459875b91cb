"""What an artifact says of itself."""

from __future__ import annotations

from typing import Any, Literal

from coevo.records.base import Config

Kind = Literal[
    "initial_states", "episodes", "dataset", "policy", "world_model", "reward_model", "admission",
    "evaluation", "replay", "decision", "report",
]


class Parent(Config):
    """An artifact that this one was made from."""

    id: str
    sha256: str


class FileEntry(Config):
    """One file of an artifact."""

    path: str
    sha256: str
    bytes: int


class Manifest(Config):
    """manifest.json of an artifact folder. It holds nothing that differs between two runs of the same inputs."""

    kind: Kind
    id: str
    """Path-like name, for example 'default/i003/policy'."""
    stage: str
    """Module that made it."""
    parents: dict[str, Parent]
    """By role, for example {'policy': ..., 'starts': ...}."""
    config: dict[str, Any]
    """The stage's parameters and component configurations, as validated."""
    seed: int
    source_sha256: str
    """Hash of the source files that the stage's module imports from this repository."""
    files: tuple[FileEntry, ...]
    metrics: dict[str, float | int | str | bool | None]
    """A few headline numbers."""
    states: tuple[str, ...] = ()
    """Ids of the initial states that this artifact saw itself (its parents' are found by walking them)."""
    sha256: str
    """Hash over all of the above; an artifact's identity."""

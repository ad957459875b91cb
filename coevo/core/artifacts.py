"""Artifacts: folders that say what they are, verified when read and published whole or not at all.

Only this module knows hashes and publishing. An artifact folder holds its payload, `manifest.json` (what it is) and
`lineage.json` (all it descends from, with the initial states that each ancestor saw), so lineage can be followed and
leaks refused even where the ancestors' own folders are not on this machine. The manifest's hash covers the lineage as
it covers the payload: what an ancestor saw cannot be edited away.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coevo.records.manifest import FileEntry, Kind, Manifest, Parent

MANIFEST, LINEAGE = "manifest.json", "lineage.json"


class Damaged(ValueError):
    """What lies in an artifact's folder is not what was published there."""

    def __init__(self, path: Path, what: str) -> None:
        super().__init__(f"{what}; make it again, or fetch it with 'dvc pull'")
        self.path = path


@dataclass(frozen=True)
class Artifact:
    """A published artifact: its folder and its verified manifest."""

    path: Path
    manifest: Manifest

    @property
    def id(self) -> str:
        """Path-like name, for example 'default/i003/policy'."""
        return self.manifest.id

    def lineage(self) -> dict[str, dict[str, Any]]:
        """Every ancestor and this artifact itself, by hash: {id, kind, stage, parents {role: hash}, states,
        simulator_episodes}, the last one being what this artifact itself took."""
        own = self.manifest
        parents = {role: parent.sha256 for role, parent in own.parents.items()}
        episodes = own.metrics.get("simulator_episodes", own.metrics.get("episodes") if own.kind == "episodes" else 0)
        node = dict(
            id=own.id, kind=own.kind, stage=own.stage, parents=parents, states=list(own.states),
            simulator_episodes=episodes,
        )  # fmt: skip
        return json.loads((self.path / LINEAGE).read_text()) | {own.sha256: node}


def read(path: Path, kind: Kind | None = None) -> Artifact:
    """Open an artifact, or raise ValueError naming the folder, the fault and the way out."""
    try:
        manifest = Manifest.model_validate_json((path / MANIFEST).read_bytes())
    except FileNotFoundError:
        raise Damaged(path, f"{path} is not an artifact (it has no {MANIFEST})") from None
    except ValueError as error:
        raise Damaged(path, f"{path}/{MANIFEST} cannot be read ({error})") from None
    if kind is not None and manifest.kind != kind:
        raise ValueError(f"{path} is an artifact of kind '{manifest.kind}', '{kind}' is needed here")
    for entry in manifest.files:
        file = path / entry.path
        if not file.is_file():
            raise Damaged(path, f"{manifest.id} is damaged: {file} is missing")
        if file.stat().st_size != entry.bytes or file_sha256(file) != entry.sha256:
            raise Damaged(path, f"{manifest.id} is damaged: {file} is not the file that was published")
    if identity(manifest.model_dump(mode="json")) != manifest.sha256:
        raise Damaged(path, f"{path}/{MANIFEST} was edited after it was published")
    return Artifact(path, manifest)


@contextmanager
def writing(out: Path) -> Iterator[Path]:
    """A folder under a temporary name beside `out`, removed if the block fails.

    `publish` inside the block gives it its final name. A full disk is reported by name, with the space that is left.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    for mark in ("writing", "replaced"):
        for leftover in out.parent.glob(f".{out.name}.{mark}-*"):
            if not _alive(int(leftover.name.rsplit("-", 1)[1])):
                shutil.rmtree(leftover, ignore_errors=True)
    folder = out.parent / f".{out.name}.writing-{os.getpid()}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    try:
        yield folder
    except Exception as error:
        if _disk_is_full(error):
            free = shutil.disk_usage(out.parent).free / 2**20
            raise ValueError(
                f"no space left while writing {out} ({free:.0f} MiB free on that disk); nothing was published. "
                "Free some space ('dvc gc --workspace --dry' says what can go) and run the same command again"
            ) from error
        raise
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def publish(
    folder: Path,
    out: Path,
    *,
    kind: Kind,
    id: str,
    stage: str,
    parents: dict[str, Artifact],
    config: dict[str, Any],
    seed: int,
    source_sha256: str,
    metrics: dict[str, Any],
    states: Iterable[str],
) -> Artifact:
    """Write the lineage and the manifest of a finished folder and rename it to `out`, replacing what stood there."""
    lineage: dict[str, dict[str, Any]] = {}
    for parent in parents.values():
        lineage.update(parent.lineage())
    (folder / LINEAGE).write_text(json.dumps(lineage, indent=1, sort_keys=True) + "\n")
    files = tuple(
        FileEntry(path=str(file.relative_to(folder)), sha256=file_sha256(file), bytes=file.stat().st_size)
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    )
    values: dict[str, Any] = dict(
        kind=kind,
        id=id,
        stage=stage,
        parents={role: Parent(id=p.id, sha256=p.manifest.sha256).model_dump() for role, p in sorted(parents.items())},
        config=config,
        seed=seed,
        source_sha256=source_sha256,
        files=[entry.model_dump() for entry in files],
        metrics=metrics,
        states=sorted(set(states)),
    )
    values = json.loads(json.dumps(values))  # the form that is hashed is the form that is read back
    manifest = Manifest.model_validate(values | {"sha256": identity(values)})
    (folder / MANIFEST).write_text(manifest.model_dump_json(indent=1) + "\n")
    _replace(folder, out)
    return Artifact(out, manifest)


def _replace(folder: Path, out: Path) -> None:
    old = out.parent / f".{out.name}.replaced-{os.getpid()}"
    if out.exists():
        out.rename(old)
    folder.rename(out)
    shutil.rmtree(old, ignore_errors=True)


def keep(made: Artifact, place: Path) -> None:
    """Hold on to a published artifact at `place`, by hard links; nothing is kept where the file system has none."""
    shutil.rmtree(place, ignore_errors=True)
    try:
        shutil.copytree(made.path, place, copy_function=os.link)
    except OSError:  # shutil.Error is one too
        shutil.rmtree(place, ignore_errors=True)


def bring_back(place: Path, out: Path) -> Artifact | None:
    """Publish at `out` again what was kept at `place`; none if nothing whole is there."""
    try:
        read(place)
    except ValueError:
        return None
    with writing(out) as folder:
        folder.rmdir()
        shutil.copytree(place, folder)
        _replace(folder, out)
    return read(out)


def refuse_leak(sealed: Artifact, trained: Artifact) -> None:
    """Raise ValueError naming the path if an ancestor of `trained` saw a state of `sealed`."""
    kept = set(sealed.manifest.states)
    lineage = trained.lineage()
    for sha256, node in lineage.items():
        seen = kept.intersection(node["states"])
        if seen:
            path = " <- ".join(_path_to(lineage, trained.manifest.sha256, sha256))
            raise ValueError(
                f"leak: {len(seen)} of the states in {sealed.id} (the first is {min(seen)}) were seen by an ancestor "
                f"of {trained.id}: {path}. Evaluate on states that nothing was trained on, or train again without them"
            )


def simulator_episodes(inputs: Iterable[Artifact], since: Artifact) -> tuple[int, int]:
    """Simulator episodes behind `inputs` that are not behind `since` too, each artifact counted once.

    The second number is how many of the artifacts behind them are episodes of a number that nobody wrote down.
    """
    lineage: dict[str, dict[str, Any]] = {}
    for artifact in inputs:
        lineage.update(artifact.lineage())
    before = since.lineage()
    counts = [
        node.get("simulator_episodes", None if node["kind"] == "episodes" else 0)
        for sha256, node in lineage.items()
        if sha256 not in before
    ]
    known = [count for count in counts if count is not None]
    return sum(known), len(counts) - len(known)


def identity(manifest: dict[str, Any]) -> str:
    """Hash of a manifest's content, its own hash left out."""
    content = {name: value for name, value in manifest.items() if name != "sha256"}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def file_sha256(path: Path) -> str:
    """Hash of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def tree_sha256(path: Path) -> str:
    """Hash of a file, or of the names and contents of a folder's files; ValueError if there are none."""
    if path.is_file():
        return file_sha256(path)
    files = sorted(file for file in path.rglob("*") if file.is_file())
    if not files:
        raise ValueError(f"{path} is not a folder with files in it")
    listing = "".join(f"{file.relative_to(path)} {file_sha256(file)}\n" for file in files)
    return hashlib.sha256(listing.encode()).hexdigest()


def _path_to(lineage: dict[str, dict[str, Any]], start: str, goal: str) -> list[str]:
    """Ids from `start` up to its ancestor `goal`, depth first."""
    if start == goal:
        return [lineage[start]["id"]]
    for parent in lineage[start]["parents"].values():
        rest = _path_to(lineage, parent, goal)
        if rest:
            return [lineage[start]["id"], *rest]
    return []


def _disk_is_full(error: Exception) -> bool:
    """Also where a library of another language wrote: safetensors and torch raise errors of their own kinds."""
    fault: BaseException | None = error
    while fault is not None:
        if getattr(fault, "errno", None) in (errno.ENOSPC, errno.EDQUOT) or os.strerror(errno.ENOSPC) in str(fault):
            return True
        fault = fault.__cause__ or fault.__context__
    return False


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True

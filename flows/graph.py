"""The stages of a dvc.yaml as plain data, in an order in which they can run; needs PyYAML alone.

DVC is the authority on its own file. This reading of it serves those who must know the stages without DVC (a bare GPU
box) or before it has started (a flow's list of tasks); a test holds it against DVC's own.
"""

from __future__ import annotations

import difflib
import itertools
import posixpath
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

_REFERENCE = re.compile(r"\$\{\s*([^}]+?)\s*\}")


@dataclass(frozen=True)
class Stage:
    """One stage with all references resolved. Paths are relative to the repository's root."""

    address: str
    """How DVC calls it from the root: 'train_policy@0', 'start/dvc.yaml:make_initial_states@train'."""
    command: str
    """Runs in the root."""
    deps: tuple[str, ...]
    outs: tuple[str, ...]
    params: tuple[tuple[str, str], ...]
    """(file, key) pairs."""

    @property
    def name(self) -> str:
        """The address without its file."""
        return self.address.rsplit(":", 1)[-1]


def read(root: Path, files: Iterable[str]) -> tuple[Stage, ...]:
    """Stages of these dvc.yaml files (paths relative to the root), each after those it reads from."""
    return ordered([stage for file in files for stage in _stages(root, file)])


def ordered(stages: Iterable[Stage]) -> tuple[Stage, ...]:
    """Each stage after those it reads from; otherwise as given."""
    stages, placed = list(stages), dict[str, Stage]()

    def place(stage: Stage, trail: tuple[str, ...]) -> None:
        if stage.address in trail:
            raise ValueError(f"the stages form a circle: {' <- '.join((*trail, stage.address))}")
        if stage.address not in placed:
            for other in stages:
                if other is not stage and reads_from(stage, other):
                    place(other, (*trail, stage.address))
            placed[stage.address] = stage

    for stage in stages:
        place(stage, ())
    return tuple(placed.values())


def reads_from(stage: Stage, other: Stage) -> bool:
    """Whether a dependency of `stage` is an output of `other`, lies in one, or holds one."""
    return any(_overlap(dep, out) for dep in stage.deps for out in other.outs)


def _overlap(dep: str, out: str) -> bool:
    return dep == out or dep.startswith(f"{out}/") or out.startswith(f"{dep}/")


def downstream(stages: Iterable[Stage], changed: Iterable[str]) -> set[str]:
    """Addresses of the changed stages and of all that read from them, at any depth."""
    found = set(changed)
    touched: list[Stage] = []
    for stage in stages:  # in order, so one pass reaches all
        if stage.address in found or any(reads_from(stage, other) for other in touched):
            found.add(stage.address)
            touched.append(stage)
    return found


def check_parameters(root: Path, files: Iterable[str], stages: Iterable[Stage]) -> None:
    """Hold the params.yaml beside each dvc.yaml against what its stages read.

    ValueError for a key that nothing reads, a misspelled one for example, and for one that is missing.
    """
    wanted: dict[str, dict[str, str]] = {}
    for stage in stages:
        for file, key in stage.params:
            wanted.setdefault(file, {}).setdefault(key.split(".")[0], stage.address)
    for pipeline in files:
        file = posixpath.join(posixpath.dirname(pipeline), "params.yaml")
        read = wanted.get(file, {})
        known = (yaml.safe_load((root / file).read_text()) or {}) if (root / file).is_file() else {}
        named = {found.split(".")[0] for found in _REFERENCE.findall((root / pipeline).read_text())}
        for key in known:
            if key not in read and key not in named:
                near = difflib.get_close_matches(key, read, n=1)
                hint = f"did you mean '{near[0]}'?" if near else f"what is read: {', '.join(read)}"
                raise ValueError(f"{file}: no stage reads the key '{key}'; {hint}")
        for key, address in read.items():
            if key not in known:
                raise ValueError(f"{file}: key '{key}' is missing, which {address} reads")


def check_inputs(root: Path, stages: Iterable[Stage], open_folder: str) -> None:
    """ValueError for a file or folder that a stage reads, that is not there, and that no stage makes.

    Data outside `open_folder`, where the open round's lie, may still be fetched and are DVC's to look for.
    """
    stages = list(stages)
    outs = [out for stage in stages for out in stage.outs]
    for stage in stages:
        for dep in stage.deps:
            elsewhere = dep.startswith("data/") and not dep.startswith(f"{open_folder}/")
            if elsewhere or (root / dep).exists() or any(_overlap(dep, out) for out in outs):
                continue
            there = [str(path.relative_to(root)) for path in (root / dep).parent.glob("*")]
            near = difflib.get_close_matches(dep, [*outs, *there], n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise ValueError(f"{stage.address} reads {dep}, which is not there and which no stage makes{hint}")


def _stages(root: Path, file: str) -> list[Stage]:
    folder = posixpath.dirname(file)
    document = yaml.safe_load((root / file).read_text())
    variables = _variables(root / folder, document.get("vars", ()))
    stages = []
    for name, entry in document["stages"].items():
        matrix = _resolve(entry.get("matrix", {}), variables)
        for values in itertools.product(*matrix.values()):
            item = dict(zip(matrix, values, strict=True))
            suffix = "@" + "-".join(str(value) for value in values) if matrix else ""
            address = name + suffix if file == "dvc.yaml" else f"{file}:{name}{suffix}"
            stages.append(_stage(address, folder, entry, {**variables, "item": item}))
    return stages


def _stage(address: str, folder: str, entry: Mapping[str, Any], variables: Mapping[str, Any]) -> Stage:
    entry = {key: _resolve(value, variables) for key, value in entry.items() if key not in ("matrix", "desc")}
    where = posixpath.normpath(posixpath.join(folder, entry.get("wdir", ".")))
    if where != ".":
        raise ValueError(f"stage '{address}' works in '{where}'; stages work in the repository's root (set 'wdir')")

    def paths(items: Iterable[Any]) -> tuple[str, ...]:
        return tuple(next(iter(item)) if isinstance(item, Mapping) else str(item) for item in items)

    params = [
        (file, key)
        for item in entry.get("params", ())
        for file, keys in (item.items() if isinstance(item, Mapping) else [("params.yaml", [item])])
        for key in keys or ()
    ]
    return Stage(
        address=address,
        command=" ".join(entry["cmd"].split()),
        deps=paths(entry.get("deps", ())),
        outs=paths([*entry.get("outs", ()), *entry.get("metrics", ()), *entry.get("plots", ())]),
        params=tuple(params),
    )


def _variables(folder: Path, listed: Iterable[Any]) -> dict[str, Any]:
    """What `${...}` may name: params.yaml beside the file, as DVC reads it unasked, and the entries of `vars`."""
    values: dict[str, Any] = {}
    for item in ("params.yaml", *listed):
        if isinstance(item, Mapping):
            values.update(item)
        elif (folder / item).is_file():
            values.update(yaml.safe_load((folder / item).read_text()) or {})
    return values


def _resolve(value: Any, variables: Mapping[str, Any]) -> Any:
    if isinstance(value, Mapping):
        return {key: _resolve(item, variables) for key, item in value.items()}
    if isinstance(value, list):
        return [_resolve(item, variables) for item in value]
    if not isinstance(value, str):
        return value
    whole = _REFERENCE.fullmatch(value)
    if whole:  # keeps its type: a matrix is made of lists
        return _look_up(whole[1], variables)
    return _REFERENCE.sub(lambda found: _text(_look_up(found[1], variables)), value)


def _look_up(name: str, variables: Mapping[str, Any]) -> Any:
    value: Any = variables
    for part in name.split("."):
        if not isinstance(value, Mapping) or part not in value:
            raise ValueError(f"'${{{name}}}' in dvc.yaml names nothing in params.yaml or round.yaml")
        value = value[part]
    return value


def _text(value: Any) -> str:
    """As DVC writes a value into a command; a mapping becomes options: {a: x, b: [y, z]} is '--a x --b y z'."""
    if isinstance(value, Mapping):
        options = {name: item if isinstance(item, list) else [item] for name, item in value.items()}
        return " ".join(f"--{name} {' '.join(map(_text, items))}" for name, items in options.items())
    return str(value).lower() if isinstance(value, bool) else str(value)

"""A loop of one's own: a folder below loops/ made from another loop, ready to be edited."""

from __future__ import annotations

import io
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml
from ruamel.yaml import YAML
from ruamel.yaml.scalarstring import FoldedScalarString

from coevo.records.base import read_yaml
from flows.graph import read
from flows.loops import START, Loop, OpenRound
from flows.systems import Recipe, opened

OWN = ("params.yaml", "criterion.yaml", "system.yaml")
"""Files that a loop has copies of, beside dvc.yaml and round.yaml. The default loop's system is a file of configs/."""


def make(loop: Loop, source: Loop) -> list[str]:
    """Write the folder of `loop` after that of `source`; the stages that the new loop has.

    ValueError for a name that cannot be one, and for a folder that is there already.
    """
    _require_free(loop)
    # A new loop begins where the other one did, whatever round that has come to.
    first = source.rounds / "i001" / "round.yaml"
    begun = OpenRound.parse(read_yaml(first), str(first)) if first.is_file() else source.open_round()

    def own_start(text: str) -> str:
        """What the other loop had made for itself, the new one makes for itself too."""
        if source.name == "default":
            return text
        text = text.replace(f"data/{source.name}/start/", f"data/{loop.name}/start/")
        text = text.replace(f"loops/{source.name}/", f"loops/{loop.name}/")
        return text.replace(f"'{source.name}'", f"'{loop.name}'")

    pipeline = with_own_files((source.folder / "dvc.yaml").read_text(), source, loop)
    files: dict[str, str | Path] = {"dvc.yaml": own_start(pipeline)} | {name: source.folder / name for name in OWN}
    if source.name != "default" and (source.root / source.start).is_file():
        files[START] = own_start((source.root / source.start).read_text())
        files["start/params.yaml"] = source.folder / "start" / "params.yaml"
    parents = {role: re.sub(rf"^{source.name}/start/", f"{loop.name}/start/", id) for role, id in begun.parents.items()}
    return _write(loop, files, OpenRound(loop=loop.name, round="i001", parents=parents, origin=begun.origin))


def of_system(loop: Loop, system: str, scale: str) -> list[str]:
    """Write the folder of `loop` for a published system at a scale; the stages that it has, its own start's first.

    ValueError as for `make`, and for a system or a scale that is not there or names what is not there.
    """
    _require_free(loop)
    recipe, default = Recipe.read(loop, system, scale), Loop(root=loop.root)
    note = f"# Parameters of the loop '{loop.name}': the system '{system}' at the scale '{scale}'.\n"
    files: dict[str, str | Path] = {
        "dvc.yaml": with_own_files((default.folder / "dvc.yaml").read_text(), default, loop, recipe.adapt),
        "params.yaml": note + _dumped(recipe.parameters(read_yaml(default.folder / "params.yaml"))),
        "criterion.yaml": "# Fixed before the data is seen. Fractions.\n"
        + yaml.safe_dump(recipe.system.checks.criterion.model_dump(exclude_none=True), sort_keys=False),
        "system.yaml": recipe.file,
        START: recipe.start_pipeline(),
        "start/params.yaml": "# How much the loop's own start holds.\n"
        + _dumped(recipe.start_parameters(read_yaml(default.folder / "start" / "params.yaml"))),
    }
    return _write(loop, files, opened(recipe))


def _require_free(loop: Loop) -> None:
    """ValueError for a name that cannot be one, and for a folder that is there already."""
    if not re.fullmatch(r"[a-z][a-z0-9_]*", loop.name):
        raise ValueError(f"'{loop.name}' cannot name a loop; use small letters, digits and underscores")
    if loop.name in ("default", "start") or loop.folder.exists():
        raise ValueError(f"'{loop.name}' is taken; choose another name, or remove {loop.folder}")


def _write(loop: Loop, files: Mapping[str, str | Path], first: OpenRound) -> list[str]:
    """The loop's folder, whole or not at all; what it is made of is text, or a file to copy if that is there."""
    partial = loop.folder.with_name(f".{loop.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    for name, content in files.items():
        (partial / name).parent.mkdir(exist_ok=True)
        if isinstance(content, str):
            (partial / name).write_text(content)
        elif content.is_file():
            shutil.copyfile(content, partial / name)
    partial.rename(loop.folder)
    loop.write_open_round(first)
    return [stage.address for stage in read(loop.root, loop.files) if not stage.address.startswith(START)]


def _dumped(values: Mapping[str, Any]) -> str:
    """As YAML, lists of numbers and small mappings on one line."""
    return yaml.safe_dump(dict(values), sort_keys=False, default_flow_style=None, width=110)


def with_own_files(
    text: str, source: Loop, loop: Loop, adapt: Callable[[dict[str, Any]], None] = lambda stages: None
) -> str:
    """A dvc.yaml in which params.yaml, round.yaml and criterion.yaml are the new loop's. Comments stay.

    `adapt` may change the stages first, by name.
    """
    editor = YAML()
    editor.width = 4096
    editor.indent(mapping=2, sequence=4, offset=2)
    text = text.replace("the default loop", f"the loop '{loop.name}'", 1)
    text = text.replace("scripts.write_code_deps\n", f"scripts.write_code_deps loops/{loop.name}/dvc.yaml\n", 1)
    document = editor.load(text)
    adapt(document["stages"])
    own = f"loops/{loop.name}/"
    before = "" if source.name == "default" else f"loops/{source.name}/"
    names = "|".join(re.escape(before + name) for name in ("round.yaml", *OWN))
    word = re.compile(rf"(?<![\w./-])({names})(?![\w.-])")

    def moved(value: str) -> str:
        return word.sub(lambda found: own + found[1].removeprefix(before), value)

    for stage in document["stages"].values():
        command = moved(stage["cmd"])
        if not before and stage.get("params"):
            command = f"{command.rstrip()} --params {own}params.yaml"
        stage["cmd"] = _folded(command)
        if "wdir" not in stage:
            stage.insert(list(stage).index("cmd"), "wdir", "../..")
        for index, dep in enumerate(stage.get("deps", ())):
            stage["deps"][index] = moved(dep)
        if stage.get("params"):
            stage["params"] = [_own_parameters(item, own, before) for item in _together(stage["params"])]
    made = io.StringIO()
    editor.dump(document, made)
    return made.getvalue()


def _folded(command: str) -> FoldedScalarString:
    """One option per line, as '>-' folds them."""
    lines = re.split(r"\s+(?=--)", command.strip())
    text = FoldedScalarString(" ".join(lines))
    position, folds = 0, []
    for line in lines[:-1]:
        position += len(line)
        folds.append(position)
        position += 1
    text.fold_pos = folds
    return text


def _together(items: list[Any]) -> list[Any]:
    """Keys of the default params.yaml as one entry."""
    plain = [item for item in items if not isinstance(item, Mapping)]
    return [*([{"params.yaml": plain}] if plain else []), *(item for item in items if isinstance(item, Mapping))]


def _own_parameters(item: Mapping[str, Any], own: str, before: str) -> dict[str, Any]:
    return {f"{own}params.yaml" if file == f"{before}params.yaml" else file: keys for file, keys in item.items()}

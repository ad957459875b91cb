"""A loop of one's own: a folder below loops/ made from another loop, ready to be edited."""

from __future__ import annotations

import io
import re
import shutil
from collections.abc import Mapping
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.scalarstring import FoldedScalarString

from flows.graph import read
from flows.loops import START, Loop, OpenRound, number

OWN = ("params.yaml", "criterion.yaml")
"""Files that a loop has copies of, beside dvc.yaml and round.yaml."""


def make(loop: Loop, source: Loop) -> list[str]:
    """Write the folder of `loop` after that of `source`; the stages that the new loop has.

    ValueError for a name that cannot be one, and for a folder that is there already.
    """
    if not re.fullmatch(r"[a-z][a-z0-9_]*", loop.name):
        raise ValueError(f"'{loop.name}' cannot name a loop; use small letters, digits and underscores")
    if loop.name in ("default", "start") or loop.folder.exists():
        raise ValueError(f"'{loop.name}' is taken; choose another name, or remove {loop.folder}")
    opened = source.open_round()
    pipeline = with_own_files((source.folder / "dvc.yaml").read_text(), source, loop)
    partial = loop.folder.with_name(f".{loop.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    (partial / "dvc.yaml").write_text(pipeline)
    for name in OWN:
        if (source.folder / name).is_file():
            shutil.copyfile(source.folder / name, partial / name)
    partial.rename(loop.folder)
    # A new loop begins where all loops do, whatever round the other one has come to.
    parents = opened.parents if number(opened.round) == 1 else {role: f"start/{role}" for role in opened.parents}
    loop.write_open_round(OpenRound(loop=loop.name, round="i001", parents=parents))
    return [stage.address for stage in read(loop.root, (START, loop.pipeline)) if not stage.address.startswith(START)]


def with_own_files(text: str, source: Loop, loop: Loop) -> str:
    """A dvc.yaml in which params.yaml, round.yaml and criterion.yaml are the new loop's. Comments stay."""
    editor = YAML()
    editor.width = 4096
    editor.indent(mapping=2, sequence=4, offset=2)
    text = text.replace("the default loop", f"the loop '{loop.name}'", 1)
    text = text.replace("scripts.write_code_deps\n", f"scripts.write_code_deps loops/{loop.name}/dvc.yaml\n", 1)
    document = editor.load(text)
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

"""What the stages' own classes say of the values in a loop's params.yaml: type, bounds, choices, meaning; as JSON.

    python -m scripts.describe_parameters --loop default

Prints {"train_policy.algorithm.updates": {"type": "integer", "description": ...}, ...}. A process that must not import
the stages makes forms of it.
"""

from __future__ import annotations

import argparse
import importlib
import json
import re
import sys
import typing
from collections.abc import Iterable, Mapping
from typing import Any

from coevo.records.base import read_yaml
from flows.changes import leaves
from flows.loops import Loop

KEPT = ("type", "enum", "const", "items", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "description")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--loop", default="default")
    loop = Loop(parser.parse_args().loop)
    modules = dict(found for stage in loop.stages() if (found := section_and_module(stage.command)))
    json.dump(describe(modules, read_yaml(loop.folder / "params.yaml")), sys.stdout)


def section_and_module(command: str) -> tuple[str, str] | None:
    """('evaluate_on_sealed', 'tasks.evaluate_policy') of a stage's command; none where it is no module of tasks/."""
    module = re.match(r"python -m (tasks\.(\w+))", command)
    section = re.search(r"--section (\S+)", command)
    return (section[1] if section else module[2], module[1]) if module else None


def describe(modules: Mapping[str, str], values: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The schema of each value, by its path in dots, as far as a stage's Params knows it."""
    found = {}
    for section, module in modules.items():
        if isinstance(values.get(section), Mapping):
            schema = parameters_of(module).model_json_schema()
            for path, _ in leaves(values[section]):
                if (leaf := look_up(schema, path)) is not None:
                    found[".".join((section, *path))] = leaf
    return found


def parameters_of(module: str) -> type:
    """The Params class of a stage's function."""
    function = getattr(importlib.import_module(module), module.rsplit(".", 1)[-1])
    return typing.get_type_hints(function)["params"]


def look_up(schema: Mapping[str, Any], path: Iterable[str]) -> dict[str, Any] | None:
    """What a JSON schema says of one leaf; references and "or null" are followed, true unions are not."""
    place: Mapping[str, Any] = schema
    for key in path:
        place = resolve(schema, place.get("properties", {}).get(key))
        if not place:
            return None
    return {key: place[key] for key in KEPT if key in place} if "type" in place or "enum" in place else None


def resolve(schema: Mapping[str, Any], place: Mapping[str, Any] | None) -> dict[str, Any]:
    """A place of a JSON schema without its reference."""
    place = dict(place or {})
    options = [option for option in place.get("anyOf", ()) if option.get("type") != "null"]
    if len(options) == 1:
        place = {**place, **options[0]}
    if "$ref" in place:
        target = schema["$defs"][place["$ref"].rsplit("/", 1)[-1]]
        place = {**target, **{key: place[key] for key in ("description",) if key in place}}
    return place


if __name__ == "__main__":
    main()

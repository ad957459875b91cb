"""The forms in Prefect's page: what of a loop's params.yaml may be given there, with bounds, choices and meaning.

Every field is empty at first, and an empty field leaves params.yaml as it is: a form sends all that it shows, so a
field that began with the file's value would overrule later edits of the file.
"""

import json
import subprocess
import sys
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from coevo.records.base import read_yaml
from flows import ROOT, repro
from flows.loops import Loop, names

LoopName = Annotated[str, Field(json_schema_extra={"enum": list(names(ROOT))})]
Changes = dict[str, Any] | None
TITLES = {"rounds_wanted": "Rounds", "name": "Stage", "loop": "Loop"}
TYPES = {bool: "boolean", int: "integer", float: "number", str: "string"}


def stage_names(loop: Loop) -> list[str]:
    """Names for the choice of one stage: those of the loop, then those of the start; all items of a matrix at once."""
    all = list(dict.fromkeys(stage.address.split("@")[0] for stage in loop.stages()))
    return sorted(all, key=lambda name: name.startswith("start/"))


def changes_schema(loop: Loop) -> dict[str, Any]:
    """JSON schema of the field Changes for one loop: a group for each section of its params.yaml."""
    values = read_yaml(loop.folder / "params.yaml")
    known = _described(loop)
    groups = {
        key: _group(key, value, known, key) if isinstance(value, Mapping) else _leaf(key, value, known)
        for key, value in values.items()
    }
    return {
        "type": "object",
        "title": "Other values than in params.yaml",
        "description": "Empty fields leave params.yaml as it is; filled ones are written there before anything runs. "
        "A value that a finished stage of the open round ran without is refused.",
        "properties": {key: group for key, group in groups.items() if group},
    }


def _group(title: str, values: Mapping[str, Any], known: Mapping[str, Any], path: str) -> dict[str, Any] | None:
    """Schema of a section; none for one that holds nothing."""
    fields = {}
    for key, value in values.items():
        where = f"{path}.{key}"
        fields[key] = _group(key, value, known, where) if isinstance(value, Mapping) else _leaf(where, value, known)
    fields = {key: field for key, field in fields.items() if field}
    return {"type": "object", "title": title, "properties": fields} if fields else None


def _leaf(path: str, value: Any, known: Mapping[str, Any]) -> dict[str, Any] | None:
    """Schema of a field; none for what a form cannot show well (lists of mappings, and what a loop is about)."""
    key = path.rsplit(".", 1)[-1]
    if path in known and known[path].get("type") != "array":
        shape = dict(known[path])
    elif isinstance(value, list) and value and type(value[0]) in TYPES:
        shape = {"type": "array", "items": {"type": TYPES[type(value[0])]}}
    elif type(value) in TYPES and (type(value) is not str or "." in path):
        shape = {"type": TYPES[type(value)]}
    else:
        return None
    if shape.pop("exclusiveMinimum", None) == 0 and shape["type"] == "integer":  # Prefect's page knows `minimum` alone
        shape["minimum"] = 1
    if shape["type"] == "boolean":  # a switch that nobody touched would be sent as "off"
        shape = {**shape, "type": "string", "enum": ["true", "false"]}
    about = " ".join(shape.pop("description", "").split())
    return {**shape, "title": key, "description": f"{about} Now: {json.dumps(value)}.".strip()}


def _described(loop: Loop) -> dict[str, Any]:
    """What the stages say of their parameters, asked in a process of its own: they import torch, and flows do not."""
    if not any(stage.command.startswith("python -m tasks.") for stage in loop.stages()):
        return {}
    command = [sys.executable, "-m", "scripts.describe_parameters", "--loop", loop.name]
    made = subprocess.run(command, cwd=loop.root, env=repro.environment(), capture_output=True, text=True)
    if made.returncode:
        raise ValueError(f"'{' '.join(command[1:])}' failed:\n{made.stderr.strip()[-1000:]}")
    return json.loads(made.stdout)

"""Strict records: frozen, no unknown keys, and a spelling hint when a key is wrong."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError


class Config(BaseModel):
    """Base of every configuration and record: immutable, and unknown keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    @classmethod
    def parse(cls, values: Any, where: str) -> Self:
        """Validate `values`, or raise ValueError that says where, which key, which value and what was meant."""
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            raise ValueError(explain(error, cls, where)) from None


def parse_kind(
    kinds: Mapping[str, type[Config]], values: Mapping[str, Any], default: str, what: str, where: str
) -> Config:
    """Validate `values` as the record that their 'kind' names; ValueError hints at the nearest kind of `what`."""
    kind = values.get("kind", default)
    if kind not in kinds:
        near = difflib.get_close_matches(str(kind), kinds, n=1, cutoff=0.0)
        raise ValueError(f"{where}: there is no {what} of kind '{kind}'; did you mean '{near[0]}'?")
    return kinds[kind].parse(values, where)


def explain(error: ValidationError, model: type[BaseModel], where: str) -> str:
    """One line per fault: the key's path, what is wrong with it, and the nearest known key if it is unknown."""
    lines = []
    for fault in error.errors():
        key = ".".join(str(part) for part in fault["loc"])
        if fault["type"] == "extra_forbidden":
            near = difflib.get_close_matches(str(fault["loc"][-1]), sorted(known_keys(model)), n=1)
            hint = f"did you mean '{near[0]}'?" if near else f"known keys: {', '.join(sorted(model.model_fields))}"
            lines.append(f"{where}: unknown key '{key}'; {hint}")
        elif fault["type"] == "missing":
            lines.append(f"{where}: key '{key}' is missing")
        else:
            lines.append(f"{where}: '{key}' = {fault['input']!r}: {fault['msg']}")
    return "\n".join(lines)


def known_keys(model: type[BaseModel]) -> set[str]:
    """All field names of a model and of the models inside it (unions included)."""
    found: set[str] = set()
    pending: list[Any] = [model]
    seen: set[Any] = set()
    while pending:
        kind = pending.pop()
        if kind in seen:
            continue
        seen.add(kind)
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            found.update(kind.model_fields)
            pending.extend(field.annotation for field in kind.model_fields.values())
        else:
            pending.extend(getattr(kind, "__args__", ()))
    return found


def read_yaml(path: Path) -> dict[str, Any]:
    """The mapping in a YAML file; ValueError names the file when it is absent or not a mapping."""
    try:
        values = yaml.safe_load(path.read_text())
    except FileNotFoundError:
        siblings = sorted(p.stem for p in path.parent.glob("*.yaml"))
        near = difflib.get_close_matches(path.stem, siblings, n=1)
        hint = f"did you mean '{near[0]}'? " if near else ""
        raise ValueError(f"no such file: {path}; {hint}there is: {', '.join(siblings) or 'nothing'}") from None
    except yaml.YAMLError as error:
        raise ValueError(f"{path} is not valid YAML: {error}") from None
    if not isinstance(values, dict):
        raise ValueError(f"{path} holds {type(values).__name__}, a mapping of keys to values is needed")
    return values

"""Parts of a user's own: any class that can be imported takes the place of one of ours.

`kind: python, target: my_package.robots:MySimulator` in a component's configuration. The class is called with the
interface, an id where the part has one, and `options`; `coevo check` holds it against what is expected of it.
"""

from __future__ import annotations

import importlib
import json
from typing import Any, Literal, TypeVar

from coevo.core.artifacts import Artifact
from coevo.core.models import CONFIG
from coevo.records.base import Config

Settings = TypeVar("Settings", bound=Config)


class PythonPart(Config):
    """A class of the user's own in place of one of ours."""

    kind: Literal["python"] = "python"
    target: str
    """'package.module:Class', importable where the stages run."""
    options: dict[str, Any] = {}
    """Further arguments of the class, by name."""


def settings_type(artifact: Artifact, own: type[Settings]) -> type[Settings] | type[PythonPart]:
    """Which configuration an artifact's model has: the room's own, or that of a user's class."""
    kind = json.loads((artifact.path / CONFIG).read_text()).get("kind")
    return PythonPart if kind == "python" else own


def make(target: str, options: dict[str, Any], **given: Any) -> Any:
    """An instance of the class; ValueError says what is wrong with the target or its arguments."""
    kind = find(target)
    try:
        return kind(**given, **options)
    except TypeError as error:
        raise ValueError(
            f"{target} was called with {', '.join([*given, *options])}: {error}; it takes these by name, those after "
            f"{list(given)[-1]!r} from 'options'"
        ) from error


def find(target: str) -> type:
    """The class that 'package.module:Class' names; ValueError if there is none."""
    module, sign, name = target.partition(":")
    if not sign or not name:
        raise ValueError(f"'target' = {target!r} is not of the form 'package.module:Class'")
    try:
        found = getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        raise ValueError(f"{target}: {error}; install the package, or run where it can be imported") from None
    except AttributeError:
        raise ValueError(f"{target}: the module has no '{name}'") from None
    if not isinstance(found, type):
        raise ValueError(f"{target} is {type(found).__name__}, a class is needed")
    return found

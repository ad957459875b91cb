"""Values that a form or a command line gives for one loop: written to its params.yaml before a stage runs.

params.yaml stays the only truth: what is not given there is not changed, and what is given is found there afterwards,
by `git diff` and by a plain `dvc repro` alike. Values that finished stages of the open round did not run with are
refused, since those stages would run anew; a person who means that edits the file.
"""

from __future__ import annotations

import difflib
import io
import os
from collections.abc import Iterator, Mapping
from typing import Any

import yaml
from ruamel.yaml import YAML

from coevo.records.base import read_yaml
from flows import rounds
from flows.loops import Loop


def given(changes: Mapping[str, Any] | None) -> dict[str, Any]:
    """The values that were filled in: a form sends its empty fields too."""
    kept = {}
    for key, value in (changes or {}).items():
        value = given(value) if isinstance(value, Mapping) else value
        if value not in (None, "", {}, []):
            kept[key] = value
    return kept


def parse(settings: list[str]) -> dict[str, Any]:
    """Changes from words like 'train_policy.algorithm.updates=4'; the value is read as YAML."""
    changes: dict[str, Any] = {}
    for setting in settings:
        path, sign, text = setting.partition("=")
        if not sign:
            raise ValueError(f"'{setting}' is not of the form section.key=value")
        *sections, key = path.strip().split(".")
        place = changes
        for section in sections:
            place = place.setdefault(section, {})
        place[key] = yaml.safe_load(text)
    return changes


def apply(loop: Loop, changes: Mapping[str, Any] | None) -> bool:
    """Write given values to the loop's params.yaml, in one step and with its comments; whether anything changed.

    ValueError for a key that params.yaml does not have, and for one that a finished stage of the open round reads.
    """
    file = loop.folder / "params.yaml"
    now = read_yaml(file)
    sent = [(path, _as_there(value, _look_up(now, path))) for path, value in leaves(given(changes))]
    new = [(path, value) for path, value in sent if _look_up(now, path) != value]
    if not new:
        return False
    for path, _ in new:
        if path[0] not in now:
            near = difflib.get_close_matches(path[0], now, n=1)
            hint = f"did you mean '{near[0]}'?" if near else f"it has: {', '.join(now)}"
            raise ValueError(f"{file.relative_to(loop.root)} has no key '{path[0]}'; {hint}")
    _refuse_done(loop, now, new)
    editor = YAML()
    editor.preserve_quotes = True
    editor.width = 200
    document = editor.load(file.read_text())
    for path, value in new:
        place = document
        for key in path[:-1]:
            if not isinstance(place.get(key), Mapping):
                place[key] = {}
            place = place[key]
        place[path[-1]] = value
    text = io.StringIO()
    editor.dump(document, text)
    partial = file.with_suffix(".yaml.partial")
    partial.write_text(text.getvalue())
    os.replace(partial, file)
    return True


def leaves(values: Mapping[str, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """(path, value) of everything that is not a mapping."""
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from leaves(value, (*above, key))
        else:
            yield (*above, key), value


def _refuse_done(loop: Loop, now: Mapping[str, Any], new: list[tuple[tuple[str, ...], Any]]) -> None:
    left = {stage.address for stage in rounds.left_to_do(loop)}
    own = str((loop.folder / "params.yaml").relative_to(loop.root))
    for stage in loop.stages():
        read = {key.split(".")[0] for file, key in stage.params if file == own}
        touched = [path for path, _ in new if path[0] in read and stage.address not in left]
        if touched:
            key = ".".join(touched[0])
            done = (
                f"{loop.open_round().round} has already run {stage.address} with {key} = {_look_up(now, touched[0])!r}"
            )
            raise ValueError(
                f"{done}; give the value to the next round, or change it in {own} to have the stage run again"
            )


def _as_there(value: Any, there: Any) -> Any:
    """A form's choice of 'true' or 'false' where params.yaml has one of the two."""
    return value == "true" if isinstance(there, bool) and value in ("true", "false") else value


def _look_up(values: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        if not isinstance(values, Mapping) or key not in values:
            return None
        values = values[key]
    return values

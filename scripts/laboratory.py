"""Stages run one after the other in this process, for experiments that need many of them and no DVC.

The commands are those of dvc.yaml; what is saved is the start of a process and of its GPU context for each stage.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from coevo.core import artifacts, stage
from coevo.core.artifacts import Artifact, file_sha256


class Laboratory:
    """A folder of artifacts, `<folder>/data/<name>`. What is there already is not made again.

    `<folder>/made/<name>.json` says from what: a ValueError where the same name is asked for with other parameters,
    another seed or other inputs, since figures would then be told of what was never made.
    """

    def __init__(self, folder: Path, seed: int = 0, quiet: bool = True) -> None:
        self.folder, self.seed, self.quiet = folder, seed, quiet
        self.began = time.monotonic()
        folder.mkdir(parents=True, exist_ok=True)

    def make(self, task: str, name: str, params: dict[str, Any], *, seed: int | None = None, **inputs: Any) -> Artifact:
        """Run the stage `task` and return data/<name>; inputs are artifacts, paths, or lists of them."""
        out, wanted = self.folder / "data" / name, self._made_of(task, params, seed, inputs)
        record = self.folder / "made" / f"{name.replace('/', '-')}.json"
        if (out / artifacts.MANIFEST).exists():
            self._require_alike(out, json.loads(record.read_text()) if record.exists() else {}, wanted)
            return artifacts.read(out)
        record.parent.mkdir(parents=True, exist_ok=True)
        record.write_text(json.dumps(wanted))
        file = self.folder / "params" / f"{name.replace('/', '-')}.yaml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(yaml.safe_dump({task: params}))
        arguments = ["--out", str(out), "--params", str(file), "--seed", str(self.seed if seed is None else seed)]
        for role, value in inputs.items():
            values = value if isinstance(value, (list, tuple)) else [value]
            arguments += [f"--{role.replace('_', '-')}", *(str(getattr(item, "path", item)) for item in values)]
        began = time.monotonic()
        function = getattr(importlib.import_module(f"tasks.{task}"), task)
        with contextlib.redirect_stdout(io.StringIO()) if self.quiet else contextlib.nullcontext():
            made = stage.run_command(function, arguments)
        took = time.monotonic() - began
        self._times(name).parent.mkdir(parents=True, exist_ok=True)
        self._times(name).write_text(json.dumps(took))
        self.say(f"{name}: {took:.1f} s {json.dumps(made.manifest.metrics)}")
        return made

    def seconds(self, wanted: Callable[[str], bool]) -> float:
        """How long it took to make the artifacts whose names are wanted, whichever call made them."""
        return sum(json.loads(file.read_text()) for file in self._times("x").parent.glob("*.json") if wanted(file.stem))

    def _made_of(
        self, task: str, params: dict[str, Any], seed: int | None, inputs: dict[str, Any]
    ) -> dict[str, Any]:  # fmt: skip
        """All that decides the artifact, as JSON holds it: neither where nor by how many it is made."""

        def content(value: Any) -> Any:
            if isinstance(value, (list, tuple)):
                return [content(item) for item in value]
            if isinstance(value, Artifact):
                return value.manifest.sha256
            file = Path(value)
            return file_sha256(file / artifacts.MANIFEST if file.is_dir() else file)

        roles = {role: content(value) for role, value in sorted(inputs.items())}
        deciding = {key: value for key, value in params.items() if key not in ("workers", "device")}
        made = dict(task=task, params=deciding, seed=self.seed if seed is None else seed, inputs=roles)
        return json.loads(json.dumps(made))

    @staticmethod
    def _require_alike(out: Path, made: dict[str, Any], wanted: dict[str, Any]) -> None:
        for key, value in wanted.items():
            if made.get(key) != value:
                raise ValueError(
                    f"{out} was made with {key} = {json.dumps(made.get(key))}, and is asked for with "
                    f"{json.dumps(value)}; use another --lab, or remove it and all that was made from it"
                )

    def _times(self, name: str) -> Path:
        return self.folder / "seconds" / f"{name.replace('/', '-')}.json"

    def say(self, text: str) -> None:
        """A line with the seconds since the laboratory opened."""
        print(f"[{time.monotonic() - self.began:6.1f}] {text}", flush=True)

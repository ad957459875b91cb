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
from coevo.core.artifacts import Artifact


class Laboratory:
    """A folder of artifacts, `<folder>/data/<name>`. What is there already is not made again."""

    def __init__(self, folder: Path, seed: int = 0, quiet: bool = True) -> None:
        self.folder, self.seed, self.quiet = folder, seed, quiet
        self.began = time.monotonic()
        folder.mkdir(parents=True, exist_ok=True)

    def make(self, task: str, name: str, params: dict[str, Any], *, seed: int | None = None, **inputs: Any) -> Artifact:
        """Run the stage `task` and return data/<name>; inputs are artifacts, paths, or lists of them."""
        out = self.folder / "data" / name
        if (out / artifacts.MANIFEST).exists():
            return artifacts.read(out)
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

    def _times(self, name: str) -> Path:
        return self.folder / "seconds" / f"{name.replace('/', '-')}.json"

    def say(self, text: str) -> None:
        """A line with the seconds since the laboratory opened."""
        print(f"[{time.monotonic() - self.began:6.1f}] {text}", flush=True)

"""What every stage has in common: arguments, parameters, verified inputs, progress, and a whole artifact at the end.

A stage is a module in `tasks/` with a function of three typed arguments::

    def collect_rollouts(inputs: Inputs, params: Params, run: Run) -> Result: ...

    if __name__ == "__main__":
        stage.main(collect_rollouts)

`Inputs` is a frozen dataclass of artifacts and files, each an argument of the command line; `Params` is a Config read
from the section of params.yaml that bears the stage's name.
"""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import json
import os
import platform
import resource
import shutil
import sys
import time
import typing
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from coevo.core import artifacts, source
from coevo.core.artifacts import Artifact
from coevo.records.base import Config, read_yaml
from coevo.records.manifest import Kind

DAMAGED = ".local/damaged.json"
"""Where a stage that ends over a damaged input names its folder."""
UNDER_A_FLOW = "COEVO_STAGE_OF"
"""Environment variable that flows set (flows.lock.MARK).

DVC removes an output before it runs its stage, and writes down what was made after the stage has ended. For a kill
between the two, a finished artifact is kept until the flow knows that DVC has it.
"""


def artifact(kind: Kind, help: str, optional: bool = False) -> Any:
    """A field of Inputs: one artifact of this kind."""
    return field(metadata=dict(kind=kind, help=help, many=False), **({"default": None} if optional else {}))


def artifact_list(kind: Kind, help: str) -> Any:
    """A field of Inputs: any number of artifacts of this kind, in the order given."""
    return field(metadata=dict(kind=kind, help=help, many=True), default=())


def config_file(help: str, optional: bool = False) -> Any:
    """A field of Inputs: a YAML file, whose content goes into the manifest."""
    return field(metadata=dict(kind=None, help=help, many=False), **({"default": None} if optional else {}))


def raw_folder(help: str) -> Any:
    """A field of Inputs: files that are not an artifact yet; their hash goes into the manifest."""
    return field(metadata=dict(kind="raw", help=help, many=False))


@dataclass(frozen=True)
class Result:
    """What a stage function returns; the folder it filled becomes the artifact."""

    kind: Kind
    metrics: dict[str, Any] = field(default_factory=dict)
    states: Sequence[str] = ()
    """Ids of the initial states that this stage itself put into what it made."""


@dataclass
class Run:
    """The stage's surroundings: where to write, the seed, and how to say what goes on."""

    id: str
    """Id of the artifact in the making, for example 'default/i003/policy'."""
    folder: Path
    """Write here; it becomes the artifact when the stage returns."""
    scratch: Path
    """For checkpoints of a long stage: outlives a kill, removed when the stage is done."""
    seed: int
    _last_line: float = 0.0
    _began: dict[str, float] = field(default_factory=dict)

    def log(self, **numbers: float | int | str | None) -> None:
        """Append one line to the artifact's metrics.jsonl. Nothing that differs between two equal runs belongs here."""
        with (self.folder / "metrics.jsonl").open("a") as file:
            file.write(json.dumps(numbers) + "\n")

    def progress(self, label: str, done: int, total: int, note: str = "") -> None:
        """Say how far a long part has come, at most once a second, as a line that people and flows can read."""
        now = time.monotonic()
        began = self._began.setdefault(label, now)
        if done < total and now - self._last_line < 1.0:
            return
        self._last_line = now
        left = (now - began) / done * (total - done) if done else float("nan")
        remaining = f"{left:.0f} s left" if done and done < total else ""
        print(f"PROGRESS {label} {done}/{total} {remaining} {note}".rstrip(), flush=True)

    def track(self, label: str, items: Sequence[Any]) -> Iterator[Any]:
        """Iterate over `items` with progress."""
        for index, item in enumerate(items):
            self.progress(label, index, len(items))
            yield item
        self.progress(label, len(items), len(items))


def main(function: Callable[[Any, Any, Run], Result]) -> None:
    """Run a stage from the command line. A fault that a user can mend ends with status 2 and one clear message."""
    try:
        run_command(function, sys.argv[1:])
    except ValueError as error:
        if isinstance(error, artifacts.Damaged):  # for the flow, which may have DVC bring it back
            Path(DAMAGED).parent.mkdir(exist_ok=True)
            Path(DAMAGED).write_text(json.dumps(dict(path=str(error.path))))
        print(f"{function.__name__}: {error}", file=sys.stderr, flush=True)
        sys.exit(2)


def run_command(function: Callable[[Any, Any, Run], Result], arguments: Sequence[str]) -> Artifact:
    """Run a stage from its arguments in this process; ValueError for a fault that a user can mend."""
    hints, args, params, seed = parse_command(function, arguments)
    inputs, parents, config = _open_inputs(hints["inputs"], args)
    began = time.time()
    made = run_stage(function, inputs, params, args.out, seed=seed, parents=parents, config=config)
    _record_run(made, began)
    print(f"made {made.id} {made.manifest.sha256[:12]} {json.dumps(made.manifest.metrics)}", flush=True)
    return made


def parse_command(
    function: Callable[[Any, Any, Run], Result], arguments: Sequence[str]
) -> tuple[dict[str, Any], argparse.Namespace, Config, int]:
    """The stage's types, its arguments, its valid parameters, its seed. Opens no artifact; ValueError as above."""
    name = function.__name__
    hints = typing.get_type_hints(function)
    about = sys.modules[function.__module__].__doc__
    parser = argparse.ArgumentParser(prog=f"python -m tasks.{name}", description=about)
    for item in dataclasses.fields(hints["inputs"]):
        required = item.default is dataclasses.MISSING
        parser.add_argument(
            f"--{item.name.replace('_', '-')}", type=Path, help=item.metadata["help"], required=required,
            **(dict(nargs="*", default=[]) if item.metadata["many"] else {}),
        )
    parser.add_argument("--out", type=Path, required=True, help="folder of the artifact to make")
    parser.add_argument("--params", type=Path, default=Path("params.yaml"), help="file of parameters")
    parser.add_argument("--section", default=name, help="section of it (default: the stage's name)")
    parser.add_argument("--seed", type=int, help="seed; default: 'seed' in the parameters")
    args = parser.parse_args(arguments)
    values = read_yaml(args.params)
    if args.section not in values and args.section != name:
        near = difflib.get_close_matches(args.section, values, n=1)
        hint = f"did you mean '{near[0]}'?" if near else f"it has {', '.join(values)}"
        raise ValueError(f"{args.params} has no section '{args.section}'; {hint}")
    params = hints["params"].parse(values.get(args.section) or {}, f"{args.params}, section '{args.section}'")
    seed = args.seed if args.seed is not None else values.get("seed", 0)
    if type(seed) is not int:
        raise ValueError(f"{args.params}: 'seed' = {seed!r} is not a whole number")
    return hints, args, params, seed


def run_stage(
    function: Callable[[Any, Any, Run], Result],
    inputs: Any,
    params: Config,
    out: Path,
    *,
    seed: int,
    parents: dict[str, Artifact],
    config: dict[str, Any] | None = None,
) -> Artifact:
    """Run a stage function and publish what it made at `out`."""
    module = function.__module__ if function.__module__ != "__main__" else f"tasks.{function.__name__}"
    id = artifact_id(out)
    config = {"params": params.model_dump(mode="json"), **(config or {})}
    source_sha256 = source.source_sha256(module)
    hashes = {role: parent.manifest.sha256 for role, parent in parents.items()}
    scratch = _scratch(id, dict(config=config, seed=seed, source=source_sha256, parents=hashes))
    finished = scratch.with_name(f"finished-{scratch.name}")
    under_a_flow = UNDER_A_FLOW in os.environ
    if under_a_flow and (made := artifacts.bring_back(finished, out)) is not None:
        print(f"{id} had been made when DVC was killed; it is taken up", flush=True)
        return made
    with artifacts.writing(out) as folder:
        result = function(inputs, params, Run(id=id, folder=folder, scratch=scratch, seed=seed))
        made = artifacts.publish(
            folder, out, kind=result.kind, id=id, stage=module, parents=parents, config=config, seed=seed,
            source_sha256=source_sha256, metrics=result.metrics, states=result.states,
        )
    if under_a_flow:
        artifacts.keep(made, finished)
    shutil.rmtree(scratch, ignore_errors=True)
    return made


def artifact_id(out: Path) -> str:
    """The path below `data/`, or the last three names of a path elsewhere."""
    parts = out.absolute().parts
    if "data" in parts:
        return "/".join(parts[len(parts) - parts[::-1].index("data") :])
    return "/".join(parts[-3:])


def _scratch(id: str, made_from: dict[str, Any]) -> Path:
    """Where a stage keeps checkpoints. They are found again only by a run of the same inputs, parameters and code."""
    root = Path(".local/scratch") / id
    own = root / f"run-{artifacts.identity(made_from)[:12]}"
    for other in root.glob("run-*"):
        if other != own:
            shutil.rmtree(other, ignore_errors=True)
    return own


def _open_inputs(kind: type, args: argparse.Namespace) -> tuple[Any, dict[str, Artifact], dict[str, Any]]:
    values: dict[str, Any] = {}
    parents: dict[str, Artifact] = {}
    config: dict[str, Any] = {}
    for item in dataclasses.fields(kind):
        given = getattr(args, item.name)
        if item.metadata["kind"] is None:
            values[item.name] = given
            if given is not None:
                config[item.name] = read_yaml(given)
        elif item.metadata["kind"] == "raw":
            values[item.name] = given
            config[item.name] = {"name": given.name, "sha256": artifacts.tree_sha256(given)}
        elif item.metadata["many"]:
            values[item.name] = tuple(artifacts.read(path, item.metadata["kind"]) for path in given)
            parents.update({f"{item.name}.{index}": made for index, made in enumerate(values[item.name])})
        elif given is not None:
            values[item.name] = parents[item.name] = artifacts.read(given, item.metadata["kind"])
        else:
            values[item.name] = None
    return kind(**values), parents, config


def _record_run(made: Artifact, began: float) -> None:
    """Timings, host and memory of this run, outside the artifact: no hash may cover them."""
    file = Path(".local/runs") / f"{made.id}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    usage = resource.getrusage(resource.RUSAGE_SELF)
    record = dict(
        id=made.id, sha256=made.manifest.sha256, began=began, seconds=time.time() - began,
        cpu_seconds=usage.ru_utime + usage.ru_stime, peak_mib=usage.ru_maxrss / 1024,
        host=platform.node(), machine=platform.machine(), python=platform.python_version(), command=sys.argv,
    )
    file.write_text(json.dumps(record, indent=1) + "\n")

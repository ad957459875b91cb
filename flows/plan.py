"""What a round will take, before it is run: time, memory, disk, episodes in the simulator.

Time, memory and disk are those of the last run of the same stage in this loop, scaled by the counts in params.yaml;
where there is none, those of a round on two CPU cores that ships with the project. Episodes are counted from
params.yaml alone. An estimate, which says what it stands on.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from coevo.records.base import read_yaml
from coevo.records.manifest import Manifest
from flows.graph import Stage
from flows.loops import Loop, number

REFERENCE = "docs/results/laptop_stages.json"
"""Stages of one round of the default loop on two CPU cores."""
COUNTS = ("steps", "updates", "states", "group", "repeats", "count", "episodes")
"""Parameters to whose product a stage's work is proportional."""
WEIGHTS = "weights.safetensors"
BYTES_PER_WEIGHT = 16
"""While training in float32: the weight, its gradient, two moments of Adam."""


@dataclass(frozen=True)
class Record:
    """What one run of a stage took."""

    seconds: float
    peak_mib: float
    bytes: int | None
    """Of what it made; none where nobody wrote it down."""
    params: Mapping[str, Any]
    """The section that it ran with."""
    where: str
    """'i002', or 'two CPU cores'."""


@dataclass(frozen=True)
class Estimate:
    """What one stage will take; none where there is nothing to go by."""

    stage: Stage
    seconds: float | None
    mib: float | None
    bytes: int | None
    episodes: int
    basis: str


def estimates(loop: Loop, stages: list[Stage]) -> list[Estimate]:
    """One for each stage."""
    known = {**reference(loop.root), **records(loop)}
    sizes = state_counts(loop.root)
    found = []
    for stage in stages:
        section = _section(loop.root, stage)
        record = known.get(place(loop, stage.outs[0])) if stage.outs else None
        factor = growth(section, record.params) if record else 1.0
        floor = _weights_mib(loop.root, stage)
        found.append(
            Estimate(
                stage,
                seconds=record.seconds * factor if record else None,
                mib=max(record.peak_mib, floor) if record else floor or None,
                bytes=round(record.bytes * max(1.0, factor)) if record and record.bytes else None,
                episodes=simulator_episodes(stage, section, sizes),
                basis=record.where + (f" x {factor:.2g}" if abs(factor - 1) > 0.01 else "") if record else "-",
            )
        )
    return found


def place(loop: Loop, out: str) -> str:
    """An output's name in any round: 'policy/0' of 'data/default/i002/policy/0', 'start/policy' as it is."""
    return re.sub(rf"^data/{re.escape(loop.name)}/i\d+/", "", out).removeprefix("data/")


def records(loop: Loop) -> dict[str, Record]:
    """The last run of each stage: closed rounds' from rounds/<id>/, the open one's and the start's from .local/runs."""
    found: dict[str, Record] = {}
    for file in sorted(loop.rounds.glob("i*/run.json"), key=lambda file: number(file.parent.name)):
        params = read_yaml(file.with_name("params.yaml"))
        sealed = (
            yaml.safe_load(file.with_name("sealed.dvc").read_text()) if file.with_name("sealed.dvc").is_file() else {}
        )
        sizes = {out["path"]: out.get("size") for out in sealed.get("outs", ())}
        for run in json.loads(file.read_text())["stages"]:
            out = f"data/{run['id']}"
            section = params.get(_section_name(" ".join(run["command"]))) or {}
            found[place(loop, out)] = _record(run, sizes.get(out), section, file.parent.name)
    opened = loop.root / ".local" / "runs"
    for folder in (opened / "start", opened / loop.name / "start", opened / loop.name / loop.open_round().round):
        for file in sorted(folder.rglob("*.json")):
            run = json.loads(file.read_text())
            manifest = loop.root / "data" / run["id"] / "manifest.json"
            if manifest.is_file():
                made = Manifest.model_validate_json(manifest.read_bytes())
                size = sum(entry.bytes for entry in made.files)
                found[place(loop, f"data/{run['id']}")] = _record(
                    run,
                    size,
                    made.config.get("params", {}),
                    run["id"].split("/")[1] if folder.name != "start" else "start",
                )
    return found


def reference(root: Path) -> dict[str, Record]:
    """Records that ship with the project."""
    file = root / REFERENCE
    return {name: Record(**run) for name, run in json.loads(file.read_text()).items()} if file.is_file() else {}


def growth(now: Mapping[str, Any], before: Mapping[str, Any]) -> float:
    """By what factor the work of a section grew: the product over the counts that both hold, at any depth."""
    factor = 1.0
    for key, value in now.items():
        old = before.get(key)
        if isinstance(value, Mapping) and isinstance(old, Mapping):
            factor *= growth(value, old)
        elif key in COUNTS and _counted(value) > 0 and _counted(old) > 0:
            factor *= _counted(value) / _counted(old)
    return factor


def _counted(value: Any) -> float:
    """A number, or the sum of the counts in a list of parts."""
    if isinstance(value, list | tuple):
        return sum(_counted(item.get("count")) for item in value if isinstance(item, Mapping))
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else 0.0


def state_counts(root: Path) -> dict[str, int]:
    """Initial states by artifact ('data/start/train_states'): as made, or as start/params.yaml has it."""
    found = {}
    file = root / "start" / "params.yaml"
    for key, value in (read_yaml(file) if file.is_file() else {}).items():
        if isinstance(value, Mapping) and "count" in value:
            found[f"data/start/{key}"] = int(value["count"])
    for manifest in (root / "data" / "start").glob("*_states/manifest.json"):
        made = Manifest.model_validate_json(manifest.read_bytes())
        found[f"data/start/{manifest.parent.name}"] = int(made.metrics.get("states", 0))
    return found


def simulator_episodes(stage: Stage, section: Mapping[str, Any], sizes: Mapping[str, int]) -> int:
    """Episodes that a stage runs in the simulator, at most: dreams are replayed where they look like successes."""
    options = dict(re.findall(r"--(\S+) (\S+)", stage.command))

    def states(option: str) -> int:
        return sizes.get(options.get(option, ""), 0)

    module = re.search(r"-m tasks\.(\w+)", stage.command)
    name, repeats = module[1] if module else "", section.get("repeats")
    if name == "collect_demonstrations":
        return _listed(section, "episodes") + _paired(section)
    if name == "collect_rollouts":
        own = min(states("starts"), section.get("states") or states("starts")) * (repeats or 2)
        return own + _listed(section, "near_success") + _paired(section)
    if name == "evaluate_policy":
        return states("states") * (repeats or 2)
    if name in ("admit_world_model", "replay_dreams"):
        shifted = 2 * section.get("shifts", 0)  # of each recorded episode; two from a state unless told otherwise
        return states("states") * ((repeats or 1) + shifted)
    if name == "train_policy":
        algorithm, every = section.get("algorithm", {}), section.get("validate_every", 4)
        updates = algorithm.get("updates", 0)
        checked = min(states("validation"), section.get("validation_states") or states("validation"))
        checks = 1 - (-updates // every) if every else 0  # before the first update, along the way, after the last
        direct = section.get("environment") == "simulator"
        acted = updates * algorithm.get("states", 0) * algorithm.get("group", 0) if direct else 0
        probed = 0 if direct else min(checked, section.get("probe_states", 16))
        return checks * (checked * section.get("validation_repeats", 1) + probed) + acted
    return 0


def _listed(section: Mapping[str, Any], key: str) -> int:
    return sum(int(item.get("count", 0)) for item in section.get(key, ()))


def _paired(section: Mapping[str, Any]) -> int:
    """Of each state the undisturbed expert and so many disturbed ones."""
    return sum(int(pair["states"]) * (1 + int(pair.get("per_state", 1))) for pair in section.get("pairs", ()))


def _record(run: Mapping[str, Any], size: int | None, params: Mapping[str, Any], where: str) -> Record:
    return Record(run["seconds"], run["peak_mib"], size, params, where)


def _section(root: Path, stage: Stage) -> Mapping[str, Any]:
    """The parameters of a stage as they stand in its file."""
    file = re.search(r"--params (\S+)", stage.command)
    path = root / (file[1] if file else "params.yaml")
    value = (read_yaml(path) if path.is_file() else {}).get(_section_name(stage.command))
    return value if isinstance(value, Mapping) else {}


def _section_name(command: str) -> str:
    """'evaluate_on_sealed' of a command line, as a person or a run's record has it."""
    section = re.search(r"--section (\S+)", command)
    module = re.search(r"tasks[./](\w+)", command)
    return section[1] if section else module[1] if module else ""


def _weights_mib(root: Path, stage: Stage) -> float:
    """Memory that training the models which a stage reads needs at least; 0 for a stage that trains none."""
    if "tasks.train_" not in stage.command:
        return 0.0
    sizes = [(root / dep / WEIGHTS).stat().st_size for dep in stage.deps if (root / dep / WEIGHTS).is_file()]
    return max(sizes, default=0) / 4 * BYTES_PER_WEIGHT / 2**20

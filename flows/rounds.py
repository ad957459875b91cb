"""Opening the next round, which seals the one before.

A closed round keeps its data under one DVC file, `rounds/<id>/sealed.dvc`, beside its dvc.lock, parameters, criterion,
decision and run.json. Every step is one rename, in an order from which `reconcile` can finish after a kill.
"""

import json
import os
import platform
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import yaml

from coevo.records.base import read_yaml
from flows import graph, mending, repro
from flows.loops import START, Before, Loop, OpenRound, number, round_id

KEPT_PACKAGES = ("torch", "numpy", "diffusers", "transformers", "mujoco", "metaworld", "dvc", "prefect", "ray")
SEAL, UNFINISHED = "sealed.dvc", "sealed.unfinished"


def left_to_do(loop: Loop) -> list[graph.Stage]:
    """Stages that changed, or read from one that did, in order. Empty when the open round is finished."""
    stages = loop.stages()
    stale = graph.downstream(stages, repro.status(loop.root, loop.files))
    return [stage for stage in stages if stage.address in stale]


def open_next(loop: Loop) -> str:
    """Seal the finished open round and open the one after it; its id."""
    closed = loop.open_round()
    decision = loop.decision(closed.round)
    if decision is None:
        raise ValueError(f"round {closed.round} has no decision yet; finish it first with 'coevo run'")
    opened = OpenRound(
        loop=closed.loop,
        round=round_id(number(closed.round) + 1),
        parents=next_parents(loop, closed, decision.parents),
        before=before(loop, closed),
        origin=closed.origin,
    )
    _record(loop, closed)
    # From here on `reconcile` can do the rest. DVC refuses two owners of one path, so the pointer moves first.
    loop.write_open_round(opened)
    reconcile(loop)
    return opened.round


def next_parents(loop: Loop, closed: OpenRound, decided: dict[str, str]) -> dict[str, str]:
    """Artifact ids that the next round starts from.

    A decision names the closed round itself where the next one goes on from what it made; anything else is an artifact
    id already. A role that the decision does not name keeps its parent.
    """
    unknown = sorted(set(decided) - set(closed.parents))
    if unknown:
        raise ValueError(
            f"the decision of {closed.round} names roles that round.yaml does not have: {', '.join(unknown)}"
        )
    made = {role: made_in(loop, closed, role) for role, value in decided.items() if value == closed.round}
    return closed.parents | decided | made


def before(loop: Loop, closed: OpenRound) -> Before:
    """What the next round is told of this one and of those before it."""
    folder = f"data/{closed.loop}/{closed.round}"
    outs = {out for stage in loop.stages() for out in stage.outs}
    reports = [*closed.before.reports.get("earlier", []), *([f"{folder}/report"] if f"{folder}/report" in outs else [])]
    return Before(decision={"previous": f"{folder}/decision"}, reports={"earlier": reports} if reports else {})


def made_in(loop: Loop, closed: OpenRound, role: str) -> str:
    """Id of a round's artifact in a role; where training seeds made several, of the seed that was named beforehand."""
    outs = {out for stage in loop.stages() for out in stage.outs}
    promoted = read_yaml(loop.folder / "params.yaml").get("promoted_seed", 0)
    for id in (f"{closed.loop}/{closed.round}/{role}", f"{closed.loop}/{closed.round}/{role}/{promoted}"):
        if f"data/{id}" in outs:
            return id
    raise ValueError(f"no stage of round {closed.round} makes 'data/{closed.loop}/{closed.round}/{role}'")


def tidy(loop: Loop) -> None:
    """What must hold before a round goes on, whatever was killed before."""
    mending.mend(loop.root)
    reconcile(loop)
    remove_strays(loop)


def reconcile(loop: Loop) -> None:
    """Finish sealings that a kill interrupted: every round before the open one is sealed."""
    current = loop.open_round().round
    for unfinished in loop.rounds.glob(f"*/{UNFINISHED}"):
        if number(unfinished.parent.name) < number(current):
            unfinished.rename(unfinished.with_name(SEAL))
    if _git(loop.root, "config", "--type=bool", "coevo.commitRounds") == "true":
        for sealed in sorted(loop.rounds.glob(f"*/{SEAL}")):
            commit(loop, sealed.parent.name)


def commit(loop: Loop, round: str) -> None:
    """Commit the records of a closed round, by their paths and nothing else, and tag it 'loop/round'; once.

    `git config coevo.commitRounds true` has every closed round committed. Where git refuses (a hook, no author), the
    loop goes on, and the next run tries again.
    """
    tag = f"{loop.name}/{round}"
    if _git(loop.root, "rev-parse", "--verify", "--quiet", f"refs/tags/{tag}"):
        return
    starts = (place.replace("dvc.yaml", "dvc.lock") for place in dict.fromkeys((START, loop.start)))
    files = [loop.rounds / round, loop.round_file, loop.folder / "dvc.lock", *(loop.root / file for file in starts)]
    paths = [str(file.relative_to(loop.root)) for file in files if file.exists()]
    decision = loop.decision(round)
    said = f"Close round {round} of loop {loop.name}" + (f": {decision.outcome}, {decision.reason}" if decision else "")
    # A kill between commit and tag leaves nothing to commit, and that commit to tag.
    pending = _git(loop.root, "status", "--porcelain", "--", *paths)
    done = pending is not None and (
        pending == ""
        or (
            _git(loop.root, "add", "--", *paths) is not None
            and _git(loop.root, "commit", "--quiet", "--message", said, "--", *paths) is not None
        )
    )
    if not done or _git(loop.root, "tag", tag) is None:
        print(f"git did not commit round {round}; 'git commit' by hand says why", file=sys.stderr, flush=True)


def remove_strays(loop: Loop) -> None:
    """Remove what lies in the open round's folder and no stage makes: results of training seeds that were taken out
    of params.yaml would otherwise be read as if they belonged to the round. DVC's cache still has them. Hidden folders
    stay: a stage that a person runs may be writing one.
    """
    folder = loop.data(loop.open_round().round)
    outs = {loop.root / out for stage in loop.stages() for out in stage.outs}
    parents = {parent for out in outs for parent in out.parents}

    def sweep(place: Path) -> None:
        for child in place.iterdir() if place.is_dir() else ():
            if child in parents:
                sweep(child)
            elif child not in outs and child.is_dir() and not child.name.startswith("."):
                shutil.rmtree(child)

    sweep(folder)


def _record(loop: Loop, closed: OpenRound) -> None:
    """Fill rounds/<id>/ with all that says how the round came about, the seal last and under an unfinished name."""
    folder = loop.rounds / closed.round
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("dvc.lock", "params.yaml", "round.yaml", "criterion.yaml", "system.yaml"):
        if (loop.folder / name).is_file():
            shutil.copyfile(loop.folder / name, folder / name)
    shutil.copyfile(loop.data(closed.round) / "decision" / "decision.json", folder / "decision.json")
    (folder / "run.json").write_text(json.dumps(_surroundings(loop, closed), indent=1) + "\n")
    lock = yaml.safe_load((loop.folder / "dvc.lock").read_text())
    up = os.path.relpath(loop.root, folder)
    prefix = f"data/{loop.name}/{closed.round}/"
    made = [out for stage in lock["stages"].values() for out in stage.get("outs", ())]
    outs = sorted((out for out in made if out["path"].startswith(prefix)), key=lambda out: out["path"])
    partial = folder / f".{UNFINISHED}.partial"
    partial.write_text(yaml.safe_dump({"wdir": up, "outs": outs}, sort_keys=False))
    partial.rename(folder / UNFINISHED)


def _surroundings(loop: Loop, closed: OpenRound) -> dict[str, Any]:
    """What no hash covers: revision, versions, machine, and the time that each stage took."""
    runs = loop.root / ".local" / "runs" / loop.name / closed.round
    changes = _git(loop.root, "status", "--porcelain", "--", "coevo", "tasks", "flows", "configs")
    return dict(
        git_revision=_git(loop.root, "rev-parse", "HEAD"),
        git_clean=None if changes is None else changes == "",
        packages={name: _version(name) for name in KEPT_PACKAGES},
        python=platform.python_version(),
        host=platform.node(),
        machine=platform.machine(),
        stages=[json.loads(file.read_text()) for file in sorted(runs.rglob("*.json"))],
    )


def _git(root: Path, *arguments: str) -> str | None:
    """What git says; none if it fails."""
    made = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True)
    return made.stdout.strip() if made.returncode == 0 else None


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None

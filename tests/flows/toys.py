"""A toy pipeline in a repository of its own: the real stage machinery, the real DVC, work that takes no time.

start/dvc.yaml:begin -> work@0, work@1 -> decide
"""

import os
import subprocess
import sys
from pathlib import Path

import yaml

PROJECT = Path(__file__).resolve().parents[2]

STAGES = '''
"""Toy stages: `work` counts, as slowly as the file 'pause' says, `decide` concludes."""
from __future__ import annotations
import sys, time
from dataclasses import dataclass
from pathlib import Path
from coevo.core import stage
from coevo.records.base import Config
from coevo.records.outcomes import Decision

@dataclass(frozen=True)
class Inputs:
    sources: tuple = stage.artifact_list("episodes", "what to start from")

class Params(Config):
    steps: int = 3
    fault: str = ""
    pictures: bool = False

def work(inputs: Inputs, params: Params, run: stage.Run) -> stage.Result:
    if params.fault:
        raise ValueError(params.fault)
    total = run.seed + sum(int((source.path / "total.txt").read_text()) for source in inputs.sources)
    (run.folder / "total.txt").write_text(str(total))
    for step in range(params.steps):
        run.progress("counting", step, params.steps)
        time.sleep(float(Path("pause").read_text()))
        total += step
    (run.folder / "total.txt").write_text(str(total))
    if params.pictures:
        draw(run, params.steps)
    return stage.Result(kind="episodes", metrics={"total": total})

def draw(run: stage.Run, steps: int) -> None:
    """A square that moves and a curve that falls."""
    import numpy as np
    from coevo.evaluation import strips
    for step in range(steps):
        run.log(step=step, loss=1 / (1 + step), counted=step)
    frames = np.full((16, 48, 48, 3), 235, np.uint8)
    for index, frame in enumerate(frames):
        frame[20:28, 2 * index : 2 * index + 8] = (40, 90, 200)
    rows = tuple(strips.Row(arm, frames, read) for arm, read in (("simulator", True), ("world model", False)))
    strips.write(run.folder, [strips.Strip("train/000001", True, rows)])

class Nothing(Config):
    outcome: str = "promote"

def decide(inputs: Inputs, params: Nothing, run: stage.Run) -> stage.Result:
    made_in = inputs.sources[0].id.split("/")[1]
    decision = Decision(outcome=params.outcome, reason="it is a toy", round=made_in, parents={"policy": made_in})
    (run.folder / "decision.json").write_text(decision.model_dump_json())
    return stage.Result(kind="decision")

def report(inputs: Inputs, params: Nothing, run: stage.Run) -> stage.Result:
    (run.folder / "report.html").write_text("<h1>The toy has counted</h1>")
    return stage.Result(kind="report")

if __name__ == "__main__":
    stage.main({"work": work, "decide": decide, "report": report}[sys.argv.pop(1)])
'''

START = """
stages:
  begin:
    wdir: ..
    cmd: python toys.py work --params start/params.yaml --section begin --out data/start/work
    deps: [configs/start.yaml]
    params: [start/params.yaml: [begin, seed]]
    outs: [data/start/work]
"""

PIPELINE = """
vars: [round.yaml]
stages:
  decide:
    cmd: python toys.py decide --sources data/${loop}/${round}/policy/* --out data/${loop}/${round}/decision
    deps: ["data/${loop}/${round}/policy", toys.py]
    params: [decide, seed]
    outs: ["data/${loop}/${round}/decision"]
  work:
    matrix: {seed: "${seeds}"}
    cmd: >-
      python toys.py work --sources data/${parents.policy} --seed ${item.seed}
      --out data/${loop}/${round}/policy/${item.seed}
    deps: ["data/${parents.policy}", toys.py]
    params: [work]
    outs: ["data/${loop}/${round}/policy/${item.seed}"]
"""


def make(root: Path, pause: float = 0.0) -> Path:
    """A fresh toy repository at `root`; `pause` is in seconds per step of its stages, and changes no result."""
    files = {
        "toys.py": STAGES,
        "start/dvc.yaml": START,
        "dvc.yaml": PIPELINE,
        "configs/start.yaml": "{}\n",
        "start/params.yaml": "seed: 1\nbegin: {steps: 2}\n",
        "params.yaml": "seed: 0\nseeds: [0, 1]\nwork: {steps: 3}\ndecide: {}\n",
        "round.yaml": "loop: default\nround: i001\nparents: {policy: start/work}\n",
        "pause": str(pause),
        ".gitignore": "/data/\n/.local/\n",
        ".dvc/config": "[core]\n    analytics = false\n    check_update = false\n    autostage = false\n",
        ".dvc/.gitignore": "/config.local\n/tmp\n/cache\n",
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    subprocess.run(["git", "init", "--quiet", "."], cwd=root, check=True)
    return root


def environment(**more: str) -> dict[str, str]:
    """The user's, with the project importable and this interpreter first."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT")}
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return {**clean, "PATH": path, "PYTHONPATH": str(PROJECT), "DVC_NO_ANALYTICS": "1", **more}


def coevo(root: Path, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Run the command line in `root`."""
    return subprocess.run(
        [sys.executable, "-m", "flows.cli", *arguments],
        cwd=root,
        env=environment(**more),
        capture_output=True,
        text=True,
        timeout=240,
    )


def hashes(root: Path) -> dict[str, str]:
    """DVC's hash of each output of the open round, and of the start."""
    found = {}
    for lock in (root / "start" / "dvc.lock", root / "dvc.lock"):
        for stage in yaml.safe_load(lock.read_text())["stages"].values():
            found.update({out["path"]: out["md5"] for out in stage["outs"]})
    return found

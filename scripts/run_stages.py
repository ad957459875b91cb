"""Run the stages on a bare machine: no DVC, no Prefect, no Ray; needs what the stages need, and PyYAML.

    python scripts/run_stages.py                    everything of the default loop that is not done yet
    python scripts/run_stages.py --until 540        begin no stage later than nine minutes from now; call again to go on
    python scripts/run_stages.py --only start       the stages of start/dvc.yaml
    python scripts/run_stages.py --only train_policy  that stage (all its seeds), if what it reads is there

The same commands as DVC runs, in the same order. A stage is left alone when its artifact is there and was made here by
the same command from the same parameters, code and inputs. What is made so is outside DVC and listed in
data/made_without_dvc.json; 'dvc commit --force' takes it over.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from flows.graph import Stage  # noqa: E402
from flows.loops import START, Loop  # noqa: E402
from flows.rounds import remove_strays  # noqa: E402

LIST = "data/made_without_dvc.json"


def main() -> int:
    """0 when all is done, 3 when the time is up and stages are left, 1 when a stage failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--loop", default="default")
    parser.add_argument("--only", nargs="*", default=[], help="'start', or names of stages")
    parser.add_argument(
        "--until", type=float, default=float("inf"), metavar="SECONDS", help="begin no stage after this"
    )
    parser.add_argument("--dry", action="store_true", help="say what would run")
    args = parser.parse_args()
    loop = Loop(args.loop)
    stages = [stage for stage in loop.stages() if not args.only or _chosen(stage, args.only)]
    if not stages:
        parser.error(f"no stage is called {' or '.join(args.only)}; there is: {', '.join(_names(loop))}")
    if not args.dry:
        remove_strays(loop)
    print(f"Without DVC: results are listed in {LIST} and are not in DVC's cache.", flush=True)
    began = time.monotonic()
    for index, stage in enumerate(stages, start=1):
        if _is_done(loop.root, stage):
            continue
        if time.monotonic() - began >= args.until:
            print(f"time is up, {len(stages) - index + 1} stages left; run the same command again to go on", flush=True)
            return 3
        print(f"[{index}/{len(stages)}] {stage.address}: {stage.command}", flush=True)
        if not args.dry and not _run(loop.root, stage):
            return 1
    print("all stages done" if not args.dry else "nothing was run", flush=True)
    return 0


def _run(root: Path, stage: Stage) -> bool:
    began = time.monotonic()
    fingerprint = _fingerprint(root, stage)  # before the run: an edit during it must not pass as having been used
    command = re.sub(r"^python ", f"{sys.executable} ", stage.command)
    if subprocess.run(command, shell=True, cwd=root).returncode != 0:
        print(f"{stage.address} failed; what was done before it is kept", file=sys.stderr, flush=True)
        return False
    seconds = time.monotonic() - began
    made = {out: _identity(root / out) for out in stage.outs}
    record = _record(root, stage)
    record.parent.mkdir(parents=True, exist_ok=True)
    record.write_text(json.dumps(dict(fingerprint=fingerprint, outs=made, seconds=seconds), indent=1) + "\n")
    listed = json.loads((root / LIST).read_text()) if (root / LIST).is_file() else {}
    (root / LIST).write_text(json.dumps(listed | made, indent=1) + "\n")
    print(f"[{stage.address} took {seconds:.0f} s]", flush=True)
    return True


def _is_done(root: Path, stage: Stage) -> bool:
    file = _record(root, stage)
    if not file.is_file():
        return False
    record = json.loads(file.read_text())
    outs = {out: _identity(root / out) for out in stage.outs}
    return record["outs"] == outs and record["fingerprint"] == _fingerprint(root, stage)


def _fingerprint(root: Path, stage: Stage) -> dict[str, Any]:
    """All that decides what a stage makes: its command, its parameters, and the identity of what it reads."""
    params = {f"{file}:{key}": (yaml.safe_load((root / file).read_text()) or {}).get(key) for file, key in stage.params}
    return dict(command=stage.command, params=params, deps={dep: _identity(root / dep) for dep in stage.deps})


def _identity(path: Path) -> Any:
    """A file's hash, an artifact's own hash, or those of the artifacts in a folder; none where nothing is."""
    if path.is_file():
        return hashlib.sha256(path.read_bytes()).hexdigest()
    manifest = path / "manifest.json"
    if manifest.is_file():
        return json.loads(manifest.read_text())["sha256"]
    if path.is_dir():
        return {child.name: _identity(child) for child in sorted(path.iterdir()) if not child.name.startswith(".")}
    return None


def _record(root: Path, stage: Stage) -> Path:
    return root / ".local" / "without_dvc" / (re.sub(r"[^\w@.-]+", "_", stage.address) + ".json")


def _chosen(stage: Stage, only: list[str]) -> bool:
    return any(
        (name == "start" and f"{START}:" in stage.address) or name in (stage.name, stage.name.split("@")[0])
        for name in only
    )


def _names(loop: Loop) -> list[str]:
    return list(dict.fromkeys(["start", *(stage.name.split("@")[0] for stage in loop.stages())]))


if __name__ == "__main__":
    sys.exit(main())

"""One stage as a Prefect task: DVC runs it, Prefect shows it."""

import difflib
import re
import time
from pathlib import Path
from uuid import UUID

from prefect import flow, get_run_logger, task
from prefect.artifacts import create_progress_artifact, create_table_artifact, update_progress_artifact
from prefect.cache_policies import NO_CACHE
from prefect.states import Cancelled, State

from coevo.records.manifest import Manifest
from flows import repro
from flows.console import Progress, StageLine, progress_of
from flows.lock import Held, repository_lock
from flows.loops import Loop

SECONDS_BETWEEN_UPDATES = 3.0


class ProgressArtifact:
    """The bar in Prefect's page, moved at most every few seconds."""

    def __init__(self, key: str):
        self.key = key
        self.id: UUID | None = None
        self.moved = 0.0

    def move(self, progress: Progress) -> None:
        """Show this much."""
        if self.id is None:
            self.id = create_progress_artifact(progress=progress.percent, key=self.key, description=str(progress))
        elif progress.done == progress.total or time.monotonic() - self.moved >= SECONDS_BETWEEN_UPDATES:
            update_progress_artifact(self.id, progress=progress.percent, description=str(progress))
        else:
            return
        self.moved = time.monotonic()

    def finish(self) -> None:
        """Fill the bar of a stage that has ended well, wherever its own count stopped."""
        if self.id is not None:
            update_progress_artifact(self.id, progress=100.0)


# Prefect never remembers a stage's result: whether a stage must run is DVC's to say.
@task(cache_policy=NO_CACHE, task_run_name="{address}")
def run_stage(address: str, title: str, outs: tuple[str, ...], root: Path, upstream: bool = False) -> bool:
    """Have DVC run a stage if it must; whether it ran. Its lines go to the log, progress and metrics to the page."""
    logger = get_run_logger()
    artifact = ProgressArtifact(f"{_key(address)}-progress")

    with StageLine(title) as line:

        def hear(text: str) -> None:
            progress = progress_of(text)
            if progress is not None:
                line.progress(progress)
                artifact.move(progress)
            else:
                logger.info(text)
            if text.startswith("waiting"):
                line.say(text)

        ran = repro.reproduce(root, address, hear, upstream)
        artifact.finish()
    show_metrics(address, outs, root)
    return ran


def show_metrics(address: str, outs: tuple[str, ...], root: Path) -> None:
    """A table of what the stage's artifacts say of themselves."""
    rows = []
    for out in outs:
        file = root / out / "manifest.json"
        if file.is_file():
            manifest = Manifest.model_validate_json(file.read_bytes())
            rows += [
                {"artifact": manifest.id, "metric": name, "value": value} for name, value in manifest.metrics.items()
            ]
    if rows:
        create_table_artifact(key=f"{_key(address)}-metrics", table=rows, description=f"Metrics of {address}")


@flow(name="stage")
def stage(name: str, loop: str = "default") -> State | bool:
    """One stage of a loop's open round, with all that it needs: the same as `dvc repro NAME`. Whether anything ran."""
    its = Loop(loop)
    known = {item.address: item for item in its.stages()}
    address = name if name in known or its.name == "default" else f"{its.pipeline}:{name}"
    if address not in known:
        near = [each for each in known if each.startswith(f"{address}@")]
        near = near or difflib.get_close_matches(address, known, n=3)
        hint = f"did you mean {' or '.join(near)}?" if near else f"it has: {', '.join(known)}"
        raise ValueError(f"loop '{loop}' has no stage '{name}'; {hint}")
    try:
        with repository_lock(its.root, f"coevo stage {name}"):
            return run_stage(address, address, known[address].outs, its.root, upstream=True)
    except Held as held:
        return Cancelled(message=str(held))


def _key(address: str) -> str:
    """Prefect's artifact keys know lower-case letters, digits and dashes."""
    return re.sub(r"[^a-z0-9]+", "-", address.lower()).strip("-")

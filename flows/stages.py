"""One stage as a Prefect task: DVC runs it, Prefect shows it."""

import difflib
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID

from prefect import flow, get_run_logger, task
from prefect.artifacts import create_progress_artifact, update_progress_artifact
from prefect.cache_policies import NO_CACHE
from prefect.states import Cancelled, Failed, State

from flows import repro, results
from flows.changes import apply
from flows.console import Progress, StageLine, progress_of
from flows.forms import Changes, LoopName
from flows.lock import Held
from flows.loops import Loop
from flows.presence import at_work

SECONDS_BETWEEN_UPDATES = 3.0
SECONDS_WITHOUT_SERVER = 300.0


class ProgressArtifact:
    """The bar in Prefect's page, moved at most every few seconds."""

    def __init__(self, key: str):
        self.key = key
        self.id: UUID | None = None
        self.due = 0.0

    def move(self, progress: Progress) -> None:
        """Show this much. After an update that failed none is tried for some minutes: each waits for the server."""
        now = time.monotonic()
        if self.id is not None and progress.done != progress.total and now < self.due:
            return
        if now < self.due - SECONDS_BETWEEN_UPDATES:
            return
        self.due = now + SECONDS_WITHOUT_SERVER
        if self.id is None:
            self.id = create_progress_artifact(progress=progress.percent, key=self.key, description=str(progress))
        else:
            update_progress_artifact(self.id, progress=progress.percent, description=str(progress))
        self.due = time.monotonic() + SECONDS_BETWEEN_UPDATES

    def finish(self) -> None:
        """Fill the bar of a stage that has ended well, wherever its own count stopped."""
        if self.id is not None:
            update_progress_artifact(self.id, progress=100.0, description="done")


@contextmanager
def unless_server_is_gone(logger: logging.Logger | logging.LoggerAdapter) -> Iterator[None]:
    """What is shown in the page must not cost the hours of work that it is shown of."""
    try:
        yield
    except Exception as error:  # httpx's own, Prefect's own, and RuntimeError, depending on when it went away
        logger.warning("not shown in Prefect's page: %s", error)


# Prefect never remembers a stage's result: whether a stage must run is DVC's to say.
@task(cache_policy=NO_CACHE, task_run_name="{address}")
def run_stage(address: str, title: str, outs: tuple[str, ...], root: Path, upstream: bool = False) -> State | bool:
    """Have DVC run a stage if it must; whether it ran. Its lines go to the log, progress and results to the page.

    A stage that fails ends this task with the stage's own message and no traceback of ours.
    """
    logger = get_run_logger()
    artifact = ProgressArtifact(f"{results.key(address)}-progress")

    with StageLine(title) as line:

        def hear(text: str) -> None:
            progress = progress_of(text)
            if progress is not None:
                line.progress(progress)
                with unless_server_is_gone(logger):
                    artifact.move(progress)
            else:
                logger.info(text)
            if text.startswith("waiting"):
                line.say(text)

        try:
            ran = repro.reproduce(root, address, hear, upstream)
        except repro.StageFailed as failed:
            line.failed = True
            said = results.last_words(str(failed))
            with unless_server_is_gone(logger):
                results.show_failure(address, said)
            return Failed(message=said)
        with unless_server_is_gone(logger):
            artifact.finish()
    with unless_server_is_gone(logger):
        results.show(address, outs, root, logger)
    return ran


@flow(name="stage", flow_run_name="stage-{loop}-{name}")
def run_one_stage(
    name: str,
    loop: LoopName = "default",
    changes: Changes = None,
) -> State | bool:
    """One stage of a loop's open round, with all that it needs: the same as `dvc repro NAME`. Whether anything ran.

    Args:
        name: Runs with all that it needs; of a matrix, every item.
        loop: Its folder below loops/; 'default' is the repository itself.
        changes: Other values than in params.yaml, nested as there.
    """
    its = Loop(loop)
    try:
        with at_work(its.root, f"coevo stage {name} --loop {loop}"):
            apply(its, changes)
            address, outs = find(its, name)
            ended = run_stage(address, address, outs, its.root, upstream=True, return_state=True)
            return ended.result() if ended.is_completed() else passed_on(ended)
    except Held as held:
        return Cancelled(message=str(held))
    except ValueError as error:
        return Failed(message=str(error))


def passed_on(state: State, of: str = "") -> State:
    """The end of a task or a flow inside as that of the one around it. Prefect would replace its message by a count."""
    return State(type=state.type, name=state.name, message=f"{of}: {state.message}" if of else state.message)


def find(loop: Loop, name: str) -> tuple[str, tuple[str, ...]]:
    """Address and outputs of a stage, or of all stages of a matrix by the name before '@'; ValueError hints at near
    ones."""
    known = {item.address: item.outs for item in loop.stages()}
    for item in loop.stages():
        if "@" in item.address:
            group = item.address.split("@")[0]
            known[group] = (*known.get(group, ()), *item.outs)
    address = name if name in known or loop.name == "default" else f"{loop.pipeline}:{name}"
    if address not in known:
        near = difflib.get_close_matches(address, known, n=3)
        hint = f"did you mean {' or '.join(near)}?" if near else f"it has: {', '.join(known)}"
        raise ValueError(f"loop '{loop.name}' has no stage '{name}'; {hint}")
    return address, known[address]

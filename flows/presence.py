"""Which flow runs are at work in this repository, so that one whose process was killed does not stay 'Running'.

A runner reports the death of the process that it started; a run from the command line, or one whose runner died too,
has nobody to do so. Each flow therefore leaves its process's number while it works, and whoever works here next
reports the dead.
"""

import atexit
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID

from flows.lock import born, is_same, repository_lock, write_whole

FOLDER = ".local/flow_runs"
_ended: list[Path] = []
"""Records of this process whose flow has ended. Prefect hears of that a moment later, so they stay until exit."""


@atexit.register
def _forget_ended() -> None:
    for file in _ended:
        file.unlink(missing_ok=True)


@contextmanager
def at_work(root: Path, purpose: str) -> Iterator[None]:
    """Hold the repository (raises Held) on behalf of the present flow run; the dead before it are reported first."""
    from prefect.runtime import flow_run

    file = root / FOLDER / f"{flow_run.id}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    write_whole(file, json.dumps(dict(pid=os.getpid(), born=born(os.getpid()))))
    try:
        with repository_lock(root, purpose):
            report_dead(root)
            yield
    except Exception:
        _ended.append(file)
        raise
    # What is no Exception is a signal, under which Prefect reports the outermost run and not always those inside it.
    _ended.append(file)


def dead(root: Path) -> list[Path]:
    """Records of flow runs whose process is gone."""
    found = []
    for file in sorted((root / FOLDER).glob("*.json")):
        try:
            process = json.loads(file.read_text())
        except FileNotFoundError:  # ended between the listing and the look
            continue
        if not is_same(process["pid"], float(process["born"])):
            found.append(file)
    return found


def report_dead(root: Path) -> int:
    """Tell the server of flow runs, and of their task runs, whose process is gone; how many had not been reported."""
    files = dead(root)
    if not files:
        return 0
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import FlowRunFilter, TaskRunFilter
    from prefect.states import Crashed

    state = Crashed(message="Its process was killed. Run it again: what was finished is kept.")
    reported = 0
    with get_client(sync_client=True) as client:
        ids = [UUID(file.stem) for file in files]
        for run in client.read_flow_runs(flow_run_filter=FlowRunFilter.model_validate({"id": {"any_": ids}})):
            if run.state is None or not run.state.is_final():
                client.set_flow_run_state(run.id, state, force=True)
                reported += 1
        chosen = TaskRunFilter.model_validate({"flow_run_id": {"any_": ids}})
        for run in client.read_task_runs(task_run_filter=chosen):
            if run.state is None or not run.state.is_final():
                client.set_task_run_state(run.id, state, force=True)
    for file in files:
        file.unlink(missing_ok=True)
    return reported

"""One round: the stages of the start and of the open round, each as a task, in DVC's order."""

from prefect import flow, get_run_logger
from prefect.states import Cancelled, State

from flows import repro, rounds
from flows.lock import Held, repository_lock
from flows.loops import Loop
from flows.stages import run_stage


@flow(name="round", flow_run_name="round-{loop}")
def run_round(loop: str = "default") -> State | int:
    """Bring the open round to its end; the number of stages that ran. A finished round stays open."""
    its = Loop(loop)
    try:
        with repository_lock(its.root, f"coevo round of loop {loop}"):
            return _walk(its)
    except Held as held:
        return Cancelled(message=str(held))


def _walk(loop: Loop) -> int:
    rounds.tidy(loop)
    todo = rounds.left_to_do(loop)
    ran = 0
    for index, stage in enumerate(todo, start=1):
        title = f"{loop.open_round().round} [{index}/{len(todo)}] {stage.name}"
        ran += run_stage(stage.address, title, stage.outs, loop.root)
    # A single stage looks at its own dependencies only; this look at the whole graph is what vouches for the round.
    if todo and (left := rounds.left_to_do(loop)):
        names = ", ".join(stage.address for stage in left)
        raise repro.StageFailed(f"the round ran through, and DVC still finds changed: {names}; see 'dvc status'")
    get_run_logger().info("%d of %d stages ran", ran, len(todo))
    return ran

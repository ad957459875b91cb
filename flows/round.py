"""One round: the stages of the start and of the open round, each as a task, in DVC's order."""

from prefect import flow, get_run_logger
from prefect.states import Cancelled, Completed, Failed, State

from flows import graph, repro, rounds
from flows.changes import apply
from flows.forms import Changes, LoopName
from flows.lock import Held
from flows.loops import Loop
from flows.presence import at_work
from flows.stages import passed_on, run_stage


@flow(name="round", flow_run_name="round-{loop}")
def run_round(loop: LoopName = "default", changes: Changes = None) -> State | int:
    """One more round: bring the open one to its end, or, where that is done, open the next one and run it.

    The number of stages that ran. Cancelled if the repository is in use; completed at once if the loop has stopped.

    Args:
        loop: Its folder below loops/; 'default' is the repository itself.
        changes: Other values than in params.yaml, nested as there.
    """
    its = Loop(loop)
    try:
        with at_work(its.root, f"coevo run --more --loop {loop}"):
            rounds.tidy(its)
            todo = rounds.left_to_do(its)
            if not todo:
                decision = its.decision(its.open_round().round)
                if decision is not None and decision.outcome == "stop":
                    return Completed(message=f"nothing to do: {decision.round} stopped the loop. {decision.reason}")
                rounds.open_next(its)
            if apply(its, changes) or not todo:
                todo = rounds.left_to_do(its)
            return _walk(its, todo)
    except Held as held:
        return Cancelled(message=str(held))
    except (ValueError, repro.StageFailed) as error:
        return Failed(message=str(error))


def _walk(loop: Loop, todo: list[graph.Stage]) -> State | int:
    repro.check(loop.root, todo)
    ran = 0
    for index, stage in enumerate(todo, start=1):
        title = f"{loop.open_round().round} [{index}/{len(todo)}] {stage.name}"
        state = run_stage(stage.address, title, stage.outs, loop.root, return_state=True)
        if not state.is_completed():
            return passed_on(state, stage.address)
        ran += state.result()
    # A single stage looks at its own dependencies only; this look at the whole graph is what vouches for the round.
    if todo and (left := rounds.left_to_do(loop)):
        names = ", ".join(stage.address for stage in left)
        raise repro.StageFailed(f"the round ran through, and DVC still finds changed: {names}; see 'dvc status'")
    get_run_logger().info("%d of %d stages ran", ran, len(todo))
    return ran

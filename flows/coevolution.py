"""The loop: rounds until enough exist, or until a round decides to stop."""

from typing import Annotated

from prefect import flow, get_run_logger
from prefect.states import Cancelled, Failed, State
from pydantic import Field

from flows import repro, rounds
from flows.changes import apply
from flows.forms import Changes, LoopName
from flows.lock import Held
from flows.loops import Loop, number
from flows.presence import at_work
from flows.round import run_round
from flows.stages import passed_on


@flow(name="loop", flow_run_name="loop-{loop}")
def coevolve(
    rounds_wanted: Annotated[int, Field(ge=1, le=999)] = 1,
    loop: LoopName = "default",
    changes: Changes = None,
) -> State | int:
    """Run rounds until so many exist; the number of the open one. Cancelled if the repository is in use.

    Args:
        rounds_wanted: Goes on until so many rounds exist, closed ones counted.
        loop: Its folder below loops/; 'default' is the repository itself.
        changes: Other values than in params.yaml, nested as there.
    """
    its = Loop(loop)
    logger = get_run_logger()
    try:
        with at_work(its.root, f"coevo run --rounds {rounds_wanted} --loop {loop}"):
            while True:
                rounds.tidy(its)
                current = its.open_round().round
                decision = its.decision(current)
                if not rounds.left_to_do(its):
                    if decision is not None:
                        logger.info("%s: %s, %s", current, decision.outcome, decision.reason)
                    if number(current) >= rounds_wanted or (decision is not None and decision.outcome == "stop"):
                        apply(its, changes)  # refuses what would make the finished round run again
                        return number(current)
                state = run_round(loop, changes, return_state=True)
                if not state.is_completed():
                    return passed_on(state)
                changes = None
    except Held as held:
        return Cancelled(message=str(held))
    except (ValueError, repro.StageFailed) as error:
        return Failed(message=str(error))

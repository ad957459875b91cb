"""The loop: rounds until enough exist, or until a round decides to stop."""

from typing import Annotated

from prefect import flow, get_run_logger
from prefect.states import Cancelled, State
from pydantic import Field

from flows import rounds
from flows.lock import Held, repository_lock
from flows.loops import Loop, number
from flows.round import run_round


@flow(name="coevolve", flow_run_name="coevolve-{loop}")
def coevolve(
    rounds_wanted: Annotated[int, Field(ge=1, title="Rounds", description="go on until this many exist")] = 1,
    loop: Annotated[str, Field(title="Loop", description="name of the loop's folder")] = "default",
) -> State | int:
    """Run rounds until `rounds_wanted` exist; the number of the open one. Cancelled if the repository is in use."""
    its = Loop(loop)
    logger = get_run_logger()
    try:
        with repository_lock(its.root, f"coevo run --rounds {rounds_wanted} --loop {loop}"):
            while True:
                run_round(loop)
                current = its.open_round().round
                decision = its.decision(current)
                if decision is not None:
                    logger.info("%s: %s, %s", current, decision.outcome, decision.reason)
                if number(current) >= rounds_wanted or (decision is not None and decision.outcome == "stop"):
                    return number(current)
                rounds.open_next(its)
    except Held as held:
        return Cancelled(message=str(held))

"""Deployments: what Prefect's page offers to run. One runner, one run at a time, a second trigger is refused."""

from prefect import serve as serve_deployments
from prefect.client.schemas.objects import ConcurrencyLimitConfig, ConcurrencyLimitStrategy

from flows.coevolution import coevolve
from flows.round import run_round
from flows.stages import stage

ONE_AT_A_TIME = ConcurrencyLimitConfig(limit=1, collision_strategy=ConcurrencyLimitStrategy.CANCEL_NEW)


def serve(cron: str | None = None) -> None:
    """Offer the loop, one round and single stages, until ended. `cron` triggers the loop's flow by schedule."""
    # The limit is per deployment; across deployments the repository lock refuses the second.
    serve_deployments(
        coevolve.to_deployment("loop", concurrency_limit=ONE_AT_A_TIME, cron=cron),
        run_round.to_deployment("round", concurrency_limit=ONE_AT_A_TIME),
        stage.to_deployment("stage", concurrency_limit=ONE_AT_A_TIME),
    )

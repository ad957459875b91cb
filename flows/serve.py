"""Deployments: what Prefect's page offers to run, for each loop of the repository."""

from prefect import serve as serve_deployments
from prefect.deployments.runner import RunnerDeployment
from prefect.utilities.annotations import freeze

from flows import ROOT, forms
from flows.coevolution import coevolve
from flows.loops import Loop, names
from flows.presence import report_dead
from flows.round import run_round
from flows.stages import run_one_stage


def serve(cron: str | None = None, every: float | None = None, scheduled: str = "default") -> None:
    """Offer the flows until ended. `cron`, or `every` so many seconds, triggers one more round of the loop `scheduled`.

    Runs are not counted by Prefect: its limit holds for one deployment, says nothing of who runs, and outlives a dead
    runner by minutes. The repository's lock holds for all of them and for the command line, names its holder, and ends
    with it. So a second run starts, finds the lock held, and is cancelled.
    """
    report_dead(ROOT)
    found = []
    for name in names(ROOT):
        when = {"cron": cron, "interval": every} if name == scheduled else {}
        found += deployments(Loop(name), {key: value for key, value in when.items() if value is not None})
    serve_deployments(*found, print_starting_message=False)


def deployments(loop: Loop, schedule: dict[str, str | float]) -> list[RunnerDeployment]:
    """'loop', 'round' and 'stage' of one loop, each under the loop's name."""
    fixed = {"loop": freeze(loop.name)}
    its_round = "data, parameters and rounds of loops/" + loop.name if loop.name != "default" else "the default loop"
    about = {
        coevolve: f"Rounds until so many exist: {its_round}.",
        run_round: f"One more round: finish the open one, or open the next and run it: {its_round}.",
        run_one_stage: f"One stage with all that it needs, as 'dvc repro' would: {its_round}.",
    }
    made = [
        flow.to_deployment(
            loop.name,
            parameters=fixed,
            description=text,
            tags=[loop.name],
            **(schedule if flow is run_round else {}),
        )
        for flow, text in about.items()
    ]
    changes, stages = forms.changes_schema(loop), forms.stage_names(loop)
    for deployment in made:
        # Prefect makes a form of the flow's signature alone, and a loop's values and stages are known here only.
        fields = deployment._parameter_openapi_schema.properties
        fields["changes"] = {**changes, "position": fields["changes"]["position"]}
        for name, title in forms.TITLES.items():
            if name in fields:
                fields[name]["title"] = title
        if "name" in fields:
            fields["name"]["enum"] = stages
    return made

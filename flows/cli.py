"""The command `coevo`."""

import json
import os
import sys
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from coevo.records.manifest import Manifest
from flows import repro, rounds
from flows.console import console
from flows.lock import Held, repository_lock
from flows.loops import Loop, number

if TYPE_CHECKING:  # importing it takes a second, which a run with nothing to do should not
    from prefect.states import State

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help=__doc__)
LoopName = Annotated[str, typer.Option("--loop", help="which loop")]


@app.command()
def run(
    rounds_wanted: Annotated[int, typer.Option("--rounds", min=1, help="until this many rounds exist")] = 1,
    loop: LoopName = "default",
) -> None:
    """Run the loop until so many rounds exist. Where all is done already, say so and end."""
    its = Loop(loop)
    current = its.open_round().round
    with repository_lock(its.root, f"coevo run --rounds {rounds_wanted} --loop {loop}"):
        rounds.tidy(its)
        done = not rounds.left_to_do(its)
        decision = its.decision(current)
    stopped = decision is not None and decision.outcome == "stop"
    if done and (number(current) >= rounds_wanted or stopped):
        why = "is finished" if number(current) >= rounds_wanted else "was the last: its decision stopped the loop"
        console.print(f"nothing to do: round {current} {why}", markup=False)
    else:
        _run_flow(rounds_wanted, loop)
    show_report(its)


@app.command()
def stage(
    name: Annotated[str, typer.Argument(help="as 'dvc stage list' names it")], loop: LoopName = "default"
) -> None:
    """Run one stage of the open round with all that it needs: `dvc repro NAME`, shown in Prefect's page."""
    _quiet()
    from flows.stages import stage as stage_flow

    _ended(stage_flow(name, loop, return_state=True))


@app.command()
def status(loop: LoopName = "default") -> None:
    """The open round, what is left to do in it, and the last decision."""
    its = Loop(loop)
    opened = its.open_round()
    left = rounds.left_to_do(its)
    console.print(f"loop {its.name}, round {opened.round}, from: {_pairs(opened.parents)}", markup=False)
    console.print(f"left to do: {', '.join(stage.address for stage in left) or 'nothing'}", markup=False)
    decision = its.decision(opened.round)
    if decision is not None:
        console.print(f"decision: {decision.outcome}: {decision.reason}", markup=False)


@app.command()
def server() -> None:
    """Start Prefect's server and its page, with its database in .local and nothing reported to anyone."""
    os.execv(sys.executable, [sys.executable, "-m", "prefect", "server", "start"])


@app.command()
def serve(
    cron: Annotated[str | None, typer.Option(help="schedule of the loop's flow, for example '0 2 * * *'")] = None,
) -> None:
    """Offer the flows in the page of the server that PREFECT_API_URL names, by default that of `coevo server`."""
    url = os.environ.setdefault("PREFECT_API_URL", "http://127.0.0.1:4200/api")
    try:
        urllib.request.urlopen(f"{url}/health", timeout=10).close()
    except OSError as error:
        raise ValueError(f"no Prefect server answers at {url} ({error}); start one with 'coevo server'") from None
    from flows.serve import serve as serve_flows

    serve_flows(cron)


@app.command()
def report(loop: LoopName = "default") -> None:
    """Headline figures of the open round, and where its report lies."""
    its = Loop(loop)
    if not show_report(its):
        raise ValueError(f"round {its.open_round().round} has no report yet; 'coevo run' makes one")


@app.command()
def lineage(
    artifact: Annotated[Path, typer.Argument(help="folder of an artifact, for example data/start/policy")],
) -> None:
    """All that an artifact descends from."""
    file = artifact / "lineage.json"
    if not file.is_file():
        raise ValueError(f"{artifact} is not an artifact (it has no lineage.json)")
    nodes = json.loads(file.read_text())
    manifest = Manifest.model_validate_json((artifact / "manifest.json").read_bytes())
    own, parents = manifest.sha256, {role: parent.sha256 for role, parent in manifest.parents.items()}
    nodes[own] = dict(id=manifest.id, stage=manifest.stage, parents=parents)
    shown: set[str] = set()

    def show(sha256: str, role: str, depth: int) -> None:
        node = nodes[sha256]
        again = "  (see above)" if sha256 in shown and node["parents"] else ""
        line = f"{'  ' * depth}{role}{node['id']}  {sha256[:12]}  {node['stage']}{again}"
        console.print(line, markup=False, soft_wrap=True)
        if not again:
            shown.add(sha256)
            for name, parent in node["parents"].items():
                show(parent, f"{name}: ", depth + 1)

    show(own, "", 0)


def show_report(loop: Loop) -> bool:
    """Print the headline table, what was found, and where the report lies; whether there is a report."""
    folder = loop.data(loop.open_round().round) / "report"
    if not (folder / "headline.json").is_file():
        return False
    summary = json.loads((folder / "headline.json").read_text())
    table = Table("", "", "90% interval", "n", box=None, pad_edge=False)
    group = ""
    for row in summary["table"]:
        if row["group"] != group:
            group = row["group"]
            table.add_row(f"[bold]{group}[/]")
        numbers = f"{100 * row['low']:.1f} to {100 * row['high']:.1f}"
        table.add_row(f"  {row['label']}", row["text"], numbers, f"{row['n']} {row['unit']}")
    console.print(f"\n{summary['title']}\n", style="bold", markup=False)
    console.print(table)
    console.print()
    for sentence in (*summary["findings"], summary["reason"]):
        console.print(f"- {sentence}", markup=False)
    console.print(f"\nreport: {folder / 'report.html'}", markup=False, soft_wrap=True)
    return True


def _run_flow(rounds_wanted: int, loop: str) -> None:
    console.print("starting Prefect", markup=False)
    _quiet()
    from flows.coevolution import coevolve

    _ended(coevolve(rounds_wanted, loop, return_state=True))


def _quiet() -> None:
    """Keep Prefect's own lines in its log and page: on the terminal a person reads those of the stages."""
    os.environ.setdefault("PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", "CRITICAL")


def _ended(state: "State") -> None:
    """Raise what a flow ended with, if it did not end well."""
    if state.is_cancelled():
        raise Held(state.message)
    state.result()


def _pairs(values: dict[str, str]) -> str:
    return ", ".join(f"{role} {value}" for role, value in values.items())


def main() -> None:
    """Entry of the console script. What a person can mend is one message and no traceback."""
    try:
        app()
    except (ValueError, Held, repro.StageFailed) as error:
        console.print(str(error), style="red", markup=False, soft_wrap=True)
        sys.exit(1)


if __name__ == "__main__":
    main()

"""The command `coevo`."""

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from flows import ROOT, garbage, look, presence, reports, repro, rounds, servers
from flows.changes import parse
from flows.console import console
from flows.lock import Held, repository_lock
from flows.look import LoopName
from flows.loops import Loop, number

if TYPE_CHECKING:  # importing it takes a second, which a run with nothing to do should not
    from prefect.states import State

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help=__doc__)
Settings = Annotated[
    list[str], typer.Option("--set", metavar="KEY=VALUE", help="write a value to params.yaml first: section.key=value")
]


@app.command()
def run(
    rounds_wanted: Annotated[int, typer.Option("--rounds", min=1, help="until this many rounds exist")] = 1,
    more: Annotated[bool, typer.Option("--more", help="instead: finish the open round, or run one more")] = False,
    loop: LoopName = "default",
    settings: Settings = (),
) -> None:
    """Run the loop until so many rounds exist. Where all is done already, say so and end."""
    its = Loop(loop)
    current = its.open_round().round
    changes = parse(settings)
    with repository_lock(its.root, f"coevo run --loop {loop}"):
        rounds.tidy(its)
        done = not rounds.left_to_do(its)
        decision = its.decision(current)
    stopped = decision is not None and decision.outcome == "stop"
    enough = number(current) >= rounds_wanted and not more
    # Runs that a kill left in the page as alive are for Prefect to end, with nothing else to do.
    if done and (enough or stopped) and not changes and not presence.dead(its.root):
        why = "is finished" if enough else "was the last: its decision stopped the loop"
        console.print(f"nothing to do: round {current} {why}", markup=False)
    else:
        _start_prefect(its)
        from flows.coevolution import coevolve
        from flows.round import run_round

        if more:
            _ended(run_round(loop, changes, return_state=True))
        else:
            _ended(coevolve(rounds_wanted, loop, changes, return_state=True))
    look.show_report(its)


@app.command()
def stage(
    name: Annotated[str, typer.Argument(help="as 'dvc stage list' names it; without '@', all of a matrix")],
    loop: LoopName = "default",
    settings: Settings = (),
) -> None:
    """Run one stage of the open round with all that it needs: `dvc repro NAME`, shown in Prefect's page."""
    changes = parse(settings)
    _start_prefect(Loop(loop))
    from flows.stages import run_one_stage

    _ended(run_one_stage(name, loop, changes, return_state=True))


@app.command()
def server(
    host: Annotated[str, typer.Option(help="address to listen on; 0.0.0.0 lets other machines in")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="port of the page")] = 4200,
) -> None:
    """Start Prefect's server and its page, with its database in .local and nothing reported to anyone."""
    servers.record(f"http://127.0.0.1:{port}/api")
    command = [sys.executable, "-m", "prefect", "server", "start", "--host", host, "--port", str(port)]
    os.execv(sys.executable, command)


@app.command()
def serve(
    cron: Annotated[str | None, typer.Option(help="schedule of one more round, for example '0 2 * * *'")] = None,
    every: Annotated[float | None, typer.Option(min=1, help="or one more round every so many seconds")] = None,
    loop: Annotated[str, typer.Option("--loop", help="which loop the schedule is for; all are offered")] = "default",
    reports_port: Annotated[int, typer.Option(help="port on this machine where reports can be read")] = reports.PORT,
) -> None:
    """Offer the flows in the page of the server that PREFECT_API_URL names, by default that of `coevo server`."""
    if cron is not None and every is not None:
        raise ValueError("--cron and --every are two schedules; give one")
    Loop(loop).open_round()
    url = os.environ.setdefault("PREFECT_API_URL", servers.own() or servers.DEFAULT)
    if (fault := servers.fault(url)) is not None:
        raise ValueError(f"no Prefect server answers at {url} ({fault}); start one with 'coevo server'")
    its_reports = reports.serve(ROOT, reports_port)
    from flows.serve import serve as serve_flows

    console.print(f"flows are offered at {url.removesuffix('/api')}/deployments", markup=False, soft_wrap=True)
    console.print(f"reports can be read at {reports.address()}/data/<loop>/<round>/report/report.html", markup=False)
    serve_flows(cron, every, loop)
    its_reports.shutdown()


@app.command()
def new(
    name: Annotated[str, typer.Argument(help="small letters, digits, underscores")],
    source: Annotated[str | None, typer.Option("--from", help="loop to begin with; the default one")] = None,
    system: Annotated[str | None, typer.Option(help="instead: a published system, a file of configs/system")] = None,
    scale: Annotated[str, typer.Option(help="how large that is, a file of configs/scale")] = "laptop",
) -> None:
    """Make a loop of your own: loops/NAME/ with its own stages, parameters, criterion and rounds."""
    from flows import new as new_loop  # its YAML library is needed here alone

    if system is not None and source is not None:
        raise ValueError(f"--from {source} and --system {system} both say what the loop is made of; give one")
    if system is None:
        made, like = new_loop.make(Loop(name), Loop(source or "default")), f"as '{source or 'default'}' has them"
    else:
        made, like = new_loop.of_system(Loop(name), system, scale), f"those of '{system}' at the scale '{scale}'"
    console.print(f"loops/{name} has {len(made)} stages, {like}; edit params.yaml and dvc.yaml there", markup=False)
    console.print(
        f"then: coevo plan --loop {name}, coevo run --loop {name}; restart 'coevo serve' to see it in the page"
    )


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def check(
    context: typer.Context,
    kind: Annotated[str, typer.Argument(help="simulator, policy, reward or world_model")],
    target: Annotated[str, typer.Argument(help="package.module:Class")],
) -> None:
    """Hold a class of your own against what stages expect of it. Further: --options JSON, --simulator FILE."""
    command = [sys.executable, "-m", "scripts.check_part", kind, target, *context.args]
    raise typer.Exit(subprocess.run(command, cwd=ROOT, env=repro.environment()).returncode)


@app.command()
def gc(
    verify: Annotated[bool, typer.Option(help="also read all of DVC's cache and find what is damaged; slow")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="do not ask")] = False,
) -> None:
    """Say what can be freed on this disk, and free it once you agree. What lineage needs stays."""
    with repository_lock(ROOT, "coevo gc"):
        found = garbage.find(ROOT, verify)
        for name, size in found.kept_for_lineage.items():
            console.print(
                f"kept, since what is in use descends from it: {name}, {garbage.readable(size)}", markup=False
            )
        for kind in found.garbage:
            console.print(f"{garbage.readable(kind.bytes):>10}  {len(kind.paths)} {kind.what}", markup=False)
        if not found.garbage:
            console.print("nothing to free")
        elif yes or typer.confirm(f"free {garbage.readable(found.bytes)}?"):
            garbage.remove(ROOT, found)
            console.print(f"freed {garbage.readable(found.bytes)}")


for command in (look.status, look.plan, look.report, look.lineage, look.doctor):
    app.command()(command)


def _start_prefect(loop: Loop) -> None:
    """Choose the server, before Prefect is imported: this repository's own if it runs, since a temporary one would
    write to the same database."""
    loop.open_round()
    console.print("starting Prefect", markup=False)
    _quiet()
    if "PREFECT_API_URL" not in os.environ and (url := servers.own()) is not None:
        os.environ["PREFECT_API_URL"] = url


def _quiet() -> None:
    """Keep Prefect's own lines in its log and page: on the terminal a person reads those of the stages."""
    os.environ.setdefault("PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", "CRITICAL")


def _ended(state: "State") -> None:
    """Raise what a flow ended with, if it did not end well."""
    from prefect.exceptions import FailedRun

    if state.is_cancelled():
        raise Held(state.message)
    try:
        state.result()
    except FailedRun:
        raise repro.StageFailed(state.message) from None
    if state.message:
        console.print(state.message, markup=False)


def main() -> None:
    """Entry of the console script. What a person can mend is one message and no traceback."""
    try:
        app()
    except (ValueError, Held, repro.StageFailed) as error:
        console.print(str(error), style="red", markup=False, soft_wrap=True)
        sys.exit(1)


if __name__ == "__main__":
    main()

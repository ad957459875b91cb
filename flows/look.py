"""Commands that look and change nothing: status, plan, report, lineage, doctor."""

import json
import os
import shutil
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from coevo.records.manifest import Manifest
from flows import ROOT, rounds, servers
from flows.console import clock, console
from flows.loops import START, Loop, number
from flows.plan import estimates

WIDTH = 110
"""Columns of the plan's table, which a narrow terminal may break and must not cut."""
LoopName = Annotated[str, typer.Option("--loop", help="which loop")]


def status(loop: LoopName = "default") -> None:
    """The open round, what of it is done and left, with estimates, and the last decision."""
    its = Loop(loop)
    opened = its.open_round()
    left = rounds.left_to_do(its)
    names = {stage.address for stage in left}
    done = [stage.address for stage in its.stages() if stage.address not in names]
    console.print(f"loop {its.name}, round {opened.round}, from: {_pairs(opened.parents)}", markup=False)
    console.print(f"done: {', '.join(done) or 'nothing'}", markup=False)
    console.print(f"left to do: {', '.join(stage.address for stage in left) or 'nothing'}", markup=False)
    found = estimates(its, left)
    if known := [each.seconds for each in found if each.seconds is not None]:
        rest = f", and {len(found) - len(known)} stages of unknown length" if len(known) < len(found) else ""
        console.print(f"that takes about {clock(sum(known))}{rest}", markup=False)
    for earlier in (opened.round, f"i{number(opened.round) - 1:03d}"):
        if (decision := its.decision(earlier)) is not None:
            console.print(f"decision of {earlier}: {decision.outcome}: {decision.reason}", markup=False)
            break


def plan(
    loop: LoopName = "default",
    whole: Annotated[bool, typer.Option("--whole", help="all stages of a round, not only those left to do")] = False,
) -> None:
    """What the open round will still take: time, memory, disk, episodes in the simulator."""
    its = Loop(loop)
    stages = list(its.stages()) if whole else rounds.left_to_do(its)
    found = estimates(its, stages)
    table = Table(box=None, pad_edge=False)
    for title in ("stage", "time", "memory", "disk", "episodes", "as in"):
        table.add_column(title, justify="left" if title in ("stage", "as in") else "right", no_wrap=True)
    for each in found:
        table.add_row(
            each.stage.address.replace(f"{START}:", "start: ").replace(f"{its.start}:", "own start: "),
            clock(each.seconds) if each.seconds is not None else "?",
            f"{each.mib:,.0f} MiB" if each.mib is not None else "?",
            size(each.bytes) if each.bytes is not None else "?",
            f"{each.episodes:,}" if each.episodes else "",
            each.basis,
        )
    if not found:
        console.print(f"nothing to do: round {its.open_round().round} is finished; --whole says what one takes")
        return
    known = [each for each in found if each.seconds is not None]
    disk = sum(each.bytes or 0 for each in found)
    episodes = sum(each.episodes for each in found)
    rest = f" and {len(found) - len(known)} stages without an earlier run" if len(known) < len(found) else ""
    Console(highlight=False, width=max(console.width, WIDTH)).print(table)
    peak = max((each.mib for each in found if each.mib is not None), default=0.0)
    seconds = clock(sum(each.seconds for each in known))
    console.print(
        f"\nin all: {seconds}{rest}, at most {peak:,.0f} MiB at once, {size(disk)} in data/ and as much in DVC's "
        f"cache, {episodes:,} episodes in the simulator",
        markup=False,
    )
    free = shutil.disk_usage(its.root).free
    if 2 * disk > free:
        raise ValueError(f"the disk has {size(free)} free and the round needs about {size(2 * disk)}; make room first")


def doctor() -> None:
    """What this machine has and lacks, with the command that mends it. Ends with 1 if something needed is broken."""
    from flows.doctor import examine  # looks up every installed package

    marks = {"good": "[green]good[/]  ", "note": "[yellow]note[/]  ", "broken": "[red]broken[/]"}
    found = examine(ROOT, os.environ.get("PREFECT_API_URL") or servers.own())
    for each in found:
        console.print(f"{marks[each.state]}  [bold]{each.name}[/]: {escape(each.said)}", soft_wrap=True)
        if each.mend and each.state != "good":
            console.print(f"          {each.mend}", markup=False, soft_wrap=True)
    raise typer.Exit(1 if any(each.state == "broken" for each in found) else 0)


def report(loop: LoopName = "default") -> None:
    """Headline figures of the open round, and where its report lies."""
    its = Loop(loop)
    if not show_report(its):
        raise ValueError(f"round {its.open_round().round} has no report yet; 'coevo run' makes one")


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


def size(count: float) -> str:
    """'12 MB', '1.3 GB'."""
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:,.0f} MB"


def _pairs(values: dict[str, str]) -> str:
    return ", ".join(f"{role} {value}" for role, value in values.items())

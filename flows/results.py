"""Results in Prefect's page: tables, pictures, the decision, a link to the report, and what went wrong."""

import base64
import json
import logging
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from prefect.artifacts import (
    create_image_artifact,
    create_link_artifact,
    create_markdown_artifact,
    create_table_artifact,
)

from coevo.records.manifest import Manifest
from coevo.records.outcomes import Decision
from flows import reports, repro

DRAWN = ("strips.json", "metrics.jsonl")
"""Files of an artifact that pictures are made of."""


def show(address: str, outs: tuple[str, ...], root: Path, logger: logging.Logger | logging.LoggerAdapter) -> None:
    """Everything that a finished stage has to show."""
    rows = []
    for out in outs:
        folder = root / out
        if not (folder / "manifest.json").is_file():
            continue
        made = Manifest.model_validate_json((folder / "manifest.json").read_bytes())
        rows += [{"artifact": made.id, "metric": name, "value": value} for name, value in made.metrics.items()]
        if made.kind == "decision":
            show_decision(made, folder)
        elif made.kind == "report":
            show_report(made, folder, root)
        elif any((folder / name).is_file() for name in DRAWN):
            show_pictures(made, folder, root, logger)
    if rows:
        create_table_artifact(key=f"{key(address)}-metrics", table=rows, description=f"Metrics of {address}")


def show_decision(made: Manifest, folder: Path) -> None:
    """What the round concluded, and why."""
    decision = Decision.model_validate_json((folder / "decision.json").read_bytes())
    following = "\n".join(f"- {role}: `{parent}`" for role, parent in decision.parents.items())
    create_markdown_artifact(
        key=f"{key(made.id.split('/')[0])}-decision",
        markdown=f"# {decision.round}: {decision.outcome.replace('_', ' ')}\n\n{decision.reason}\n\n"
        f"The next round goes on from\n\n{following}\n",
        description=f"Decision of {decision.round}: {decision.outcome}",
    )


def show_report(made: Manifest, folder: Path, root: Path) -> None:
    """Where the report can be read, under its title and findings."""
    said = ""
    if (folder / "headline.json").is_file():
        headline = json.loads((folder / "headline.json").read_text())
        said = "\n".join([headline["title"], "", *(f"- {sentence}" for sentence in headline["findings"])])
    page = (folder / "report.html").relative_to(root)
    create_link_artifact(
        key=f"{key(made.id.split('/')[0])}-report",
        link=f"{reports.address()}/{page}",
        link_text=f"Report of {made.id.split('/')[1]}",
        description=f"{said}\n\nThe link opens while 'coevo serve' runs; the file is {page}".strip(),
    )


def show_pictures(made: Manifest, folder: Path, root: Path, logger: logging.Logger | logging.LoggerAdapter) -> None:
    """Film strips and curves, drawn by a process of its own: flows import neither numpy nor matplotlib."""
    with tempfile.TemporaryDirectory() as drawn:
        command = [sys.executable, "-m", "scripts.draw_artifact", str(folder), drawn]
        ended = subprocess.run(command, cwd=root, env=repro.environment(), capture_output=True, text=True)
        if ended.returncode:  # a stage whose work is done does not fail for want of a picture
            logger.warning("no pictures of %s: %s", made.id, ended.stderr.strip()[-500:])
        for file in sorted(Path(drawn).glob("*.png")):
            picture = base64.b64encode(file.read_bytes()).decode()
            create_image_artifact(
                image_url=f"data:image/png;base64,{picture}",
                key=f"{key(made.id)}-{file.stem}",
                description=f"{file.stem} of {made.id}",
            )


def show_failure(address: str, message: str) -> None:
    """The message that a person needs, where artifacts are looked for."""
    create_markdown_artifact(
        key=f"{key(address)}-failed", markdown=f"# {address} failed\n\n```\n{message}\n```\n", description=message[:200]
    )


def last_words(message: str) -> str:
    """What the stage that failed said, without the stages that ran before it."""
    lines = message.splitlines()
    began = max((index for index, line in enumerate(lines) if line.startswith("Running stage")), default=-1)
    return "\n".join(lines[began + 1 :]) or message


def key(name: str) -> str:
    """Prefect's artifact keys know lower-case letters, digits and dashes."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")

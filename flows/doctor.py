"""What this machine has and lacks: each finding with the command that mends it."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from flows import DEFAULTS, repro
from flows.lock import Held, repository_lock
from flows.loops import Loop, names

NEEDED_GIB, WANTED_GIB = 2, 10
"""A laptop's round leaves about half a GiB in data/ and as much in DVC's cache."""
DATABASE = "PREFECT_SERVER_DATABASE_CONNECTION_URL"
REMOTE = "from dvc.repo import Repo; r = Repo().cloud.get_remote(); print(r.fs.exists(r.path) or r.path)"
PRIVATE = ("PREFECT_SERVER_ANALYTICS_ENABLED", "PREFECT_SERVER_UI_V2_ENABLED", "DO_NOT_TRACK", "DVC_NO_ANALYTICS")


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    name: str
    state: Literal["good", "note", "broken"]
    """note: works, and could be better; broken: something needed does not work."""
    said: str
    mend: str = ""
    """A command, or what else to do; empty where nothing is to be done."""


def examine(root: Path, server: str | None) -> list[Finding]:
    """Look at everything; `server` is the address of the API that flows would use, none for a temporary one."""
    return [
        *packages(root), *machine(root), disk(root), git(root), remote(root), *loops(root), lock(root),
        prefect(server), database(), privacy(),
    ]  # fmt: skip


def packages(root: Path) -> list[Finding]:
    """What the project requires against what is installed, and against the versions that it was tested with."""
    from packaging.requirements import Requirement

    mend = "pip install -c constraints.txt -e '.[sim]'"
    try:
        required = [Requirement(line) for line in metadata.requires("coevo") or ()]
    except metadata.PackageNotFoundError:
        return [
            Finding("packages", "note", "coevo is not installed as a package; its files are used as they lie", mend)
        ]
    wrong = []
    for each in required:
        if each.marker is None or each.marker.evaluate({"extra": ""}):
            found = version(each.name)
            if found is None or not each.specifier.contains(found, prereleases=True):
                wrong.append(f"{each.name} {found or 'is missing'} ({each.specifier or 'any version'} is needed)")
    if wrong:
        return [Finding("packages", "broken", "; ".join(wrong), mend)]
    pins = root / "constraints.txt"
    pinned = re.findall(r"^([\w.-]+)==([^\s;]+)", pins.read_text(), re.M) if pins.is_file() else []
    other = [
        f"{name} {found} (tested: {wanted})"
        for name, wanted in pinned
        if (found := version(name)) is not None and found.split("+")[0] != wanted.split("+")[0]
    ]
    if other:
        more = f" and {len(other) - 5} more" if len(other) > 5 else ""
        return [Finding("packages", "note", f"other versions than tested: {', '.join(other[:5])}{more}", mend)]
    return [
        Finding("packages", "good", f"Python {platform.python_version()}, {len(required)} packages, versions as tested")
    ]


def machine(root: Path) -> list[Finding]:
    """Renderer, torch and GPU, asked in a process of its own: flows do not import what draws and computes."""
    command = [sys.executable, "-m", "scripts.examine_machine"]
    try:
        made = subprocess.run(command, cwd=root, env=repro.environment(), capture_output=True, text=True, timeout=180)
        said = json.loads(made.stdout)
    except (ValueError, subprocess.TimeoutExpired) as error:
        why = made.stderr.strip().splitlines()[-1] if "made" in locals() and made.stderr.strip() else str(error)
        return [
            Finding("machine", "broken", f"'{' '.join(command[1:])}' failed: {why}", "make loop installs what it needs")
        ]
    return [Finding(**finding) for finding in said]


def disk(root: Path) -> Finding:
    """Room for data/ and DVC's cache."""
    free = shutil.disk_usage(root).free / 2**30
    if free < NEEDED_GIB:
        return Finding("disk", "broken", f"{free:.1f} GiB free, {NEEDED_GIB} are needed", "coevo gc, or make room")
    if free < WANTED_GIB:
        return Finding("disk", "note", f"{free:.1f} GiB free; a few rounds fill it", "coevo gc says what can go")
    return Finding("disk", "good", f"{free:.0f} GiB free")


def git(root: Path) -> Finding:
    """DVC works in a git repository."""
    if shutil.which("git") is None:
        return Finding("git", "broken", "there is no git", "sudo apt-get install -y git")
    if not (root / ".git").exists():
        return Finding("git", "broken", f"{root} is not a git repository", "git init")
    return Finding("git", "good", "is there")


def remote(root: Path) -> Finding:
    """Where data are pushed to, and whether it answers."""
    if not (root / ".dvc").is_dir():
        return Finding("dvc", "broken", f"DVC does not manage {root}", "dvc init")
    if not repro.has_remote(root):
        return Finding(
            "dvc remote",
            "note",
            "none: data live on this machine alone",
            "dvc remote add --default NAME /path/or/s3://bucket",
        )
    command = [sys.executable, "-c", REMOTE]
    try:
        made = subprocess.run(command, cwd=root, env=repro.environment(), capture_output=True, text=True, timeout=60)
    except subprocess.TimeoutExpired:
        return Finding("dvc remote", "broken", "does not answer within 60 s", "dvc remote list; dvc remote modify ...")
    if made.returncode:
        return Finding(
            "dvc remote", "broken", made.stderr.strip().splitlines()[-1], "dvc remote list; dvc remote modify ..."
        )
    place = made.stdout.strip()
    if place != "True":
        return Finding("dvc remote", "note", f"{place} is not there yet", "dvc push makes it")
    return Finding("dvc remote", "good", "answers")


def loops(root: Path) -> list[Finding]:
    """Whether each loop's files fit together."""
    found = []
    for name in names(root):
        try:
            count = len(Loop(name, root).stages())
            found.append(
                Finding(f"loop {name}", "good", f"{Loop(name, root).open_round().round} is open, {count} stages")
            )
        except ValueError as error:
            found.append(Finding(f"loop {name}", "broken", str(error), "mend the file that is named"))
    return found


def lock(root: Path) -> Finding:
    """Whether something works here now."""
    try:
        with repository_lock(root, "coevo doctor"):
            return Finding("repository", "good", "nothing runs in it")
    except Held as held:
        return Finding("repository", "note", str(held))


def prefect(server: str | None) -> Finding:
    """The server that flows report to, and its database as it sees it."""
    if server is None:
        return Finding("server", "note", "none runs: runs use a temporary one, and there is no page", "coevo server")
    try:
        urllib.request.urlopen(f"{server}/ready", timeout=10).close()
    except urllib.error.HTTPError as error:
        return Finding(
            "server", "broken", f"{server} has no database: {error.read().decode()[:200]}", f"check {DATABASE}"
        )
    except OSError as error:
        return Finding(
            "server", "broken", f"{server} does not answer ({error})", "coevo server, or unset PREFECT_API_URL"
        )
    return Finding("server", "good", f"{server} and its database answer")


def database() -> Finding:
    """Where a server started here keeps its runs."""
    url = os.environ.get(DATABASE, "")
    if not url.startswith("postgresql"):
        return Finding("database", "good", "SQLite in .local/prefect" if not url else url.split("///")[0])
    at = urlsplit(url)
    try:
        socket.create_connection((at.hostname or "localhost", at.port or 5432), timeout=5).close()
    except OSError as error:
        where = f"{at.hostname}:{at.port or 5432}"
        return Finding(
            "database", "broken", f"PostgreSQL at {where} does not answer ({error})", f"start it, or unset {DATABASE}"
        )
    if not url.startswith("postgresql+asyncpg://"):
        return Finding("database", "broken", "the URL names no asynchronous driver", "write postgresql+asyncpg://...")
    return Finding("database", "good", f"PostgreSQL at {at.hostname}")


def privacy() -> Finding:
    """That nothing is reported to anyone and the page asks nobody outside."""
    other = [name for name in PRIVATE if os.environ.get(name) != DEFAULTS[name]]
    if other:
        return Finding(
            "telemetry", "note", f"switched on by your environment: {', '.join(other)}", f"unset {' '.join(other)}"
        )
    return Finding("telemetry", "good", "off")


def version(package: str) -> str | None:
    """Installed version of a package; none if it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None

"""A toy repository that things are killed in, and what must hold of it afterwards."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import psutil

from flows import lock
from tests.flows import toys

LIMIT = 600.0
"""Seconds for anything that is waited for."""
ALIVE = ("SCHEDULED", "PENDING", "RUNNING", "CANCELLING")
JOURNAL = """
def journal(run):
    with open(".local/journal", "a") as file:
        file.write(run.id + "\\n")
"""
"""Added to the toy stages: a line for each piece of work that came to its end."""


def wait_for(condition, what: str, limit: float = LIMIT, step: float = 0.05):
    """What the condition gives once it gives something."""
    until = time.monotonic() + limit
    while not (found := condition()):
        assert time.monotonic() < until, f"waited {limit:.0f} s for {what}"
        time.sleep(step)
    return found


def settings(root: Path, server: str) -> dict[str, str]:
    """Environment of commands in `root` that use this Prefect server."""
    # A client that meets no server must say so soon: several of these tests take it away.
    return toys.environment(
        PREFECT_API_URL=f"{server}/api", PREFECT_HOME=str(root / ".local/prefect"), PREFECT_CLIENT_MAX_RETRIES="2"
    )


class Server:
    """A Prefect server of one's own, which can be killed and started again on the same database."""

    def __init__(self, home: Path) -> None:
        home.mkdir(parents=True, exist_ok=True)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.home, self.process = home, None
        self.url = f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Returns once it answers."""
        quiet = dict(
            PREFECT_HOME=str(self.home), PREFECT_SERVER_ANALYTICS_ENABLED="false", DO_NOT_TRACK="1",
            PREFECT_SERVER_UI_ENABLED="false",
        )  # fmt: skip
        with (self.home / "server.log").open("a") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "prefect", "server", "start", "--host", "127.0.0.1", "--port", str(self.port)],
                cwd=self.home, env=toys.environment(**quiet), stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        wait_for(self.answers, "the server", step=0.3)

    def answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/api/health", timeout=2):
                return True
        except OSError:
            return False

    def kill(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def end(self) -> None:
        lock.end_group(self.process.pid)
        self.process.wait()


class Site:
    """A toy repository, the server that its flows use, and the processes that were started in it."""

    def __init__(self, root: Path, server: str, pause: float = 0.0) -> None:
        self.root, self.server = toys.make(root, pause), server
        stages = (root / "toys.py").read_text().replace("\ndef work(", f"{JOURNAL}\ndef work(")
        (root / "toys.py").write_text(
            stages.replace("    return stage.Result(", "    journal(run)\n    return stage.Result(")
        )
        (root / ".local").mkdir(exist_ok=True)
        self.begun: list[subprocess.Popen] = []
        self.since = datetime.now(UTC)

    def begin(self, *arguments: str) -> subprocess.Popen:
        """A coevo command in the background; it writes to .local/said."""
        with (self.root / ".local" / "said").open("a") as said:
            process = subprocess.Popen(
                [sys.executable, "-m", "flows.cli", *arguments], cwd=self.root, env=settings(self.root, self.server),
                stdout=said, stderr=said, start_new_session=True,
            )  # fmt: skip
        self.begun.append(process)
        return process

    def coevo(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """A coevo command, to its end."""
        return subprocess.run(
            [sys.executable, "-m", "flows.cli", *arguments], cwd=self.root, env=settings(self.root, self.server),
            capture_output=True, text=True, timeout=LIMIT,
        )  # fmt: skip

    def dvc(self, *arguments: str) -> str:
        """A person's own DVC command."""
        return subprocess.run(
            [sys.executable, "-m", "dvc", *arguments], cwd=self.root, env=settings(self.root, self.server), check=True,
            capture_output=True, text=True,
        ).stdout  # fmt: skip

    def ask(self, path: str, items: list | None = None, method: str = "POST", **body):
        """A call of the server's API, which takes a list of items or named values."""
        request = urllib.request.Request(
            f"{self.server}/api/{path}", json.dumps(body if items is None else items).encode(),
            {"Content-Type": "application/json"}, method=method,
        )  # fmt: skip
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.loads(answer.read() or "null")

    def serve(self) -> subprocess.Popen:
        """`coevo serve`, once its deployments are ready."""
        before = {each["id"]: each["updated"] for each in self.deployments()}
        process = self.begin("serve", "--reports-port", "0")
        wait_for(
            lambda: process.poll() is not None
            or len([each for each in self.deployments() if before.get(each["id"]) != each["updated"]]) >= 3,
            "the deployments", step=0.5,
        )  # fmt: skip
        assert process.poll() is None, self.said()
        return process

    def deployments(self) -> list[dict]:
        return self.ask("deployments/filter")

    def deployment(self, flow: str) -> str:
        """Id of the deployment of this flow."""
        (known,) = [each for each in self.ask("flows/filter") if each["name"] == flow]
        (deployment,) = [each for each in self.deployments() if each["flow_id"] == known["id"]]
        return deployment["id"]

    def trigger(self, flow: str = "loop") -> str:
        """Start a deployed flow as the page does; the id of its run."""
        return self.ask(f"deployments/{self.deployment(flow)}/create_flow_run", parameters={})["id"]

    def state(self, run: str) -> str:
        """Type of a flow run's state."""
        return self.ask("flow_runs/filter", flow_runs={"id": {"any_": [run]}})[0]["state"]["type"]

    def said(self) -> str:
        """All that the background commands said."""
        return (self.root / ".local" / "said").read_text()

    def processes(self, *words: str) -> list[int]:
        """Living processes in this repository whose command holds all these words."""
        found = []
        for process in psutil.process_iter(["cwd", "cmdline", "status"]):
            known = process.info
            here = known["cwd"] is not None and Path(known["cwd"]) == self.root.resolve()
            command = known["cmdline"] or ()
            if here and known["status"] != psutil.STATUS_ZOMBIE and all(word in command for word in words):
                found.append(process.pid)
        return found

    def stages(self) -> list[int]:
        """Processes of toy stages themselves, without the shells and DVCs that started them."""
        return self.processes("toys.py")

    def finished(self) -> Counter:
        """How often each output was made to its end."""
        file = self.root / ".local" / "journal"
        return Counter(file.read_text().split()) if file.is_file() else Counter()

    def hurry(self) -> None:
        """From now on stages take no time."""
        (self.root / "pause").write_text("0")

    def runs(self) -> list[dict]:
        """Flow runs since this repository was made. (Tests that share a server run one after the other.)"""
        listed = self.ask("flow_runs/filter", sort="START_TIME_DESC", limit=200)
        return [run for run in listed if datetime.fromisoformat(run["created"]) >= self.since]

    def unended(self) -> list[str]:
        """Flow and task runs that the server believes to be alive."""
        runs = self.runs()
        found = [run for run in runs if run["state"]["type"] in ALIVE]
        if runs:
            chosen = {"id": {"any_": [run["id"] for run in runs]}}
            tasks = self.ask("task_runs/filter", flow_runs=chosen, limit=200)
            # The server can hear of a task run before it hears of its state.
            found += [run for run in tasks if run["state"] is None or run["state"]["type"] in ALIVE]
        return [run["name"] for run in found]

    def close(self) -> None:
        for process in self.begun:
            lock.end_group(process.pid)
            process.wait()
        lock.end_marked(self.root)

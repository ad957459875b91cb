"""One Prefect server for all tests of flows: starting one takes 15 seconds."""

import socket
import subprocess
import sys
import time
import urllib.request

import pytest

from flows.lock import end_group
from tests.flows import toys


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    """Its address, without '/api'."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    home = tmp_path_factory.mktemp("prefect")
    settings = dict(
        PREFECT_HOME=str(home),
        PREFECT_SERVER_ANALYTICS_ENABLED="false",
        DO_NOT_TRACK="1",
        PREFECT_SERVER_UI_V2_ENABLED="false",
        PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT="false",
        PREFECT_SERVER_UI_API_URL=f"http://127.0.0.1:{port}/api",
    )
    with (home / "server.log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "prefect", "server", "start", "--host", "127.0.0.1", "--port", str(port)],
            env=toys.environment(**settings),
            stdout=log,
            stderr=log,
            start_new_session=True,
            cwd=home,
        )
    try:
        _wait_until_healthy(f"http://127.0.0.1:{port}/api/health")
        yield f"http://127.0.0.1:{port}"
    finally:
        end_group(process.pid)


def _wait_until_healthy(url: str, limit: float = 120.0) -> None:
    until = time.monotonic() + limit
    while True:
        try:
            with urllib.request.urlopen(url, timeout=2):
                return
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.3)


@pytest.fixture
def coevo(server):
    """Run the command line in a toy repository, against the shared server: coevo(root, 'run')."""

    def run(root, *arguments):
        return toys.coevo(root, *arguments, PREFECT_API_URL=f"{server}/api", PREFECT_HOME=str(root / ".local/prefect"))

    return run


@pytest.fixture
def begin(server):
    """The same without waiting for its end; what is still alive after the test is ended."""
    begun = []

    def start(root, *arguments):
        process = subprocess.Popen(
            [sys.executable, "-m", "flows.cli", *arguments],
            cwd=root,
            text=True,
            start_new_session=True,
            env=toys.environment(PREFECT_API_URL=f"{server}/api", PREFECT_HOME=str(root / ".local/prefect")),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        begun.append(process)
        return process

    yield start
    for process in begun:
        end_group(process.pid)
        process.communicate()

"""For all tests: one thread each, the order in which files run, and a Prefect server, since one takes 15 s to start."""

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request

import pytest

from flows.lock import end_group
from tests.flows import toys

# Read when torch is loaded, here and in stages: second threads gain nothing on tensors this small, and where the cores
# are shared they cost several times the work.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# A shell that starts the tests in the background has them ignore interrupts, and all that they start would inherit it.
signal.signal(signal.SIGINT, signal.default_int_handler)

LONG = ("test_one_round.py", "test_loop.py", "test_cluster.py", "test_page.py", "test_system_rounds.py")


def pytest_collection_modifyitems(items):
    """Put the longest files first: `make test` gives whole files to two processes, which should end together."""
    items.sort(key=lambda item: LONG.index(item.path.name) if item.path.name in LONG else len(LONG))


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


def _wait_until_healthy(url: str, limit: float = 300.0) -> None:
    until = time.monotonic() + limit
    while True:
        try:
            with urllib.request.urlopen(url, timeout=2):
                return
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.3)

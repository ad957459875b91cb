"""Command lines run in toy repositories, against the shared Prefect server."""

import subprocess
import sys

import pytest

from flows.lock import end_group
from tests.flows import toys


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

"""Repositories that things are killed in, and what an undisturbed run makes of one."""

import subprocess
import sys

import pytest

from tests.survival.site import Server, Site, settings


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory) -> dict[str, str]:
    """DVC's hashes of all outputs, by plain `dvc repro`."""
    from tests.flows import toys

    site = Site(tmp_path_factory.mktemp("undisturbed") / "site", "http://127.0.0.1:9")
    subprocess.run(
        [sys.executable, "-m", "dvc", "repro"], cwd=site.root, env=settings(site.root, site.server), check=True,
        capture_output=True,
    )  # fmt: skip
    return toys.hashes(site.root)


@pytest.fixture
def site(server, tmp_path):
    """A toy repository that uses the shared server; what is left alive in it is ended."""
    made = Site(tmp_path / "site", server)
    yield made
    made.close()


@pytest.fixture
def own_server(tmp_path):
    """A server that may be killed."""
    made = Server(tmp_path / "server")
    made.start()
    yield made
    made.end()

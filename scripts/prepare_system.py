"""Bring what pip cannot: install it where we may, else say the exact command.

python -m scripts.prepare_system renderer
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass

from coevo.simulators.drawing import choose_renderer

BROWSERS = ("chromium", "google-chrome")


@dataclass(frozen=True)
class Need:
    """A part of the system."""

    package: str
    """Debian's name of it."""
    purpose: str
    missing: Callable[[], str]
    """What to say while it is missing; empty once it is there."""


def missing_renderer() -> str:
    """Why frames cannot be drawn, in the simulator's own words."""
    chosen = os.environ.get("MUJOCO_GL")
    try:
        choose_renderer()
        return ""
    except ValueError as error:
        return str(error)
    finally:  # its choice holds for this look only: it may change with what is installed
        os.environ.pop("MUJOCO_GL", None)
        if chosen is not None:
            os.environ["MUJOCO_GL"] = chosen


def browser() -> str | None:
    """The browser that tests of Prefect's page drive: what CHROMIUM names, or the first one found."""
    names = [os.environ["CHROMIUM"]] if "CHROMIUM" in os.environ else BROWSERS
    return next((path for path in map(shutil.which, names) if path), None)


def missing_browser() -> str:
    """Why Prefect's page cannot be tested."""
    if browser():
        return ""
    return (
        "there is no browser to test Prefect's page with. Install one with 'sudo apt-get install -y chromium', or say "
        "where it is: CHROMIUM=/path/to/chromium"
    )


NEEDS = {
    "renderer": Need("libosmesa6", "which draws the simulator's frames on the CPU", missing_renderer),
    "browser": Need("chromium", "in which the tests open Prefect's page", missing_browser),
}


def prepare(need: Need) -> str:
    """Install what is missing if this is root on a system with apt; what to say if it is still missing."""
    message = need.missing()
    if not message or os.geteuid() != 0 or not shutil.which("apt-get"):
        return message
    print(f"installing {need.package}, {need.purpose}", flush=True)
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    install = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", need.package]
    for command in (["apt-get", "update", "-qq"], install):
        subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    return need.missing()


def main() -> int:
    """0 when all that was asked for is there."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("needs", nargs="+", choices=NEEDS, metavar="|".join(NEEDS))
    said = [message for name in parser.parse_args().needs if (message := prepare(NEEDS[name]))]
    for message in said:
        print(message, file=sys.stderr)
    return 1 if said else 0


if __name__ == "__main__":
    sys.exit(main())

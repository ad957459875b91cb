"""Make sure that frames can be drawn: say the command that brings the missing library, or run it where we may."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

from coevo.simulators.drawing import choose_renderer

INSTALL = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", "libosmesa6"]


def main() -> int:
    """0 when frames can be drawn."""
    try:
        choose_renderer()
        return 0
    except ValueError as error:
        message = str(error)
    if os.geteuid() == 0 and shutil.which("apt-get"):
        print("installing libosmesa6, which draws the simulator's frames on the CPU", flush=True)
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        for command in (["apt-get", "update", "-qq"], INSTALL):
            subprocess.run(command, env=environment, stdout=subprocess.DEVNULL)
        os.environ.pop("MUJOCO_GL", None)
        try:
            choose_renderer()
            return 0
        except ValueError as error:
            message = str(error)
    print(message, file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())

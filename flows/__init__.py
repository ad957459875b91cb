"""When stages run: Prefect flows that ask DVC, which decides whether a stage must.

Importing this package settles the surroundings before Prefect reads them: everything that a run leaves behind stays in
the repository's `.local`, nothing is reported to anyone, and a slow machine gets time to start the server. Each
setting is a default that the user's own environment overrides.
"""

import os
from pathlib import Path


def find_root(start: Path) -> Path:
    """The nearest folder at or above `start` that DVC manages; `start` itself if there is none."""
    return next((folder for folder in (start, *start.parents) if (folder / ".dvc").is_dir()), start)


ROOT = find_root(Path.cwd().resolve())
"""The repository that flows work on: where the command was given, not where this file lies."""

DEFAULTS = {
    "PREFECT_HOME": str(ROOT / ".local" / "prefect"),
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    # The second user interface asks a host outside for its configuration at every page.
    "PREFECT_SERVER_UI_V2_ENABLED": "false",
    "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "false",
    "PREFECT_RUNNER_POLL_FREQUENCY": "2",
    "DO_NOT_TRACK": "1",
    "DVC_NO_ANALYTICS": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "MPLCONFIGDIR": str(ROOT / ".local" / "matplotlib"),
    "MESA_SHADER_CACHE_DIR": str(ROOT / ".local" / "mesa"),
}
if (ROOT / ".dvc").is_dir():
    (ROOT / ".local").mkdir(exist_ok=True)  # Prefect makes its own folder and not the one above it
for _name, _value in DEFAULTS.items():
    os.environ.setdefault(_name, _value)

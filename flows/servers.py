"""Which Prefect server flows report to."""

from __future__ import annotations

import json
import urllib.request

from flows import ROOT

DEFAULT = "http://127.0.0.1:4200/api"
_FILE = ROOT / ".local" / "server.json"


def record(url: str) -> None:
    """Remember that this repository's server listens here."""
    _FILE.write_text(json.dumps(url))


def own() -> str | None:
    """Address of this repository's server, if one was started here and answers."""
    url = json.loads(_FILE.read_text()) if _FILE.is_file() else None
    return url if url is not None and fault(url) is None else None


def fault(url: str) -> str | None:
    """What is wrong with a server; none if it answers."""
    try:
        urllib.request.urlopen(f"{url}/health", timeout=10).close()
    except OSError as error:
        return str(error)
    return None

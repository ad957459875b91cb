"""Reports over HTTP, beside Prefect's page: a browser opens no file from a page that came over the network."""

from __future__ import annotations

import functools
import os
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

ADDRESS = "COEVO_REPORTS_URL"
"""Environment variable that says where people reach the reports; needed where they use another machine's browser."""
PORT = 4201


def address() -> str:
    """Where links to reports point."""
    return os.environ.get(ADDRESS, f"http://127.0.0.1:{PORT}").rstrip("/")


def serve(root: Path, port: int = PORT) -> ThreadingHTTPServer:
    """Offer `data/<loop>/<round>/report/` of a repository, and nothing else, to this machine until the process ends.

    ValueError if the port is taken.
    """
    handler = functools.partial(_Handler, directory=str(root))
    try:
        server = ThreadingHTTPServer(("127.0.0.1", port), handler)
    except OSError as error:
        raise ValueError(f"port {port} for reports: {error.strerror}; choose another one with --reports-port") from None
    os.environ.setdefault(ADDRESS, f"http://127.0.0.1:{server.server_port}")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


class _Handler(SimpleHTTPRequestHandler):
    def send_head(self):
        parts = unquote(urlsplit(self.path).path).strip("/").split("/")
        if len(parts) < 5 or (parts[0], parts[3]) != ("data", "report") or ".." in parts:
            self.send_error(404, "only reports are offered here")
            return None
        return super().send_head()

    def list_directory(self, path):
        self.send_error(404, "only reports are offered here")

    def log_message(self, format, *arguments):
        """Say nothing: the runner's log is for runs."""

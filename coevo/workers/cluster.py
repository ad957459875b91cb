"""Ray, where the machine has it: which cluster, what room is in it, and no wait without an end.

Where work runs is the machine's affair and stands in the environment, in no file that a hash covers:

- `RAY_ADDRESS`: the cluster of that address (host:port of its head, or 'auto' for the one on this machine);
- `COEVO_RAY=local`: a Ray that is started in the stage's process and ends with it;
- `COEVO_RAY_WAIT`: seconds to wait for workers to find room and start (default 300).

Without the first two Ray is not even imported.
"""

from __future__ import annotations

import os
import socket
import sys
from types import ModuleType

ADDRESS, LOCAL, WAIT = "RAY_ADDRESS", "COEVO_RAY", "COEVO_RAY_WAIT"
WAIT_SECONDS = 300.0
ANSWER_SECONDS = 10.0


def chosen() -> bool:
    """Whether work goes to Ray. ValueError if COEVO_RAY is set to something that means nothing."""
    local = os.environ.get(LOCAL, "")
    if local not in ("", "local"):
        raise ValueError(f"{LOCAL}={local}: 'local' starts a Ray for this stage; a cluster is chosen by {ADDRESS}")
    return bool(os.environ.get(ADDRESS) or local)


def wait_seconds() -> float:
    """How long workers may take to find room and start."""
    given = os.environ.get(WAIT)
    try:
        return float(given) if given else WAIT_SECONDS
    except ValueError:
        raise ValueError(f"{WAIT}={given} is not a number of seconds") from None


def connect() -> ModuleType:
    """Ray, connected to the chosen cluster; the module, so that nothing else imports it.

    ValueError if Ray is not installed, if nobody answers at the address, or if the cluster refuses.
    """
    try:
        import ray
    except ImportError:
        raise ValueError(
            f"{_choice()} chooses Ray, which is not installed here; install it with: pip install 'coevo[ray]'"
        ) from None
    if ray.is_initialized():
        return ray
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # Ray ends a process that did not reach the head for so long; a busy machine needs more than its 60 s.
    os.environ.setdefault("RAY_gcs_rpc_server_reconnect_timeout_s", "300")
    address = os.environ.get(ADDRESS) or "local"
    if address.startswith("ray://"):
        raise ValueError(f"{ADDRESS}={address}: Ray Client is not supported; give the head's own address, host:port")
    if ":" in address:
        _require_answer(address)
    try:
        ray.init(address=address, include_dashboard=False if address == "local" else None, logging_level="WARNING")
    except (ConnectionError, RuntimeError, ray.exceptions.RayError) as error:
        raise ValueError(
            f"{_choice()}: Ray did not let this process in ({error}). With token authentication, all nodes and this "
            "process need RAY_AUTH_MODE=token and the same token (RAY_AUTH_TOKEN_PATH)"
        ) from error
    return ray


def room(ray: ModuleType) -> str:
    """What the cluster has and what of it is free, in words."""
    total, free = ray.cluster_resources(), ray.available_resources()
    nodes = sum(node["Alive"] for node in ray.nodes())
    parts = [f"{total.get(kind, 0):g} {kind} ({free.get(kind, 0):g} free)" for kind in ("CPU", "GPU")]
    return f"the cluster has {nodes} {'node' if nodes == 1 else 'nodes'} with {' and '.join(parts)}"


def say(line: str) -> None:
    """One line for people, beside the stage's own."""
    print(line, file=sys.stderr, flush=True)


def _choice() -> str:
    name = ADDRESS if os.environ.get(ADDRESS) else LOCAL
    return f"{name}={os.environ[name]}"


def _require_answer(address: str) -> None:
    """Ray itself would try for a minute."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=ANSWER_SECONDS).close()
    except (OSError, ValueError) as error:
        raise ValueError(
            f"{ADDRESS}={address}: no Ray head answers there ({error}); 'ray status' on the head says whether it runs"
        ) from None

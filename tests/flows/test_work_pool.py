"""prefect.yaml as it ships: deployed to a work pool, and a run taken by a process worker."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import urllib.request

from tests.flows import toys


def test_a_worker_of_a_pool_runs_what_prefect_yaml_deploys(server, tmp_path):
    root = toys.make(tmp_path / "toy")
    shutil.copyfile(toys.PROJECT / "prefect.yaml", root / "prefect.yaml")

    def ask(method: str, path: str, **body):
        request = urllib.request.Request(
            f"{server}/api/{path}", json.dumps(body).encode(), {"Content-Type": "application/json"}, method=method
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.loads(answer.read() or "null")

    def prefect(*arguments: str, cwd=root, **more: str) -> None:
        home = dict(PREFECT_API_URL=f"{server}/api", PREFECT_HOME=str(tmp_path / "home"))
        made = subprocess.run(
            [sys.executable, "-m", "prefect", *arguments], cwd=cwd, env=toys.environment(**home, **more),
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=240,
        )  # fmt: skip
        assert made.returncode == 0, made.stdout + made.stderr

    def forget() -> None:
        """The server is shared: a schedule that another test left under the same names would send its runs here."""
        for each in ask("POST", "deployments/filter"):
            ask("DELETE", f"deployments/{each['id']}")

    forget()
    ask("POST", "work_pools/", name="coevo", type="process")
    try:
        prefect("--no-prompt", "deploy", "--all", COEVO_ROOT=str(root))
        deployed = {each["entrypoint"]: each["id"] for each in ask("POST", "deployments/filter") if each["entrypoint"]}
        stage = deployed["flows.stages.run_one_stage"]
        run = ask("POST", f"deployments/{stage}/create_flow_run", parameters={"name": "start/dvc.yaml:begin"})
        # Somewhere else than in the repository, as a worker of another machine would be.
        prefect("worker", "start", "--pool", "coevo", "--run-once", cwd=tmp_path)
        ended = ask("GET", f"flow_runs/{run['id']}")["state"]
        assert ended["type"] == "COMPLETED", ended["message"]
        assert (root / "data/start/work/total.txt").read_text() == "2"
    finally:
        forget()
        ask("DELETE", "work_pools/coevo")

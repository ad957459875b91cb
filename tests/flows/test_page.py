"""Prefect's page in a real browser: trigger a round from its form, watch it end, find its artifacts."""

import json
import os
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from flows.lock import end_group
from scripts.prepare_system import browser, missing_browser
from tests.flows import toys

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def ask(server: str, path: str, **body) -> list[dict]:
    """POST to Prefect's API."""
    request = urllib.request.Request(
        f"{server}/api/{path}", data=json.dumps(body).encode(), headers={"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.load(answer)


def until(condition, what: str, limit: float = 120.0):
    """Poll a condition."""
    end = time.monotonic() + limit
    while not (found := condition()):
        assert time.monotonic() < end, f"waited {limit} s for {what}"
        time.sleep(0.5)
    return found


@pytest.fixture
def served(server, tmp_path):
    """A toy repository whose flows are offered by `coevo serve`."""
    root = toys.make(tmp_path)
    settings = toys.environment(PREFECT_API_URL=f"{server}/api", PREFECT_HOME=str(root / ".local/prefect"))
    log = (tmp_path / "serve.log").open("w")
    process = subprocess.Popen(
        [sys.executable, "-m", "flows.cli", "serve"],
        cwd=root,
        env=settings,
        stdout=log,
        stderr=log,
        start_new_session=True,
    )
    try:
        until(lambda: len(ask(server, "deployments/filter")) >= 3, "the deployments")
        yield root
    finally:
        end_group(process.pid)
        log.close()


@pytest.mark.skipif(browser() is None, reason=missing_browser())
def test_a_round_is_run_from_the_page_and_dvc_agrees(server, served, tmp_path):
    from playwright.sync_api import sync_playwright

    pictures = Path(os.environ.get("SCREENSHOTS", tmp_path / "screenshots"))
    deployment = next(each for each in ask(server, "deployments/filter") if each["name"] == "loop")
    with sync_playwright() as driver:
        window = driver.chromium.launch(executable_path=browser(), args=FLAGS)
        page = window.new_page(viewport={"width": 1400, "height": 1000})
        outside: list[str] = []
        page.on(
            "request",
            lambda request: None if request.url.startswith((server, "data:", "blob:")) else outside.append(request.url),
        )
        page.goto(f"{server}/deployments/deployment/{deployment['id']}")
        page.get_by_role("button", name="Run", exact=True).click()
        page.get_by_text("Custom run").click()
        page.get_by_text("Rounds", exact=False).first.wait_for()
        page.screenshot(path=pictures / "1-form.png")
        page.wait_for_timeout(500)  # a form that was just filled sometimes submits nothing
        page.get_by_role("button", name="Submit").click()
        runs = until(
            lambda: ask(
                server,
                "flow_runs/filter",
                sort="START_TIME_DESC",
                flow_runs={"deployment_id": {"any_": [deployment["id"]]}},
            ),
            "the run",
        )
        run = runs[0]["id"]

        def state() -> str:
            found = ask(server, "flow_runs/filter", flow_runs={"id": {"any_": [run]}})[0]["state"]
            assert found["type"] not in ("FAILED", "CRASHED", "CANCELLED"), found["message"]
            return found["type"]

        until(lambda: state() == "COMPLETED", "the round")
        (inner,) = ask(
            server, "flow_runs/filter", flow_runs={"name": {"any_": ["round-default"]}}, sort="START_TIME_DESC"
        )[:1]
        page.goto(f"{server}/runs/flow-run/{inner['id']}")
        page.get_by_text("Completed").first.wait_for()
        page.get_by_text("4 of 4 stages ran").wait_for()
        page.screenshot(path=pictures / "2-round.png")
        page.goto(f"{server}/artifacts")
        page.get_by_text("work-0-metrics").first.click()
        page.get_by_text("Metrics of work@0").first.wait_for()
        (table,) = ask(server, "artifacts/filter", artifacts={"key": {"any_": ["work-0-metrics"]}})[:1]
        page.goto(f"{server}/artifacts/artifact/{table['id']}")
        page.get_by_text("default/i001/policy/0").first.wait_for()
        page.screenshot(path=pictures / "3-metrics.png")
        window.close()
    assert not outside, f"the page asked outside: {sorted(set(outside))[:3]}"
    status = subprocess.run(
        [sys.executable, "-m", "dvc", "status", "--json"],
        cwd=served,
        env=toys.environment(),
        capture_output=True,
        text=True,
    )
    assert status.stdout.strip() == "{}"
    again = ask(server, f"deployments/{deployment['id']}/create_flow_run", parameters={})
    until(
        lambda: (
            ask(server, "flow_runs/filter", flow_runs={"id": {"any_": [again["id"]]}})[0]["state"]["type"]
            == "COMPLETED"
        ),
        "the second run",
    )
    tasks = ask(server, "task_runs/filter", task_runs={}, flow_runs={"parent_flow_run_id": {"any_": [again["id"]]}})
    assert tasks == []

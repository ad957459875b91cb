"""Prefect's page in a real browser: trigger a round from its form, watch it end, find its artifacts."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager
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
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def until(condition, what: str, limit: float = 120.0):
    """Poll a condition."""
    end = time.monotonic() + limit
    while not (found := condition()):
        assert time.monotonic() < end, f"waited {limit} s for {what}"
        time.sleep(0.5)
    return found


REPORT = """
  report:
    cmd: python toys.py report --sources data/${loop}/${round}/policy/* --out data/${loop}/${round}/report
    deps: ["data/${loop}/${round}/policy", toys.py]
    params: [report]
    outs: ["data/${loop}/${round}/report"]
"""


@pytest.fixture
def served(server, tmp_path):
    """A toy repository that makes pictures and a report, its flows offered by `coevo serve`."""
    root = toys.make(tmp_path / "repository")
    (root / "dvc.yaml").write_text((root / "dvc.yaml").read_text().rstrip() + REPORT)
    values = "seed: 0\nseeds: [0, 1]\nwork:\n  steps: 3  # how far to count\n  pictures: true\ndecide: {}\nreport: {}\n"
    (root / "params.yaml").write_text(values)
    with offered(server, root, tmp_path / "serve.log"):
        yield root


@contextmanager
def offered(server, root: Path, log: Path, *options: str):
    """`coevo serve` in a repository, until the end of the block."""
    settings = toys.environment(PREFECT_API_URL=f"{server}/api", PREFECT_HOME=str(root / ".local/prefect"))
    command = [sys.executable, "-m", "flows.cli", "serve", "--reports-port", "0", *options]
    with log.open("w") as said:
        process = subprocess.Popen(command, cwd=root, env=settings, stdout=said, stderr=said, start_new_session=True)
        try:
            until(lambda: "flows are offered at" in log.read_text() and deployments(server), "the deployments")
            yield process
        finally:
            os.killpg(process.pid, signal.SIGINT)  # a clean stop pauses what was offered
            try:
                process.wait(20)
            finally:
                end_group(process.pid)


def deployments(server) -> dict[str, dict]:
    """What is offered, by the name of the flow; none before all three are."""
    names = {each["id"]: each["name"] for each in ask(server, "flows/filter")}
    found = {names[each["flow_id"]]: each for each in ask(server, "deployments/filter")}
    return found if {"loop", "round", "stage"} <= set(found) else {}


def run_of(server, deployment: dict, **parameters) -> dict:
    """Trigger a run as a page does."""
    return ask(server, f"deployments/{deployment['id']}/create_flow_run", parameters=parameters)


def runs(server, deployment: dict) -> list[dict]:
    """All runs of a deployment."""
    return ask(server, "flow_runs/filter", flow_runs={"deployment_id": {"any_": [deployment["id"]]}})


def state(server, run: str) -> dict:
    """Of a flow run, by its id."""
    return ask(server, "flow_runs/filter", flow_runs={"id": {"any_": [run]}})[0]["state"]


def ended(server, run: str, limit: float = 180.0) -> dict:
    """The state in which a run ends."""
    final = ("COMPLETED", "FAILED", "CRASHED", "CANCELLED")
    return until(lambda: (found := state(server, run))["type"] in final and found, "the run's end", limit)


def artifact(server, key: str) -> dict:
    """The latest artifact of a key."""
    found = ask(server, "artifacts/filter", artifacts={"key": {"any_": [key]}}, sort="UPDATED_DESC")
    assert found, f"no artifact '{key}'; there is: {sorted({a['key'] for a in ask(server, 'artifacts/filter')})}"
    return found[0]


@pytest.fixture
def page(server):
    """A window of a real browser, which notes what is asked outside the server."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        window = driver.chromium.launch(executable_path=browser(), args=FLAGS)
        page = window.new_page(viewport={"width": 1400, "height": 1200})
        outside: list[str] = []
        inside = (server, "data:", "blob:", "http://127.0.0.1")
        page.on("request", lambda asked: None if asked.url.startswith(inside) else outside.append(asked.url))
        yield page
        window.close()
    assert not outside, f"the page asked outside: {sorted(set(outside))[:3]}"


needs_browser = pytest.mark.skipif(browser() is None, reason=missing_browser())


@needs_browser
def test_a_round_is_run_from_the_form_and_dvc_agrees(server, served, page, tmp_path):
    pictures = Path(os.environ.get("SCREENSHOTS", tmp_path / "screenshots"))
    page.set_default_timeout(90_000)
    deployment = deployments(server)["round"]
    before = {each["id"] for each in runs(server, deployment)}
    page.goto(f"{server}/deployments/deployment/{deployment['id']}")
    page.get_by_role("button", name="Run", exact=True).click()
    page.get_by_text("Custom run").click()
    page.get_by_text("Now: 3.").wait_for()
    page.locator("xpath=//label[contains(., 'steps')]/following::input[1]").fill("4")
    page.wait_for_timeout(1000)
    page.screenshot(path=pictures / "1-form.png", full_page=True)

    def submitted() -> list[dict]:
        """A form that was just filled sometimes submits nothing, and stays."""
        if page.get_by_role("button", name="Submit").is_visible():
            page.get_by_role("button", name="Submit").click()
            page.wait_for_timeout(10_000)
        return [each for each in runs(server, deployment) if each["id"] not in before]

    run, *_ = until(submitted, "the run")
    assert run["parameters"] == {"loop": "default", "changes": {"work": {"steps": 4}}}
    page.goto(f"{server}/runs/flow-run/{run['id']}")
    assert ended(server, run["id"])["type"] == "COMPLETED"
    page.get_by_text("5 of 5 stages ran").wait_for()
    page.screenshot(path=pictures / "2-run.png")
    assert "  steps: 4  # how far to count\n" in (served / "params.yaml").read_text()
    show(server, page, "work-0-metrics", "default/i001/policy/0", pictures / "3-metrics.png")
    show(server, page, "default-decision", "it is a toy", pictures / "4-decision.png")
    for name in ("strips", "curves"):
        show(
            server,
            page,
            f"default-i001-policy-0-{name}",
            f"{name} of default/i001/policy/0",
            pictures / f"5-{name}.png",
        )
        drawn = page.locator("img[src^='data:image/png']").first
        drawn.wait_for()
        assert drawn.evaluate("image => image.naturalWidth") > 100
    show(server, page, "default-report", "Report of i001", pictures / "6-report.png")
    page.goto(page.get_by_role("link", name="Report of i001").get_attribute("href"))
    page.get_by_text("The toy has counted").wait_for()
    assert page.request.get(page.url.replace("report/report.html", "decision/decision.json")).status == 404
    repro = [sys.executable, "-m", "dvc", "repro"]
    again = subprocess.run(repro, cwd=served, env=toys.environment(), capture_output=True, text=True)
    assert again.returncode == 0 and "Running stage" not in again.stdout, again.stdout


def show(server, page, key: str, text: str, picture: Path) -> None:
    """Open an artifact's own page, wait for a text in it, keep a picture."""
    page.goto(f"{server}/artifacts/artifact/{artifact(server, key)['id']}")
    page.get_by_text(text).first.wait_for()
    page.wait_for_timeout(500)
    page.screenshot(path=picture)


@needs_browser
def test_a_failed_stage_says_at_the_top_what_a_person_needs(server, served, page, tmp_path):
    pictures = Path(os.environ.get("SCREENSHOTS", tmp_path / "screenshots"))
    page.set_default_timeout(90_000)
    changes = {"work": {"fault": "the cup is empty; fill it"}}
    run = run_of(server, deployments(server)["stage"], name="work", changes=changes)
    end = ended(server, run["id"])
    assert end["type"] == "FAILED" and end["message"] == "work: the cup is empty; fill it"
    show(server, page, "work-failed", "the cup is empty; fill it", pictures / "7-failed.png")
    logs = ask(server, "logs/filter", logs={"flow_run_id": {"any_": [run["id"]]}})
    # Prefect's runner notes at the end a traceback of its own; none leads through this project.
    assert logs and not [line for line in logs if "flows/repro.py" in line["message"]]


def test_a_schedule_runs_three_rounds_and_another_trigger_is_refused(server, tmp_path):
    root = toys.make(tmp_path / "repository", pause=4.0)
    with offered(server, root, tmp_path / "serve.log", "--every", "10"):
        until((root / ".local/holder.json").is_file, "the schedule's first run")
        refused = run_of(server, deployments(server)["loop"], rounds_wanted=9)
        by_hand = toys.coevo(root, "run", "--rounds", "9", PREFECT_API_URL=f"{server}/api")
        end = ended(server, refused["id"])
        assert end["type"] == "CANCELLED", end
        assert "in use by 'coevo run --more --loop default' (process " in end["message"]
        assert by_hand.returncode == 1 and "in use by 'coevo run --more" in " ".join(by_hand.stdout.split())
        (root / "pause").write_text("0")
        until(lambda: (root / "data/default/i003/decision/decision.json").is_file(), "three rounds", 280)
    assert {path.name for path in (root / "rounds").iterdir()} >= {"i001", "i002"}

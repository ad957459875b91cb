"""A whole round at test size: the real simulator, the start that ships, the real DVC graph, by the command line."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from coevo.core import artifacts
from coevo.records.outcomes import Admission, Decision, Figure
from tests.flows import toys

pytestmark = pytest.mark.timeout(900)

COPIED = ("coevo", "configs", "flows", "tasks", "weights", ".dvc/config", ".dvcignore", "dvc.yaml", "start/dvc.yaml")
SETS = {"train": 12, "validation": 6, "admission": 5, "sealed": 8}
START = {
    "seed": 1,
    "simulator": "pick_place",
    **{f"{role}_states": {"role": role, "count": count, "workers": 0} for role, count in SETS.items()},
    "collect_demonstrations": {"episodes": [{"name": "clean", "count": 4}], "replayed": 2, "workers": 0},
    "build_dataset": {"mixture": {"expert": 1.0}},
}
PARAMS = {
    "seed": 1,
    "simulator": "pick_place",
    "seeds": [0],
    "promoted_seed": 0,
    "collect_rollouts": {"repeats": 2, "replayed": 2, "workers": 2},
    "collect_admission_rollouts": {"repeats": 4, "replayed": 2, "workers": 0},
    "build_dataset": {},
    "train_world_model": {"training": {"steps": 6, "batch": 8, "warmup": 2}},
    "calibrate_reward": {},
    "admit_world_model": {"repeats": 2, "workers": 0},
    "train_policy": {
        "algorithm": {"updates": 1, "states": 2, "group": 4, "minibatch": 40},
        "validate_every": 1,
        "validation_states": 4,
        "workers": 0,
    },
    "evaluate_on_validation": {"role": "validation", "repeats": 1, "workers": 0},
    "evaluate_on_sealed": {"role": "sealed", "repeats": 1, "workers": 0},
    "replay_dreams": {"workers": 0},
    "decide_round": {},
    "compare_rounds": {},
}
ALWAYS = {
    "recall_floor": 0.0,
    "fake_success_ceiling": 1.0,
    "fake_success_mixed_ceiling": 1.0,
    "mismatch_ceiling": 1.0,
    "gain_lower_bound_above": 0.0,
}
NEVER = ALWAYS | {"recall_floor": 1.5}
OPEN_ROUND = {
    "loop": "default",
    "round": "i001",
    "parents": {role: f"start/{role}" for role in ("dataset", "world_model", "policy", "reward")},
    "before": {"decision": {}, "reports": {}},
}


class Repository:
    """A repository of its own with this one's code, start and pipeline."""

    def __init__(self, root: Path, server: str) -> None:
        self.root = root
        self.environment = toys.environment(PYTHONPATH=str(root), PREFECT_API_URL=f"{server}/api")

    def write(self, name: str, values: dict) -> None:
        (self.root / name).parent.mkdir(exist_ok=True)
        (self.root / name).write_text(yaml.safe_dump(values, sort_keys=False))

    def call(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", *words], cwd=self.root, env=self.environment, capture_output=True, text=True
        )

    def run_round(self) -> str:
        """What `coevo run` says; it must end well."""
        made = self.call("flows.cli", "run", "--rounds", "1")
        assert made.returncode == 0, made.stdout + made.stderr
        assert "Traceback" not in made.stdout + made.stderr
        return made.stdout

    def made(self, name: str) -> artifacts.Artifact:
        """An artifact of the open round, verified."""
        return artifacts.read(self.root / "data/default/i001" / name)

    def record(self, name: str, kind):
        """The record that an artifact holds, for example admission.json."""
        return kind.model_validate_json((self.made(name).path / f"{name}.json").read_bytes())

    def report(self) -> SimpleNamespace:
        """The three files of the report."""
        folder = self.made("report").path
        rows = [Figure.model_validate(row) for row in json.loads((folder / "figures.json").read_text())]
        return SimpleNamespace(
            page=(folder / "report.html").read_text(),
            headline=json.loads((folder / "headline.json").read_text()),
            figures={(figure.metric, figure.arm): figure for figure in rows},
        )

    def unfinished(self) -> dict:
        """What DVC finds changed; empty when all is done."""
        return json.loads(self.call("dvc", "status", "--json").stdout)

    def modified(self) -> dict[Path, int]:
        """When each file of data/ was written."""
        return {path: path.stat().st_mtime_ns for path in (self.root / "data").rglob("*")}


def begun(root: Path, server: str) -> Repository:
    """A repository at `root` with nothing made yet, whose criterion every world model meets."""
    for name in COPIED:
        source, target = toys.PROJECT / name, root / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copyfile(source, target)
    subprocess.run(["git", "init", "--quiet", "."], cwd=root, check=True)
    repository = Repository(root, server)
    for name, values in (
        ("start/params.yaml", START),
        ("params.yaml", PARAMS),
        ("round.yaml", OPEN_ROUND),
        ("criterion.yaml", ALWAYS),
    ):
        repository.write(name, values)
    return repository


@pytest.fixture(scope="module")
def admitted(tmp_path_factory, server) -> Repository:
    """A finished round."""
    repository = begun(tmp_path_factory.mktemp("admitted"), server)
    repository.said = repository.run_round()
    return repository


@pytest.fixture(scope="module")
def refused(admitted, tmp_path_factory, server) -> Repository:
    """The same round, run on with a criterion that none can meet: the start and the world model stay as they are."""
    root = tmp_path_factory.mktemp("refused") / "repository"
    shutil.copytree(admitted.root, root)
    repository = Repository(root, server)
    repository.write("criterion.yaml", NEVER)
    repository.said = repository.run_round()
    return repository


def test_an_admitted_round_reports_fidelity_and_success_before_and_after(admitted):
    report = admitted.report()
    for metric in ("fake_success", "recall"):
        for arm in ("simulator", "before", "after"):
            figure = report.figures[metric, arm]
            assert 0 <= figure.low <= figure.value <= figure.high <= 1
    for arm in ("start policy", "trained policy"):
        figure = report.figures["policy_success", arm]
        assert figure.n == SETS["sealed"] and figure.low <= figure.value <= figure.high
    assert report.figures["gain", "trained policy"].n == SETS["sealed"]
    failures, successes = (report.figures[metric, "after"].n for metric in ("fake_success", "recall"))
    assert failures + successes == SETS["admission"] * PARAMS["collect_admission_rollouts"]["repeats"]
    for row in report.headline["table"]:
        assert row["label"] in report.page and row["text"] in report.page
        assert row["text"] in admitted.said
    assert "http://" not in report.page.replace("http://www.w3.org", "") and "<script src" not in report.page


def test_an_admitted_world_model_is_trained_in(admitted):
    assert admitted.record("admission", Admission).admitted
    policy = admitted.made("policy/0")
    # Two states by groups of four, and the probe's one dream from each validation state, before the update and after.
    assert policy.manifest.metrics["dreamed_episodes"] == 8 + 2 * SETS["validation"]
    assert policy.manifest.metrics["outcome"] == "trained"
    assert admitted.record("decision", Decision).outcome in ("promote", "keep")


def test_nothing_is_left_to_do_and_running_again_does_nothing(admitted):
    assert admitted.unfinished() == {}
    before = admitted.modified()
    assert "nothing to do: round i001 is finished" in admitted.run_round()
    assert admitted.modified() == before


def test_dvc_shows_the_reports_numbers_and_draws_its_charts_without_asking_outside(admitted):
    shown = json.loads(admitted.call("dvc", "metrics", "show", "--json").stdout)
    (numbers,) = shown[""]["data"].values()
    figures = admitted.report().figures
    assert numbers["data"]["metrics"]["recall_after"] == figures["recall", "after"].value
    made = admitted.call("dvc", "plots", "show")
    assert made.returncode == 0, made.stderr
    page = (admitted.root / "dvc_plots/index.html").read_text()
    assert page.count("<img") == len(list((admitted.made("report").path / "charts").iterdir())) >= 3
    assert "<script" not in page


def test_a_stage_done_again_by_dvc_alone_has_the_same_hash(admitted):
    world_model = admitted.made("world_model")
    shutil.rmtree(world_model.path)
    # Without --force DVC would bring the folder back from its cache.
    made = admitted.call("dvc", "repro", "--force", "--single-item", "train_world_model")
    assert made.returncode == 0 and "Running stage 'train_world_model'" in made.stdout, made.stdout + made.stderr
    assert admitted.made("world_model").manifest.sha256 == world_model.manifest.sha256
    assert admitted.unfinished() == {}


def test_a_refused_world_model_keeps_the_policy_and_the_round_ends_well(refused):
    admission = refused.record("admission", Admission)
    assert not admission.admitted and "below its floor of 1.5" in admission.reasons[0]
    policy = refused.made("policy/0")
    assert policy.manifest.metrics["outcome"] == "not_admitted"
    weights = "weights.safetensors"
    assert (policy.path / weights).read_bytes() == (refused.root / "data/start/policy" / weights).read_bytes()
    decision = refused.record("decision", Decision)
    assert decision.outcome == "not_admitted" and decision.parents["policy"] == "start/policy"
    report = refused.report()
    assert "not admitted" in report.headline["title"] and "not admitted" in report.page
    assert report.headline["title"] in " ".join(refused.said.split())
    assert ("policy_success", "start policy") in report.figures
    assert ("policy_success", "trained policy") not in report.figures
    assert refused.unfinished() == {}


def test_another_criterion_runs_only_what_reads_it(admitted, refused):
    assert "admit_world_model" in refused.said and "train_policy@0" in refused.said
    assert "train_world_model" not in refused.said and "collect_rollouts" not in refused.said
    for name in ("rollouts", "dataset", "world_model", "reward", "start_evaluation/sealed"):
        assert refused.made(name).manifest.sha256 == admitted.made(name).manifest.sha256

"""A round of every published system at test size: the real simulator, the start that ships, the stages of its own loop.

Stages run one after the other in this process, as scripts/run_stages.py would start them: what Prefect and DVC add is
tried with the default loop (test_one_round.py) and with toys, and starting 60 processes takes longer than the work.
"""

import importlib
import json
import shutil
from pathlib import Path

import pytest
import yaml

from coevo.core import artifacts, stage
from coevo.records.base import read_yaml
from coevo.records.outcomes import Admission, Calibration
from coevo.workers.simulation import kept_pools
from flows import graph, new
from flows.loops import START, Loop
from scripts.write_code_deps import module_of
from tests.flows import toys
from tests.flows.test_systems import SYSTEMS, repository
from tests.test_one_round import START as ONE_ROUND

pytestmark = pytest.mark.timeout(900)
SETS = {"train": 8, "validation": 3, "admission": 4, "sealed": 4}
TINY_START = ONE_ROUND | {
    f"{role}_states": {"role": role, "count": count, "workers": 0} for role, count in SETS.items()
}
TINY = {
    "simulator": "pick_place",
    "start": {
        "pretrain_policy": {"episodes": 3, "cloning": {"steps": 10, "batch": 32}},
        "collect_rollouts": {"states": 3, "repeats": 1, "replayed": 1, "workers": 0},
        "calibrate_reward": {"windows": {"steps": 2, "batch": 4}},
    },
    "stages": {
        "collect_rollouts": {"states": 5, "repeats": 1, "replayed": 1, "workers": 0},
        "collect_admission_rollouts": {"states": 2, "repeats": 1, "replayed": 1, "workers": 0},
        "train_world_model": {"training": {"steps": 2, "batch": 4, "warmup": 2}},
        "admit_world_model": {"repeats": 1, "workers": 0, "strips": 1, "pixel_episodes": 1},
        "train_policy": {
            "algorithm": {"updates": 1, "states": 2, "group": 2, "minibatch": 40},
            "requires_admission": False, "validate_every": 1, "validation_repeats": 1, "validation_states": 2,
            "probe_states": 2, "workers": 0,
        },
        "evaluate_on_validation": {"repeats": 1, "workers": 0},
        "evaluate_on_sealed": {"repeats": 1, "workers": 0},
        "replay_dreams": {"workers": 0},
    },
}  # fmt: skip


def run(root: Path, stages) -> None:
    """Each stage in this process."""
    for each in stages:
        module = module_of(each.command)
        function = getattr(importlib.import_module(module), module.removeprefix("tasks."))
        words = [name for word in each.command.split()[3:] for name in expanded(root, word)]
        stage.run_command(function, words)


def expanded(root: Path, word: str) -> list[str]:
    """As a shell reads a word with a star."""
    return sorted(str(path.relative_to(root)) for path in root.glob(word)) if "*" in word else [word]


@pytest.fixture(scope="module")
def begun(tmp_path_factory):
    """A repository with what all loops begin with, and a scale for tests."""
    root = repository(tmp_path_factory.mktemp("systems"))
    (root / "start/params.yaml").write_text(yaml.safe_dump(TINY_START))
    (root / "configs/scale/tiny.yaml").write_text(yaml.safe_dump(TINY))
    with pytest.MonkeyPatch.context() as patch, kept_pools():
        patch.chdir(root)
        run(root, graph.read(root, [START]))
        yield root


def made(root: Path, system: str) -> Loop:
    """The loop of a system, with few deliberate faults, and an expert's successes: a policy of a few steps has none."""
    loop = Loop(system, root)
    new.of_system(loop, system, "tiny")
    params = read_yaml(loop.folder / "params.yaml")
    for section in (params["collect_rollouts"], params["collect_admission_rollouts"]):
        planted = [part | {"count": 2, "keep": {}} for part in section.get("near_success", ())]
        section["near_success"] = [*planted, {"name": "clean", "count": 3}]
    for encoder in params["train_world_model"].get("form", {}).get("features", ()):
        encoder |= {"steps": 2, "batch": 4}
    # Few states may lack any class of episode.
    params["build_dataset"] |= {"optional": list(params["build_dataset"].get("mixture", {})), "validation_share": 0.3}
    (loop.folder / "params.yaml").write_text(yaml.safe_dump(params))
    return loop


# In `make test`: a token policy paid by the world model's own head. The others take long, and run in `make survival`.
SHORT = ("world_vla_loop",)


@pytest.mark.parametrize(
    "system", [pytest.param(name, marks=() if name in SHORT else pytest.mark.survival) for name in SYSTEMS]
)
def test_a_round_trains_a_policy_and_ends_in_a_report_that_shows_the_publications_figures(begun, system):
    loop, described = made(begun, system), read_yaml(toys.PROJECT / f"configs/system/{system}.yaml")
    run(begun, [each for each in loop.stages() if not each.address.startswith(START)])
    folder = loop.data("i001")
    assert artifacts.read(folder / "policy/0").manifest.metrics["outcome"] == "trained"
    admission = Admission.model_validate_json((folder / "admission/admission.json").read_bytes())
    readers = {row.reader for row in admission.fidelity}
    calibration = Calibration.model_validate_json((folder / "reward/calibration.json").read_bytes())
    assert calibration.n > 0 and readers == {f"{system}/i001/reward"} | (
        {"start/reward"} if "file" in described["reward"] else set()
    )
    page = (folder / "report/report.html").read_text()
    assert all(f"{claim['published']:.3f}" in page for claim in described["claims"] if "published" in claim)
    recorded = json.loads((folder / "report/manifest.json").read_text())["config"]["system"]
    assert recorded == described
    shutil.rmtree(folder)

"""Taking in the weights that a loop starts from."""

from pathlib import Path

import pytest

from coevo.core import artifacts, stage
from tasks.import_start import import_start

ROOT = Path(__file__).resolve().parents[2]


def imported(simulator: str) -> artifacts.Artifact:
    given = {"policy": ROOT / "weights/policy", "simulator": ROOT / f"configs/simulator/{simulator}.yaml"}
    arguments = [word for name, path in given.items() for word in (f"--{name}", str(path))]
    return stage.run_command(import_start, [*arguments, "--out", "data/start/policy"])


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("params.yaml").write_text("seed: 0\n")


def test_the_shipped_policy_is_taken_in_with_what_its_ancestors_saw():
    made, shipped = imported("pick_place"), artifacts.read(ROOT / "weights/policy")
    weights = "weights.safetensors"
    assert (made.path / weights).read_bytes() == (shipped.path / weights).read_bytes()
    assert shipped.manifest.sha256 in made.lineage() and shipped.manifest.states


def test_weights_of_another_task_are_refused_with_the_command_that_makes_the_right_ones():
    with pytest.raises(ValueError, match="(?s)'task': .*'pick-place'.*'push'.*make_start_weights --task push --out"):
        imported("push")
    assert not Path("data/start/policy").exists()

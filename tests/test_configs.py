"""Every file in configs/ loads with the type that it is written for."""

from pathlib import Path

import pytest

from coevo.episodes.importers.config import read_config as read_import
from coevo.policies.build import read_config as read_policy
from coevo.records.base import read_yaml
from coevo.records.outcomes import Criterion
from coevo.records.system import Scale, System
from coevo.rewards.build import read_config as read_reward
from coevo.rl.config import Algorithm
from coevo.simulators.build import read_config
from coevo.worlds.config import WorldModelConfig

ROOT = Path(__file__).resolve().parents[1]
PARSERS = {
    "import": read_import,
    "simulator": read_config,
    "policy": read_policy,
    "world_model": WorldModelConfig.parse,
    "reward": read_reward,
    "algorithm": Algorithm.parse,
    "system": System.parse,
    "scale": Scale.parse,
}
FILES = sorted((ROOT / "configs").rglob("*.yaml"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT / "configs")))
def test_it_loads(file: Path):
    PARSERS[file.parent.name](read_yaml(file), str(file))


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT / "configs")))
def test_an_unknown_key_is_refused_with_its_name(file: Path):
    with pytest.raises(ValueError, match="unknwon_key"):
        PARSERS[file.parent.name](read_yaml(file) | {"unknwon_key": 1}, str(file))


@pytest.mark.parametrize("file", [ROOT / "criterion.yaml", *ROOT.glob("loops/*/criterion.yaml")], ids=str)
def test_criteria_load(file: Path):
    Criterion.parse(read_yaml(file), str(file))

"""Parts of a user's own: from a package outside the project into a stage, and what the conformance test finds."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from coevo.core import artifacts, models, parts
from coevo.core.parts import PythonPart
from coevo.policies import build as policies
from coevo.simulators import build as simulators
from scripts import check_part
from tests.doubles import TOY

PACKAGE = '''
import numpy as np, torch
from torch import nn
from coevo.core import kinematics, random
from coevo.core.types import ActionChunk, InitialState, Observation, Step, Verdicts
from coevo.simulators.rows import Advanced, Rows

class Simulator(Rows):
    """A grey frame as bright as the arm is far to the right."""
    def __init__(self, interface, forgetful=False):
        self.interface, self.calls = interface, 0
        self.forgetful = forgetful
    def _frame(self, x):
        camera, low, high = self.interface.camera, self.interface.action.low[0], self.interface.action.high[0]
        level = np.uint8(np.clip(255 * (x - low) / (high - low), 0, 255))
        return np.full((camera.height, camera.width, 3), level, np.uint8)
    def initial_state(self, seed, role, index):
        place = random.stream(seed, role, index).uniform(self.interface.action.low, self.interface.action.high)
        state = np.array([*place, self.interface.action.gripper_open])
        return InitialState(f"{role}/{index:06d}", self.interface.task, self.interface.instruction, seed, state,
            torch.from_numpy(self._frame(state[0]))[None], torch.zeros(0, 4), torch.tensor([[*state, 0.0]]).float())
    def advance(self, states, actions):
        self.calls += self.forgetful
        poses = kinematics.commanded_poses(self.interface.action, torch.from_numpy(states).float(),
                                           torch.from_numpy(actions).float())
        shown = poses[:, self.interface.stride - 1 :: self.interface.stride].numpy()
        frames = np.stack([[self._frame(pose[0]) for pose in row] for row in shown]) + np.uint8(self.calls)
        success = shown[:, :, 0] > 10
        return Advanced(shown[:, -1].astype(np.float64), frames, shown, success, success.astype(np.float32))
    def demonstrate(self, start, perturbation, stream):
        raise ValueError("it has no expert")
    def close(self):
        pass

class Policy(nn.Module):
    def __init__(self, interface, id, slot_noise=False, width=1):
        super().__init__()
        self.interface, self.id, self.slot_noise = interface, id, slot_noise
        self.speed = nn.Parameter(torch.full((width,), 0.2))
    def act(self, observation, keys, sampling):
        n = len(keys)
        noise = random.normal(keys, 1) if sampling == "sampled" else torch.zeros(n, 1)
        if self.slot_noise:
            noise = torch.arange(n)[:, None] / n
        draw = self.speed.mean() + 0.1 * noise
        actions = torch.zeros(n, self.interface.chunk, 4)
        actions[:, :, 0] = draw.clamp(-1, 1)
        return ActionChunk(actions, draw, -0.5 * ((draw - self.speed.mean()) / 0.1) ** 2)
    def evaluate(self, frames, proprio, words, draw):
        return -0.5 * ((draw - self.speed.mean()) / 0.1) ** 2, None

class Reward(nn.Module):
    def __init__(self, interface, id, relative=False):
        super().__init__()
        self.interface, self.id, self.relative = interface, id, relative
    def verdicts(self, frames, instructions):
        p = frames.float().mean(dim=(2, 3, 4)) / 255
        if self.relative:
            p = p / p.max()
        hit = p > 0.5
        hit[:, : self.interface.success_from] = False
        first = torch.where(hit.any(1), hit.float().argmax(1), p.shape[1])
        return Verdicts(p, hit.any(1), first, 0.5, self.id)

class World(nn.Module):
    def __init__(self, interface, id, deaf=False):
        super().__init__()
        self.interface, self.id, self.deaf = interface, id, deaf
    def reset(self, starts, keys):
        self.frame = torch.stack([start.frames[-1] for start in starts])
        self.pose = torch.stack([start.proprio[-1, :4] for start in starts])
        self.said, self.decision = tuple(start.instruction for start in starts), 0
        return Observation(self.frame[:, None], torch.stack([start.proprio[-1:] for start in starts]), self.said)
    def step(self, actions):
        poses = kinematics.commanded_poses(self.interface.action, self.pose, actions)
        proprio = kinematics.proprio_after(self.interface, poses, self.decision)
        self.pose, self.decision = poses[:, -1], self.decision + 1
        frames = self.frame[:, None].expand(-1, self.interface.chunk_frames, -1, -1, -1).clone()
        if not self.deaf:
            frames[..., 0, 0, 0] = (actions[:, :: self.interface.stride, 0] * 100 + 100).to(torch.uint8)
        return Step(Observation(frames[:, -1:], proprio[:, -1:], self.said), frames, proprio)
    def keep(self, rows):
        self.frame, self.pose = self.frame[rows], self.pose[rows]
        self.said = tuple(self.said[row] for row in rows.tolist())
'''


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package that lies outside the project."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "my_robots.py").write_text(PACKAGE)
    monkeypatch.syspath_prepend(tmp_path / "mine")
    yield tmp_path / "mine"
    sys.modules.pop("my_robots", None)


def faults(kind: str, name: str, **options) -> list[str]:
    named = {} if kind == "simulator" else {"id": "mine"}
    part = parts.make(f"my_robots:{name}", options, interface=TOY, **named)
    return list(check_part.found(check_part.CHECKS[kind], part, TOY))


@pytest.mark.parametrize(
    ("kind", "name"),
    [("simulator", "Simulator"), ("policy", "Policy"), ("reward", "Reward"), ("world_model", "World")],
)
def test_a_part_that_keeps_the_contract_has_no_fault(package, kind, name):
    assert faults(kind, name) == []


@pytest.mark.parametrize(
    ("kind", "name", "option", "said"),
    [
        ("simulator", "Simulator", "forgetful", "it must be stateless"),
        ("policy", "Policy", "slot_noise", "where it stands in the batch"),
        ("reward", "Reward", "relative", "depend on the episodes beside it"),
        ("world_model", "World", "deaf", "the action is not wired in"),
    ],
)
def test_what_breaks_rollouts_elsewhere_is_found(package, kind, name, option, said):
    assert any(said in fault for fault in faults(kind, name, **{option: True}))


def test_a_part_of_another_kind_is_told_what_it_lacks(package):
    assert any("it needs" in fault for fault in faults("policy", "Reward"))
    assert any("has no initial_state, advance" in fault for fault in check_part.simulator(object(), TOY))


@pytest.mark.parametrize(
    ("target", "options", "said"),
    [
        ("my_robots", {}, "is not of the form 'package.module:Class'"),
        ("no_such_package:A", {}, "install the package, or run where it can be imported"),
        ("my_robots:Polcy", {}, "the module has no 'Polcy'"),
        ("my_robots:np", {}, "a class is needed"),
        ("my_robots:Policy", {"wdth": 3}, "unexpected keyword argument 'wdth'"),
    ],
)
def test_a_target_that_cannot_be_made_is_named(package, target, options, said):
    with pytest.raises(ValueError, match=said):
        parts.make(target, options, interface=TOY, id="x")


def test_a_simulator_file_names_a_users_class(package):
    values = dict(kind="python", target="my_robots:Simulator", interface=TOY.model_dump())
    made = simulators.build(simulators.read_config(values, "mine.yaml"))
    assert type(made).__name__ == "Simulator" and made.interface == TOY


def test_a_users_policy_goes_through_an_artifact(package, tmp_path):
    config = PythonPart(target="my_robots:Policy", options={"width": 2})
    policy = policies.build(config, TOY, seed=0)
    with torch.no_grad():
        policy.speed += 0.3
    with artifacts.writing(tmp_path / "data/policy") as folder:
        policies.save(policy, folder)
        made = artifacts.publish(
            folder, tmp_path / "data/policy", kind="policy", id="policy", stage="tests", parents={}, config={}, seed=0,
            source_sha256="", metrics={}, states=(),
        )  # fmt: skip
    again = policies.load(made)
    assert again.speed.tolist() == pytest.approx([0.5, 0.5]) and again.id == "policy"
    assert json.loads((made.path / models.CONFIG).read_text())["target"] == "my_robots:Policy"


def test_the_command_says_what_it_found(package):
    command = [sys.executable, "-m", "scripts.check_part", "policy", "my_robots:Policy"]
    root = Path(check_part.__file__).resolve().parents[1]
    settings = {"PYTHONPATH": f"{package}:{root}", "PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1"}
    made = subprocess.run(command, cwd=root, env=settings, capture_output=True, text=True)
    assert made.returncode == 0, made.stdout + made.stderr
    assert "my_robots:Policy can be used as a policy" in made.stdout

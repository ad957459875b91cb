"""The stage that trains a policy, with toys in place of simulator, world model and reward."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from coevo.core import artifacts
from coevo.core.checkpoints import Checkpoint
from coevo.core.stage import Run, run_stage
from coevo.policies import build as policies
from coevo.records.outcomes import Admission, Criterion
from coevo.rl.config import Algorithm, LeaveOneOut
from coevo.rollout import rollout
from tasks import train_policy as stage
from tests.doubles import TOY, ToyDream, ToyPolicy, ToyReward, ToySimulator, toy_state
from tests.rl.examples import make_policy, small
from tests.toy_artifacts import initial_states, publish

ALGORITHM = small(estimator=LeaveOneOut(), updates=6, states=6, group=8, epochs=2, learning_rate=3e-3)


def admission(out, admitted: bool):
    record = Admission(
        admitted=admitted, reasons=() if admitted else ("fake success is 0.5", "recall is 0.2"), fidelity=(),
        criterion=Criterion(
            recall_floor=0.8, fake_success_ceiling=0.1, fake_success_mixed_ceiling=0.1, mismatch_ceiling=0.1
        ),
        criterion_sha256="", mismatch=None, world_model="toy/world", reward_model="toy/reward",
    )  # fmt: skip
    return publish(out, "admission", lambda folder: (folder / "admission.json").write_text(record.model_dump_json()))


@pytest.fixture
def toys(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(stage, "read_config", lambda values, where: None)
    monkeypatch.setattr(stage, "ParallelSimulator", lambda config, workers: ToySimulator())
    monkeypatch.setattr(stage.worlds, "dream", lambda artifact, device: ToyDream())
    monkeypatch.setattr(stage.judges, "load", lambda artifact, device: ToyReward())
    (tmp_path / "simulator.yaml").write_text("kind: toy\n")
    empty = lambda folder: (folder / "empty").write_text("")  # noqa: E731
    return SimpleNamespace(
        path=tmp_path,
        inputs=dict(
            policy=publish(tmp_path / "policy", "policy", lambda folder: policies.save(make_policy(), folder)),
            starts=initial_states(tmp_path / "starts", range(3, 9)),
            validation=initial_states(tmp_path / "validation", [3.5, 4.5, 5.5, 6.5]),
            simulator=tmp_path / "simulator.yaml",
            world_model=publish(tmp_path / "world", "world_model", empty),
            reward=publish(tmp_path / "reward", "reward_model", empty),
            admission=admission(tmp_path / "admission", True),
        ),
    )


def train(toys, inputs=None, out="trained", seed=0, **params):
    given = stage.Inputs(**(toys.inputs | (inputs or {})))
    parents = {role: value for role, value in vars(given).items() if isinstance(value, artifacts.Artifact)}
    settings = stage.Params(**(dict(algorithm=ALGORITHM, validate_every=3) | params))
    return run_stage(stage.train_policy, given, settings, toys.path / out, seed=seed, parents=parents)


def lines(made):
    return [json.loads(line) for line in (made.path / "metrics.jsonl").read_text().splitlines()]


def test_a_policy_is_trained_in_the_dream_and_checked_in_the_simulator(toys):
    made = train(toys)
    metrics = made.manifest.metrics
    replayed = sum(line.get("train_policy/probe_replays", 0) for line in lines(made))
    assert metrics["outcome"] in ("trained", "stopped")
    assert metrics["simulator_episodes"] == 4 * 3 + replayed  # checks after 0, 3 and 6 updates
    assert metrics["dreamed_episodes"] == 6 * 6 * 8 + 4 * 3
    assert metrics["simulator_episodes_in_all"] == metrics["simulator_episodes"] and metrics["uncounted_sources"] == 0
    assert metrics["gain_per_simulator_episode"] == metrics["validation_gain"] / metrics["simulator_episodes"]
    assert made.manifest.states == tuple(sorted(toy_state(column).id for column in range(3, 9)))
    logged = lines(made)
    assert [line["update"] for line in logged] == [0, 1, 2, 3, 4, 5, 6]
    checks = [line for line in logged if "train_policy/validation_success" in line]
    assert [line["update"] for line in checks] == [0, 3, 6] and "train_policy/kl" in logged[1]
    assert policies.load(made).interface == TOY


def test_the_same_stage_gives_the_same_hash_and_another_seed_another(toys):
    first, again = train(toys), train(toys, out="trained")
    other = train(toys, out="trained", seed=1)
    assert first.manifest.sha256 == again.manifest.sha256 != other.manifest.sha256


def test_a_stage_that_was_killed_goes_on_and_publishes_the_same(toys, monkeypatch):
    whole = train(toys)
    monkeypatch.setattr(stage, "Checkpoint", lambda path: Checkpoint(path, seconds=0.0))
    logged = Run.log

    def killed(run, **numbers):
        if numbers["update"] == 4:
            raise KeyboardInterrupt
        logged(run, **numbers)

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(Run, "log", killed)
        train(toys)
    (kept,) = (toys.path / ".local/scratch").rglob("policy.pt")
    rolled = []
    inner = stage._dreamed
    monkeypatch.setattr(stage, "_dreamed", lambda dreamers, run: counted(inner(dreamers, run), rolled))
    again = train(toys)
    assert again.manifest.sha256 == whole.manifest.sha256 and lines(again) == lines(whole)
    assert rolled == [4, 5, 6] and not kept.exists()


def counted(roll, rolled):
    def roll_and_count(starts, key):
        rolled.append(key[0])
        return roll(starts, key)

    return roll_and_count


def test_a_world_model_that_was_not_admitted_is_not_trained_in(toys):
    refused = {"admission": admission(toys.path / "refused", False)}
    made = train(toys, refused)
    assert made.manifest.metrics == {"outcome": "not_admitted", "reason": "fake success is 0.5; recall is 0.2"}
    for name in ("weights.safetensors", "config.json", "interface.json"):
        assert (made.path / name).read_bytes() == (toys.inputs["policy"].path / name).read_bytes()
    assert made.manifest.parents["policy"].sha256 == toys.inputs["policy"].manifest.sha256
    control = train(toys, refused, out="control", requires_admission=False)
    assert control.manifest.metrics["outcome"] in ("trained", "stopped")


def test_training_in_a_dream_asks_for_what_it_needs(toys):
    with pytest.raises(ValueError, match="no --admission was given"):
        train(toys, {"admission": None})
    with pytest.raises(ValueError, match="needs --world-model and --reward"):
        train(toys, {"reward": None})


def test_the_control_arm_counts_its_simulator_episodes_and_needs_no_world_model(toys):
    nothing = {"world_model": None, "reward": None, "admission": None}
    made = train(toys, nothing, environment="simulator", validate_every=0)
    assert made.manifest.metrics["simulator_episodes"] == 6 * 6 * 8 and made.manifest.metrics["dreamed_episodes"] == 0
    assert made.manifest.metrics["best_update"] == 6
    success = [line["train_policy/success"] for line in lines(made)]
    assert sum(success[-2:]) > sum(success[:2])


def test_the_parameters_change_an_algorithms_file_key_by_key(tmp_path):
    file = tmp_path / "loop.yaml"
    file.write_text("estimator: {kind: leave_one_out}\nclip: 0.1\nupdates: 30\n")
    found = stage._algorithm(file, Algorithm(updates=4, states=2))
    assert found == Algorithm(estimator=LeaveOneOut(), clip=0.1, updates=4, states=2)
    assert stage._algorithm(None, ALGORITHM) is ALGORITHM
    with pytest.raises(ValueError, match="'scouts' and 'refill' would drop"):
        stage._algorithm(file, Algorithm(payment={"kind": "continuous"}, refill=0).model_copy(update={"refill": 4}))


@pytest.mark.parametrize("role", ["starts", "validation"])
def test_states_of_another_interface_are_refused_by_name(toys, role):
    other = initial_states(toys.path / "other", [3, 4], TOY.model_copy(update={"control_hz": 4.0}))
    with pytest.raises(ValueError, match="toy/policy and toy/other.*\n.*control_hz"):
        train(toys, {role: other})


def test_the_simulators_truth_is_a_verdict():
    made = rollout(
        ToySimulator(), ToyPolicy(), [toy_state(8), toy_state(3), toy_state(0)], stream=(0,), source="simulator"
    )
    verdicts = stage.truth_verdicts(made, TOY)
    # Frame 1 does not count yet; from column 3 the line is reached at frame 4; from 0 never.
    assert verdicts.success.tolist() == [True, True, False] and verdicts.first_success.tolist() == [2, 4, 5]
    assert verdicts.probability.shape == (3, 5)

"""Workers on a Ray cluster: two nodes on this machine, with token authentication, in folders and on ports of their own.

Everything that was started here is ended here by its process group; `ray stop` would end other people's too.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from coevo.core.stage import run_stage
from coevo.policies import build as policies
from coevo.policies.build import build, save
from coevo.policies.config import SmallPolicyConfig
from coevo.records.outcomes import Calibration
from coevo.rewards import build as rewards
from coevo.rewards.config import FrameClassifierConfig
from coevo.rl.config import Ppo
from coevo.rl.packing import pack as pack_decisions
from coevo.rl.update import Learner
from coevo.simulators.build import read_config_file
from coevo.workers import actors as actors_module
from coevo.workers import cluster
from coevo.workers.actors import Actors
from coevo.workers.dreams import Dreamers, Models
from coevo.workers.parcels import pack, unpacked
from coevo.workers.simulation import kept_pools
from coevo.worlds import build as worlds
from coevo.worlds.dream import Dream
from tasks import collect_rollouts, make_initial_states, train_policy
from tests.rl.examples import grouped, make_policy, small, weights_of
from tests.simulators.scenes import PICK_PLACE
from tests.toy_artifacts import initial_states, publish
from tests.workers.calls import make, refuse, square, times_taken, where
from tests.worlds.examples import SEEN, make_model, randomised

# Not imported here: Ray reads at its import whether tokens are in use.
pytestmark = pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed: pip install 'coevo[ray]'")

ROOT = Path(__file__).resolve().parents[2]
WAIT = 240.0
"""Seconds after which a test gives up: a busy machine takes 20 s to start a worker."""


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def until(holds, what: str) -> None:
    end = time.monotonic() + WAIT
    while not holds():
        assert time.monotonic() < end, f"waited {WAIT:.0f} s for {what}"
        time.sleep(0.2)


def started_with(mark: str) -> list[int]:
    """Processes whose environment holds `mark`, but for this one and the tracker of its own process pools."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            given, command = (folder / "environ").read_bytes(), (folder / "cmdline").read_bytes()
            state = (folder / "stat").read_text().rsplit(")", 1)[1].split()[0]
        except OSError:
            continue
        own = int(folder.name) == os.getpid() or b"resource_tracker" in command
        if mark.encode() in given and state != "Z" and not own:
            found.append(int(folder.name))
    return found


def start_node(folder: Path, name: str, *arguments: str) -> subprocess.Popen:
    command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--disable-usage-stats"]
    log = (folder / f"{name}.log").open("w")
    return subprocess.Popen(
        [*command, "--num-cpus=2", "--num-gpus=0", "--object-store-memory=100000000", *arguments], stdout=log,
        stderr=log, start_new_session=True, cwd=folder,
    )  # fmt: skip


def short_folder() -> Path:
    """Ray's sockets lie in it, and their paths may not be longer than 107 letters: pytest's folders are too deep."""
    return Path(tempfile.mkdtemp(prefix="ray-"))


@pytest.fixture(scope="module")
def two_nodes():
    """The address of a cluster of two nodes with 2 CPUs each, in the environment of this process."""
    folder = short_folder()
    token, head, nodes = folder / "token", free_port(), []
    token.write_text(secrets.token_hex(32))
    with pytest.MonkeyPatch.context() as patch:
        for name, value in dict(
            RAY_AUTH_MODE="token", RAY_AUTH_TOKEN_PATH=token, RAY_USAGE_STATS_ENABLED=0, PYTHONPATH=ROOT,
            RAY_health_check_failure_threshold=50,  # a busy machine is no dead node
        ).items():  # fmt: skip
            patch.setenv(name, str(value))
        patch.delenv(cluster.LOCAL, raising=False)
        try:
            nodes.append(start_node(
                folder, "head", "--head", f"--port={head}", "--node-ip-address=127.0.0.1", f"--temp-dir={folder}",
                f"--ray-client-server-port={free_port()}", "--include-dashboard=false",
            ))  # fmt: skip
            until(lambda: socket.socket().connect_ex(("127.0.0.1", head)) == 0, "the head to answer")
            nodes.append(start_node(folder, "second", f"--address=127.0.0.1:{head}"))
            patch.setenv(cluster.ADDRESS, f"127.0.0.1:{head}")
            patch.setenv(cluster.WAIT, str(WAIT))
            ray = cluster.connect()
            until(lambda: len([node for node in ray.nodes() if node["Alive"]]) == 2, "the second node to join")
            yield f"127.0.0.1:{head}"
        finally:
            import ray

            ray.shutdown()  # first: Ray ends a process whose cluster is gone
            for node in reversed(nodes):
                os.killpg(node.pid, signal.SIGTERM)
            for node in nodes:
                node.wait(timeout=WAIT)
    until(lambda: not started_with(str(token)), "all processes of the cluster to end")
    shutil.rmtree(folder)


@pytest.fixture
def actors(two_nodes, tmp_path):
    """Two workers that note their calls in a folder."""
    crew = Actors(partial(make, tmp_path), 2, "test", patience=WAIT)
    yield crew
    crew.close()


# --- calls ---


def test_workers_are_spread_and_of_one_that_dies_only_its_own_calls_are_done_again(actors, tmp_path):
    assert len(set(actors.run([(where,), (where,)]))) == 2
    calls = [(square, number, "dies" if number == 3 else "") for number in range(12)]
    assert actors.run(calls) == [number**2 for number in range(12)]
    taken = times_taken(tmp_path)
    # The call that killed it, and at the most the other one that lay at it, whose answer may have been lost with it.
    assert taken[3] == 2 and sum(taken) <= 12 + 2 and actors.restarts == 1


def test_silent_workers_are_replaced_and_their_calls_done_again(actors, tmp_path):
    actors.run([(square, number) for number in range(2)])  # both have started
    actors.patience = 6.0
    assert actors.run([(square, 2), (square, 3, "hangs"), (square, 4)]) == [4, 9, 16]
    assert times_taken(tmp_path)[3] == 2 and actors.restarts == 1
    with pytest.raises(ValueError, match="'number' = 7 is too large; choose a smaller one"):
        actors.run([(refuse, 7)])


def test_a_wait_for_room_ends_and_says_what_was_sought_and_what_there_is(two_nodes, tmp_path, monkeypatch):
    monkeypatch.setenv(cluster.WAIT, "2")
    with pytest.raises(ValueError) as fault:
        Actors(partial(make, tmp_path), 4, "dreams", patience=WAIT, gpus=1.0).run([(square, 1)])
    said = str(fault.value)
    assert "dreams: waited 2 s for 4 workers of 1 CPU and 1 GPU each, 4 did not start" in said
    assert "2 nodes with 4 CPU" in said and "0 GPU (0 free)" in said and "COEVO_RAY_WAIT" in said


def test_a_node_with_other_code_is_refused(two_nodes, tmp_path, monkeypatch):
    monkeypatch.setattr(actors_module, "version", lambda name: "0.1")
    with pytest.raises(ValueError, match="has torch .*, this process 0.1; results would depend on the node"):
        Actors(partial(make, tmp_path), 1, "test", patience=WAIT).run([(square, 1)])


# --- the choice ---


def test_ray_is_chosen_by_the_environment_alone(monkeypatch):
    monkeypatch.delenv(cluster.ADDRESS, raising=False)
    monkeypatch.delenv(cluster.LOCAL, raising=False)
    assert not cluster.chosen()
    monkeypatch.setenv(cluster.LOCAL, "local")
    assert cluster.chosen()
    monkeypatch.setenv(cluster.LOCAL, "yes")
    with pytest.raises(ValueError, match="COEVO_RAY=yes: 'local' starts a Ray for this stage"):
        cluster.chosen()


def test_without_ray_the_error_names_the_extra(monkeypatch):
    monkeypatch.setenv(cluster.ADDRESS, "127.0.0.1:1")
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ValueError, match=r"RAY_ADDRESS=127.0.0.1:1 chooses Ray.*pip install 'coevo\[ray\]'"):
        cluster.connect()


def test_an_address_where_nobody_answers_is_named(two_nodes, monkeypatch):
    import ray

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    for address, fault in ((f"127.0.0.1:{free_port()}", "no Ray head answers there"), ("ray://here:1", "Ray Client")):
        monkeypatch.setenv(cluster.ADDRESS, address)
        with pytest.raises(ValueError, match=f"RAY_ADDRESS={address}: {fault}"):
            cluster.connect()


@pytest.mark.survival  # a minute of waiting for Ray's daemons
def test_a_ray_of_the_stages_own_ends_with_it_however_it_is_killed(tmp_path):
    code = (
        "import time\nfrom coevo.workers.actors import Actors\n"
        "crew = Actors(dict, 1, 'test', 60.0)\ncrew.run([(len,)])\nprint(*crew.pids(), flush=True)\ntime.sleep(600)\n"
    )
    folder = short_folder()
    mark = f"RAY_TMPDIR={folder}"
    given = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    given |= {cluster.LOCAL: "local", "PYTHONPATH": str(ROOT), "RAY_TMPDIR": str(folder), "HOME": str(tmp_path)}
    stage = subprocess.Popen([sys.executable, "-c", code], env=given, stdout=subprocess.PIPE, text=True, cwd=tmp_path)
    try:
        worker = int(stage.stdout.readline())
        assert worker in started_with(mark) and len(started_with(mark)) > 3
    finally:
        stage.kill()
        stage.wait(timeout=WAIT)
    until(lambda: not started_with(mark), "Ray's processes to end with the stage")
    shutil.rmtree(folder)


# --- simulators ---


def test_collected_and_trained_artifacts_are_the_same_wherever_the_simulators_run(two_nodes, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = read_config_file(PICK_PLACE)
    given = dict(simulator=PICK_PLACE)
    starts = run_stage(
        make_initial_states.make_initial_states, make_initial_states.Inputs(**given),
        make_initial_states.Params(role="train", count=2, workers=0), tmp_path / "states", seed=5, parents={},
    )  # fmt: skip
    untrained = build(SmallPolicyConfig(critic=True), config.interface, 0)
    policy = publish(tmp_path / "policy", "policy", lambda folder: save(untrained, folder))
    algorithm = small(estimator=Ppo(critic_warmup=0), updates=1, group=2)

    def made(place: str, workers: int):
        monkeypatch.setenv(cluster.ADDRESS, two_nodes if place == "ray" else "")
        parents = dict(policy=policy, starts=starts)
        with kept_pools():
            collected = run_stage(
                collect_rollouts.collect_rollouts, collect_rollouts.Inputs(**given, **parents),
                collect_rollouts.Params(states=2, repeats=1, workers=workers, replayed=1), tmp_path / "data/rollouts",
                seed=5, parents=parents,
            )  # fmt: skip
            trained = run_stage(
                train_policy.train_policy, train_policy.Inputs(**given, **parents, validation=starts),
                train_policy.Params(environment="simulator", algorithm=algorithm, workers=workers, validate_every=0),
                tmp_path / "data/trained", seed=5, parents=parents,
            )  # fmt: skip
        return collected.manifest, trained.manifest

    here, processes, one, two = made("", 0), made("", 2), made("ray", 1), made("ray", 2)
    for index in range(2):
        assert here[index].files == processes[index].files == one[index].files == two[index].files
        assert processes[index].sha256 == two[index].sha256  # where work ran is written nowhere
    assert here[1].metrics["simulator_episodes"] == 4
    assert [file for file in here[1].files if file.path == "weights.safetensors"] != [
        file for file in policy.manifest.files if file.path == "weights.safetensors"
    ]


# --- dreams and gradients ---


@pytest.fixture(scope="module")
def toys(tmp_path_factory):
    """A policy, a world model and a reward model of the dot, of random weights, published."""
    folder = tmp_path_factory.mktemp("toys")

    def judge(out: Path) -> None:
        model = rewards.build(FrameClassifierConfig(channels=(8, 8, 8, 8)), SEEN, 0)
        weights = rewards.save_weights(model, out)
        (out / "calibration.json").write_text(calibration(weights).model_dump_json())

    return dict(
        policy=publish(folder / "policy", "policy", lambda out: policies.save(dreamer(), out)),
        world_model=publish(folder / "world", "world_model", lambda out: worlds.save(randomised(make_model()), out)),
        reward=publish(folder / "reward", "reward_model", judge),
        starts=initial_states(folder / "starts", range(4), SEEN),
    )


def dreamer():
    """A policy with a critic, for the interface that the world model was made for."""
    policy = make_policy(critic=True)
    return policies.build(policy.config, SEEN, 0)


def calibration(weights: str) -> Calibration:
    return Calibration(
        threshold=0.5, frames_given=5, frames_read=5, fps=4.0, precision=1.0, recall=1.0, false_positive_rate=0.0,
        balanced_accuracy=1.0, n=1, weights_sha256=weights,
    )  # fmt: skip


def dreamers(toys, policy, workers: int) -> Dreamers:
    models = Models(policy, Dream(worlds.load(toys["world_model"])), rewards.load(toys["reward"]))
    return Dreamers(models, (toys["policy"], toys["world_model"], toys["reward"]), workers, 4, True)


def test_a_policy_trained_in_dreams_is_the_same_wherever_it_is_trained(two_nodes, toys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    algorithm = small(estimator=Ppo(critic_warmup=1), updates=2, group=4, minibatch=10, epochs=2)

    def made(place: str, workers: int, part_rows: int | None = 4):
        monkeypatch.setenv(cluster.ADDRESS, two_nodes if place == "ray" else "")
        inputs = train_policy.Inputs(validation=toys["starts"], simulator=PICK_PLACE, **toys)
        params = train_policy.Params(
            requires_admission=False, algorithm=algorithm, validate_every=0, dream_workers=workers, shard_rows=3,
            part_rows=part_rows,
        )  # fmt: skip
        return run_stage(
            train_policy.train_policy, inputs, params, tmp_path / "data/trained", seed=5, parents=toys
        ).manifest

    here, one, two = made("", 2), made("ray", 1), made("ray", 2)
    assert here.sha256 == two.sha256  # where work ran is written nowhere
    assert here.files == one.files == two.files
    assert here.files != made("", 2, part_rows=None).files  # the parts are summed as parts
    assert here.metrics["dreamed_episodes"] == 3 * 2 * 4


@pytest.mark.survival  # half a minute; kills of Ray's workers are in tests/survival
def test_a_dream_worker_that_dies_is_replaced_with_the_weights_of_the_day(two_nodes, toys, monkeypatch):
    algorithm = small(estimator=Ppo(critic_warmup=0), epochs=1, minibatch=8, learning_rate=1e-2)

    def learned(place: str) -> tuple[dict[str, torch.Tensor], list[torch.Tensor], int]:
        monkeypatch.setenv(cluster.ADDRESS, two_nodes if place == "ray" else "")
        policy, frames = policies.load(toys["policy"]), []
        with dreamers(toys, policy, 2) as workers:
            learner = Learner(policy, algorithm, 0, part_rows=3, gradients=workers.gradients)
            for turn in range(2):
                episodes, verdicts = workers.roll(grouped([2, 3]), ("test", turn))
                frames.append(episodes.frames)
                learner.update(pack_decisions(episodes, verdicts, algorithm, SEEN.chunk_frames)[0])
                if place == "ray" and turn == 0:
                    os.kill(workers.crew.pids()[0], signal.SIGKILL)
            return weights_of(policy), frames, getattr(workers.crew, "restarts", 0)

    weights, frames, _ = learned("")
    others, drawn, restarts = learned("ray")
    assert restarts == 1 and all(torch.equal(ours, theirs) for ours, theirs in zip(frames, drawn, strict=True))
    assert not torch.equal(frames[0], frames[1])
    assert all(torch.equal(weights[name], others[name]) for name in weights)


def test_an_artifact_comes_along_to_a_node_that_has_not_its_folder(two_nodes, toys, tmp_path):
    artifact = toys["policy"]
    parcel, bare = pack(artifact, single_node=False), pack(artifact, single_node=True)
    with unpacked(parcel) as there:
        assert there.path == artifact.path.absolute()
    artifact.path.rename(tmp_path / "elsewhere")
    try:
        with unpacked(parcel) as brought:
            assert brought.manifest == artifact.manifest and brought.path != artifact.path
        assert not brought.path.exists()
        with pytest.raises(ValueError, match=f"toy/policy is not at {artifact.path}"), unpacked(bare):
            pass
    finally:
        (tmp_path / "elsewhere").rename(artifact.path)

"""Public layouts as episodes. The files are made here, as small as the layouts allow."""

from __future__ import annotations

import io
import json
import shutil
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

from coevo.core import stage
from coevo.episodes import layout, pixels
from coevo.episodes.importers import lerobot, libero, robotwin
from coevo.episodes.importers.config import read_config
from coevo.episodes.store import read_episodes, write_episodes
from coevo.records.interface import Interface
from tasks.import_dataset import Inputs, Params, import_dataset
from tests.episodes.examples import flat_episode, make_episode, small


def every_step(size: int = 8) -> Interface:
    """One control step a frame, as public datasets have."""
    return small(size).model_copy(update={"stride": 1, "control_hz": 20.0})


def lerobot_config(interface: Interface, **changes):
    values = dict(kind="lerobot", interface=interface.model_dump(), camera=layout.CAMERA)
    return read_config(values | dict(gripper=dict(open=-1, closed=1)) | changes, "test")


def unit(episode, steps: int):
    """The episode with one action a frame, in range."""
    return replace(episode, actions=episode.actions[:steps].clamp(-1, 1), label=None)


def foreign(folder: Path, episodes, size: int) -> Path:
    """A v3.0 dataset that says nothing of coevo."""
    write_episodes(folder, episodes, every_step(size))
    shutil.rmtree(folder / "meta/coevo")
    return folder


def legacy(folder: Path, episodes) -> Path:
    """A v2.1 dataset with images in Parquet."""
    (folder / "meta").mkdir(parents=True)
    (folder / "data/chunk-000").mkdir(parents=True)
    for number, episode in enumerate(episodes):
        n = len(episode.frames)
        files = [{"bytes": file, "path": None} for file in pixels.encode(episode.frames.numpy())]
        action = np.concatenate([episode.actions.numpy(), np.zeros((1, 4))]).astype(np.float64)
        pq.write_table(pa.table({
            layout.CAMERA: files, "observation.state": episode.proprio.tolist(), "action": action.tolist(),
            "episode_index": [number] * n, "frame_index": range(n), "task_index": [1] * n,
        }), folder / f"data/chunk-000/episode_{number:06d}.parquet")
    lines = [json.dumps(dict(episode_index=i, tasks=["go"], length=len(e.frames))) for i, e in enumerate(episodes)]
    (folder / "meta/episodes.jsonl").write_text("\n".join(lines))
    (folder / "meta/tasks.jsonl").write_text('{"task_index": 0, "task": "stop"}\n{"task_index": 1, "task": "go"}\n')
    features = {layout.CAMERA: {"dtype": "image"}, "observation.state": {}, "action": {}}
    (folder / "meta/info.json").write_text(json.dumps(dict(
        codebase_version="v2.1", fps=20, chunks_size=1000, total_episodes=len(episodes), features=features,
        data_path="data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet", video_path=None,
    )))
    return folder


@pytest.mark.parametrize("make", [lambda folder, made: foreign(folder, made, 8), legacy])
def test_lerobot_images_come_in_as_they_were(tmp_path, make):
    made = [unit(make_episode(seed, frames=4 + seed), 4 + seed) for seed in range(3)]
    read = list(lerobot.episodes(make(tmp_path / "d", made), lerobot_config(every_step())))
    assert len(read) == 3
    for theirs, ours in zip(made, read, strict=True):
        assert torch.equal(ours.frames, theirs.frames) and torch.equal(ours.proprio, theirs.proprio)
        assert torch.allclose(ours.actions, theirs.actions, atol=1e-6)
        assert (ours.source, ours.policy, ours.success) == ("imported", "expert", None)
    assert read[0].start.instruction in ("push the puck", "go")
    assert len({episode.start.id for episode in read}) == 3


def test_lerobot_episodes_that_share_a_video_keep_their_own_frames(tmp_path):
    made = [unit(flat_episode(grey, frames, 130), frames) for grey, frames in ((20, 3), (120, 5), (60, 2))]
    read = list(lerobot.episodes(foreign(tmp_path / "d", made, 130), lerobot_config(every_step(130))))
    for theirs, ours in zip(made, read, strict=True):
        assert (ours.frames.float() - theirs.frames.float()).abs().max() <= 3


def test_frames_are_thinned_to_the_stride_and_the_last_one_kept(tmp_path):
    made = unit(make_episode(0, frames=6), 6)
    config = lerobot_config(every_step().model_copy(update={"stride": 4}), ends_in_success=True)
    (read,) = lerobot.episodes(foreign(tmp_path / "d", [made], 8), config)
    assert torch.equal(read.frames, made.frames[[0, 4, 6]])
    assert torch.allclose(read.actions[:6], made.actions, atol=1e-6)
    assert read.actions[6:].tolist() == [[0, 0, 0, -1]] * 2
    assert read.success.tolist() == [False, True]


def test_a_success_between_two_kept_frames_counts(tmp_path):
    made = replace(unit(make_episode(0, frames=8), 8), success=torch.arange(8) == 2)
    config = lerobot_config(every_step().model_copy(update={"stride": 4}), success="success")
    (read,) = lerobot.episodes(foreign(tmp_path / "d", [made], 8), config)
    assert read.success.tolist() == [True, False]


def test_gripper_polarity_is_mapped_as_declared(tmp_path):
    made = unit(make_episode(0, frames=2), 2)
    made.actions[:, 3] = torch.tensor([0.0, 1.0])
    (read,) = lerobot.episodes(
        foreign(tmp_path / "d", [made], 8), lerobot_config(every_step(), gripper=dict(open=1, closed=0))
    )
    assert read.actions[:, 3].tolist() == [1.0, -1.0]  # closed is 1 here, open is -1
    with pytest.raises(ValueError, match="set 'gripper'"):
        next(lerobot.episodes(tmp_path / "d", lerobot_config(every_step(), gripper=None)))


def test_lerobot_faults_are_named(tmp_path):
    folder = foreign(tmp_path / "d", [unit(make_episode(s, frames=3), 3) for s in range(2)], 8)
    with pytest.raises(ValueError, match="no feature 'observation.front'; it has: observation.image"):
        next(lerobot.episodes(folder, lerobot_config(every_step(), camera="observation.front")))
    with pytest.raises(ValueError, match="20 rows a second, the interface 'control_hz: 40'"):
        next(lerobot.episodes(folder, lerobot_config(every_step().model_copy(update={"control_hz": 40.0}))))
    with pytest.raises(ValueError, match="8 x 8 pixels, the interface's camera 16 x 16; set 'resize: true'"):
        next(lerobot.episodes(folder, lerobot_config(every_step(16))))
    assert next(lerobot.episodes(folder, lerobot_config(every_step(16), resize=True))).frames.shape == (4, 16, 16, 3)
    data = folder / layout.data_file(0)
    data.write_bytes(data.read_bytes()[:-9])
    with pytest.raises(ValueError, match="file-000.parquet cannot be read"):
        next(lerobot.episodes(folder, lerobot_config(every_step())))


def test_actions_out_of_range_are_refused(tmp_path):
    made = unit(make_episode(0, frames=2), 2)
    made.actions[0, 0] = 3.5
    with pytest.raises(ValueError, match=r"actions reach 3.5, delta_position needs them in \[-1, 1\]"):
        next(lerobot.episodes(foreign(tmp_path / "d", [made], 8), lerobot_config(every_step())))


def test_unknown_keys_of_a_mapping_get_a_hint():
    with pytest.raises(ValueError, match="unknown key.*camra.*did you mean 'camera'"):
        lerobot_config(every_step(), camra="x")


LIBERO = every_step().model_copy(update={
    "proprio": tuple("abcdefgh"),
    "action": small().action.model_copy(update={
        "names": ("x", "y", "z", "rx", "ry", "rz", "gripper"), "representation": "delta_pose",
        "null": (0.0,) * 6 + (-1.0,),
    }),
})


def libero_file(path: Path, alignment: str = "after", convention: str | None = "opengl", joints: bool = True) -> dict:
    """Two demonstrations of 5 steps. The arm's joints are the step's number, the frames' top row is white."""
    draw = np.random.default_rng(0)
    shift = 1 if alignment == "after" else 0
    with h5py.File(path, "w") as root:
        data = root.create_group("data")
        data.attrs["problem_info"] = json.dumps({"language_instruction": "put the bowl on the plate"})
        if convention:
            data.attrs["macros_image_convention"] = convention
        for name in ("demo_0", "demo_10"):
            demo = data.create_group(name)
            demo["actions"] = draw.uniform(-1, 1, (5, 7))
            states = np.arange(5.0)[:, None].repeat(12, axis=1) + draw.normal(size=12)
            demo["states"] = states
            following = np.concatenate([states[1:], states[-1:] + 1])
            seen = following if shift else states
            demo["obs/joint_states"] = seen[:, 1:8] if joints else seen[:, :3]
            demo["obs/ee_states"], demo["obs/gripper_states"] = seen[:, :6], seen[:, :2]
            frames = np.zeros((5, 8, 8, 3), np.uint8)
            frames[:, -1 if convention == "opengl" else 0] = 255
            frames[:, 4, 4, 0] = np.arange(5) * 10
            demo["obs/agentview_rgb"] = frames
    with h5py.File(path) as root:
        demos = root["data"].items()
        return {name: {"actions": demo["actions"][:], "states": demo["states"][:]} for name, demo in demos}


def libero_config(**changes):
    values = dict(kind="libero", interface=LIBERO.model_dump(), alignment="after", gripper=dict(open=-1, closed=1))
    return read_config(values | changes, "test")


def test_libero_frames_after_the_action_are_aligned_and_turned(tmp_path):
    written = libero_file(tmp_path / "task.hdf5")["demo_0"]
    read, _ = libero.episodes(tmp_path, libero_config())
    assert read.start.instruction == "put the bowl on the plate"
    assert np.array_equal(read.start.simulator_state, written["states"][1])
    assert np.allclose(read.actions, written["actions"][1:], atol=1e-6)
    assert (read.frames[:, 0] == 255).all() and (read.frames[:, -1] == 0).all()
    assert read.frames[:, 3, 4, 0].tolist() == [0, 10, 20, 30, 40]
    # Frame 0 shows the state that the episode begins in.
    assert np.allclose(read.proprio[0, :6], written["states"][1][:6], atol=1e-6)


def test_libero_frames_before_the_action_are_aligned(tmp_path):
    written = libero_file(tmp_path / "task.hdf5", "before", "opencv")["demo_0"]
    read, _ = libero.episodes(tmp_path / "task.hdf5", libero_config(alignment="before"))
    assert np.array_equal(read.start.simulator_state, written["states"][0])
    assert np.allclose(read.actions, written["actions"][:-1], atol=1e-6)
    assert (read.frames[:, 0] == 255).all()


def test_libero_alignment_against_the_files_own_joints_is_refused(tmp_path):
    libero_file(tmp_path / "task.hdf5", "before")
    message = "task.hdf5, demo_0: 'alignment: after' was asked for.*set 'alignment: before'"
    with pytest.raises(ValueError, match=message):
        next(libero.episodes(tmp_path, libero_config()))


def test_libero_without_an_image_convention_asks(tmp_path):
    libero_file(tmp_path / "task.hdf5", convention=None)
    with pytest.raises(ValueError, match="does not say which way up.*set 'flip'"):
        next(libero.episodes(tmp_path, libero_config()))
    assert next(libero.episodes(tmp_path, libero_config(flip=False)))


def test_a_cut_hdf5_file_is_named(tmp_path):
    libero_file(tmp_path / "task.hdf5")
    (tmp_path / "task.hdf5").write_bytes((tmp_path / "task.hdf5").read_bytes()[:3000])
    with pytest.raises(ValueError, match="task.hdf5 is damaged"):
        next(libero.episodes(tmp_path, libero_config()))


ROBOTWIN = every_step().model_copy(update={
    "control_hz": 15.0, "proprio": tuple(f"j{i}" for i in range(14)),
    "action": small().action.model_copy(update={
        "names": tuple(f"j{i}" for i in range(14)), "representation": "joint_position", "null": (0.0,) * 14,
    }),
})


def robotwin_config(**changes):
    values = dict(kind="robotwin", interface=ROBOTWIN.model_dump(), camera="head_camera", colour_order="rgb")
    return read_config(values | changes, "test")


def red_jpegs(count: int, swapped: bool = False) -> np.ndarray:
    """JPEG files of a red picture, padded with zeros to one length; with red and blue swapped as some writers do."""
    files = []
    for _ in range(count):
        picture = np.zeros((8, 8, 3), np.uint8)
        picture[..., 2 if swapped else 0] = 250
        buffer = io.BytesIO()
        Image.fromarray(picture).save(buffer, "JPEG", quality=95)
        files.append(buffer.getvalue())
    return np.array(files, dtype=f"S{max(map(len, files)) + 40}")


def robotwin_old(folder: Path, swapped: bool = False) -> np.ndarray:
    (folder / "data").mkdir(parents=True)
    (folder / "instructions").mkdir()
    vector = np.random.default_rng(1).normal(size=(5, 14)).astype(np.float32)
    with h5py.File(folder / "data/episode0.hdf5", "w") as root:
        root["observation/head_camera/rgb"] = red_jpegs(5, swapped)
        root["joint_action/vector"] = vector
        root["endpose/left_endpose"] = np.zeros((5, 7))
    (folder / "instructions/episode0.json").write_text(json.dumps({"seen": ["adjust the bottle"], "unseen": []}))
    return vector


def is_red(frames: torch.Tensor) -> bool:
    return bool((frames[..., 0] > 200).all() and (frames[..., 1:] < 50).all())


@pytest.mark.parametrize("swapped", [False, True])
def test_robotwin_files_before_v1(tmp_path, swapped):
    vector = robotwin_old(tmp_path, swapped)
    (read,) = robotwin.episodes(tmp_path, robotwin_config(colour_order="bgr" if swapped else "rgb"))
    assert np.array_equal(read.proprio, vector) and np.array_equal(read.actions, vector[1:])
    assert read.start.instruction == "adjust the bottle"
    assert is_red(read.frames)


def test_robotwin_asks_for_the_colour_order(tmp_path):
    robotwin_old(tmp_path)
    with pytest.raises(ValueError, match="set 'colour_order' to rgb or bgr"):
        next(robotwin.episodes(tmp_path, robotwin_config(colour_order=None)))


def test_robotwin_files_since_v1(tmp_path):
    joints = np.random.default_rng(2).normal(size=(5, 14)).astype(np.float32)
    parts = dict(left_arm_joint_states=slice(0, 6), left_ee_joint_states=slice(6, 7),
                 right_arm_joint_states=slice(7, 13), right_ee_joint_states=slice(13, 14))
    with h5py.File(tmp_path / "episode0.hdf5", "w") as root:
        for part, columns in parts.items():
            root[f"state/{part}"], root[f"action/{part}"] = joints[:-1, columns], joints[1:, columns]
        root["vision/cam_head/colors"] = red_jpegs(5)
        root["additional_info/frequency"] = np.int32(15)
        root["instructions"] = json.dumps({"seen": ["adjust the bottle"]})
    (read,) = robotwin.episodes(tmp_path, robotwin_config(camera="cam_head"))
    assert np.array_equal(read.proprio, joints) and np.array_equal(read.actions, joints[1:])
    assert read.start.instruction == "adjust the bottle" and is_red(read.frames)


def test_robotwin_faults_are_named(tmp_path):
    robotwin_old(tmp_path)
    with pytest.raises(ValueError, match="episode0.hdf5 is damaged or has another layout"):
        next(robotwin.episodes(tmp_path, robotwin_config(camera="wrist")))
    with h5py.File(tmp_path / "data/episode0.hdf5", "a") as root:
        root["observation/head_camera/rgb"][3] = b"not a picture"
    with pytest.raises(ValueError, match="episode0.hdf5: frame 3 of head_camera cannot be decoded"):
        next(robotwin.episodes(tmp_path, robotwin_config()))
    with h5py.File(tmp_path / "data/episode0.hdf5", "a") as root:
        del root["endpose"]
        root["endpose"] = np.zeros((5, 14))
    with pytest.raises(ValueError, match="first 2.0 layout"):
        next(robotwin.episodes(tmp_path, robotwin_config()))


def test_the_stage_publishes_what_was_imported(tmp_path, monkeypatch):
    import yaml

    monkeypatch.chdir(tmp_path)
    made = [unit(make_episode(seed, frames=4), 4) for seed in range(2)]
    source = foreign(tmp_path / "public", made, 8)
    config = lerobot_config(every_step(), ends_in_success=True)
    (tmp_path / "mapping.yaml").write_text(yaml.safe_dump(config.model_dump(mode="json")))
    (tmp_path / "params.yaml").write_text("seed: 0\n")
    published = stage.run_command(
        import_dataset, ["--source", str(source), "--mapping", "mapping.yaml", "--out", "data/start/demonstrations"]
    )
    read = read_episodes(published.path)
    assert [row.outcome for row in read.rows] == ["success", "success"]
    assert torch.equal(read.episode(1).frames, made[1].frames)
    assert len(published.manifest.config["source"]["sha256"]) == 64
    assert set(published.manifest.states) == {row.state for row in read.rows}


def test_the_stage_with_a_damaged_file_publishes_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    import yaml

    folder = legacy(tmp_path / "public", [unit(make_episode(seed, frames=4), 4) for seed in range(2)])
    (folder / "data/chunk-000/episode_000001.parquet").write_bytes(b"PAR1")
    (tmp_path / "mapping.yaml").write_text(yaml.safe_dump(lerobot_config(every_step()).model_dump(mode="json")))
    with pytest.raises(ValueError, match="episode_000001.parquet cannot be read"):
        stage.run_stage(
            import_dataset, Inputs(folder, Path("mapping.yaml")), Params(), Path("data/start/demonstrations"), seed=0,
            parents={},
        )
    assert not Path("data/start/demonstrations").exists() and not list(Path("data/start").iterdir())

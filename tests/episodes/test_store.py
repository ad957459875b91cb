"""Episodes on disk and back."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from coevo.episodes import layout, store, writer
from coevo.episodes.store import read_episodes, write_episodes
from tests.episodes.examples import assert_same, flat_episode, make_episode, small


@st.composite
def episodes(draw) -> object:
    """Any episode, with any bits in its floats: NaN, infinities and denormals included."""
    frames, context = draw(st.integers(0, 5)), draw(st.integers(1, 3))
    episode = make_episode(draw(st.integers(0, 2**30)), frames=frames, context=context)
    bits = np.random.default_rng(draw(st.integers(0, 2**30)))

    def any_floats(*shape: int) -> torch.Tensor:
        return torch.from_numpy(bits.integers(0, 2**32, shape, dtype=np.uint32).view(np.float32))

    def optional(values):
        return draw(st.sampled_from([None, values]))

    words = st.text(st.characters(codec="utf-8"), max_size=8)
    start = replace(
        episode.start, id=draw(words), instruction=draw(words), seed=draw(st.integers(-(2**63), 2**63 - 1)),
        simulator_state=bits.integers(0, 2**64, draw(st.integers(0, 9)), dtype=np.uint64).view(np.float64),
        frames=episode.start.frames if draw(st.booleans()) else torch.zeros_like(episode.start.frames),
    )
    return replace(
        episode, start=start, actions=any_floats(frames * 4, 4), proprio=any_floats(frames + 1, 5),
        success=optional(episode.success), progress=optional(any_floats(frames)),
        probability=optional(any_floats(frames + 1)), label=optional(any_floats(frames * 4, 4)),
        sample=draw(st.integers(0, 99)), policy=draw(words), perturbation=draw(words), pair=draw(words),
        source=draw(st.sampled_from(["simulator", "dream", "imported"])),
    )


@pytest.mark.filterwarnings("ignore:invalid value encountered in cast")  # signalling NaN in the statistics
@settings(max_examples=40, deadline=None)
@given(written=st.lists(episodes(), min_size=1, max_size=4))
def test_every_field_comes_back_bit_for_bit(written, tmp_path_factory):
    folder = tmp_path_factory.mktemp("episodes")
    write_episodes(folder, written, small())
    read = read_episodes(folder)
    assert read.interface == small()
    assert len(read) == len(written)
    for index, episode in enumerate(written):
        assert_same(episode, read.episode(index))
    for one, other in zip(written, read, strict=True):
        assert_same(one, other)


def test_the_same_episodes_give_the_same_bytes(tmp_path):
    def hashes(folder: Path) -> dict[str, str]:
        files = sorted(file for file in folder.rglob("*") if file.is_file())
        return {str(f.relative_to(folder)): hashlib.sha256(f.read_bytes()).hexdigest() for f in files}

    for size in (8, 130):
        made = [flat_episode(grey, 2, size) for grey in (10, 90)]
        write_episodes(tmp_path / f"a{size}", made, small(size))
        time.sleep(1.1)  # a time stamp of whole seconds would differ
        write_episodes(tmp_path / f"b{size}", iter(made), small(size))
        assert hashes(tmp_path / f"a{size}") == hashes(tmp_path / f"b{size}")


def test_row_groups_and_data_files_are_found_again(tmp_path, monkeypatch):
    monkeypatch.setattr(writer, "BATCH_FRAMES", 8)
    monkeypatch.setattr(layout, "DATA_FILE_MB", 0.005)
    monkeypatch.setattr(layout, "FILES_PER_CHUNK", 2)
    made = [make_episode(seed, frames=seed % 4) for seed in range(30)]
    write_episodes(tmp_path, made, small())
    files = sorted(str(path.relative_to(tmp_path)) for path in (tmp_path / "data").rglob("*.parquet"))
    assert len(files) == 4 and files[2] == "data/chunk-001/file-000.parquet"
    read = read_episodes(tmp_path)
    for index in (29, 0, 13, 14, 15):
        assert_same(made[index], read.episode(index))
    arrays = read.arrays([29, 0, 13])
    assert arrays.states == ("push-29", "push-0", "push-13")
    assert torch.equal(arrays.frames[0, :2], made[29].frames)


def test_a_failing_source_leaves_no_dataset_behind(tmp_path, monkeypatch):
    monkeypatch.setattr(writer, "BATCH_FRAMES", 4)

    def breaks():
        yield make_episode(0)
        raise RuntimeError("the simulator died")

    with pytest.raises(RuntimeError, match="the simulator died"):
        write_episodes(tmp_path, breaks(), small())
    with pytest.raises(ValueError, match="holds no finished episodes"):
        read_episodes(tmp_path)
    with pytest.raises(ValueError, match="unfinished attempt"):
        write_episodes(tmp_path, [make_episode(0)], small())


def test_a_writer_killed_midway_leaves_no_artifact(tmp_path):
    program = f"""
import itertools, pathlib
from coevo.core import artifacts
from coevo.episodes import writer
from coevo.episodes.store import write_episodes
from tests.episodes.examples import make_episode, small
writer.BATCH_FRAMES = 8
def forever():
    for seed in itertools.count():
        if seed == 40:
            print("writing", flush=True)
        yield make_episode(seed)
with artifacts.writing(pathlib.Path({str(tmp_path / "rollouts")!r})) as folder:
    write_episodes(folder, forever(), small())
"""
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, env=os.environ | {"PYTHONPATH": "."}
    )
    assert process.stdout.readline() == b"writing\n"
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    assert not (tmp_path / "rollouts").exists()
    (left,) = tmp_path.iterdir()
    assert list(left.rglob("*.parquet")), "it was killed while it wrote"
    with pytest.raises(ValueError, match="holds no finished episodes"):
        read_episodes(left)


def test_an_episode_of_another_shape_is_refused_by_name(tmp_path):
    wrong = replace(make_episode(1), actions=torch.zeros(11, 4))
    message = r"episode 1 \(state push-1\): actions have the shape \(11, 4\), \(12, 4\) is needed"
    with pytest.raises(ValueError, match=message):
        write_episodes(tmp_path, [make_episode(0), wrong], small())


def test_nothing_to_write_is_an_error(tmp_path):
    with pytest.raises(ValueError, match="no episodes to write"):
        write_episodes(tmp_path, [], small())


def test_a_foreign_dataset_is_sent_to_the_importer(tmp_path):
    write_episodes(tmp_path, [make_episode(0)], small())
    (tmp_path / layout.INTERFACE).unlink()
    with pytest.raises(ValueError, match="import_dataset"):
        read_episodes(tmp_path)


def test_info_says_what_the_columns_are(tmp_path):
    write_episodes(tmp_path, [make_episode(0), make_episode(1, frames=5)], small())
    info = json.loads((tmp_path / "meta/info.json").read_text())
    assert (info["codebase_version"], info["total_episodes"], info["total_frames"], info["fps"]) == ("v3.0", 2, 10, 20)
    assert info["features"]["action"]["shape"] == [16]
    assert info["features"]["action"]["names"][4:6] == ["step1.x", "step1.y"]
    stats = json.loads((tmp_path / "meta/stats.json").read_text())
    assert set(stats) == set(info["features"])
    assert stats["frame_index"]["max"] == [5] and stats["frame_index"]["count"] == [10]
    assert stats["frame_index"]["mean"] == pytest.approx([(0 + 1 + 2 + 3 + 0 + 1 + 2 + 3 + 4 + 5) / 10])
    assert np.shape(stats["observation.image"]["mean"]) == (3, 1, 1)


def test_two_episodes_in_one_video_keep_their_own_frames(tmp_path):
    first, second = flat_episode(20, 3, 130), flat_episode(120, 5, 130)
    write_episodes(tmp_path, [first, second], small(130))
    assert [path.name for path in (tmp_path / "videos").rglob("*.mp4")] == ["file-000.mp4"]
    read = read_episodes(tmp_path)
    key = f"videos/{layout.CAMERA}"
    times = [(row[f"{key}/from_timestamp"], row[f"{key}/to_timestamp"]) for row in read.metadata]
    assert times == [(0.0, 0.2), (0.2, 0.5)]  # 4 and 6 frames at 20 a second
    for index, episode in enumerate((first, second)):
        difference = (read.episode(index).frames.float() - episode.frames.float()).abs()
        assert difference.max() <= 3
    together = read.arrays()
    assert (together.frames[1].float() - second.frames.float()).abs().max() <= 3
    assert_same(first.start, read.episode(0).start)  # the context is stored without loss


def test_video_files_are_numbered_apart_from_data_files(tmp_path, monkeypatch):
    monkeypatch.setattr(writer, "BATCH_FRAMES", 4)
    monkeypatch.setattr(layout, "VIDEO_FILE_MB", 0)
    made = [flat_episode(grey, 2, 130) for grey in (10, 70, 130)]
    write_episodes(tmp_path, made, small(130))
    read = read_episodes(tmp_path)
    assert [row[f"videos/{layout.CAMERA}/file_index"] for row in read.metadata] == [0, 1, 2]
    assert [row["data/file_index"] for row in read.metadata] == [0, 0, 0]
    for index, episode in enumerate(made):
        assert (read.episode(index).frames.float() - episode.frames.float()).abs().max() <= 3


def test_a_cut_video_is_named(tmp_path):
    write_episodes(tmp_path, [flat_episode(20, 9, 130)], small(130))
    video = tmp_path / layout.video_file(0)
    video.write_bytes(video.read_bytes()[:-200])
    with pytest.raises(ValueError, match="file-000.mp4"):
        read_episodes(tmp_path).episode(0)


def test_short_episodes_are_padded_with_their_last_frame_and_the_null_action(tmp_path):
    short, long = make_episode(0, frames=1, won=True), make_episode(1, frames=3, won=False, label=torch.ones(12, 4))
    write_episodes(tmp_path, [short, long], small())
    arrays = read_episodes(tmp_path).arrays()
    assert arrays.frames.shape == (2, 4, 8, 8, 3) and arrays.actions.shape == (2, 12, 4)
    assert arrays.length.tolist() == [1, 3]
    assert all(torch.equal(arrays.frames[0, i], short.frames[1]) for i in (1, 2, 3))
    assert arrays.actions[0, 4:].unique(dim=0).tolist() == [[0, 0, 0, -1]]
    assert arrays.success.tolist() == [[True, True, True], [False, False, False]]
    assert torch.equal(arrays.labels[0, :4], short.actions) and torch.equal(arrays.labels[1], long.label)
    assert arrays.outcome == ("failure", "failure")  # success counts from frame 2 on, the short one ended at 1
    assert arrays.has_truth.tolist() == [True, True]


def test_stacking_in_memory_equals_reading_back(tmp_path):
    from coevo.episodes.arrays import stack

    made = [make_episode(seed, frames=2 + seed) for seed in range(3)]
    write_episodes(tmp_path, made, small())
    assert_same(stack(made, small()), store.read_episodes(tmp_path).arrays())

"""Open a folder of episodes with LeRobot itself and compare what it reads with what was written.

    python -m scripts.check_with_lerobot data/start/demonstrations

LeRobot pins older packages than ours, so it gets an environment of its own under .local (about 8 GiB with the torch
that it pins, made once). The same file runs in both environments: here it reads with our reader, there with LeRobot.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

import numpy as np

REQUIREMENT = "lerobot==0.4.4"
ENVIRONMENT = Path(".local/lerobot-check")
CAMERA = "observation.image"
MOST_EPISODES = 20


def main() -> None:
    """Parse arguments, make the environment where it is missing, compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="a folder of episodes: an artifact, or a source inside a dataset")
    parser.add_argument("--expected", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.expected is not None:
        compare(args.folder, dict(np.load(args.expected)))
        return
    python = ENVIRONMENT / "bin" / "python"
    if not installed(python):
        print(f"installing {REQUIREMENT} into {ENVIRONMENT}; it brings its own torch and takes minutes", flush=True)
        venv.create(ENVIRONMENT, with_pip=True, clear=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", REQUIREMENT], check=True)
    with tempfile.TemporaryDirectory() as scratch:
        expected = Path(scratch) / "expected.npz"
        np.savez(expected, **read_with_coevo(args.folder))
        # Nothing may be fetched: what LeRobot cannot find in the folder is a fault of the folder.
        settings = os.environ | {"HF_HUB_OFFLINE": "1", "HF_HOME": scratch}
        command = [python, Path(__file__), args.folder, "--expected", expected]
        sys.exit(subprocess.run(command, env=settings).returncode)


def installed(python: Path) -> bool:
    """Whether LeRobot is there and can be imported."""
    test = [python, "-c", "import lerobot"]
    return python.exists() and subprocess.run(test, stderr=subprocess.DEVNULL).returncode == 0


def read_with_coevo(folder: Path) -> dict[str, np.ndarray]:
    """The first episodes' frames, actions and states, one row per frame."""
    from coevo.episodes.store import read_episodes

    episodes = read_episodes(folder)
    chosen = [episodes.episode(index) for index in range(min(len(episodes), MOST_EPISODES))]
    null = np.array(episodes.interface.action.null * episodes.interface.stride, np.float32)[None]
    return dict(
        frames=np.concatenate([episode.frames.numpy() for episode in chosen]),
        states=np.concatenate([episode.proprio.numpy() for episode in chosen]),
        actions=np.concatenate(
            [part for e in chosen for part in (e.actions.numpy().reshape(-1, null.shape[1]), null)]
        ),
        lengths=np.array([len(episode.frames) for episode in chosen]),
        totals=np.array([len(episodes), sum(row.frames + 1 for row in episodes.rows)]),
        fps=np.array(episodes.interface.fps),
        lossless=np.array(episodes.info["features"][CAMERA]["dtype"] == "image"),
        tasks=np.array([episode.start.instruction for episode in chosen]),
    )


def compare(folder: Path, expected: dict[str, np.ndarray]) -> None:
    """In LeRobot's environment: AssertionError with the place of the first difference."""
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    fps = float(expected["fps"])
    # torchcodec would need FFmpeg's shared libraries on the system; PyAV brings its own.
    dataset = LeRobotDataset(
        "local/check", root=folder, video_backend="pyav", delta_timestamps={CAMERA: [-1 / fps, 0.0]}
    )
    assert [dataset.num_episodes, len(dataset)] == expected["totals"].tolist(), (dataset.num_episodes, len(dataset))
    tolerance = 0 if expected["lossless"] else 2  # two decoders may round a colour differently
    largest, index = 0, 0
    for episode, length in enumerate(expected["lengths"].tolist()):
        for frame in range(length):
            item, where = dataset[index], f"episode {episode}, frame {frame}"
            assert (int(item["episode_index"]), int(item["frame_index"]), int(item["index"])) == (episode, frame, index)
            assert abs(float(item["timestamp"]) - frame / fps) < 1e-5, where
            assert item["task"] == expected["tasks"][episode], where
            assert np.array_equal(item["action"].numpy(), expected["actions"][index]), where
            assert np.array_equal(item["observation.state"].numpy(), expected["states"][index]), where
            # The frame before, which at an episode's first frame is that frame again and marked as padding.
            assert item[f"{CAMERA}_is_pad"].tolist() == [frame == 0, False], where
            for picture, at in zip(item[CAMERA], (max(index - 1, index - frame), index), strict=True):
                levels = np.rint(picture.permute(1, 2, 0).numpy() * 255).astype(int)
                difference = int(np.abs(levels - expected["frames"][at].astype(int)).max())
                assert difference <= tolerance, f"{where}: a pixel differs by {difference} levels"
                largest = max(largest, difference)
            index += 1
    kind = "images" if expected["lossless"] else "video"
    print(
        f"LeRobot reads {folder}: {dataset.num_episodes} episodes, {len(dataset)} frames at {fps:g} Hz; "
        f"{index} frames of {len(expected['lengths'])} episodes compared ({kind}), largest difference {largest} levels"
    )


if __name__ == "__main__":
    main()

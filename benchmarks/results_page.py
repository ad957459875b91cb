"""Write docs/results/<name>.md from the figures beside it: python -m benchmarks.results_page one_gpu_pick_place

Film strips, where an experiment left some (`--films`), become PNG files next to the page.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

from coevo.evaluation import strips
from coevo.evaluation.report.pictures import shown_frames
from coevo.evaluation.strips import Strip
from coevo.records.outcomes import Figure

FOLDER = Path("docs/results")
FIDELITY = {
    "fake_success_all": "fake success", "recall_all": "recall", "fake_success_mixed": "fake, mixed states",
    "recall_mixed": "recall, mixed", "fake_success_same": "fake, same-outcome states", "psnr_failures": "PSNR failures",
    "psnr_successes": "PSNR successes", "mismatch_start_policy": "replay mismatch of the start policy",
    "mismatch_evolved_policy": "replay mismatch of the evolved policy",
    "fake_success_recorded_history": "fake, recorded history", "recall_recorded_history": "recall, recorded history",
    "fake_success_seen_states": "fake, seen states", "recall_seen_states": "recall, seen states",
    "fake_success_stable_truth": "fake, stable truth", "recall_stable_truth": "recall, stable truth",
    "fake_success_stable_truth_mixed": "fake, stable truth, mixed",
    "ranked_right": "successes ranked above failures", "fake_success_at_recall_95": "fake, recall 0.95",
    "fake_success_mixed_at_recall_95": "fake, mixed states, recall 0.95",
    "pairs_told_apart": "pairs told apart", "verdicts_flipped_by_noise": "verdicts flipped by noise",
}  # fmt: skip
TRAINING = {
    "success": "success", "gain": "gain over the start policy", "mismatch": "replay mismatch",
    "dreamed_success": "dreamed success", "useful_frames": "useful frames",
    "median_explained_variance": "explained variance (median)", "median_kl": "KL (median, nat)",
    "median_clipped": "ratios clipped (median)", "simulator_episodes": "simulator episodes",
    "dreamed_episodes": "dreamed episodes",
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name")
    parser.add_argument("--films", type=Path, help="folder of <arm>_strips.safetensors and .json")
    args = parser.parse_args()
    figures = [Figure.model_validate(row) for row in json.loads((FOLDER / f"{args.name}.json").read_text())]
    intro = FOLDER / f"{args.name}.intro.md"
    parts = [intro.read_text().strip()]
    figures = in_order(figures)
    for title, text in (
        ("Outcome fidelity", table(figures, FIDELITY)),
        ("Over training seeds", summaries(figures)),
        ("Training", table(figures, TRAINING, by_seed=True)),
    ):
        if text:
            parts += [f"## {title}", text]
    picture = FOLDER / f"{args.name}_films.png"
    if args.films:
        films(args.films).save(picture, optimize=True)
    if picture.exists():
        parts += ["## Films", FILM_LEGEND, f"![film strips]({picture.name})"]
    parts.append(f"Made by `python -m benchmarks.results_page {args.name}` from `{args.name}.json`.")
    (FOLDER / f"{args.name}.md").write_text("\n\n".join(parts) + "\n")


def in_order(figures: Sequence[Figure]) -> list[Figure]:
    """Arms in the order in which a reader meets them."""
    order = ("simulator", "base", "success_only", "mix", "pairs", "start")
    return sorted(figures, key=lambda figure: order.index(figure.arm) if figure.arm in order else len(order))


def table(figures: Sequence[Figure], columns: dict[str, str], by_seed: bool = False) -> str:
    """Arms down, metrics across; a cell holds value, interval and n."""
    cells = {(figure.arm, figure.metric): figure for figure in figures}
    arms = [arm for arm in dict.fromkeys(figure.arm for figure in figures) if any((arm, m) in cells for m in columns)]
    if by_seed:
        arms = [arm for arm in arms if (arm, "success") in cells]
    shown = [metric for metric in columns if any((arm, metric) in cells for arm in arms)]
    if not shown:
        return ""
    lines = ["| arm | " + " | ".join(columns[metric] for metric in shown) + " |", "|---" * (len(shown) + 1) + "|"]
    for arm in arms:
        lines.append("| " + " | ".join([arm, *(cell(cells.get((arm, metric))) for metric in shown)]) + " |")
    return "\n".join(lines)


def cell(figure: Figure | None) -> str:
    """A figure as the tables show it."""
    if figure is None:
        return ""
    if figure.unit in ("count", "dB"):
        return f"{figure.value:.0f}" if figure.unit == "count" else f"{figure.value:.1f}"
    if figure.low is None:
        return f"{figure.value:.3f}"
    return f"{figure.value:.3f} [{figure.low:.3f}, {figure.high:.3f}] n={figure.n}"


def summaries(figures: Sequence[Figure]) -> str:
    """Mean gain and spread per arm."""
    spread = {figure.arm: figure.value for figure in figures if figure.metric == "sd_of_gain"}
    rows = [figure for figure in figures if figure.metric == "mean_gain"]
    if not rows:
        return ""
    lines = ["| arm | mean gain, 90% interval over seeds | standard deviation | seeds |", "|---|---|---|---|"]
    for row in rows:
        interval = f"{row.value:+.3f} [{row.low:+.3f}, {row.high:+.3f}]"
        lines.append(f"| {row.arm} | {interval} | {spread[row.arm]:.3f} | {row.n} |")
    return "\n".join(lines)


FILM_LEGEND = (
    "Each block is one admission episode, the same actions in both rows: the simulator and the arm's world model, its "
    "worst disagreements first. A green bar means that the frozen reward reads a success, a red one that it does not."
)


def films(folder: Path, per_arm: int = 2) -> Image.Image:
    """Blocks of strips, arm by arm, as one picture."""
    blocks = []
    for file in sorted(folder.glob("*_strips.json")):
        arm = file.stem.removesuffix("_strips")
        if (folder / f"{arm}_{strips.FRAMES}").exists():
            blocks += [block(strip, ("simulator", arm)) for strip in load(folder, arm)[:per_arm]]
    return stacked(blocks)


def stacked(blocks: Sequence[np.ndarray]) -> Image.Image:
    """Blocks under one another, white between them."""
    width = max(item.shape[1] for item in blocks)
    rows = [np.pad(item, ((0, 14), (0, width - item.shape[1]), (0, 0)), constant_values=255) for item in blocks]
    return Image.fromarray(np.concatenate(rows))


def load(folder: Path, arm: str) -> list[Strip]:
    """The strips that an experiment left for one arm."""
    with tempfile.TemporaryDirectory() as place:
        for name in (strips.FILE, strips.FRAMES):
            shutil.copyfile(folder / f"{arm}_{name}", Path(place) / name)
        return strips.read(Path(place))


def block(strip: Strip, names: Sequence[str]) -> np.ndarray:
    """One episode's rows, each with its name and a bar in the colour of what was read."""
    rows = []
    for row, name in zip(strip.rows, names, strict=True):
        frames = np.concatenate(list(row.frames[shown_frames(len(row.frames))]), axis=1)
        bar = np.empty((frames.shape[0], 6, 3), np.uint8)
        bar[:] = (40, 160, 60) if row.read_success else (200, 50, 40)
        labelled = np.concatenate([label(name, frames.shape[0]), bar, frames], axis=1)
        rows.append(np.pad(labelled, ((0, 2), (0, 0), (0, 0)), constant_values=255))
    return np.concatenate(rows)


def label(text: str, height: int, width: int = 104) -> np.ndarray:
    """Black words on white."""
    image = Image.new("RGB", (width, height), "white")
    ImageDraw.Draw(image).text((2, height // 2), text, fill="black", anchor="lm")
    return np.asarray(image)


if __name__ == "__main__":
    main()

"""Pictures of what an artifact holds: film strips as strips.png, curves of its metrics as curves.png.

python -m scripts.draw_artifact data/default/i001/admission OUT
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
from jaxtyping import UInt8
from PIL import Image, ImageDraw

from coevo.evaluation import strips

SHOWN, FRAMES, GAP, LABEL = 6, 12, 2, 14
"""Strips, frames of each, and pixels between them and above them."""
CURVES = 8


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("artifact", type=Path)
    parser.add_argument("out", type=Path)
    args = parser.parse_args()
    if (args.artifact / strips.FILE).is_file() and (found := strips.read(args.artifact)):
        film(found[:SHOWN]).save(args.out / "strips.png", optimize=True)
    if (args.artifact / "metrics.jsonl").is_file():
        lines = [json.loads(line) for line in (args.artifact / "metrics.jsonl").read_text().splitlines()]
        if series := series_of(lines):
            draw_curves(series, args.out / "curves.png")


def film(chosen: list[strips.Strip]) -> Image.Image:
    """One strip below the other, each world's row of evenly chosen frames framed by what the reward read in it."""
    height, width = chosen[0].rows[0].frames.shape[1:3]
    cell = width + GAP, height + GAP
    rows = sum(len(strip.rows) for strip in chosen)
    sheet = Image.new("RGB", (FRAMES * cell[0] + GAP, rows * (cell[1] + LABEL) + GAP), "white")
    pen, y = ImageDraw.Draw(sheet), GAP
    for strip in chosen:
        happened = "success" if strip.success else "failure"
        for row in strip.rows:
            read = "success" if row.read_success else "failure"
            pen.text((GAP, y), f"{strip.state}, {row.arm}: happened {happened}, read {read}", fill="black")
            y += LABEL
            colour = "#2a8a4a" if row.read_success else "#b03a2e"
            for column, frame in enumerate(evenly(row.frames)):
                x = GAP + column * cell[0]
                pen.rectangle((x - 1, y - 1, x + width, y + height), outline=colour)
                sheet.paste(Image.fromarray(frame), (x, y))
            y += cell[1]
    return sheet


def evenly(frames: UInt8[np.ndarray, "f h w 3"]) -> UInt8[np.ndarray, "s h w 3"]:
    """At most FRAMES of them, first and last included."""
    return frames[np.unique(np.linspace(0, len(frames) - 1, FRAMES).round().astype(int))]


def series_of(lines: list[dict]) -> dict[str, list[tuple[int, float]]]:
    """(line, value) of each number that is there more than once and changes; the index of steps itself is none."""
    found: dict[str, list[tuple[int, float]]] = {}
    for index, line in enumerate(lines):
        for name, value in line.items():
            if isinstance(value, int | float) and not isinstance(value, bool):
                found.setdefault(name, []).append((index, float(value)))
    return {
        name: points for name, points in found.items()
        if len({value for _, value in points}) > 1 and name.rsplit("/", 1)[-1] not in ("step", "update")
    }  # fmt: skip


def draw_curves(series: dict[str, list[tuple[int, float]]], file: Path) -> None:
    """A small chart for each of the first few series."""
    from matplotlib.figure import Figure

    names = list(series)[:CURVES]
    columns = min(len(names), 4)
    down = -(-len(names) // columns)
    figure = Figure(figsize=(3.0 * columns, 2.1 * down), layout="constrained", dpi=110)
    for place, name in enumerate(names, start=1):
        axes = figure.add_subplot(down, columns, place)
        axes.plot(*zip(*series[name], strict=True), lw=1.4, color="#2b6cb0")
        axes.set_title(name, fontsize=9)
        axes.tick_params(labelsize=8)
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(file)


if __name__ == "__main__":
    main()

"""The page of `benchmarks.four_systems`: a row per system, and beside each published figure ours of the same kind."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from benchmarks.results_page import cell
from benchmarks.system_variants import Variant, system
from coevo.evaluation.intervals import seed_interval
from coevo.records.outcomes import Figure
from coevo.records.system import Claim, System

NAME = "four-systems"
TRAINED = "trained policy"
MEANS = {
    "success": "policy_success", "mismatch": "mismatch", "dreamed_success": "dreamed_success",
    "useful_frames": "useful_frames", "simulator_episodes": "simulator_episodes",
    "dreamed_episodes": "dreamed_episodes",
}  # fmt: skip
"""Of a seed, and what its mean over seeds is called."""
COUNTS = ("simulator_episodes", "dreamed_episodes")
COLUMNS = {
    "success before": ("start policy", "success"), "after": (TRAINED, "policy_success"),
    "gain, mean over seeds": (TRAINED, "gain"), "sd": (TRAINED, "gain_sd"),
    "fake success, base": ("before", "fake_success"), "fine-tuned": ("after", "fake_success"),
    "recall": ("after", "recall"), "fake on forks": ("after", "fake_success_mixed"),
    "referee: fake success": ("after", "fake_success_referee"), "referee: recall": ("after", "recall_referee"),
    "reward alignment": ("after", "reward_alignment"), "visual alignment": ("after", "visual_alignment"),
    "mismatch before": ("parent policy", "mismatch"), "mismatch after": (TRAINED, "mismatch"),
    "useful frames": (TRAINED, "useful_frames"), "simulator episodes": (TRAINED, "simulator_episodes"),
}  # fmt: skip
ABOUT = """# The four systems side by side

Each as its file in `configs/system/` says, from the same demonstrations and the same base world model, with the same
number of simulator episodes of its own. Intervals are 90%: over initial states within a policy, Student's over
training seeds for gains. "Simulator episodes" are all behind a trained policy since its start policy, experts and the
checks along training included; not those behind a base that ships, whose lineage does not count them. World models
were trained in whether admitted or not. The systems differ in more than one thing at once, start policy included, so a
difference between two rows has no single cause. The referee is the frame classifier, the same for all; where a
system's own reward is one, it stands alone. Alignment is the share of episodes whose reading in the fine-tuned world
model agrees with the simulator: reward alignment by the system's own reward, visual alignment by the referee."""


def means(figures: Sequence[Figure], system: str, task: str) -> list[Figure]:
    """Means over a system's seeds, with Student's interval for those that are shares."""
    made = []
    for metric, name in MEANS.items():
        of_seeds = [f.value for f in figures if f.metric == metric and f.arm.removeprefix(f"{system}_").isdigit()]
        if not of_seeds:
            continue
        interval = seed_interval(tuple(of_seeds)) if metric not in COUNTS else None
        bounds = dict(low=interval.low, high=interval.high) if interval else {}
        made.append(
            Figure(
                metric=name, arm=f"{system}, {TRAINED}", task=task, value=float(np.mean(of_seeds)), n=len(of_seeds),
                unit="count" if metric in COUNTS else "fraction", **bounds,
            )  # fmt: skip
        )
    return made


def write(parts: Path, out: Path, variants: Mapping[str, Variant]) -> None:
    """Join what every system has written so far: `out`/four-systems.json, and the page beside it."""
    figures = [
        Figure.model_validate(row)
        for file in (parts / f"{name}.json" for name in variants)
        if file.exists()
        for row in json.loads(file.read_text())
    ]
    out.mkdir(parents=True, exist_ok=True)
    (out / f"{NAME}.json").write_text(json.dumps([figure.model_dump() for figure in figures], indent=1) + "\n")
    intro = out / f"{NAME}.intro.md"
    (out / f"{NAME}.md").write_text(page(figures, variants, intro.read_text() if intro.exists() else ""))


def page(figures: Sequence[Figure], variants: Mapping[str, Variant], intro: str = "") -> str:
    """The page's text; `intro` says where the figures are from."""
    cells = {(figure.arm, figure.metric): figure for figure in figures}
    shown = [name for name in variants if (name, "seconds") in cells]
    head = "| system | " + " | ".join(COLUMNS) + " | minutes |"
    lines = [head, "|---" * (len(COLUMNS) + 2) + "|"]
    for name in shown:
        row = [cell(cells.get((f"{name}, {arm}", metric))) for arm, metric in COLUMNS.values()]
        lines.append(f"| {name} | " + " | ".join(row) + f" | {cells[name, 'seconds'].value / 60:.1f} |")
    parts = [ABOUT, *([intro.strip()] if intro else []), "\n".join(lines)]
    others = [(name, variants[name]) for name in shown if variants[name].says]
    changed = [f"- `{name}`: {variant.system}, but {variant.says}." for name, variant in others]
    parts += ["## Variants", "\n".join(changed)] if changed else []
    for name in (name for name in shown if not variants[name].says):
        one = system(variants[name])
        parts += [f"## {name}", f"{one.source}: {one.setting}.", claims(name, one, cells)]
    parts.append(f"Made by `python -m benchmarks.four_systems` from `{NAME}.json`.")
    return "\n\n".join(parts) + "\n"


def claims(name: str, system: System, cells: Mapping[tuple[str, str], Figure]) -> str:
    """What the publication reports, and ours."""
    lines = ["| | published | over | ours |", "|---|---|---|---|"]
    for claim in system.claims:
        published = "" if claim.published is None else f"{claim.published:g}"
        lines.append(f"| {claim.says} | {published} | {claim.over} | {cell(ours(name, claim, cells))} |")
    return "\n".join(lines)


def ours(name: str, claim: Claim, cells: Mapping[tuple[str, str], Figure]) -> Figure | None:
    """Our figure of the claim's kind, if it was measured."""
    if claim.metric is None:
        return None
    found = cells.get((f"{name}, {claim.arm}", claim.metric))
    if found is None and claim.metric == "policy_success":
        found = cells.get((f"{name}, {claim.arm}", "success"))
    return found

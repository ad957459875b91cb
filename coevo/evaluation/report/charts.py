"""Charts as inline SVG. Their colours are the page's CSS variables, so they follow light and dark."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence

from coevo.evaluation.report.data import Curve, ReportData, figures, seed_label, tail
from coevo.evaluation.report.sentences import signed_points
from coevo.records.outcomes import Admission, Fidelity, Interval

PAINTS = {
    "#010101": "var(--ink)", "#020202": "var(--soft)", "#030303": "var(--line)", "#040404": "var(--paper)",
    "#050505": "var(--before)", "#060606": "var(--after)", "#070707": "var(--simulator)", "#080808": "var(--wash)",
}
"""Stand-in colours that matplotlib draws with, and the variables they become."""
INK, SOFT, LINE, PAPER, BEFORE, AFTER, SIMULATOR, WASH = PAINTS
ARM_COLOURS = {"before": BEFORE, "after": AFTER, "simulator": SIMULATOR}


def fidelity_plane(data: ReportData) -> str:
    """Fake success against recall, one cross per arm, with the region that the criterion admits."""
    from matplotlib.patches import Rectangle

    figure, axes = _axes(5.2, 4.3)
    criterion = data.admission.criterion
    points = [(label, data.fidelity(label)) for label in data.arms.values()]
    points += [(tail(control.world_model), _whole(control)) for control in data.controls]
    found = {label: row for label, row in points if row is not None and row.fake_success and row.recall}
    lowest = min([criterion.recall_floor, *(row.recall.low for row in found.values())])
    bottom = max(0.0, 0.1 * int(10 * lowest - 1))
    axes.set(xlim=(0, 1), ylim=(bottom, 1.03))
    axes.set(xlabel="failures read as successes (fake success)", ylabel="successes read as such (recall)")
    corner = criterion.fake_success_ceiling, 1.0 - criterion.recall_floor
    axes.add_patch(Rectangle((0, criterion.recall_floor), *corner, color=WASH, lw=0, zorder=0))
    axes.text(0.012, criterion.recall_floor + 0.01, "admitted", va="bottom", fontsize=9, color=SOFT)
    if "before" in found and "after" in found:
        ends = [(found[label].fake_success.value, found[label].recall.value) for label in ("after", "before")]
        axes.annotate(
            "", xy=ends[0], xytext=ends[1],
            arrowprops=dict(arrowstyle="-|>", color=SOFT, lw=1, shrinkA=9, shrinkB=9, connectionstyle="arc3,rad=0.12"),
        )
    beside: list[float] = []
    for label, row in sorted(found.items(), key=lambda item: item[1].fake_success.value):
        colour = ARM_COLOURS.get(label, INK)
        fake, recall = row.fake_success, row.recall
        axes.plot([fake.low, fake.high], [recall.value] * 2, color=colour, lw=1.6, solid_capstyle="round")
        axes.plot([fake.value] * 2, [recall.low, recall.high], color=colour, lw=1.6, solid_capstyle="round")
        axes.plot(fake.value, recall.value, "o", ms=9, color=colour, mec=PAPER, mew=1.5)
        right = fake.value > 0.6
        crowd = sum(abs(fake.value - other) < 0.2 for other in beside)  # a label steps down for each near one
        beside.append(fake.value)
        axes.annotate(
            label, (fake.value, recall.value), xytext=(-9 if right else 9, -17 - 15 * crowd),
            textcoords="offset points", color=colour, fontsize=10.5, fontweight="bold", ha="right" if right else "left",
        )
    _percent(axes.xaxis, axes.yaxis)
    return _svg(figure, "Fake success against recall of each arm")


def horizon(data: ReportData, metric: str, title: str) -> str:
    """A metric of each arm read up to the end of each decision; '' where nothing was read along the horizon."""
    points = data.admission.breakdown.horizon if data.admission.breakdown else ()
    lines = {}
    for arm, label in data.arms.items():
        own = [point for point in points if point.arm == arm and getattr(point, metric) is not None]
        if own and label in ARM_COLOURS:
            lines[label] = [point.decision for point in own], [getattr(point, metric) for point in own]
    if not lines:
        return ""
    figure, axes = _axes(5.2, 2.9)
    beside = _apart([found[-1].value for _, found in lines.values()], 0.075)
    for (label, (x, found)), height in zip(lines.items(), beside, strict=True):
        colour = ARM_COLOURS[label]
        if label == "after":
            ends = [each.low for each in found], [each.high for each in found]
            axes.fill_between(x, *ends, color=WASH, lw=0, zorder=0)
        axes.plot(x, [each.value for each in found], "-o", color=colour, ms=4.5, lw=1.6, mec=PAPER)
        axes.annotate(
            label, (x[-1], height), xytext=(8, 0), textcoords="offset points", color=colour, fontsize=9.5, va="center"
        )
    axes.set_xticks(sorted({decision for x, _ in lines.values() for decision in x}))
    low, high = axes.get_xlim()
    axes.set(ylim=(0, 1.03), xlim=(low, high + 0.16 * (high - low)), xlabel="read up to the end of decision")
    _percent(axes.yaxis)
    return _svg(figure, title)


def _apart(values: Sequence[float], gap: float) -> list[float]:
    """Heights for labels: the values, pushed up so that no two lie closer than `gap`, and all down if past 1."""
    placed: dict[int, float] = {}
    for index in sorted(range(len(values)), key=lambda index: values[index]):
        placed[index] = max([values[index], *(height + gap for height in placed.values())])
    over = max([0.0, *(height - 1.0 for height in placed.values())])
    return [placed[index] - over for index in range(len(values))]


def gain_forest(data: ReportData) -> str:
    """The gain of each training seed with its interval over states, and their mean."""
    rows: list[tuple[str, Interval]] = [
        (seed_label(data, each.policy), each.gain) for each in data.sealed if each.gain is not None
    ]
    mean = data.gain()
    if len(rows) > 1 and mean is not None:
        rows.append(("mean", mean))
    figure, axes = _axes(5.2, 0.9 + 0.42 * len(rows))
    axes.axvline(0, color=SOFT, lw=1)
    claims = data.system.claims if data.system is not None else ()
    published = next((each.published for each in claims if each.metric == "gain"), None)
    if published is not None:
        axes.axvline(published, color=LINE, lw=1.2, ls=(0, (3, 3)))
        axes.text(published, -0.72, " published", fontsize=8.5, color=SOFT, va="center")
    for height, (label, found) in enumerate(rows):
        whole = label == "mean"
        colour = AFTER if whole or found.low > 0 else BEFORE if found.high < 0 else SOFT
        axes.plot([found.low, found.high], [height] * 2, color=colour, lw=2.6 if whole else 1.6, solid_capstyle="round")
        axes.plot(found.value, height, "D" if whole else "o", ms=8, color=colour, mec=PAPER, mew=1.2)
    axes.set_yticks(range(len(rows)), [label for label, _ in rows])
    axes.set(ylim=(len(rows) - 0.4, -1.1), xlabel="gain in success on sealed states, points")
    low, high = axes.get_xlim()
    axes.set_xlim(min(low, -0.05), max(high, (published or 0.0) + 0.03))
    _percent(axes.xaxis, signed=True)
    axes.grid(False)
    return _svg(figure, "Gain of each training seed")


def curve_panels(curves: Sequence[Curve]) -> tuple[tuple[str, str], ...]:
    """One small chart per panel: (title, SVG)."""
    panels: dict[str, list[Curve]] = {}
    for curve in curves:
        panels.setdefault(curve.panel, []).append(curve)
    return tuple((title, _panel(title, members)) for title, members in panels.items())


def rounds(data: ReportData, metrics: Sequence[tuple[str, str, str, str]]) -> str:
    """How a few numbers moved from round to round. `metrics`: (metric, arm, label, colour)."""
    figure, axes = _axes(5.2, 3.0)
    history = [*((each.round, each.figures) for each in data.earlier), (data.decision.round, figures(data))]
    for metric, arm, label, colour in metrics:
        points = [
            (index, found) for index, (_, numbers) in enumerate(history) for found in numbers
            if (found.metric, found.arm) == (metric, arm)
        ]
        if points:
            x, y = [index for index, _ in points], [found.value for _, found in points]
            for index, found in points:
                if found.low is not None:
                    axes.plot([index] * 2, [found.low, found.high], color=colour, lw=1.4)
            axes.plot(x, y, "-o", color=colour, ms=6, lw=1.6, mec=PAPER)
            axes.annotate(
                label, (x[-1], y[-1]), xytext=(8, 0), textcoords="offset points", color=colour, fontsize=9.5,
                va="center",
            )
    axes.set_xticks(range(len(history)), [name for name, _ in history])
    axes.set(ylim=(0, 1.02), xlim=(-0.3, len(history) - 0.4 + 0.35 * len(history)))
    _percent(axes.yaxis)
    return _svg(figure, "Numbers by round")


def _panel(title: str, curves: Sequence[Curve]) -> str:
    figure, axes = _axes(3.3, 2.1)
    for curve in curves:
        axes.plot(curve.x, curve.y, color=AFTER, lw=1.4, alpha=1.0 if len(curves) == 1 else 0.75)
    axes.xaxis.get_major_locator().set_params(integer=True, nbins=5)
    values = [value for curve in curves for value in curve.y]
    if values and min(values) >= 0.0 and max(values) <= 1.0 and "loss" not in title and "KL" not in title:
        axes.set_ylim(0, 1.02)
        _percent(axes.yaxis)
    elif values and min(values) >= 0:
        axes.set_ylim(bottom=0)
    return _svg(figure, title)


def _whole(control: Admission) -> Fidelity | None:
    """A control arm's row over all states, as the reward reads it."""
    wanted = (control.world_model, control.reward_model, "all")
    return next((row for row in control.fidelity if (row.arm, row.reader, row.subset) == wanted), None)


def _axes(width: float, height: float):
    """A figure without pyplot, so that nothing global is touched."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.add_subplot()
    figure.patch.set_alpha(0)
    axes.patch.set_alpha(0)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(LINE)
    axes.tick_params(colors=SOFT, labelsize=9.5, length=0, pad=5)
    axes.xaxis.label.set_color(SOFT)
    axes.yaxis.label.set_color(SOFT)
    axes.xaxis.label.set_size(10)
    axes.yaxis.label.set_size(10)
    axes.grid(color=LINE, lw=0.6)
    axes.set_axisbelow(True)
    return figure, axes


def _percent(*axis, signed: bool = False) -> None:
    for each in axis:
        each.set_major_formatter(lambda value, _: signed_points(value, 0) if signed else f"{value:.0%}")


def _svg(figure, title: str) -> str:
    """Inline SVG: no document header, no outside names, colours as the page's variables, text as text."""
    import matplotlib

    buffer = io.StringIO()
    # A fixed salt keeps the ids, and so the report's hash, the same from run to run.
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": title, "font.family": ["sans-serif"]}):
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r' xmlns(:\w+)?="[^"]*"', "", text)
    text = re.sub(r'<svg ([^>]*?)width="[^"]*"', r"<svg \1", text, count=1)
    text = re.sub(r'(<svg [^>]*?)height="[^"]*"', rf'\1role="img" aria-label="{title}"', text, count=1)
    # Ids are made unique per chart, since all charts stand in one document.
    prefix = re.sub(r"\W+", "-", title.lower())
    text = re.sub(r'id="([^"]+)"', rf'id="{prefix}-\1"', text)
    text = re.sub(r'(xlink:href="|url\()#', rf"\1#{prefix}-", text)
    text = re.sub(r"font(-family)?: [^;\"]*?(?=(;|\"))", _font, text)
    for stand_in, variable in PAINTS.items():
        text = text.replace(stand_in, variable)
    return text


def _font(match: re.Match) -> str:
    """Size and weight stay, the family is the page's."""
    size = re.search(r"[\d.]+px", match[0])
    weight = "bold " if "bold" in match[0] or re.search(r"\b700\b", match[0]) else ""
    return f"font: {weight}{size[0]} var(--sans)" if size else "font-family: var(--sans)"

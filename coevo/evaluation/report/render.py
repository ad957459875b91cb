"""From ReportData to one HTML page that opens without a network."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from coevo.evaluation.report import charts, pictures, sentences, trust
from coevo.evaluation.report.data import ReportData, figures, seed_label, tail
from coevo.evaluation.strips import Strip
from coevo.records.outcomes import Interval, StateFidelity

TEMPLATE = Path(__file__).with_suffix(".html.j2")
OUTCOMES = {
    "promote": "policy promoted", "keep": "old policy kept", "stop": "loop stops",
    "not_admitted": "world model not admitted",
}
FRAMES_OF = {
    "simulator": "simulator frames", "before": "before failure data", "parent": "start of this round",
    "after": "after fine-tuning",
}  # fmt: skip


@dataclass(frozen=True)
class Bar:
    """A number with its interval, and where they stand between 0 and 1."""

    label: str
    found: Interval
    unit: str
    tone: str
    signed: bool = False

    @property
    def text(self) -> str:
        """'24.0%' or '+23.8'."""
        return sentences.signed_points(self.found.value) if self.signed else f"{100 * self.found.value:.1f}%"

    @property
    def interval(self) -> str:
        """'18.1 to 30.2'."""
        ends = (self.found.low, self.found.high)
        return " to ".join(sentences.signed_points(end) if self.signed else f"{100 * end:.1f}" for end in ends)


def render(data: ReportData) -> str:
    """The whole page. It refers to nothing outside itself."""
    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters["percent"] = lambda found: "–" if found is None else f"{found.value:.1%}"
    environment.filters["range"] = lambda found: found and f"{100 * found.low:.0f}–{100 * found.high:.0f}" or ""
    environment.filters["points"] = lambda found: "–" if found is None else sentences.points(found)
    template = environment.from_string(TEMPLATE.read_text())
    lead = pictures.leading(data.strips)
    return template.render(
        data=data, title=sentences.title(data), findings=sentences.findings(data),
        outcome=OUTCOMES[data.decision.outcome], sections=headline(data), lead=lead and _lead(lead, data),
        strips=[_strip(strip, _arm_names(data)) for strip in data.strips],
        replay_strips=[
            _strip(strip, {"simulator": "Done again in the simulator", strip.rows[-1].arm: "The dream"})
            for strip in data.replay_strips
        ],
        plane=charts.fidelity_plane(data) if data.admission.fidelity else "",
        forest=charts.gain_forest(data) if data.gains() and data.trained else "",
        panels=charts.curve_panels(data.curves),
        by_round=charts.rounds(data, charts_by_round()) if data.earlier else "",
        trust=trust.verdict(data), slices=trust.slice_rows(data), remarks=trust.remarks(data),
        states=_state_rows(data), curves_by_decision=_horizon_charts(data),
        published=_published(data), fidelity=_fidelity_rows(data), seeds=_seed_rows(data), pixels=_pixel_rows(data),
    )


def charts_by_round() -> tuple[tuple[str, str, str, str], ...]:
    """What the chart over rounds follows."""
    return (
        ("policy_success", "trained policy", "policy success", charts.AFTER),
        ("fake_success", "after", "fake success", charts.BEFORE),
        ("recall", "after", "recall", charts.SIMULATOR),
    )


def headline(data: ReportData) -> list[tuple[str, list[Bar]]]:
    """The headline table, in groups: also printed by the command line."""
    fake, recall = [], []
    for label in data.arms.values():
        row = data.fidelity(label)
        name = FRAMES_OF.get(label, label)
        tone = label if label in ("simulator", "before", "after") else "other"
        if row is not None and row.fake_success is not None:
            fake.append(Bar(name, row.fake_success, "failures", tone))
        if row is not None and row.recall is not None:
            recall.append(Bar(name, row.recall, "successes", tone))
    policy = []
    unit = "training seeds" if data.over_seeds() else "states"
    if data.start_success() is not None:
        began = "before training" if data.rounds == 1 else "when the loop began"
        policy.append(Bar(began, data.start_success(), "states", "before"))
    if data.trained and data.success() is not None:
        policy.append(Bar("after training in the world model", data.success(), unit, "after"))
    gain = []
    if data.trained and data.gain() is not None:
        gain.append(Bar("after against before, paired by state", data.gain(), unit, "after", signed=True))
    mismatch = []
    if data.admission.mismatch is not None:
        mismatch.append(Bar("policy that enters training", data.admission.mismatch, "dreamed successes", "before"))
    if data.trained and data.mismatch() is not None:
        over = "training seeds" if data.over_seeds() else "dreamed successes"
        mismatch.append(Bar("trained policy", data.mismatch(), over, "after"))
    groups = [
        ("Fake success: failures read as successes", fake), ("Recall: successes read as such", recall),
        ("Policy success in the simulator, sealed states", policy), ("Gain, points", gain),
        ("Replay mismatch: dreamed successes that fail in the simulator", mismatch),
    ]
    return [(name, bars) for name, bars in groups if bars]


def _strip(strip: Strip, arms: dict[str, str]) -> dict:
    return dict(
        state=strip.state, success=strip.success, disagrees=strip.disagrees,
        rows=[
            dict(
                name=arms.get(row.arm, tail(row.arm)), source=pictures.film(row.frames), read=row.read_success,
                wrong=row.read_success != strip.success, real=row.arm == "simulator",
            )
            for row in strip.rows
        ],
    )


def _lead(strip: Strip, data: ReportData) -> dict:
    arms = _arm_names(data)
    films = pictures.moving([row.frames for row in strip.rows])
    return dict(
        success=strip.success,
        rows=[
            dict(
                name=arms.get(row.arm, tail(row.arm)), film=film, still=pictures.still(row.frames),
                read=row.read_success, wrong=row.read_success != strip.success,
            )
            for row, film in zip(strip.rows, films, strict=True)
        ],
    )


def _arm_names(data: ReportData) -> dict[str, str]:
    plain = {
        "simulator": "Simulator", "before": "Before failure data", "parent": "Start of this round",
        "after": "After fine-tuning",
    }  # fmt: skip
    return {arm: plain.get(label, label) for arm, label in data.arms.items()}


def _published(data: ReportData) -> list[tuple[str, str, str, str]]:
    """(quantity, theirs, their detail, ours)."""
    ours = {(figure.metric, figure.arm): figure for figure in figures(data)}
    rows = []
    for each in data.system.claims if data.system is not None else ():
        found = ours.get((each.metric, each.arm))
        skip = found is None or (each.arm == "trained policy" and not data.trained)
        theirs = "–" if each.published is None else f"{each.published:.3f}"
        rows.append((each.says, theirs, each.over, "–" if skip else f"{found.value:.3f}"))
    return rows


def _fidelity_rows(data: ReportData) -> list[dict]:
    names = _arm_names(data)
    rows = []
    for source, known in ((data.admission, names), *((control, {}) for control in data.controls)):
        for row in source.fidelity:
            if source is not data.admission and row.arm != source.world_model:
                continue
            rows.append(
                dict(
                    arm=known.get(row.arm, tail(row.arm)), reader=tail(row.reader),
                    fake=row.fake_success, recall=row.recall,
                    subset={"all": "all states", "mixed": "mixed outcomes", "same": "one outcome"}[row.subset],
                    first=row.subset == "all",
                )
            )
    return rows


def _state_rows(data: ReportData) -> list[StateFidelity]:
    """The states that are misread, worst first."""
    states = data.admission.breakdown.states if data.admission.breakdown else ()
    return [row for row in states if row.wrong][: trust.SHOWN_STATES]


def _horizon_charts(data: ReportData) -> list[tuple[str, str]]:
    """(title, SVG) of the curves over decisions."""
    titles = (("fake_success", "Failures read as success by then"), ("recall", "Successes so far, read as such"))
    return [(title, chart) for metric, title in titles if (chart := charts.horizon(data, metric, title))]


def _pixel_rows(data: ReportData) -> list[tuple[str, list[str]]]:
    names = _arm_names(data)
    columns = (("psnr_failures", 1), ("psnr_successes", 1), ("ssim_failures", 3), ("ssim_successes", 3))
    values = {(figure.arm, figure.metric): figure.value for figure in data.pixels}
    arms = dict.fromkeys(figure.arm for figure in data.pixels)

    def shown(arm: str, metric: str, digits: int) -> str:
        return f"{values[arm, metric]:.{digits}f}" if (arm, metric) in values else "–"

    return [(names.get(arm, tail(arm)), [shown(arm, *column) for column in columns]) for arm in arms]


def _seed_rows(data: ReportData) -> list[dict]:
    validation = {evaluation.policy: evaluation for evaluation in data.validation}
    replays = {record.policy: record for record in data.replays}
    return [
        dict(
            name=seed_label(data, each.policy), success=each.success, gain=each.gain,
            validation=validation[each.policy].gain if each.policy in validation else None,
            mismatch=replays[each.policy].mismatch if each.policy in replays else None,
            dreamed=replays[each.policy].dreamed_success if each.policy in replays else None,
        )
        for each in data.sealed
    ]

"""How far a world model's verdicts can be trusted: one line for whoever reads no further, and where they go wrong."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from coevo.evaluation.report.data import ReportData
from coevo.records.outcomes import Breakdown, Fidelity, FidelitySlice, Interval

SHOWN_STATES = 8
KIND_NAMES = {"none": "the policy by itself", "nominal": "the undisturbed expert", "near success": "near successes"}


@dataclass(frozen=True)
class Verdict:
    """The one line."""

    level: Literal["holds", "uncertain", "fails"]
    sentence: str


@dataclass(frozen=True)
class SliceRow:
    """One line of the table of forks and slices: the judged world model beside the simulator's frames."""

    label: str
    floor: Interval | None
    fake: Interval | None
    recall: Interval | None
    first: bool


def verdict(data: ReportData) -> Verdict:
    """What the numbers allow one to believe, at the unfavourable end of their intervals."""
    if not data.admission.admitted:
        return Verdict("fails", f"Do not train in this dream: {data.admission.reasons[0]}.")
    criterion = data.admission.criterion
    whole, mixed = data.fidelity("after"), data.fidelity("after", "mixed")
    if whole is None or mixed is None:
        return Verdict("uncertain", "Its verdicts were not held against the simulator.")
    limits = [
        ("fake success", whole.fake_success, criterion.fake_success_ceiling, False),
        ("fake success where the actions decide", mixed.fake_success, criterion.fake_success_mixed_ceiling, False),
        ("recall", whole.recall, criterion.recall_floor, True),
        ("the replay mismatch", data.admission.mismatch, criterion.mismatch_ceiling, False),
    ]
    doubts, said = [], []
    for name, found, limit, floor in limits:
        if found is None:
            doubts.append(f"{name} was not measured")
            continue
        end, bound = (found.low, "at least") if floor else (found.high, "at most")
        said.append(f"{name} {bound} {end:.0%}")
        if (end < limit) if floor else (end > limit):
            doubts.append(
                f"{name} may be as {'low' if floor else 'high'} as {end:.0%} (n={found.n}), its "
                f"{'floor' if floor else 'ceiling'} is {limit:.0%}"
            )
    if doubts:
        return Verdict("uncertain", f"Admitted on its estimates, not beyond doubt: {'; '.join(doubts)}.")
    return Verdict("holds", f"The criterion is met at the unfavourable end of every 90% interval: {', '.join(said)}.")


def slice_rows(data: ReportData) -> tuple[SliceRow, ...]:
    """Forks first, then kinds of fault, then what tells the causes apart."""
    labels = {"all": "all admission states", "mixed": "mixed-outcome states (forks)", "same": "one-outcome states"}
    rows: list[tuple[str, Fidelity | None, Fidelity | None]] = [
        (label, data.fidelity("simulator", subset), data.fidelity("after", subset)) for subset, label in labels.items()
    ]
    begin = {0}
    for name in ("kind", "recorded_history", "stable_truth", "seen_states"):
        judged = [row for row in _slices(data) if row.slice == name and row.arm == data.admission.world_model]
        if judged:
            begin.add(len(rows))
        for row in judged:
            rows.append((_label(row), _floor(data, row), row))
    return tuple(
        SliceRow(label, floor and floor.fake_success, row.fake_success, row.recall, index in begin)
        for index, (label, floor, row) in enumerate(rows)
        if row is not None and (row.fake_success or row.recall)
    )


def _floor(data: ReportData, row: FidelitySlice) -> Fidelity | None:
    """The same slice of the simulator's frames; they have no history to be put right."""
    if row.slice == "recorded_history":
        return data.fidelity("simulator", row.subset)
    same = (row.slice, row.kind, row.subset)
    floors = (other for other in _slices(data) if other.arm == "simulator")
    return next((other for other in floors if (other.slice, other.kind, other.subset) == same), None)


def remarks(data: ReportData) -> tuple[str, ...]:
    """Sentences on states, noise, truth and pairs, then what was not measured."""
    parts = data.admission.breakdown
    if parts is None:
        return ()
    writers = (_history, _threshold, _states, _noise, _truth, _pairs)
    return (*filter(None, (write(parts) for write in writers)), *parts.not_measured)


def _history(parts: Breakdown) -> str:
    rows = {row.subset: row for row in parts.slices if row.slice == "recorded_history"}
    if "all" not in rows or rows["all"].fake_success is None:
        return ""
    return (
        f"Behind recorded frames instead of its own, chunk by chunk, it fakes {rows['all'].fake_success.value:.0%} of "
        "failures: that much is error at the fork, what is beyond it is drift."
    )


def _threshold(parts: Breakdown) -> str:
    found = parts.threshold
    if found is None:
        return ""
    rows = {row.subset: row for row in found.fidelity}
    forks = f" ({rows['mixed'].fake_success.value:.0%} on forks)" if rows["mixed"].fake_success else ""
    return (
        "Whatever the threshold, the dream of a success reads higher than that of a failure in "
        f"{found.ranked_right.value:.0%} of all pairs. At {found.threshold:.3g}, where recall would just be "
        f"{rows['all'].recall.value:.0%}, it would fake {rows['all'].fake_success.value:.0%}{forks}."
    )


def _states(parts: Breakdown) -> str:
    if not parts.states or parts.states[0].wrong_before is None:
        return ""
    worse = sum(row.wrong > row.wrong_before for row in parts.states)
    better = sum(row.wrong < row.wrong_before for row in parts.states)
    return (
        f"Of {len(parts.states)} states {better} are misread less often than in the world model that this one came "
        f"from, and {worse} more often."
    )


def _noise(parts: Breakdown) -> str:
    if parts.noise is None:
        return ""
    noise = parts.noise
    fakes = [value for value in noise.fake_success if value is not None]
    between = f"; fake success lies between {min(fakes):.0%} and {max(fakes):.0%}" if fakes else ""
    mixed = f", {noise.flipped_mixed.value:.0%} on mixed-outcome states" if noise.flipped_mixed else ""
    return (
        f"Drawn {noise.draws} times with nothing but the noise changed, {noise.flipped.value:.0%} of episodes do not "
        f"get the same verdict each time{mixed}{between}. The simulator's never differ."
    )


def _truth(parts: Breakdown) -> str:
    if parts.truth is None:
        return ""
    truth = parts.truth
    return (
        f"A start {truth.pixels:g} pixel ({1000 * truth.metres:.1f} mm) away turns {truth.flipped.value:.0%} of "
        f"outcomes over ({truth.reruns} reruns each): {len(truth.unstable_states)} of {len(parts.states)} states have "
        "an outcome that their picture does not tell."
    )


def _pairs(parts: Breakdown) -> str:
    if parts.pairs_told_apart is None:
        return ""
    found = parts.pairs_told_apart
    return (
        f"Of {found.n} pairs from one start, a success and a failure by one fault, {found.value:.0%} are read as what "
        "they are."
    )


def _slices(data: ReportData) -> tuple[FidelitySlice, ...]:
    return data.admission.breakdown.slices if data.admission.breakdown else ()


def _label(row: FidelitySlice) -> str:
    where = "" if row.subset == "all" else ", forks" if row.subset == "mixed" else ", one outcome"
    match row.slice:
        case "kind":
            return KIND_NAMES.get(row.kind, row.kind.replace("_", " "))
        case "recorded_history":
            return f"behind recorded frames{where}"
        case "stable_truth":
            return f"without states of unstable truth{where}"
        case "seen_states":
            return f"states of training{where}"

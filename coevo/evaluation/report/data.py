"""What a report is made of, and the numbers that are read off it."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from coevo.evaluation.fidelity import agreement
from coevo.evaluation.intervals import seed_interval
from coevo.evaluation.strips import Strip
from coevo.records.outcomes import (
    Admission,
    Calibration,
    Decision,
    Evaluation,
    Fidelity,
    FidelitySlice,
    Figure,
    Interval,
    Mismatch,
    OtherThreshold,
)
from coevo.records.system import System

TRUTH_FLIPPED = "truth_flipped_within_a_pixel"
ENOUGH_SEEDS = 3
"""Training seeds from which a mean over them is shown: Student's interval of two spans most of the scale."""


@dataclass(frozen=True)
class Curve:
    """A line of one training panel."""

    panel: str
    label: str
    x: tuple[float, ...]
    y: tuple[float, ...]


@dataclass(frozen=True)
class Source:
    """An artifact that the report was made from."""

    role: str
    id: str
    stage: str
    seed: int
    sha256: str


@dataclass(frozen=True)
class EarlierRound:
    """The figures of a round before this one."""

    round: str
    outcome: str
    figures: tuple[Figure, ...]


@dataclass(frozen=True)
class ReportData:
    """Everything that the report shows. Policies are matched across records by their ids."""

    task: str
    instruction: str
    admission: Admission
    decision: Decision
    sealed: tuple[Evaluation, ...]
    """One per training seed, on states that decided nothing."""
    validation: tuple[Evaluation, ...] = ()
    replays: tuple[Mismatch, ...] = ()
    controls: tuple[Admission, ...] = ()
    """Admissions of control arms, for example a world model fine-tuned on successes only."""
    calibration: Calibration | None = None
    pixels: tuple[Figure, ...] = ()
    strips: tuple[Strip, ...] = ()
    replay_strips: tuple[Strip, ...] = ()
    curves: tuple[Curve, ...] = ()
    earlier: tuple[EarlierRound, ...] = ()
    sources: tuple[Source, ...] = ()
    seeds: dict[str, int] = field(default_factory=dict)
    """Training seed of each policy, by its id."""
    system: System | None = None
    """The published system that the loop follows, with the figures that it reports."""

    @property
    def trained(self) -> bool:
        """Whether a policy was trained in the world model at all."""
        return self.admission.admitted

    @property
    def rounds(self) -> int:
        """Rounds up to this one; the sealed gain is over the policy that the first of them began with."""
        return len(self.earlier) + 1

    @property
    def arms(self) -> dict[str, str]:
        """Arm id to what the report calls it, simulator first, the judged world model last."""
        ids = list(dict.fromkeys(row.arm for row in self.admission.fidelity))
        named = {id: tail(id) for id in ids}
        bases = [id for id in ids if id not in ("simulator", self.admission.world_model)]
        if "simulator" in named:
            named["simulator"] = "simulator"
        for base, label in zip(bases, ("before", "parent"), strict=False):
            named[base] = label
        if self.admission.world_model in named:
            named[self.admission.world_model] = "after"
        return named

    def fidelity(self, label: str, subset: str = "all", reader: str | None = None) -> Fidelity | None:
        """The row of an arm by its label ('simulator', 'before', 'after'), as the reward reads it."""
        for row in self.admission.fidelity:
            if (self.arms[row.arm], row.subset, row.reader) == (label, subset, reader or self.admission.reward_model):
                return row
        return None

    def gains(self) -> tuple[float, ...]:
        """Gain on sealed states of every training seed."""
        return tuple(evaluation.gain.value for evaluation in self.sealed if evaluation.gain is not None)

    def over_seeds(self) -> bool:
        """Whether headline numbers are means over training seeds; with too few, they are the first seed's own."""
        return len(self.gains()) >= ENOUGH_SEEDS

    def gain(self) -> Interval | None:
        """Mean gain over training seeds; with few seeds, the first one's own gain over states."""
        if self.over_seeds():
            return seed_interval(self.gains())
        return next((evaluation.gain for evaluation in self.sealed if evaluation.gain is not None), None)

    def success(self) -> Interval | None:
        """Mean success over training seeds; with few seeds, the first one's own over states."""
        if self.over_seeds():
            return seed_interval(tuple(evaluation.success.value for evaluation in self.sealed))
        return next((evaluation.success for evaluation in self.sealed), None)

    def start_success(self) -> Interval | None:
        """The start policy's success on the same states."""
        return next((e.start_success for e in self.sealed if e.start_success is not None), None)

    def mismatch(self) -> Interval | None:
        """Mean replay mismatch of the trained policies; with few, the first one's own over episodes."""
        found = tuple(record.mismatch for record in self.replays if record.mismatch is not None)
        if len(found) >= ENOUGH_SEEDS:
            return seed_interval(tuple(each.value for each in found))
        return next(iter(found), None)


def figures(data: ReportData) -> tuple[Figure, ...]:
    """Every number of the report as one list, for docs/results and for later reports."""
    found: list[tuple[str, str, Interval | None]] = []
    for label, rows in _rows_by_label(data):
        for row in rows:
            reader = "" if row.reader == data.admission.reward_model else "_by_referee"
            suffix = ("" if row.subset == "all" else f"_{row.subset}") + reader
            found += [(f"fake_success{suffix}", label, row.fake_success), (f"recall{suffix}", label, row.recall)]
    found += _by_slice(data) + [("mismatch", "parent policy", data.admission.mismatch)]
    found += [("policy_success", "start policy", data.start_success())]
    if data.trained:
        found += _trained(data)
    made = [Figure.of(each, metric, arm, data.task) for metric, arm, each in found if each is not None]
    if data.trained and len(data.gains()) > 1:
        spread = float(np.std(data.gains(), ddof=1))
        made.append(Figure(metric="gain_sd", arm="trained policy", task=data.task, value=spread, n=len(data.gains())))
    labels = data.arms
    made += _alignment(data)
    return (*made, *(each.model_copy(update=dict(arm=labels.get(each.arm, tail(each.arm)))) for each in data.pixels))


def _alignment(data: ReportData) -> list[Figure]:
    """Share of admission episodes whose reading agrees with the simulator, as World-VLA-Loop reports it: of the
    system's own reward, and of the referee, who sees the frames alone."""
    made = []
    for label, rows in _rows_by_label(data):
        for row in rows:
            if row.subset == "all" and (found := agreement(row)) is not None:
                metric = "reward_alignment" if row.reader == data.admission.reward_model else "visual_alignment"
                made.append(Figure(metric=metric, arm=label, task=data.task, value=found[0], n=found[1]))
    return made


def _by_slice(data: ReportData) -> list[tuple[str, str, Interval | None]]:
    """(metric, arm, number) of the parts of the admission's breakdown."""
    return [(metric, data.arms[arm], value) for metric, arm, value in of_breakdown(data.admission)]


def of_breakdown(admission: Admission) -> list[tuple[str, str, Interval | None]]:
    """(metric, arm, number) of the parts of an admission's breakdown, arms as the record names them."""
    parts, judged = admission.breakdown, admission.world_model
    if parts is None:
        return []
    found: list[tuple[str, str, Interval | None]] = [("pairs_told_apart", judged, parts.pairs_told_apart)]
    for row in parts.slices:
        name = figure_name(row)
        found += [(f"fake_success_{name}", row.arm, row.fake_success), (f"recall_{name}", row.arm, row.recall)]
    found += [(metric, judged, value) for metric, value in at_other_threshold(parts.threshold)]
    if parts.noise is not None:
        found.append(("verdicts_flipped_by_noise", judged, parts.noise.flipped))
    if parts.truth is not None:
        found.append((TRUTH_FLIPPED, "simulator", parts.truth.flipped))
    return found


def at_other_threshold(found: OtherThreshold | None) -> list[tuple[str, Interval | None]]:
    """Metrics of a reading at another threshold: 'ranked_right', 'fake_success_at_recall_95' and that of forks."""
    if found is None:
        return []
    rows = {row.subset: row.fake_success for row in found.fidelity}
    at = f"at_recall_{100 * found.recall:.0f}"
    return [
        ("ranked_right", found.ranked_right), (f"fake_success_{at}", rows["all"]),
        (f"fake_success_mixed_{at}", rows["mixed"]),
    ]


def figure_name(row: FidelitySlice) -> str:
    """What a slice's figures are called: 'weak_grip', 'recorded_history', 'recorded_history_mixed'."""
    part = row.kind.replace(" ", "_") if row.slice == "kind" else row.slice
    return part if row.subset == "all" else f"{part}_{row.subset}"


def _trained(data: ReportData) -> list[tuple[str, str, Interval | None]]:
    """(metric, arm, number) of the trained policies, together and one by one."""
    found = [
        ("mismatch", "trained policy", data.mismatch()), ("policy_success", "trained policy", data.success()),
        ("gain", "trained policy", data.gain()),
    ]
    for evaluation in data.sealed:
        label = seed_label(data, evaluation.policy)
        found += [("policy_success", label, evaluation.success), ("gain", label, evaluation.gain)]
    return found + [("mismatch", seed_label(data, record.policy), record.mismatch) for record in data.replays]


def seed_label(data: ReportData, policy: str) -> str:
    """'seed 3', or the policy's own name where its seed is not known."""
    return f"seed {data.seeds[policy]}" if policy in data.seeds else tail(policy)


def tail(id: str) -> str:
    """The last part of an artifact's id, for people: 'success only' of 'default/i001/world_model_success_only'."""
    name = id.rsplit("/", 1)[-1]
    return (name.removeprefix("world_model_") or name).replace("_", " ")


def _rows_by_label(data: ReportData) -> list[tuple[str, list[Fidelity]]]:
    """Fidelity rows of every arm, control arms last."""
    found = [(label, [row for row in data.admission.fidelity if row.arm == arm]) for arm, label in data.arms.items()]
    for control in data.controls:
        found.append((tail(control.world_model), [row for row in control.fidelity if row.arm == control.world_model]))
    return found

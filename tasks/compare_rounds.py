"""The report of a round: report.html for people, headline.json for the command line, figures.json for comparisons,
charts/ for `dvc plots`."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from pydantic import NonNegativeInt

from coevo.core import stage
from coevo.core.artifacts import Artifact
from coevo.core.stage import Result, Run
from coevo.evaluation import strips
from coevo.evaluation.intervals import seed_interval
from coevo.evaluation.report import charts
from coevo.evaluation.report.data import Curve, EarlierRound, ReportData, Source, figures
from coevo.evaluation.report.render import headline, render
from coevo.evaluation.report.sentences import findings, title
from coevo.records.base import Config, read_yaml
from coevo.records.interface import Interface
from coevo.records.outcomes import Admission, Calibration, Decision, Evaluation, Figure, Mismatch
from coevo.records.system import System
from coevo.rl.seeds import judge

PANELS = (
    ("World model loss", "world_model/loss"),
    ("Success in training episodes, as the reward reads it", "train_policy/success"),
    ("Success on validation states", "train_policy/validation_success"),
    ("Success dreamed on validation states", "train_policy/probe_dreamed_success"),
    ("Share of their replays that fail", "train_policy/probe_mismatch"),
    ("Share of frames that carry gradient", "train_policy/useful_frames"),
    ("KL to the policy that acted", "train_policy/kl"),
    ("Variance of returns that the critic explains", "train_policy/explained_variance"),
)
"""Charts of training, and the key of metrics.jsonl that each shows."""


@dataclass(frozen=True)
class Inputs:
    """Everything that the round made."""

    admission: Artifact = stage.artifact("admission", "admission of the round's world model")
    decision: Artifact = stage.artifact("decision", "what the round concluded")
    reward: Artifact = stage.artifact("reward_model", "frozen reward, with its calibration")
    world_model: Artifact = stage.artifact("world_model", "the round's world model")
    policies: tuple[Artifact, ...] = stage.artifact_list("policy", "trained policies, one per training seed")
    sealed: tuple[Artifact, ...] = stage.artifact_list("evaluation", "their evaluations on sealed states")
    validation: tuple[Artifact, ...] = stage.artifact_list("evaluation", "their evaluations on validation states")
    replays: tuple[Artifact, ...] = stage.artifact_list("replay", "their closed-loop replays")
    controls: tuple[Artifact, ...] = stage.artifact_list("admission", "admissions of control arms")
    earlier: tuple[Artifact, ...] = stage.artifact_list("report", "reports of earlier rounds, oldest first")
    system: Path | None = stage.config_file("system whose published figures stand beside ours", optional=True)


class Params(Config):
    """What the report shows."""

    strips: NonNegativeInt = 8
    """Film strips of recorded actions."""
    replay_strips: NonNegativeInt = 4
    """Film strips of dreamed successes done again."""


def compare_rounds(inputs: Inputs, params: Params, run: Run) -> Result:
    """Assemble, render, and write the files."""
    data = assemble(inputs, params)
    (run.folder / "report.html").write_text(render(data))
    numbers = [figure.model_dump(mode="json") for figure in (*figures(data), *_seed_figures(data))]
    (run.folder / "figures.json").write_text(json.dumps(numbers, indent=1) + "\n")
    summary = dict(
        round=data.decision.round, outcome=data.decision.outcome, reason=data.decision.reason, title=title(data),
        findings=findings(data),
        table=[
            dict(group=group, label=bar.label, unit=bar.unit, text=bar.text, **bar.found.model_dump())
            for group, bars in headline(data)
            for bar in bars
        ],
    )
    (run.folder / "headline.json").write_text(json.dumps(summary, indent=1, ensure_ascii=False) + "\n")
    (run.folder / "charts").mkdir()
    for name, chart in drawn(data).items():
        (run.folder / "charts" / f"{name}.svg").write_text(chart)
    return Result("report", metrics=_metrics(data))


def drawn(data: ReportData) -> dict[str, str]:
    """The report's charts as files of their own, by name: SVG, which `dvc plots show` draws without asking outside."""
    found = dict(charts.curve_panels(data.curves))
    if data.admission.fidelity:
        found["fidelity"] = charts.fidelity_plane(data)
    if data.gains() and data.trained:
        found["gains"] = charts.gain_forest(data)
    return {re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_"): chart for name, chart in found.items()}


def _seed_figures(data: ReportData) -> tuple[Figure, ...]:
    """What the training seeds came to together on sealed states, where several were trained."""
    criterion = data.admission.criterion.seeds
    if criterion is None or not data.trained or len(data.gains()) < 2:
        return ()
    mean = seed_interval(data.gains())
    return judge(data.sealed, criterion, data.admission.criterion_sha256, mean).figures("over seeds", data.task)


def assemble(inputs: Inputs, params: Params) -> ReportData:
    """ReportData from the artifacts."""
    interface = Interface.model_validate_json((inputs.world_model.path / "interface.json").read_bytes())
    replay_strips = [strip for each in inputs.replays for strip in strips.read(each.path)]
    return ReportData(
        task=interface.task, instruction=interface.instruction,
        admission=_record(inputs.admission, "admission.json", Admission),
        decision=_record(inputs.decision, "decision.json", Decision),
        sealed=tuple(_record(each, "evaluation.json", Evaluation) for each in inputs.sealed),
        validation=tuple(_record(each, "evaluation.json", Evaluation) for each in inputs.validation),
        replays=tuple(_record(each, "replay.json", Mismatch) for each in inputs.replays),
        controls=tuple(_record(each, "admission.json", Admission) for each in inputs.controls),
        calibration=_record(inputs.reward, "calibration.json", Calibration),
        pixels=_pixels((inputs.admission, *inputs.controls)),
        strips=tuple(strips.read(inputs.admission.path)[: params.strips]),
        replay_strips=tuple(sorted(replay_strips, key=lambda strip: strip.success)[: params.replay_strips]),
        curves=(*curves((inputs.world_model,)), *curves(inputs.policies)),
        earlier=tuple(_earlier(each) for each in inputs.earlier), sources=_sources(inputs),
        seeds={policy.id: policy.manifest.seed for policy in inputs.policies},
        system=None if inputs.system is None else System.parse(read_yaml(inputs.system), str(inputs.system)),
    )


def curves(trained: Sequence[Artifact]) -> tuple[Curve, ...]:
    """The lines of metrics.jsonl that a panel shows, panel by panel, one line per artifact."""
    found = []
    for panel, key in PANELS:
        for artifact in trained:
            lines = enumerate(_log(artifact))
            points = [(_when(line, row), line[key]) for row, line in lines if line.get(key) is not None]
            if points:
                x, y = zip(*points, strict=True)
                found.append(Curve(panel, f"seed {artifact.manifest.seed}", x, y))
    return tuple(found)


def _log(artifact: Artifact) -> list[dict]:
    file = artifact.path / "metrics.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.is_file() else []


def _when(line: dict, row: int) -> float:
    return float(line.get("step", line.get("update", row)))


def _record(artifact: Artifact, file: str, kind):
    return kind.model_validate_json((artifact.path / file).read_bytes())


def _pixels(admissions: Sequence[Artifact]) -> tuple[Figure, ...]:
    rows = []
    for admission in admissions:
        file = admission.path / "pixels.json"
        if file.is_file():  # absent where an interface fault kept anything from being measured
            rows += [Figure.model_validate(row) for row in json.loads(file.read_text())]
    return tuple({(row.arm, row.metric): row for row in reversed(rows)}.values())[::-1]


def _earlier(report: Artifact) -> EarlierRound:
    summary = json.loads((report.path / "headline.json").read_text())
    numbers = json.loads((report.path / "figures.json").read_text())
    return EarlierRound(summary["round"], summary["outcome"], tuple(Figure.model_validate(row) for row in numbers))


def _sources(inputs: Inputs) -> tuple[Source, ...]:
    listed = []
    for field in fields(inputs):
        value = getattr(inputs, field.name)
        given = value if isinstance(value, tuple) else (value,)
        for artifact in (each for each in given if isinstance(each, Artifact)):
            made, role = artifact.manifest, field.name.replace("_", " ")
            listed.append(Source(role, made.id, made.stage, made.seed, made.sha256))
    return tuple(listed)


def _metrics(data: ReportData) -> dict:
    wanted = {
        ("fake_success", "before"): "fake_success_before", ("fake_success", "after"): "fake_success_after",
        ("recall", "after"): "recall_after", ("policy_success", "start policy"): "success_before",
        ("policy_success", "trained policy"): "success_after", ("gain", "trained policy"): "gain",
        ("mismatch", "trained policy"): "mismatch",
    }
    values = {(figure.metric, figure.arm): figure.value for figure in figures(data)}
    return {"outcome": data.decision.outcome} | {name: values[key] for key, name in wanted.items() if key in values}


if __name__ == "__main__":
    stage.main(compare_rounds)

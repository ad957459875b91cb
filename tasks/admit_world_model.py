"""Whether a policy may be trained in a world model: its verdicts on the same actions against the simulator's.

Refused, the stage still succeeds: the gate's answer is admission.json, and `train_policy` reads it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt
from torch import Tensor

from coevo import judges
from coevo.core import artifacts, stage
from coevo.core.artifacts import Artifact
from coevo.core.device import best_device
from coevo.core.judging import judge
from coevo.core.protocols import Environment, Judge
from coevo.core.stage import Result, Run
from coevo.core.states import read_states
from coevo.core.types import InitialState
from coevo.episodes.store import read_episodes
from coevo.evaluation import strips
from coevo.evaluation.evaluate import repeated
from coevo.evaluation.fidelity import faults, fidelity, pixel_figures
from coevo.evaluation.interface_check import interface_faults
from coevo.evaluation.judged import SIMULATOR, Judged, open_loop, read_at
from coevo.evaluation.recorded import Recorded
from coevo.evaluation.replay import Replay, replay
from coevo.evaluation.truth import metres_per_pixel, shifted_starts, truth_stability
from coevo.policies import build as policies
from coevo.records.base import Config, read_yaml
from coevo.records.interface import Interface, require_same
from coevo.records.outcomes import Admission, Breakdown, Criterion, Fidelity
from coevo.rollout import rollout
from coevo.simulators import build as simulators
from coevo.simulators.perturbations import FAMILIES
from coevo.workers.simulation import ParallelSimulator
from coevo.worlds import build as worlds


@dataclass(frozen=True)
class Inputs:
    """What is judged, by whom, on what, against which criterion."""

    world_model: Artifact = stage.artifact("world_model", "world model to admit or refuse")
    reward: Artifact = stage.artifact("reward_model", "frozen reward that reads simulator and dream")
    episodes: Artifact = stage.artifact("episodes", "simulator rollouts on admission states, to be driven again")
    policy: Artifact = stage.artifact("policy", "policy that would enter training")
    states: Artifact = stage.artifact("initial_states", "admission states, where that policy dreams and is replayed")
    simulator: Path = stage.config_file("simulator where the dreamed successes are done again")
    criterion: Path = stage.config_file("criterion, fixed before the data is seen")
    base_world_models: tuple[Artifact, ...] = stage.artifact_list("world_model", "shown beside it, 'before' first")
    referee: Artifact | None = stage.artifact("reward_model", "second reader, the same for all rounds", optional=True)
    counterfactuals: Artifact | None = stage.artifact("episodes", "pairs on admission states, by family", optional=True)
    seen_episodes: Artifact | None = stage.artifact("episodes", "rollouts on states of training", optional=True)


class Params(Config):
    """How much is measured."""

    repeats: PositiveInt = 1
    """Dreams per admission state for the replay mismatch."""
    strips: NonNegativeInt = 8
    """Film strips kept for the report."""
    pixel_episodes: NonNegativeInt = 48
    """Episodes over which PSNR and SSIM are averaged (they decide nothing)."""
    workers: NonNegativeInt = 0
    """Simulator processes; 0 simulates in this one."""
    kinds: tuple[str, ...] = tuple(FAMILIES)
    """Kinds of perturbation that should be among the episodes; the record says which are not."""
    recorded_history: bool = False
    """Draw every chunk behind the recorded frames as well, to tell fork error from drift: one more drawing."""
    reseeds: NonNegativeInt = 0
    """Further drawings of the same actions with other noise."""
    shifts: NonNegativeInt = 0
    """Reruns of every episode in the simulator from starts shifted by less than a pixel."""
    shift_pixels: PositiveFloat = 0.25
    """How far they are shifted, pixels at the camera's centre."""
    recall: Annotated[float, Field(gt=0, le=1)] | None = None
    """At which fake success is given as well, whatever the threshold; the criterion's floor when left out."""
    seen: PositiveInt = 256
    """Episodes read of those on states of training."""


def admit_world_model(inputs: Inputs, params: Params, run: Run) -> Result:
    """Check the interface, measure fidelity and mismatch, hold them against the criterion, write admission.json."""
    criterion = Criterion.parse(read_yaml(inputs.criterion), str(inputs.criterion))
    dream = worlds.dream(inputs.world_model, best_device())
    reward = judges.load(inputs.reward, best_device())
    judges.require_own(reward, inputs.world_model)
    states, interface = read_states(inputs.states)
    for artifact, part in ((inputs.world_model, dream), (inputs.reward, reward)):
        require_same(part.interface, artifact.id, interface, inputs.states.id)
    config = simulators.read_config(read_yaml(inputs.simulator), str(inputs.simulator))
    recorded = recorded_episodes(inputs.episodes, interface)
    reruns = _reruns(config, params, run, recorded)
    with ParallelSimulator(config, params.workers) as simulator:
        require_same(interface, inputs.states.id, simulator.interface, str(inputs.simulator))
        reasons = interface_faults(simulator, dream, states[0])
        rows: tuple[Fidelity, ...] = ()
        replayed = breakdown = None
        if not reasons:
            replayed = _replay(inputs, params, run, dream, reward, simulator, states)
            rows, judged = _judged(inputs, params, run, dream, reward, recorded, interface)
            recall = params.recall or criterion.recall_floor
            breakdown = _breakdown(inputs, params, run, judged, simulator, reruns, recall)
            mismatch = replayed.record.mismatch
            reasons = faults(_of(rows, inputs.world_model.id, inputs.reward.id), mismatch, criterion)
    admission = Admission(
        admitted=not reasons, reasons=reasons, criterion=criterion,
        criterion_sha256=artifacts.file_sha256(inputs.criterion), fidelity=rows,
        mismatch=replayed.record.mismatch if replayed else None,
        world_model=inputs.world_model.id, reward_model=inputs.reward.id, breakdown=breakdown,
    )
    (run.folder / "admission.json").write_text(admission.model_dump_json(indent=1) + "\n")
    _write(run.folder / "fidelity.json", rows)
    return Result("admission", metrics=_metrics(admission, inputs))


def _replay(inputs, params, run, dream, reward, simulator, states) -> Replay:
    """Mismatch of the policy that would enter training, in the world model under judgement."""
    policy = policies.load(inputs.policy, best_device())
    stream = (run.seed, "admission")
    run.progress("closed-loop replay", 0, 1)
    dreamed = rollout(dream, policy, repeated(states, params.repeats), stream=stream, source="dream")
    done = replay(dreamed, judge(reward, dreamed.seen), simulator, world_model=inputs.world_model.id, stream=stream)
    run.progress("closed-loop replay", 1, 1)
    return done


def _judged(
    inputs: Inputs, params: Params, run: Run, dream: Environment, reward: Judge, recorded: Recorded, interface
) -> tuple[tuple[Fidelity, ...], Judged]:
    """Verdicts of every reader on every arm's frames; film strips and pixel metrics on the way."""
    drawn = {SIMULATOR: recorded.seen}
    for base in inputs.base_world_models:
        before = worlds.dream(base, best_device())
        require_same(before.interface, base.id, interface, inputs.episodes.id)
        drawn[base.id] = open_loop(before, recorded, recorded.keys(run.seed), progress=_draws(run, base.id))
    arm = inputs.world_model.id
    drawn[arm] = open_loop(dream, recorded, recorded.keys(run.seed), progress=_draws(run, arm))
    readers: dict[str, Judge] = {inputs.reward.id: reward}
    if inputs.referee is not None:
        readers[inputs.referee.id] = judges.load(inputs.referee, best_device())
        require_same(readers[inputs.referee.id].interface, inputs.referee.id, interface, inputs.episodes.id)
    # What a head said while it drew counts for the reward that was calibrated for it, and in its own arm.
    own = (inputs.reward.id, arm)
    verdicts = {
        reader: {
            name: judge(model, seen if (reader, name) == own else replace(seen, probability=None))
            for name, seen in drawn.items()
        }
        for reader, model in readers.items()
    }
    rows = tuple(
        row
        for reader, by_arm in verdicts.items()
        for name, found in by_arm.items()
        for row in fidelity(
            found.success.cpu().numpy(), recorded.truth, recorded.states, arm=name, reader=reader, stream=(run.seed,)
        )
    )
    judged = Judged(
        arm, inputs.reward.id, dream, reward, recorded, interface, verdicts[inputs.reward.id], run.seed
    )  # fmt: skip
    _keep_pictures(run, params, {name: seen.frames for name, seen in drawn.items()}, judged)
    return rows, judged


def _keep_pictures(run: Run, params: Params, drawn: Mapping[str, Tensor], judged: Judged) -> None:
    """Film strips and pixel metrics."""
    recorded = judged.recorded
    films = {arm: frames.numpy() for arm, frames in drawn.items()}
    read = {arm: judged.read(arm) for arm in films}
    # An error lasts from where success is read, or was reached, to the end, or to where the other follows.
    lasted = np.abs(read_at(judged.verdicts[judged.arm]) - recorded.first_success)
    strips.write(run.folder, strips.choose(recorded.states, recorded.truth, films, read, params.strips, lasted))
    few = slice(0, params.pixel_episodes)
    real = films.pop(SIMULATOR)
    _write(
        run.folder / "pixels.json",
        [
            figure
            for arm, frames in films.items()
            for figure in pixel_figures(
                real[few], frames[few], recorded.truth[few], arm=arm, task=judged.interface.task
            )
        ],
    )


def _breakdown(inputs: Inputs, params: Params, run: Run, judged: Judged, simulator, reruns, recall) -> Breakdown:
    """Where the fidelity comes from, and a sentence for each part that was not measured."""
    recorded, missing = judged.recorded, []
    parts: dict = dict(horizon=judged.horizon(), states=judged.states(), threshold=judged.threshold(recall))
    slices = list(judged.kinds())
    if inputs.counterfactuals is not None:
        found, parts["pairs_told_apart"] = judged.counterfactuals(
            recorded_episodes(inputs.counterfactuals, judged.interface), _draws(run, "counterfactuals")
        )
        slices += found
    kinds = {row.kind for row in slices}
    if absent := [kind for kind in params.kinds if kind not in kinds]:
        missing.append(f"No episode of {', '.join(absent)}: what the world model does with such faults is not known.")
    if inputs.seen_episodes is not None:
        seen = recorded_episodes(inputs.seen_episodes, judged.interface, params.seen)
        slices += judged.seen(seen, _draws(run, "seen states"))
    else:
        missing.append("No episodes from states of training: fidelity on seen states was not measured.")
    if params.recorded_history:
        slices += judged.recorded_history(_draws(run, "recorded history"))
    else:
        missing.append("Fork error was not told from drift: 'recorded_history' is off.")
    if params.reseeds:
        parts["noise"] = judged.noise(params.reseeds, _draws(run, "other noise"))
    else:
        missing.append("The spread of verdicts under other noise was not measured: 'reseeds' is 0.")
    if reruns:
        truth = truth_stability(
            recorded, simulator, reruns, pixels=params.shift_pixels,
            metres=params.shift_pixels * metres_per_pixel(judged.interface.camera), stream=(run.seed,),
            progress=lambda done, total: run.progress("shifted starts", done, total),
        )
        parts["truth"] = truth
        slices += judged.stable(truth.unstable_states)
    else:
        missing.append("States whose truth turns over within a pixel were not looked for: 'shifts' is 0.")
    return Breakdown(slices=tuple(slices), not_measured=tuple(missing), **parts)


def _reruns(config, params: Params, run: Run, recorded: Recorded) -> list[tuple[InitialState, ...]]:
    """Shifted starts, one list per rerun. Before any worker begins: a process may hold one renderer at a time."""
    if not params.shifts:
        return []
    metres = params.shift_pixels * metres_per_pixel(config.interface.camera)
    simulator = simulators.build(config)
    shifted = getattr(simulator, "shifted", None)
    try:
        if shifted is None:
            raise ValueError(f"{type(simulator).__name__} has no method 'shifted'; write one, or set 'shifts' to 0")
        return [
            shifted_starts(recorded.starts, shifted, metres, rerun, (run.seed,))
            for rerun in range(params.shifts)
        ]
    finally:
        simulator.close()


def recorded_episodes(artifact: Artifact, interface: Interface, at_most: int | None = None) -> Recorded:
    """The episodes of an artifact, the first `at_most` of them, with the simulator's truth."""
    found = read_episodes(artifact.path)
    require_same(found.interface, artifact.id, interface, "the admission states")
    rows = found.rows[:at_most]
    arrays = found.arrays(range(len(rows)))
    arrays.require_truth(artifact.id)
    return Recorded(
        starts=tuple(found.episode(index).start for index in range(len(rows))), actions=arrays.actions,
        frames=arrays.frames, success=arrays.success, length=arrays.length,
        names=tuple(f"{row.state}#{row.sample}#{row.policy}#{row.perturbation}" for row in rows),
        perturbation=arrays.perturbation, near=np.array([outcome == "near" for outcome in arrays.outcome]),
        pair=arrays.pair, success_from=interface.success_from,
    )


def _draws(run: Run, what: str):
    return lambda done, total: run.progress(f"draw with {what}", done, total)


def _of(rows: tuple[Fidelity, ...], arm: str, reader: str) -> list[Fidelity]:
    return [row for row in rows if row.arm == arm and row.reader == reader]


def _write(file: Path, records) -> None:
    file.write_text(json.dumps([record.model_dump(mode="json") for record in records], indent=1) + "\n")


def _metrics(admission: Admission, inputs: Inputs) -> dict:
    """Headline numbers for the manifest."""
    metrics: dict = {"admitted": admission.admitted}
    arms = [("", admission.world_model), *(("before_", base.id) for base in inputs.base_world_models[:1])]
    for prefix, arm in arms:
        for row in _of(admission.fidelity, arm, admission.reward_model):
            suffix = "" if row.subset == "all" else f"_{row.subset}"
            for name, found in (("fake_success", row.fake_success), ("recall", row.recall)):
                metrics[f"{prefix}{name}{suffix}"] = found and found.value
    metrics["mismatch"] = admission.mismatch and admission.mismatch.value
    return metrics


if __name__ == "__main__":
    stage.main(admit_world_model)

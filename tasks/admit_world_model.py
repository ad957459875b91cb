"""Whether a policy may be trained in a world model: its verdicts on the same actions against the simulator's.

Refused, the stage still succeeds: the gate's answer is admission.json, and `train_policy` reads it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from pydantic import NonNegativeInt, PositiveInt
from torch import Tensor

from coevo.core import artifacts, random, stage
from coevo.core.artifacts import Artifact
from coevo.core.device import best_device
from coevo.core.protocols import RewardModel
from coevo.core.stage import Result, Run
from coevo.core.states import read_states
from coevo.episodes.arrays import EpisodeArrays
from coevo.episodes.store import EpisodeSet, read_episodes
from coevo.evaluation import strips
from coevo.evaluation.drive import drive, hold_last, reached
from coevo.evaluation.evaluate import repeated
from coevo.evaluation.fidelity import faults, fidelity, pixel_figures
from coevo.evaluation.interface_check import interface_faults
from coevo.evaluation.replay import Replay, replay
from coevo.policies import build as policies
from coevo.records.base import Config, read_yaml
from coevo.records.interface import require_same
from coevo.records.outcomes import Admission, Criterion, Fidelity
from coevo.rewards import build as rewards
from coevo.rollout import rollout
from coevo.simulators import build as simulators
from coevo.workers.simulation import ParallelSimulator
from coevo.worlds import build as worlds
from coevo.worlds.dream import Dream

SIMULATOR = "simulator"


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


def admit_world_model(inputs: Inputs, params: Params, run: Run) -> Result:
    """Check the interface, measure fidelity and mismatch, hold them against the criterion, write admission.json."""
    criterion = Criterion.parse(read_yaml(inputs.criterion), str(inputs.criterion))
    dream = Dream(worlds.load(inputs.world_model, best_device()))
    reward = rewards.load(inputs.reward, best_device())
    states, interface = read_states(inputs.states)
    recorded = read_episodes(inputs.episodes.path)
    for artifact, part in ((inputs.world_model, dream), (inputs.reward, reward), (inputs.episodes, recorded)):
        require_same(part.interface, artifact.id, interface, inputs.states.id)
    config = simulators.read_config(read_yaml(inputs.simulator), str(inputs.simulator))
    with ParallelSimulator(config, params.workers) as simulator:
        require_same(interface, inputs.states.id, simulator.interface, str(inputs.simulator))
        reasons = interface_faults(simulator, dream, states[0])
        rows: tuple[Fidelity, ...] = ()
        replayed = None
        if not reasons:
            replayed = _replay(inputs, params, run, dream, reward, simulator, states)
            rows = _fidelity(inputs, params, run, dream, reward, recorded)
            mismatch = replayed.record.mismatch
            reasons = faults(_of(rows, inputs.world_model.id, inputs.reward.id), mismatch, criterion)
    admission = Admission(
        admitted=not reasons, reasons=reasons, criterion=criterion,
        criterion_sha256=artifacts.file_sha256(inputs.criterion), fidelity=rows,
        mismatch=replayed.record.mismatch if replayed else None,
        world_model=inputs.world_model.id, reward_model=inputs.reward.id,
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
    verdicts = reward.verdicts(dreamed.frames, [start.instruction for start in dreamed.starts])
    done = replay(dreamed, verdicts, simulator, world_model=inputs.world_model.id, stream=stream)
    run.progress("closed-loop replay", 1, 1)
    return done


def _fidelity(inputs, params, run, dream, reward, recorded: EpisodeSet) -> tuple[Fidelity, ...]:
    """Verdicts of every reader on every arm's frames; film strips and pixel metrics on the way."""
    arrays = recorded.arrays()
    arrays.require_truth(inputs.episodes.id)
    truth = reached(arrays.success, recorded.interface.success_from)
    drawn = {SIMULATOR: arrays.frames}
    for base in inputs.base_world_models:
        before = Dream(worlds.load(base, best_device()))
        require_same(before.interface, base.id, recorded.interface, inputs.episodes.id)
        drawn[base.id] = _open_loop(before, recorded, arrays, run, base.id)
    drawn[inputs.world_model.id] = _open_loop(dream, recorded, arrays, run, inputs.world_model.id)
    readers: dict[str, RewardModel] = {inputs.reward.id: reward}
    if inputs.referee is not None:
        readers[inputs.referee.id] = rewards.load(inputs.referee, best_device())
        require_same(readers[inputs.referee.id].interface, inputs.referee.id, recorded.interface, inputs.episodes.id)
    rows: list[Fidelity] = []
    read = {}
    for reader, model in readers.items():
        for arm, frames in drawn.items():
            success = model.verdicts(frames, arrays.instructions).success.cpu()
            read.setdefault(arm, success.numpy())  # the reward's own reading, not the referee's
            rows += fidelity(success, truth, arrays.states, arm=arm, reader=reader, stream=(run.seed,))
    films = {arm: frames.numpy() for arm, frames in drawn.items()}
    strips.write(run.folder, strips.choose(arrays.states, truth.numpy(), films, read, params.strips))
    few = slice(0, params.pixel_episodes)
    _write(
        run.folder / "pixels.json",
        [
            figure
            for arm, frames in films.items()
            if arm != SIMULATOR
            for figure in pixel_figures(
                films[SIMULATOR][few], frames[few], truth.numpy()[few], arm=arm, task=recorded.interface.task
            )
        ],
    )
    return tuple(rows)


def _open_loop(dream: Dream, recorded: EpisodeSet, arrays: EpisodeArrays, run: Run, arm: str) -> Tensor:
    """Frames that a world model draws under the recorded actions, noise keyed by episode."""
    starts = [recorded.episode(index).start for index in range(len(recorded))]
    names = [f"{row.state}#{row.sample}#{row.policy}#{row.perturbation}" for row in recorded.rows]
    keys = random.row_keys(run.seed, "open loop", rows=names)
    driven = drive(
        dream, starts, arrays.actions, keys, progress=lambda done, total: run.progress(f"draw with {arm}", done, total)
    )
    return hold_last(driven.frames, arrays.length)


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

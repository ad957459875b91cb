"""The stages of evaluation, with toys in place of the artifacts' contents."""

import contextlib
import json
from types import SimpleNamespace

import pytest
import torch

from coevo.core import artifacts
from coevo.core.stage import Run, run_stage
from coevo.core.states import write_states
from coevo.core.types import Episode
from coevo.episodes.store import write_episodes
from coevo.evaluation import strips
from coevo.records.outcomes import Admission, Decision, Evaluation, Mismatch
from coevo.rollout import rollout
from tasks import admit_world_model as admit
from tasks import decide_round as decide
from tasks import evaluate_policy as evaluate
from tasks import replay_dreams as dreams
from tests.doubles import TOY, ToyDream, ToyPolicy, ToyReward, ToySimulator, toy_state

STATES = [toy_state(column) for column in range(6)]
CRITERION = "recall_floor: 0.8\nfake_success_ceiling: 0.3\nfake_success_mixed_ceiling: 0.3\nmismatch_ceiling: 0.4\n"


def publish(out, kind, write=lambda folder: None, parents=None, states=(), metrics=None):
    with artifacts.writing(out) as folder:
        (folder / "content").write_text(out.name)
        write(folder)
        return artifacts.publish(
            folder,
            out,
            kind=kind,
            id=f"toy/{out.name}",
            stage="tests",
            parents=parents or {},
            config={},
            seed=0,
            source_sha256="",
            metrics=metrics or {},
            states=states,
        )


def recorded_episodes(folder, perturbation="none", pair=False):
    """Two episodes per state: at full speed, and at half of it (4 columns), so columns 2-5 are mixed but none above."""
    simulator, episodes = ToySimulator(), []
    for state in STATES:
        for sample, speed in enumerate((1.0, 0.5)):
            actions = torch.tensor(TOY.action.null).repeat(1, TOY.horizon, 1)
            actions[:, :, 0] = speed
            first = simulator.reset([state], torch.zeros(1, dtype=torch.int64))
            steps = [simulator.step(actions[:, at : at + TOY.chunk]) for at in (0, 4)]
            episodes.append(
                Episode(
                    actions=actions[0],
                    frames=torch.cat([first.frames[0], *(step.frames[0] for step in steps)]),
                    proprio=torch.cat([first.proprio[0], *(step.proprio[0] for step in steps)]),
                    success=torch.cat([step.truth.success[0] for step in steps]),
                    progress=torch.cat([step.truth.progress[0] for step in steps]),
                    probability=None,
                    start=state,
                    sample=sample,
                    policy="toy/policy",
                    source="simulator",
                    perturbation=perturbation if speed < 1.0 or not pair else "nominal",
                    pair=state.id if pair else "",
                )
            )
    write_episodes(folder, episodes, TOY)


@pytest.fixture
def toys(tmp_path, monkeypatch):
    """Artifacts whose content is a toy of the same name; `toys.made[name]` says which."""
    monkeypatch.chdir(tmp_path)
    made = {
        "policy": ToyPolicy(1.0, id="toy/policy"),
        "start": ToyPolicy(0.75, id="toy/start"),
        "reward": ToyReward(),
        "base": ToyDream(fakes="all"),
        "world": ToyDream(),
    }
    pick = lambda artifact, device: made[artifact.path.name]  # noqa: E731
    for module in (evaluate, admit, dreams):
        monkeypatch.setattr(module, "ParallelSimulator", lambda config, workers: contextlib.nullcontext(ToySimulator()))
        monkeypatch.setattr(module.simulators, "read_config", lambda values, where: None)
        monkeypatch.setattr(module.policies, "load", pick)
    for module in (admit, dreams):
        monkeypatch.setattr(module.worlds, "dream", pick)
        monkeypatch.setattr(module.judges, "load", pick)
    (tmp_path / "toy.yaml").write_text("kind: toy\n")
    (tmp_path / "criterion.yaml").write_text(CRITERION)
    write = lambda folder: write_states(folder, STATES, TOY)  # noqa: E731
    return SimpleNamespace(
        made=made,
        path=tmp_path,
        simulator=tmp_path / "toy.yaml",
        criterion=tmp_path / "criterion.yaml",
        states=publish(tmp_path / "states", "initial_states", write, states=[s.id for s in STATES]),
        episodes=publish(tmp_path / "episodes", "episodes", recorded_episodes),
        policy=publish(tmp_path / "policy", "policy"),
        start=publish(tmp_path / "start", "policy"),
        world=publish(tmp_path / "world", "world_model"),
        base=publish(tmp_path / "base", "world_model"),
        reward=publish(tmp_path / "reward", "reward_model"),
    )


def run(function, inputs, params, out):
    parents = {name: value for name, value in vars(inputs).items() if isinstance(value, artifacts.Artifact)}
    return run_stage(function, inputs, params, out, seed=0, parents=parents)


def evaluation_of(toys, role="validation", **more):
    inputs = evaluate.Inputs(toys.policy, toys.states, toys.simulator, start_policy=toys.start)
    return run(evaluate.evaluate_policy, inputs, evaluate.Params(role=role, batch=4, **more), toys.path / role)


def test_evaluation_holds_both_policies_and_the_paired_gain(toys):
    made = evaluation_of(toys)
    found = Evaluation.model_validate_json((made.path / "evaluation.json").read_bytes())
    assert found.success.value == pytest.approx(4 / 6) and found.start_success.value == pytest.approx(2 / 6)
    assert found.gain.n == 6 and made.manifest.metrics["gain"] == pytest.approx(2 / 6)


def test_an_earlier_evaluation_of_the_start_policy_gives_the_same_numbers(toys):
    start = run(
        evaluate.evaluate_policy,
        evaluate.Inputs(toys.start, toys.states, toys.simulator),
        evaluate.Params(),
        toys.path / "before",
    )
    inputs = evaluate.Inputs(toys.policy, toys.states, toys.simulator, start_evaluation=start)
    again = run(evaluate.evaluate_policy, inputs, evaluate.Params(), toys.path / "again")
    assert (again.path / "evaluation.json").read_text() == (evaluation_of(toys).path / "evaluation.json").read_text()


def test_a_policy_trained_on_a_sealed_state_is_refused_with_the_path(toys):
    collected = publish(toys.path / "rollouts", "episodes", parents={"states": toys.states}, states=[STATES[3].id])
    toys.policy = publish(toys.path / "policy", "policy", parents={"episodes": collected})
    with pytest.raises(ValueError, match=r"leak: .*toy/policy <- toy/rollouts"):
        evaluation_of(toys, role="sealed")
    assert not (toys.path / "sealed").exists()
    evaluation_of(toys, role="validation")


def test_the_sealed_set_itself_may_not_be_an_ancestor(toys):
    toys.policy = publish(toys.path / "policy", "policy", parents={"starts": toys.states})
    with pytest.raises(ValueError, match=r"leak: 6 .*toy/policy <- toy/states"):
        evaluation_of(toys, role="sealed")


def admission_of(toys, out="admission", more=None, **params):
    inputs = admit.Inputs(
        world_model=toys.world,
        reward=toys.reward,
        episodes=toys.episodes,
        policy=toys.policy,
        states=toys.states,
        simulator=toys.simulator,
        criterion=toys.criterion,
        base_world_models=(toys.base,),
        **(more or {}),
    )
    made = run(admit.admit_world_model, inputs, admit.Params(strips=6, **params), toys.path / out)
    return made, Admission.model_validate_json((made.path / "admission.json").read_bytes())


def test_an_honest_world_model_is_admitted_and_the_base_is_shown_beside_it(toys):
    made, found = admission_of(toys)
    assert found.admitted and found.reasons == () and found.mismatch.value == 0.0
    by = {(row.arm, row.subset): row for row in found.fidelity}
    assert {arm for arm, _ in by} == {"simulator", "toy/base", "toy/world"}
    # 12 episodes: columns 2-5 win at full speed, nobody at half of it, so 8 failures, 4 of them from mixed states.
    assert by["toy/base", "all"].fake_success.value == 1.0 and by["toy/base", "all"].fake_success.n == 8
    assert by["toy/base", "mixed"].fake_success.n == 4 and by["toy/world", "all"].recall.value == 1.0
    assert made.manifest.metrics["before_fake_success"] == 1.0 and made.manifest.metrics["fake_success"] == 0.0
    kept = strips.read(made.path)
    assert len(kept) == 6 and {row.arm for row in kept[0].rows} == {"simulator", "toy/base", "toy/world"}
    assert {strip.success for strip in kept} == {True, False}
    pixels = json.loads((made.path / "pixels.json").read_text())
    assert {figure["metric"] for figure in pixels} == {
        "psnr_failures",
        "psnr_successes",
        "ssim_failures",
        "ssim_successes",
    }


def test_what_was_not_measured_is_said(toys):
    _, found = admission_of(toys)
    said = " ".join(found.breakdown.not_measured)
    assert "approach_offset, early_release, weak_grip, overshoot, lateral_slip" in said
    assert "seen states" in said and "'recorded_history'" in said
    assert "'reseeds' is 0" in said and "'shifts' is 0" in said
    assert {(row.arm, row.kind) for row in found.breakdown.slices if row.slice == "kind"} >= {("toy/base", "none")}
    assert len(found.breakdown.states) == 6 and {point.arm for point in found.breakdown.horizon} == {
        "simulator",
        "toy/base",
        "toy/world",
    }


class ShiftedToy(ToySimulator):
    """Takes the dot's place from the state vector, as real simulators do, and can move it."""

    def reset(self, starts, keys):
        observation = super().reset(starts, keys)
        self.pose[:, :2] = torch.stack([torch.from_numpy(start.simulator_state) for start in starts]).float()
        return observation

    def shifted(self, state, offset):
        return state + offset

    def close(self):
        pass


def test_every_part_of_the_breakdown_is_measured_when_asked_for(toys, monkeypatch):
    class Forced(ToyDream):
        def hold(self, frames):
            assert frames.shape[1] in (3, 5)

    toys.made["world"] = Forced(fakes={"dot-0-7"})
    monkeypatch.setattr(admit, "ParallelSimulator", lambda config, workers: contextlib.nullcontext(ShiftedToy()))
    monkeypatch.setattr(admit.simulators, "read_config", lambda values, where: SimpleNamespace(interface=TOY))
    monkeypatch.setattr(admit.simulators, "build", lambda config: ShiftedToy())
    pairs = publish(toys.path / "pairs", "episodes", lambda folder: recorded_episodes(folder, "weak_grip", pair=True))
    more = dict(counterfactuals=pairs, seen_episodes=toys.episodes)
    asked = dict(recorded_history=True, reseeds=2, shifts=4, shift_pixels=0.5, kinds=("weak_grip",))
    _, found = admission_of(toys, more=more, **asked)
    parts = found.breakdown
    assert parts.not_measured == ()
    rows = {(row.slice, row.arm, row.kind): row for row in reversed(parts.slices)}
    # Half speed fails from all six columns; the dream draws column 0 as won, at either speed.
    assert rows["kind", "toy/world", "weak_grip"].fake_success.value == pytest.approx(1 / 6)
    assert rows["kind", "simulator", "weak_grip"].fake_success.value == 0.0
    assert rows["seen_states", "toy/world", ""].fake_success.n == 8
    assert rows["recorded_history", "toy/world", ""].fake_success.value == pytest.approx(2 / 8)
    # Four pairs of one success and one failure (columns 2 to 5), none of them from column 0.
    assert parts.pairs_told_apart.value == 1.0 and parts.pairs_told_apart.n == 4
    assert parts.noise.draws == 3 and parts.noise.flipped.value == 0.0
    # A dot on the line reads 1 and one elsewhere less: of 4 successes and 8 failures the two faked ones tie with all 4.
    assert parts.threshold.ranked_right.value == pytest.approx((4 * 6 + 4 * 2 * 0.5) / (4 * 8))
    assert parts.threshold.fidelity[0].fake_success.value == pytest.approx(2 / 8)
    # At full speed column 2 ends on the line exactly: a shift to the left loses it. No other is within half a pixel.
    assert parts.truth.unstable_states == ("dot-2-7",)
    assert rows["stable_truth", "toy/world", ""].recall.n == 3


def test_a_world_model_that_fakes_success_is_refused_and_the_stage_still_succeeds(toys):
    toys.made["world"] = ToyDream(fakes="all")
    made, found = admission_of(toys)
    assert not found.admitted and made.manifest.metrics["admitted"] is False
    assert found.reasons[0] == "fake success is 1.000 (n=8), 0.700 above its ceiling of 0.300"


class Leaky(ToyDream):
    """Right wherever the recorded policy went; a dot that moves up is drawn on the goal line."""

    def shown(self, dots):
        up = dots[..., 1] < torch.stack([start.proprio[-1, 1] for start in self.starts])[:, None] - 2
        return torch.stack([torch.where(up, dots[..., 0].clamp_min(10.0), dots[..., 0]), dots[..., 1]], dim=-1)


class Heading(ToyPolicy):
    """Moves by one column and row vector throughout."""

    def __init__(self, move):
        super().__init__(1.0, id=f"toy/heading {move}")
        self.move = torch.tensor(move)

    def act(self, observation, keys, sampling):
        chunk = super().act(observation, keys, sampling)
        chunk.actions[:, :, :2] = self.move
        return chunk


def most_successful_in(dream):
    """The heading that its dream reads as success most often: what reinforcement learning looks for."""

    def dreamed(move):
        made = rollout(dream, Heading(move), STATES, stream=(0,), source="dream")
        return int(ToyReward().verdicts(made.frames, [""] * len(STATES)).success.sum())

    moves = [(x, y) for x in (-1.0, 0.0, 1.0) for y in (-1.0, 0.0, 1.0)]
    return Heading(max(moves, key=dreamed))


def test_an_exploiting_policy_is_refused_by_its_replay_though_fidelity_is_perfect(toys):
    toys.made["world"] = Leaky()
    toys.made["policy"] = exploiter = most_successful_in(Leaky())
    assert exploiter.move[1] == -1.0  # up, where nothing is won
    made, found = admission_of(toys)
    assert found.fidelity[-3].fake_success.value == 0.0 and found.fidelity[-3].recall.value == 1.0
    assert not found.admitted and len(found.reasons) == 1
    assert found.reasons[0].startswith("replay mismatch is ") and "above its ceiling of 0.400" in found.reasons[0]
    toys.made["world"], toys.made["policy"] = ToyDream(), most_successful_in(ToyDream())
    assert admission_of(toys, out="honest")[1].mismatch.value == 0.0


def test_a_pessimistic_world_model_fakes_nothing_and_is_refused_by_its_recall(toys):
    toys.made["world"] = ToyDream(misses="all")
    _, found = admission_of(toys)
    assert found.fidelity[-3].fake_success.value == 0.0
    assert found.reasons == (
        "recall is 0.000 (n=4), 0.800 below its floor of 0.800",
        "replay mismatch could not be measured for want of such episodes (collect more per admission state)",
    )


def test_a_world_model_that_ignores_actions_is_refused_before_anything_is_measured(toys):
    class Blind(ToyDream):
        def shown(self, dots):
            return dots * 0

    toys.made["world"] = Blind()
    _, found = admission_of(toys)
    assert not found.admitted and found.fidelity == () and "do not reach the world model" in found.reasons[0]


def test_dreamed_successes_are_replayed_and_kept_as_strips(toys):
    toys.made["world"] = ToyDream(fakes="all")
    inputs = dreams.Inputs(toys.policy, toys.world, toys.reward, toys.states, toys.simulator)
    made = run(dreams.replay_dreams, inputs, dreams.Params(), toys.path / "replay")
    found = Mismatch.model_validate_json((made.path / "replay.json").read_bytes())
    assert found.mismatch.value == pytest.approx(2 / 6) and found.policy == "toy/policy"
    assert [row.arm for row in strips.read(made.path)[0].rows] == ["simulator", "toy/world"]


def decision_of(toys, tmp_name="decision", previous=None):
    admission, _ = admission_of(toys)
    round_file = toys.path / "round.yaml"
    round_file.write_text(
        "loop: default\nround: i002\nparents: {dataset: i001, world_model: i001, policy: toy/start, reward: start}\n"
    )
    inputs = decide.Inputs(round_file, admission, evaluation_of(toys), previous=previous)
    made = run(decide.decide_round, inputs, decide.Params(), toys.path / tmp_name)
    return made, Decision.model_validate_json((made.path / "decision.json").read_bytes())


def test_a_policy_without_a_clear_gain_is_kept_out_and_the_admitted_world_model_stays(toys):
    # A gain on 2 of 6 states: the bootstrap interval touches 0.
    made, found = decision_of(toys)
    assert found.outcome == "keep" and "+0.333 [+0.000" in found.reason
    assert found.parents == {"dataset": "i002", "world_model": "i002", "policy": "toy/start", "reward": "start"}
    assert made.manifest.metrics["rounds_without_promotion"] == 1


def test_a_clear_gain_is_promoted(toys):
    toys.made["start"] = ToyPolicy(0.0, id="toy/start")
    _, found = decision_of(toys)
    assert found.outcome == "promote" and found.parents["policy"] == "i002"
    assert "+0.667" in found.reason


def test_a_refused_world_model_keeps_policy_and_world_model_but_not_the_data(toys):
    toys.made["world"] = ToyDream(fakes="all")
    _, found = decision_of(toys)
    assert found.outcome == "not_admitted" and "0.700 above its ceiling" in found.reason
    assert found.parents == {"dataset": "i002", "world_model": "i001", "policy": "toy/start", "reward": "start"}


def test_the_third_round_in_a_row_without_a_better_policy_stops_the_loop(toys):
    previous = publish(toys.path / "previous", "decision", metrics={"rounds_without_promotion": 2})
    _, found = decision_of(toys, previous=previous)
    assert found.outcome == "stop" and "round 3 in a row" in found.reason


def test_a_gain_over_another_policy_than_the_parent_decides_nothing(toys):
    admission, _ = admission_of(toys)
    (toys.path / "round.yaml").write_text("round: i002\nparents: {policy: default/i001/policy/0}\n")
    inputs = decide.Inputs(toys.path / "round.yaml", admission, evaluation_of(toys))
    with pytest.raises(ValueError, match="against toy/start, and this round set out from default/i001/policy/0"):
        decide.decide_round(inputs, decide.Params(), Run("toy", toys.path, toys.path, 0))


def test_sealed_numbers_decide_nothing(toys):
    admission, _ = admission_of(toys)
    (toys.path / "round.yaml").write_text("round: i001\nparents: {policy: toy/start}\n")
    inputs = decide.Inputs(toys.path / "round.yaml", admission, evaluation_of(toys, role="sealed"))
    with pytest.raises(ValueError, match="decided on validation states"):
        decide.decide_round(inputs, decide.Params(), Run("toy", toys.path, toys.path, 0))

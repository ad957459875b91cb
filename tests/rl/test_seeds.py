"""Training seeds judged together, against numbers worked by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coevo.core.stage import run_stage
from coevo.evaluation.intervals import seed_interval
from coevo.records.outcomes import Admission, Criterion, Evaluation, Interval, SeedCriterion, StateScore
from coevo.rl.seeds import judge, split
from tasks import evaluate_policy
from tasks.decide_round import Params, decide
from tests.doubles import TOY, ToyPolicy, ToySimulator
from tests.toy_artifacts import initial_states, publish

CRITERION = SeedCriterion(at_least=3, sd_below=0.04)


def score(successes: int, episodes: int = 2, state: str = "a") -> StateScore:
    return StateScore(state=state, successes=successes, episodes=episodes)


def evaluation(gain: float, low: float, seed: int = 0, **more) -> Evaluation:
    values = dict(
        policy=f"toy/policy/{seed}", states="toy/states", role="validation", sampling="sampled",
        scores=(score(0, state="a"), score(2, state="b")), start_policy="toy/start", rerun_noise=0.018,
        success=Interval(value=0.5, low=0.4, high=0.6, n=2), gain=Interval(value=gain, low=low, high=gain + 0.1, n=2),
    )  # fmt: skip
    return Evaluation(**values | more)


def group(*gains: tuple[float, float], criterion: SeedCriterion = CRITERION):
    made = [evaluation(*gain, seed) for seed, gain in enumerate(gains)]
    return judge(made, criterion, "c" * 64, seed_interval(tuple(gain for gain, _ in gains)))


def test_the_corrected_recipe_of_the_study_passes_its_criterion_and_the_original_does_not():
    corrected = group(*((gain, gain - 0.02) for gain in (0.116, 0.111, 0.074, 0.144, 0.039)),
                      criterion=SeedCriterion(at_least=5, sd_below=0.07))  # fmt: skip
    assert corrected.passed and corrected.reasons == ()
    assert corrected.mean_gain.value == pytest.approx(0.097, abs=1e-3)
    assert corrected.sd == pytest.approx(0.040, abs=1e-3)
    original = group(*((gain, gain - 0.02) for gain in (0.174, 0.046, 0.130, 0.104, -0.190)),
                     criterion=SeedCriterion(at_least=5, sd_below=0.07))  # fmt: skip
    assert not original.passed and original.sd == pytest.approx(0.143, abs=1e-3)
    # Student's interval of five, as the study has it: [-8.4, +18.9] points
    assert (original.mean_gain.low, original.mean_gain.high) == pytest.approx((-0.084, 0.189), abs=2e-3)


def test_each_number_that_fails_is_named():
    found = group((0.2, 0.1), (0.1, -0.01), (-0.05, -0.1))
    assert found.reasons == (
        "the lower bound of toy/policy/1's gain is -0.010, not above +0.000",
        "the gain of toy/policy/2 is -0.050, not above +0.000",
        "the lower bound of toy/policy/2's gain is -0.100, not above +0.000",
        "the standard deviation of the gains is 0.126, not below 0.040",
    )
    few = group((0.2, 0.1), (0.21, 0.1))
    assert few.reasons == ("2 training seeds were run, 3 are asked for",)


def test_the_verdict_tells_the_rerun_noise_beside_the_gain():
    said = group((0.2, 0.1), (0.2, 0.1), (0.2, 0.1)).sentence()
    assert said == (
        "Over 3 training seeds the mean gain is +0.200 [+0.200, +0.200], sd 0.000 (the start policy scored again moves "
        "by 0.018, sd); the criterion on seeds is met."
    )


def test_figures_leave_out_what_could_not_be_measured():
    found = {figure.metric: figure for figure in group((0.2, 0.1), (0.22, 0.1), (0.24, 0.1)).figures("mix", "dot")}
    assert found["mean_gain"].value == pytest.approx(0.22) and found["mean_gain"].n == 3
    assert found["sd_of_gain"].value == pytest.approx(0.02) and found["seed_criterion_met"].value == 1.0
    assert found["rerun_noise"].value == 0.018 and found["between_state_share_of_variance"].value == 1.0
    alone = judge([evaluation(0.2, 0.1, rerun_noise=None, scores=(score(1, 1),))], CRITERION, "", None)
    assert {figure.metric for figure in alone.figures("mix", "dot")} == {"seed_criterion_met"}


def test_seeds_on_other_states_or_without_a_gain_are_no_group():
    with pytest.raises(ValueError, match="with states 'elsewhere' and toy/policy/0 with 'toy/states'"):
        judge([evaluation(0.1, 0.0), evaluation(0.1, 0.0, 1, states="elsewhere")], CRITERION, "", None)
    with pytest.raises(ValueError, match="toy/policy/0 has no gain"):
        judge([evaluation(0.1, 0.0).model_copy(update=dict(gain=None))], CRITERION, "", None)


def test_variance_is_split_as_worked_by_hand():
    found = split([score(0, state="a"), score(2, state="b"), score(1, state="c")])
    # Within: 0, 0 and 0.25 x 2 = 0.5, mean 1/6. Rates 0, 1, 0.5 vary by 0.25; a half of 1/6 of it is their own noise.
    assert found.within_states == pytest.approx(1 / 6)
    assert found.between_states == pytest.approx(0.25 - 1 / 12)
    assert found.share_between == pytest.approx(0.5)
    assert split([score(1, 1), score(0, 1, "b")]) is None and split([score(1)]) is None
    assert split([score(0), score(0, state="b")]).share_between is None


@given(st.lists(st.tuples(st.integers(0, 4), st.just(4)), min_size=2, max_size=30))
def test_where_every_state_ran_equally_often_the_parts_add_up_to_the_variance_of_an_episode(counts):
    found = split([score(wins, episodes, str(index)) for index, (wins, episodes) in enumerate(counts)])
    outcomes = [one for wins, episodes in counts for one in [1.0] * wins + [0.0] * (episodes - wins)]
    n, mean = len(counts), sum(outcomes) / len(outcomes)
    # One-way analysis of variance: the total sum of squares is that between states plus that within.
    total = sum((value - mean) ** 2 for value in outcomes)
    within = found.within_states * n * 3
    between = (found.between_states + found.within_states / 4) * (n - 1) * 4
    assert total == pytest.approx(within + between, abs=1e-9)


PARENTS = dict(dataset="start/dataset", world_model="start/world_model", policy="toy/start", reward="start/reward")
ADMITTED = Admission(
    admitted=True, reasons=(), fidelity=(), criterion_sha256="c" * 64, mismatch=None, world_model="w", reward_model="r",
    criterion=Criterion(
        recall_floor=0.6, fake_success_ceiling=0.4, fake_success_mixed_ceiling=0.5, mismatch_ceiling=0.5,
        seeds=CRITERION,
    ),
)  # fmt: skip


@pytest.mark.parametrize(("requires", "outcome"), [(False, "promote"), (True, "keep")])
def test_seeds_that_fail_together_are_told_and_hold_a_promotion_back_where_asked(requires, outcome):
    failing = group((0.2, 0.1), (0.1, -0.01), (-0.05, -0.1))
    params = Params(requires_seeds=requires)
    found = decide("i001", PARENTS, ADMITTED, evaluation(0.2, 0.1), None, params, seeds=failing)
    assert found.outcome == outcome and failing.sentence() in found.reason
    passing = group((0.2, 0.1), (0.21, 0.1), (0.22, 0.1))
    found = decide("i001", PARENTS, ADMITTED, evaluation(0.2, 0.1), None, params, seeds=passing)
    assert found.outcome == "promote" and "the criterion on seeds is met" in found.reason
    alone = decide("i001", PARENTS, ADMITTED, evaluation(0.2, 0.1), None, params)
    assert alone.outcome == outcome


def test_the_start_policy_scored_again_gives_the_noise_that_a_gain_is_held_against(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made = {"policy": ToyPolicy(1.0), "start": ToyPolicy(0.7, spread=0.3, id="toy/start")}
    monkeypatch.setattr(evaluate_policy, "ParallelSimulator", lambda config, workers: ToySimulator())
    monkeypatch.setattr(evaluate_policy.simulators, "read_config", lambda values, where: None)
    monkeypatch.setattr(evaluate_policy.policies, "load", lambda artifact, device: made[artifact.path.name])
    (tmp_path / "toy.yaml").write_text("kind: toy\n")
    states = initial_states(tmp_path / "states", [3 + index / 10 for index in range(30)], TOY)
    policy, start = (publish(tmp_path / name, "policy", lambda folder: (folder / "empty").touch()) for name in made)

    def evaluated(out, policy, reruns, **inputs):
        given = evaluate_policy.Inputs(policy, states, tmp_path / "toy.yaml", **inputs)
        settings = evaluate_policy.Params(reruns=reruns, batch=64)
        parents = {"policy": policy, "states": states}
        return run_stage(evaluate_policy.evaluate_policy, given, settings, tmp_path / out, seed=0, parents=parents)

    alone = evaluated("alone", start, 3)
    noise = Evaluation.model_validate_json((alone.path / "evaluation.json").read_bytes()).rerun_noise
    assert 0 < noise < 0.2 and alone.manifest.metrics["rerun_noise"] == noise
    for inputs in (dict(start_evaluation=alone), dict(start_policy=start)):
        against = evaluated("against", policy, 3, **inputs)
        found = Evaluation.model_validate_json((against.path / "evaluation.json").read_bytes())
        assert found.rerun_noise == noise and found.gain is not None
    assert "rerun_noise" not in evaluated("once", start, 0).manifest.metrics

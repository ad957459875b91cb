import pytest

from coevo.evaluation.evaluate import compare, gain, repeated, state_scores, success
from coevo.evaluation.replay import replay
from coevo.records.outcomes import Evaluation
from coevo.rollout import rollout
from tests.doubles import TOY, ToyDream, ToyPolicy, ToyReward, ToySimulator, toy_state

STATES = [toy_state(column) for column in range(6)]


def scores(policy, repeats=2, sampling="sampled"):
    rows = repeated(STATES, repeats)
    return state_scores(rollout(ToySimulator(), policy, rows, stream=(0,), source="simulator", sampling=sampling), TOY)


def evaluation(policy, sampling="sampled", states="toy/sealed"):
    found = scores(policy, sampling=sampling)
    return Evaluation(
        policy=policy.id, states=states, role="sealed", sampling=sampling, scores=found, success=success(found, (0,))
    )


def test_each_state_is_counted_exactly_as_often_as_asked():
    found = scores(ToyPolicy(speed=1.0), repeats=3)
    assert [score.state for score in found] == [state.id for state in STATES]
    assert all(score.episodes == 3 for score in found)
    assert [score.successes for score in found] == [0, 0, 3, 3, 3, 3]


def test_a_state_listed_twice_is_refused():
    with pytest.raises(ValueError, match="dot-0-7 is listed more than once"):
        repeated([toy_state(0), toy_state(0)], 2)


def test_gain_is_paired_per_state():
    # Full speed wins from columns 2-5; three quarters of it moves 6 and wins from 4 and 5: a gain on 2 of 6 states.
    found = gain(scores(ToyPolicy(1.0)), scores(ToyPolicy(0.75)), (0,))
    assert found.value == pytest.approx(2 / 6) and found.n == 6 and 0.0 <= found.low < found.high <= 4 / 6 + 1e-9


def test_compared_evaluation_carries_both_and_the_gain():
    ours, theirs = evaluation(ToyPolicy(1.0)), evaluation(ToyPolicy(0.75, id="toy/start"))
    found = compare(ours, theirs, (0,))
    assert found.start_policy == "toy/start" and found.start_success.value == pytest.approx(2 / 6)
    assert found.gain.value == pytest.approx(found.success.value - found.start_success.value)


def test_unlike_sampling_or_other_states_are_refused():
    with pytest.raises(ValueError, match="sampling 'sampled'.*'greedy'"):
        compare(evaluation(ToyPolicy()), evaluation(ToyPolicy(id="toy/start"), sampling="greedy"), (0,))
    with pytest.raises(ValueError, match="states 'toy/sealed'"):
        compare(evaluation(ToyPolicy()), evaluation(ToyPolicy(), states="toy/other"), (0,))
    with pytest.raises(ValueError, match="differ in 1 initial states"):
        gain(scores(ToyPolicy()), scores(ToyPolicy())[1:], (0,))


def test_dreamed_episodes_are_not_an_evaluation():
    with pytest.raises(ValueError, match="dreamed"):
        state_scores(rollout(ToyDream(), ToyPolicy(), STATES, stream=(0,), source="dream"), TOY)


def replayed(dream, policy):
    dreamed = rollout(dream, policy, STATES, stream=(0,), source="dream")
    verdicts = ToyReward().verdicts(dreamed.frames, [TOY.instruction] * len(STATES))
    return replay(dreamed, verdicts, ToySimulator(), world_model="toy/dream", stream=(0,))


def test_half_of_the_successes_of_an_optimistic_dream_fail_in_the_simulator():
    # Columns 2-5 are won in truth; the dream draws 0 and 1 as won as well: 2 of 6 replays fail.
    found = replayed(ToyDream(fakes="all"), ToyPolicy(1.0))
    assert found.record.dreamed == 6 and found.record.dreamed_success == 1.0
    assert found.record.mismatch.value == pytest.approx(2 / 6) and found.record.mismatch.n == 6
    assert found.succeeded.tolist() == [False, False, True, True, True, True]


def test_an_honest_dream_has_no_mismatch_and_says_how_sure_that_is():
    found = replayed(ToyDream(), ToyPolicy(1.0))
    assert found.record.mismatch.value == 0.0 and 0.3 < found.record.mismatch.high < 0.6
    assert found.rows.tolist() == [2, 3, 4, 5]


def test_a_dream_without_successes_has_no_mismatch_to_measure():
    found = replayed(ToyDream(misses="all"), ToyPolicy(1.0))
    assert found.record.mismatch is None and found.record.dreamed_success == 0.0 and len(found.frames) == 0

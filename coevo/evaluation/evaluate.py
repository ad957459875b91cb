"""A policy's success: every initial state the same number of times, compared only with its like, paired per state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from coevo.core import random
from coevo.core.types import InitialState, Trajectories
from coevo.evaluation.drive import reached
from coevo.evaluation.intervals import mean_interval
from coevo.records.interface import Interface
from coevo.records.outcomes import Evaluation, Interval, StateScore


def repeated(states: Sequence[InitialState], repeats: int) -> list[InitialState]:
    """The rows of an evaluation: each state `repeats` times in a row. ValueError if a state is listed twice."""
    twice = [id for id, count in Counter(state.id for state in states).items() if count > 1]
    if twice:
        raise ValueError(f"initial state {twice[0]} is listed more than once; an evaluation counts each state once")
    return [state for state in states for _ in range(repeats)]


def state_scores(episodes: Trajectories, interface: Interface) -> tuple[StateScore, ...]:
    """Successes per initial state of simulator episodes, in the order in which the states first appear."""
    if episodes.truth is None:
        raise ValueError("these episodes were dreamed and carry no simulator outcome; evaluate in a simulator")
    won = reached(episodes.truth.success, interface.success_from).tolist()
    total = Counter(episodes.state_ids)
    wins = Counter(state for state, success in zip(episodes.state_ids, won, strict=True) if success)
    return tuple(StateScore(state=state, successes=wins[state], episodes=count) for state, count in total.items())


def success(scores: Sequence[StateScore], stream: Sequence[int | str]) -> Interval:
    """Mean over states of the success fraction, each state weighing the same."""
    return mean_interval(_fractions(scores), random.stream(*stream, "success"))


def gain(
    scores: Sequence[StateScore], start: Sequence[StateScore], stream: Sequence[int | str]
) -> Interval:
    """Mean over states of the difference in success to the start policy, resampled in pairs.

    Raises ValueError unless both were evaluated on the same states.
    """
    theirs = {score.state: score for score in start}
    ours = {score.state for score in scores}
    if ours != set(theirs):
        odd = sorted(ours.symmetric_difference(theirs))
        raise ValueError(
            f"the two evaluations differ in {len(odd)} initial states (the first is {odd[0]}); pair like with like"
        )
    difference = _fractions(scores) - _fractions([theirs[score.state] for score in scores])
    return mean_interval(difference, random.stream(*stream, "gain"), fractions=False)


def compare(evaluation: Evaluation, start: Evaluation, stream: Sequence[int | str]) -> Evaluation:
    """The evaluation with the start policy's success and the paired gain over it filled in.

    Raises ValueError if the two were sampled differently or stand on different states.
    """
    for field in ("sampling", "states", "role"):
        ours, theirs = getattr(evaluation, field), getattr(start, field)
        if ours != theirs:
            raise ValueError(
                f"{evaluation.policy} was evaluated with {field} '{ours}' and {start.policy} with '{theirs}'; "
                "such numbers do not compare: evaluate both in the same way"
            )
    return evaluation.model_copy(
        update=dict(
            start_policy=start.policy, start_success=start.success, gain=gain(evaluation.scores, start.scores, stream)
        )
    )


def _fractions(scores: Sequence[StateScore]) -> np.ndarray:
    return np.array([score.successes / score.episodes for score in scores])

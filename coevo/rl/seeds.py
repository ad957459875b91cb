"""Training seeds as the unit of a claim: a criterion written before the runs, judged here."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from coevo.records.outcomes import Evaluation, Interval, SeedCriterion, StateScore
from coevo.records.seeds import SeedGroup, VarianceSplit


def judge(
    evaluations: Sequence[Evaluation], criterion: SeedCriterion, criterion_sha256: str, mean_gain: Interval | None
) -> SeedGroup:
    """Hold a group of trained policies, one per training seed, against the criterion.

    Args:
        evaluations: one per seed, all on the same states against the same start policy.
        criterion_sha256: hash of the file that held the criterion before the runs.
        mean_gain: mean over the seeds' gains with its interval; none for a single seed.

    Raises ValueError if an evaluation has no gain, or if they differ in states, start policy or sampling.
    """
    gains = []
    for evaluation in evaluations:
        for field in ("states", "role", "sampling", "start_policy"):
            ours, theirs = getattr(evaluation, field), getattr(evaluations[0], field)
            if ours != theirs:
                raise ValueError(
                    f"{evaluation.policy} was evaluated with {field} '{ours}' and {evaluations[0].policy} with "
                    f"'{theirs}'; seeds of one group are held against the same start on the same states"
                )
        if evaluation.gain is None:
            raise ValueError(f"the evaluation of {evaluation.policy} has no gain; evaluate it against its start policy")
        gains.append(evaluation.gain)
    sd = float(np.std([gain.value for gain in gains], ddof=1)) if len(gains) > 1 else None
    names = [evaluation.policy for evaluation in evaluations]
    return SeedGroup(
        role=evaluations[0].role, policies=tuple(names), gains=tuple(gains), mean_gain=mean_gain, sd=sd,
        variance=mean_split([split(evaluation.scores) for evaluation in evaluations]),
        rerun_noise=evaluations[0].rerun_noise, criterion=criterion, criterion_sha256=criterion_sha256,
        reasons=faults(names, gains, sd, criterion),
    )


def faults(
    names: Sequence[str], gains: Sequence[Interval], sd: float | None, criterion: SeedCriterion
) -> tuple[str, ...]:
    """One sentence for each number that fails the criterion."""
    said = []
    if len(gains) < criterion.at_least:
        said.append(f"{len(gains)} training seeds were run, {criterion.at_least} are asked for")
    for name, gain in zip(names, gains, strict=True):
        if gain.value <= criterion.gain_above:
            said.append(f"the gain of {name} is {gain.value:+.3f}, not above {criterion.gain_above:+.3f}")
        if gain.low <= criterion.lower_bound_above:
            bound = criterion.lower_bound_above
            said.append(f"the lower bound of {name}'s gain is {gain.low:+.3f}, not above {bound:+.3f}")
    if sd is not None and sd >= criterion.sd_below:
        said.append(f"the standard deviation of the gains is {sd:.3f}, not below {criterion.sd_below:.3f}")
    return tuple(said)


def split(scores: Sequence[StateScore]) -> VarianceSplit | None:
    """Variance of success between and within initial states, each estimated without bias.

    Within: mean over states of p (1 - p) m / (m - 1) for m episodes. Between: the variance of the states' rates, less
    the share of it that comes from estimating each of them from m episodes. None unless there are two states and every
    state was run twice.
    """
    episodes = np.array([score.episodes for score in scores])
    if len(scores) < 2 or episodes.min() < 2:
        return None
    rate = np.array([score.successes for score in scores]) / episodes
    own = rate * (1.0 - rate) * episodes / (episodes - 1)
    between = rate.var(ddof=1) - (own / episodes).mean()
    return VarianceSplit(between_states=float(between), within_states=float(own.mean()))


def mean_split(splits: Sequence[VarianceSplit | None]) -> VarianceSplit | None:
    """Mean over policies; none if one of them has none."""
    known = [each for each in splits if each is not None]
    if len(known) < len(splits) or not known:
        return None
    return VarianceSplit(
        between_states=float(np.mean([each.between_states for each in known])),
        within_states=float(np.mean([each.within_states for each in known])),
    )

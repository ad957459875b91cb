"""The episodes of one update: whole groups where outcomes are mixed, and of the others no more than it takes to see."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from coevo.core.types import InitialState, Trajectories, Verdicts, join_rows
from coevo.rl.config import Algorithm
from coevo.rl.starts import StartSampler

Roll = Callable[[Sequence[InitialState], tuple[int | str, ...]], tuple[Trajectories, Verdicts]]
"""Episodes of the present policy from these starts, judged; the second argument keys the randomness."""


def collect(
    algorithm: Algorithm, roll: Roll, sampler: StartSampler, update: int
) -> tuple[Trajectories, Verdicts]:
    """Groups from `states` drawn states; up to `refill` further ones stand in for groups that all ended alike.

    All rows are returned, dull groups too: they were dreamed, and the share that carries gradient counts them.
    """
    made: tuple[Trajectories, Verdicts] | None = None
    drawn: list[str] = []
    batch, mixed, left, turn = sampler.draw(algorithm.states, update), 0, algorithm.refill, 0
    while batch:
        drawn += [state.id for state in batch]
        new = _groups(algorithm, roll, batch, (update, turn))
        sampler.record(new[0].state_ids, new[1].success.tolist())
        mixed += len(batch) - len(single_outcome(*new))
        made = new if made is None else (join_rows(made[0], new[0]), join_rows(made[1], new[1]))
        turn += 1
        missing = min(algorithm.states - mixed, left)
        batch = sampler.draw(missing, update, "refill", turn, without=drawn) if missing > 0 else []
        left -= len(batch)
    return made


def _groups(
    algorithm: Algorithm, roll: Roll, states: Sequence[InitialState], key: tuple[int | str, ...]
) -> tuple[Trajectories, Verdicts]:
    """A group from each state; with scouts, the rest of a group only where these ended both ways."""
    if not algorithm.scouts:
        return _rolled(roll, _grouped(states, algorithm.group), key)
    scouts = _rolled(roll, _grouped(states, algorithm.scouts), key)
    dull = set(single_outcome(*scouts))
    open_ = [state for state in states if state.id not in dull]
    if not open_:
        return scouts
    rest = _rolled(roll, _grouped(open_, algorithm.group - algorithm.scouts), (*key, "rest"))
    return join_rows(scouts[0], rest[0]), join_rows(scouts[1], rest[1])


def _rolled(
    roll: Roll, starts: Sequence[InitialState], key: tuple[int | str, ...]
) -> tuple[Trajectories, Verdicts]:
    """Episodes from starts that may lie at different decisions, those of each decision rolled by themselves."""
    made: tuple[Trajectories, Verdicts] | None = None
    for decision in sorted({start.decision for start in starts}):
        new = roll([start for start in starts if start.decision == decision], key)
        made = new if made is None else (join_rows(made[0], new[0]), join_rows(made[1], new[1]))
    return made


def _grouped(states: Sequence[InitialState], group: int) -> list[InitialState]:
    return [state for state in states for _ in range(group)]


def single_outcome(trajectories: Trajectories, verdicts: Verdicts) -> list[str]:
    """States from which all episodes ended alike."""
    seen: dict[str, set[bool]] = {}
    for state, success in zip(trajectories.state_ids, verdicts.success.tolist(), strict=True):
        seen.setdefault(state, set()).add(success)
    return [state for state, outcomes in seen.items() if len(outcomes) == 1]

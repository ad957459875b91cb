"""Where infidelity comes from: by kind of perturbation, along the horizon, state by state, from draw to draw.

Everything here is arithmetic on readings. A reading is given by the frame at which success is first read, one past the
last frame where it never is; truth likewise.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Int

from coevo.core import random
from coevo.evaluation.fidelity import fidelity, subsets
from coevo.evaluation.intervals import counts_per_state, share_interval
from coevo.records.interface import Interface
from coevo.records.outcomes import FidelitySlice, HorizonPoint, Interval, NoiseSpread, StateFidelity

NEAR_SUCCESS = "near success"
"""Name of the slice that holds every failure which came near, whatever its perturbation."""

Stream = Sequence[int | str]


def by_kind(
    read: Bool[np.ndarray, " n"],
    truth: Bool[np.ndarray, " n"],
    states: Sequence[str],
    kinds: Sequence[str],
    near: Bool[np.ndarray, " n"],
    *,
    arm: str,
    reader: str,
    stream: Stream,
) -> tuple[FidelitySlice, ...]:
    """Fake success and recall of each kind of perturbation, and of near successes, in alphabetical order."""
    kinds = np.asarray(kinds)
    members = {kind: kinds == kind for kind in sorted(set(kinds.tolist()))}
    if near.any():
        members[NEAR_SUCCESS] = np.asarray(near)
    return tuple(
        row
        for kind, among in members.items()
        for row in sliced(read, truth, states, among, "kind", kind, arm=arm, reader=reader, stream=stream)[:1]
    )


def sliced(
    read: Bool[np.ndarray, " n"],
    truth: Bool[np.ndarray, " n"],
    states: Sequence[str],
    among: Bool[np.ndarray, " n"],
    name: str,
    kind: str = "",
    *,
    arm: str,
    reader: str,
    stream: Stream,
) -> tuple[FidelitySlice, ...]:
    """Fidelity over the episodes `among`: on all of them, on those from mixed-outcome states, and on the rest."""
    states = [state for state, chosen in zip(states, among, strict=True) if chosen]
    rows = fidelity(read[among], truth[among], states, arm=arm, reader=reader, stream=(*stream, name, kind))
    return tuple(FidelitySlice(slice=name, kind=kind, **row.model_dump()) for row in rows)


def by_horizon(
    read_at: Int[np.ndarray, " n"],
    true_at: Int[np.ndarray, " n"],
    states: Sequence[str],
    interface: Interface,
    *,
    arm: str,
    reader: str,
    stream: Stream,
) -> tuple[HorizonPoint, ...]:
    """One point per decision from the first at which success counts.

    Fake success is over the same episodes at every point, so its curve shows when the false successes appear.
    """
    ends_failed = true_at > interface.frames
    agreed = np.ones(len(read_at), dtype=bool)
    points = []
    for decision in range(1, interface.decisions + 1):
        frame = decision * interface.chunk_frames
        if frame < interface.success_from:
            continue
        read, true = read_at <= frame, true_at <= frame
        departs = agreed & (read != true)
        agreed &= ~departs
        shares = {}
        for name, among in (("fake", ends_failed), ("recall", true)):
            rng = random.stream(*stream, "horizon", arm, reader, decision, name)
            shares[name] = share_interval(*counts_per_state(tuple(states), read, among), rng)
        points.append(
            HorizonPoint(
                arm=arm, reader=reader, decision=decision, fake_success=shares["fake"], recall=shares["recall"],
                first_disagreements=int(departs.sum()),
            )
        )
    return tuple(points)


def by_state(
    read: Bool[np.ndarray, " n"],
    truth: Bool[np.ndarray, " n"],
    states: Sequence[str],
    read_before: Bool[np.ndarray, " n"] | None,
) -> tuple[StateFidelity, ...]:
    """Every state's misread episodes: those that got worse since `read_before` first, then those that are worst."""
    ids, index = np.unique(np.asarray(states), return_inverse=True)

    def count(among: np.ndarray) -> list[int]:
        return np.bincount(index[among], minlength=len(ids)).tolist()

    before = [None] * len(ids) if read_before is None else count(read_before != truth)
    counts = zip(
        ids.tolist(), count(~truth), count(~truth & read), count(truth), count(truth & ~read), before, strict=True
    )
    rows = [
        StateFidelity(state=state, failures=failed, faked=faked, successes=won, missed=missed, wrong_before=was)
        for state, failed, faked, won, missed, was in counts
    ]
    return tuple(sorted(rows, key=lambda row: (-max(row.wrong - (row.wrong_before or 0), 0), -row.wrong, row.state)))


def noise_spread(
    reads: Sequence[Bool[np.ndarray, " n"]],
    truth: Bool[np.ndarray, " n"],
    states: Sequence[str],
    *,
    arm: str,
    reader: str,
    stream: Stream,
) -> NoiseSpread:
    """How much of a verdict is chance. `reads`: one reading per draw of the noise, two at least."""
    drawn = np.stack([np.asarray(read, dtype=bool) for read in reads])
    flipped = drawn.any(axis=0) & ~drawn.all(axis=0)

    def share(among: np.ndarray, name: str) -> Interval | None:
        rng = random.stream(*stream, "noise", arm, reader, name)
        return share_interval(*counts_per_state(tuple(states), flipped, among), rng)

    def of_each(among: np.ndarray) -> tuple[float | None, ...]:
        return tuple(float(read[among].mean()) if among.any() else None for read in drawn)

    return NoiseSpread(
        arm=arm, reader=reader, draws=len(drawn), flipped=share(np.ones(len(truth), dtype=bool), "all"),
        flipped_mixed=share(subsets(states, truth)["mixed"], "mixed"),
        fake_success=of_each(~truth), recall=of_each(truth),
    )


def pairs_told_apart(
    read: Bool[np.ndarray, " n"], truth: Bool[np.ndarray, " n"], pairs: Sequence[str], *, stream: Stream
) -> Interval | None:
    """Share of (success, failure) of one pair id whose members are both read as what they are; none without pairs."""
    ids = sorted({pair for pair in pairs if pair})
    pairs = np.asarray(pairs)
    told, count = [], []
    for id in ids:
        won, lost = (pairs == id) & truth, (pairs == id) & ~truth
        told.append(int((read & won).sum()) * int((~read & lost).sum()))
        count.append(int(won.sum()) * int(lost.sum()))
    return share_interval(np.array(told), np.array(count), random.stream(*stream, "pairs")) if ids else None

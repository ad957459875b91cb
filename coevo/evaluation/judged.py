"""One world model under judgement: what was read of its frames, and what can be read beside that."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Int, Int64
from torch import Tensor

from coevo.core.judging import judge
from coevo.core.protocols import Environment, Judge
from coevo.core.types import Seen, Verdicts
from coevo.evaluation import breakdown
from coevo.evaluation.drive import drive, held
from coevo.evaluation.recorded import Recorded
from coevo.evaluation.thresholds import other_threshold, peaks
from coevo.records.interface import Interface
from coevo.records.outcomes import FidelitySlice, HorizonPoint, Interval, NoiseSpread, OtherThreshold, StateFidelity

SIMULATOR = "simulator"
"""The arm whose frames are the simulator's own: what the reader alone gets wrong."""

Progress = Callable[[int, int], None]


def open_loop(
    dream: Environment,
    recorded: Recorded,
    keys: Int64[Tensor, " n"],
    *,
    recorded_history: bool = False,
    progress: Progress | None = None,
) -> Seen:
    """What a world model draws under the recorded actions, held still after an episode's end."""
    history = recorded.frames if recorded_history else None
    driven = drive(dream, recorded.starts, recorded.actions, keys, progress=progress, history=history)
    return held(driven, recorded.seen, recorded.length)


def read_as_success(model: Judge, seen: Seen) -> Bool[np.ndarray, " n"]:
    """Which episodes are read as success."""
    return judge(model, seen).success.cpu().numpy()


def read_at(verdicts: Verdicts) -> Int[np.ndarray, " n"]:
    """Index of the frame at which success is first read; one past the last frame where it never is."""
    frames = verdicts.probability.shape[1]
    return np.where(verdicts.success.cpu().numpy(), verdicts.first_success.cpu().numpy(), frames)


@dataclass(frozen=True)
class Judged:
    """A world model, its reader, and what was read of each arm's frames (the judged one's last)."""

    arm: str
    reader: str
    dream: Environment
    reward: Judge
    recorded: Recorded
    interface: Interface
    verdicts: Mapping[str, Verdicts]
    seed: int

    def kinds(self) -> tuple[FidelitySlice, ...]:
        """Every arm's fidelity by kind of perturbation."""
        return tuple(row for arm in self.verdicts for row in self._kinds(arm, self.read(arm), self.recorded))

    def horizon(self) -> tuple[HorizonPoint, ...]:
        """Every arm's curve over decisions."""
        return tuple(
            point
            for arm, found in self.verdicts.items()
            for point in breakdown.by_horizon(
                read_at(found), self.recorded.first_success, self.recorded.states, self.interface, **self._labels(arm)
            )
        )

    def states(self) -> tuple[StateFidelity, ...]:
        """State by state, against the last world model shown beside this one: its parent."""
        earlier = [arm for arm in self.verdicts if arm not in (SIMULATOR, self.arm)]
        before = self.read(earlier[-1]) if earlier else None
        return breakdown.by_state(self.read(self.arm), self.recorded.truth, self.recorded.states, before)

    def counterfactuals(
        self, pairs: Recorded, progress: Progress
    ) -> tuple[tuple[FidelitySlice, ...], Interval | None]:
        """Fidelity of simulator frames and dream by kind on other episodes, and the share of pairs told apart."""
        dreamed = open_loop(self.dream, pairs, pairs.keys(self.seed), progress=progress)
        drawn = {SIMULATOR: pairs.seen, self.arm: dreamed}
        read = {arm: self._read(seen) for arm, seen in drawn.items()}
        slices = tuple(row for arm in drawn for row in self._kinds(arm, read[arm], pairs))
        return slices, breakdown.pairs_told_apart(read[self.arm], pairs.truth, pairs.pair, stream=(self.seed,))

    def seen(self, episodes: Recorded, progress: Progress) -> tuple[FidelitySlice, ...]:
        """Fidelity on states that the world model was trained on, the simulator's frames first."""
        drawn = open_loop(self.dream, episodes, episodes.keys(self.seed), progress=progress)
        return tuple(
            row
            for arm, seen in ((SIMULATOR, episodes.seen), (self.arm, drawn))
            for row in self._slice(arm, self._read(seen), episodes, "seen_states")
        )

    def recorded_history(self, progress: Progress) -> tuple[FidelitySlice, ...]:
        """Fidelity where each chunk is drawn behind the recorded frames: what is left is not drift."""
        keys = self.recorded.keys(self.seed)
        drawn = open_loop(self.dream, self.recorded, keys, recorded_history=True, progress=progress)
        return self._slice(self.arm, self._read(drawn), self.recorded, "recorded_history")

    def noise(self, reseeds: int, progress: Progress) -> NoiseSpread:
        """The verdicts of this drawing and of `reseeds` more with other noise."""
        reads = [self.read(self.arm)]
        for draw in range(1, reseeds + 1):
            drawn = open_loop(self.dream, self.recorded, self.recorded.keys(self.seed, draw), progress=progress)
            reads.append(self._read(drawn))
        return breakdown.noise_spread(reads, self.recorded.truth, self.recorded.states, **self._labels(self.arm))

    def threshold(self, recall: float) -> OtherThreshold | None:
        """The judged world model's fidelity at the threshold that would bring so much recall."""
        recorded, peak = self.recorded, peaks(self.verdicts[self.arm], self.interface.success_from)
        return other_threshold(peak, recorded.truth, recorded.states, recall, **self._labels(self.arm))

    def stable(self, unstable: Collection[str]) -> tuple[FidelitySlice, ...]:
        """Every arm's fidelity without the states named."""
        among = np.array([state not in unstable for state in self.recorded.states])
        return tuple(
            row
            for arm in self.verdicts
            for row in self._slice(arm, self.read(arm), self.recorded, "stable_truth", among)
        )

    def read(self, arm: str) -> Bool[np.ndarray, " n"]:
        """Which episodes are read as success in an arm's frames."""
        return self.verdicts[arm].success.cpu().numpy()

    def _read(self, seen: Seen) -> Bool[np.ndarray, " n"]:
        return read_as_success(self.reward, seen)

    def _kinds(self, arm: str, read: np.ndarray, episodes: Recorded) -> tuple[FidelitySlice, ...]:
        # Near successes are asked for among the policy's own episodes: what a family's severity makes near is chosen.
        near = episodes.near & np.array([not pair for pair in episodes.pair])
        return breakdown.by_kind(
            read, episodes.truth, episodes.states, episodes.perturbation, near, **self._labels(arm)
        )

    def _slice(self, arm, read, episodes: Recorded, name: str, among=None) -> tuple[FidelitySlice, ...]:
        among = np.ones(len(episodes), dtype=bool) if among is None else among
        return breakdown.sliced(read, episodes.truth, episodes.states, among, name, **self._labels(arm))

    def _labels(self, arm: str) -> dict:
        return dict(arm=arm, reader=self.reader, stream=(self.seed,))

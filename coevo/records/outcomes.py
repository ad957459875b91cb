"""Results that decide something: calibrations, admissions, evaluations, decisions, and the figures of a report."""

from __future__ import annotations

import math
from typing import Literal

from pydantic import model_validator

from coevo.records.base import Config


class Interval(Config):
    """An estimate with its interval. Fractions, not points."""

    value: float
    low: float
    high: float
    n: int
    """Size of the sample: initial states for a mean over states, training seeds for a mean over seeds, episodes for a
    share of episodes (there too the interval resamples whole initial states)."""
    confidence: float = 0.9


class Figure(Config):
    """One number of a results page: the row format of docs/results/*.json, read by reports and comparisons."""

    metric: str
    arm: str
    task: str
    value: float
    n: int
    low: float | None = None
    high: float | None = None
    unit: str = "fraction"

    @classmethod
    def of(cls, found: Interval, metric: str, arm: str, task: str, unit: str = "fraction") -> Figure:
        """An estimate with its interval and sample size."""
        numbers = dict(value=found.value, n=found.n, low=found.low, high=found.high)
        return cls(metric=metric, arm=arm, task=task, unit=unit, **numbers)


Unit = Literal["probability", "log_probability", "progress"]
"""Of a reading: progress goes from 0 to 10."""


class Calibration(Config):
    """How a frozen reward model is read. Stored with the weights it belongs to."""

    threshold: float
    unit: Unit = "probability"
    """Of the threshold."""
    threshold_from: Literal["fitted", "given", "quantile"] = "fitted"
    """fitted: best balanced accuracy on these episodes. given: as configured. quantile: so that a given share of
    readings reaches it."""
    trigger_rate: float | None = None
    """Share of all frames, from `success_from` on, that read as success: what a transfer to another task keeps."""
    reading: Literal["peak"] = "peak"
    """peak: the largest per-frame probability from the interface's `success_from` on."""
    token: str | None = None
    """Whose probability is read, of a model that reads a token's."""
    window: int = 1
    """Frames that one reading looks at."""
    frames_given: int
    """Handed over for a verdict; by a model of windows, for each of its readings."""
    frames_read: int
    """Frames that the model really looked at, counted at its input; a difference to `frames_given` is refused."""
    fps: float
    """Of the frames as the model is told."""
    precision: float
    recall: float
    false_positive_rate: float
    balanced_accuracy: float
    n: int
    """Simulator episodes that the model was not trained on; from a later round they may begin where others did that it
    was."""
    weights_sha256: str

    @model_validator(mode="after")
    def _all_read(self) -> Calibration:
        if self.frames_read != self.frames_given:
            raise ValueError(f"{self.frames_given} frames were given for a verdict and {self.frames_read} were read")
        return self

    @property
    def threshold_as_probability(self) -> float:
        """The threshold on the scale of Verdicts.probability, whatever its unit."""
        return as_probability(self.threshold, self.unit)


def as_probability(threshold: float, unit: Unit) -> float:
    """A threshold in its unit, on the scale of 0 to 1 that readings have."""
    match unit:
        case "probability":
            return threshold
        case "log_probability":
            return math.exp(threshold)
        case "progress":
            return threshold / 10.0


class Fidelity(Config):
    """Verdicts on the same actions in simulator and world model, over one set of episodes."""

    arm: str
    """Which frames were read: 'simulator', or the name of a world model."""
    reader: str
    """The reward model, or the loop's referee."""
    subset: Literal["all", "mixed", "same"]
    """mixed: states from which both outcomes occurred (action forks); same: all others."""
    fake_success: Interval | None
    """Share of simulator failures that are read as success; none where the subset holds no failure."""
    recall: Interval | None
    """Share of simulator successes that are read as success; none where the subset holds no success."""


class FidelitySlice(Fidelity):
    """Fidelity over one slice of what was measured beside the admission's own rows; it decides nothing."""

    slice: Literal["kind", "recorded_history", "stable_truth", "seen_states"]
    """kind: episodes of one kind of perturbation. recorded_history: the world model's history reset to the recorded
    frames before each chunk, so that what is left is no drift. stable_truth: without the states whose truth a sub-pixel
    shift of the start turns over. seen_states: episodes from states that the world model was trained on."""
    kind: str = ""
    """The perturbation, where episodes of one kind were read."""


class HorizonPoint(Config):
    """What was read up to the end of one decision."""

    arm: str
    reader: str
    decision: int
    """From 1."""
    fake_success: Interval | None
    """Share of the episodes that fail to the end in the simulator and are read as success by now."""
    recall: Interval | None
    """Share of the episodes that have succeeded by now and are read as success by now."""
    first_disagreements: int
    """Episodes whose reading up to now differs from what has happened up to now, for the first time."""


class StateFidelity(Config):
    """What one reader made of the episodes from one initial state."""

    state: str
    failures: int
    faked: int
    """Failures read as success."""
    successes: int
    missed: int
    """Successes read as failure."""
    wrong_before: int | None
    """Misread episodes in the world model that this one was trained from; none where it was not shown."""

    @property
    def wrong(self) -> int:
        """Misread episodes."""
        return self.faked + self.missed


class NoiseSpread(Config):
    """The same actions drawn again with other noise and nothing else changed."""

    arm: str
    reader: str
    draws: int
    flipped: Interval
    """Share of episodes that are not read alike in all draws. A simulator's is 0: it has no noise."""
    flipped_mixed: Interval | None
    """The same on mixed-outcome states."""
    fake_success: tuple[float | None, ...]
    """Of each draw."""
    recall: tuple[float | None, ...]
    """Of each draw."""


class TruthStability(Config):
    """Recorded actions done again in the simulator from starts whose object lies a fraction of a pixel elsewhere."""

    pixels: float
    metres: float
    reruns: int
    """Per episode, each in a direction of its own."""
    flipped: Interval
    """Share of episodes whose outcome another start within that distance turns over."""
    unstable_states: tuple[str, ...]
    """States with at least one such episode: no world model that sees pixels can know their outcome."""


class OtherThreshold(Config):
    """The same drawing read at another threshold of the reward: is the threshold at fault, or what was drawn?

    It decides nothing, for it was found on the admission's own episodes."""

    arm: str
    reader: str
    ranked_right: Interval
    """Of a success and a failure, how often the success peaks higher, ties half: the area under the ROC curve."""
    recall: float
    """That was asked for."""
    threshold: float
    """The highest one at which it is reached."""
    fidelity: tuple[Fidelity, ...]
    """There, by subset."""


class Breakdown(Config):
    """Where the fidelity of an admission comes from. Rows are those of the judged world model, and of the simulator's
    frames (the floor) and earlier world models where these were read."""

    slices: tuple[FidelitySlice, ...] = ()
    horizon: tuple[HorizonPoint, ...] = ()
    states: tuple[StateFidelity, ...] = ()
    """Of the judged world model: those that got worse first, then those that are worst."""
    noise: NoiseSpread | None = None
    truth: TruthStability | None = None
    threshold: OtherThreshold | None = None
    pairs_told_apart: Interval | None = None
    """Share of paired counterfactuals, a success and a failure from one start, both read as what they are."""
    not_measured: tuple[str, ...] = ()
    """One sentence for each part that could not be, or was not asked to be."""


class SeedCriterion(Config):
    """What the training seeds of a group must reach together. Written before they are run."""

    at_least: int = 5
    """Seeds; a claim from fewer is not made."""
    gain_above: float = 0.0
    """Every gain lies above this."""
    lower_bound_above: float = 0.0
    """And so does every gain's interval."""
    sd_below: float
    """Standard deviation of the gains."""


class Criterion(Config):
    """Fixed before the data is seen; its file's hash goes into the round's record."""

    recall_floor: float
    fake_success_ceiling: float
    fake_success_mixed_ceiling: float
    mismatch_ceiling: float
    """Ceiling on the closed-loop replay mismatch of the policy that enters training."""
    gain_lower_bound_above: float = 0.0
    """A trained policy is promoted when the interval of its gain on validation states lies above this."""
    seeds: SeedCriterion | None = None
    """Judged where several training seeds were run."""


class Admission(Config):
    """Whether a policy may be trained in a world model."""

    admitted: bool
    reasons: tuple[str, ...]
    """One sentence for each number that failed, with by how much; empty when admitted."""
    criterion: Criterion
    criterion_sha256: str
    fidelity: tuple[Fidelity, ...]
    mismatch: Interval | None
    world_model: str
    reward_model: str
    breakdown: Breakdown | None = None
    """None where an interface fault kept anything from being measured."""


class StateScore(Config):
    """Outcomes of one policy from one initial state."""

    state: str
    successes: int
    episodes: int


class Evaluation(Config):
    """Success of one policy on one set of initial states, each state enumerated once."""

    policy: str
    states: str
    """Id of the artifact of initial states."""
    role: Literal["validation", "sealed"]
    sampling: Literal["sampled", "greedy"]
    scores: tuple[StateScore, ...]
    success: Interval
    start_policy: str | None = None
    """The policy that it is held against: on validation states its parent, on sealed ones what the loop began with."""
    start_success: Interval | None = None
    gain: Interval | None = None
    """Against `start_policy`, paired per state; only between evaluations of the same sampling mode."""
    rerun_noise: float | None = None
    """Standard deviation of the start policy's success between scorings that differ in their noise alone: of this
    policy's where it is held against none. None if it was scored once."""


class Mismatch(Config):
    """Closed-loop replay: dreamed successes replayed unchanged in the simulator."""

    policy: str
    world_model: str
    dreamed: int
    """Dreamed episodes."""
    dreamed_success: float
    mismatch: Interval | None
    """Share of dreamed successes that fail in the simulator; n = dreamed successes; none if there were none."""


class Decision(Config):
    """What a round concludes."""

    outcome: Literal["promote", "keep", "stop", "not_admitted"]
    reason: str
    round: str
    parents: dict[str, str]
    """What the next round starts from, by role: this round's id where it goes on from what this one made, else the id
    of an artifact."""

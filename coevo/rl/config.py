"""Which estimator, which ratio and how many updates."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from coevo.records.base import Config


class Grpo(Config):
    """Return minus the mean of the group from the same start (Shao et al., 2024)."""

    kind: Literal["grpo"] = "grpo"
    normalise: bool = True
    """Divide by the standard deviation of the group's returns."""


class LeaveOneOut(Config):
    """Return minus the mean of the others in the group (RLOO; LOOP and RIPT-VLA use it)."""

    kind: Literal["leave_one_out"] = "leave_one_out"


class Ppo(Config):
    """Generalised advantage estimation with a critic, by the corrected recipe unless told otherwise."""

    kind: Literal["ppo"] = "ppo"
    discount: Annotated[float, Field(gt=0, le=1)] = 1.0
    gae_lambda: Annotated[float, Field(ge=0, le=1)] = 0.95
    horizon: Literal["termination", "truncation"] = "termination"
    """What the last control step means. truncation adds the critic's own estimate to the last reward: with an
    episode-level reward and discount 1 the returns then drift with the value."""
    value_learning_rate: PositiveFloat = 1e-4
    """A tenth of the usual; at the full rate half of the critic's updates exceed the value clip."""
    value_clip: PositiveFloat = 0.2
    critic_warmup: NonNegativeInt = 4
    """Updates that train only the critic, before the policy moves."""


Estimator = Annotated[Grpo | LeaveOneOut | Ppo, Field(discriminator="kind")]


class Peak(Config):
    """1 once, at the decision that led to the first success, and nothing else."""

    kind: Literal["peak"] = "peak"


class Differences(Config):
    """What each decision added to the reading: rewards sum to the last reading minus the first.

    Reward differencing, for readings of progress. Of a reading cut to 0 or 1 it is `peak`, since what follows the
    first success is left out.
    """

    kind: Literal["differences"] = "differences"


class Continuous(Config):
    """The reading where the episode ended, once: groups that all won or all lost still differ (World-Env)."""

    kind: Literal["continuous"] = "continuous"


Payment = Annotated[Peak | Differences | Continuous, Field(discriminator="kind")]


class Curriculum(Config):
    """Short tasks first (World-Env): states are drawn from the first share of the set, which grows to all of it.

    The set has to be in order, as the stage select_states leaves it with `order: length`.
    """

    begin: Annotated[float, Field(gt=0, le=1)] = 0.25
    """Share at the first update."""
    updates: PositiveInt = 8
    """Updates after which all states are drawn from; the share grows evenly until then."""

    def share(self, update: int) -> float:
        """Of the set, at update number `update` (from 1)."""
        return min(1.0, self.begin + (1.0 - self.begin) * (update - 1) / self.updates)


class Algorithm(Config):
    """One reinforcement learning run."""

    estimator: Estimator = Grpo()
    payment: Payment = Peak()
    """How a reward model's reading becomes reward."""
    updates: PositiveInt = 12
    """Policy updates."""
    states: PositiveInt = 32
    """Initial states per update."""
    group: Annotated[int, Field(ge=2)] = 8
    """Episodes from each of them."""
    refill: NonNegativeInt = 0
    """Further initial states per update at the most, rolled until `states` groups have both outcomes."""
    scouts: NonNegativeInt = 0
    """Episodes of a group that are rolled first; where they all ended alike the group is not completed. It weighs
    states anew and never turns a state's gradient. 0 rolls whole groups."""
    prefer_mixed: bool = True
    """Draw initial states by how mixed their outcomes have been, p (1 - p) + 0.05."""
    returning: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Share of an update's states that come from those whose last group had both outcomes, while there are some."""
    curriculum: Curriculum | None = None
    """Which states are drawn from at first; all of them when left out."""
    ratio: Literal["token", "action", "chunk"] = "token"
    """Over what the probability ratio is taken and clipped: every scored term, all terms of one held action, or the
    whole chunk."""
    clip: PositiveFloat = 0.2
    epochs: PositiveInt = 2
    minibatch: PositiveInt = 640
    """Decisions per gradient step."""
    learning_rate: PositiveFloat = 1e-4
    gradient_clip: PositiveFloat = 0.5
    kl_weight: NonNegativeFloat = 0.0
    """Weight of the divergence from the policy that made the episodes."""

    @model_validator(mode="after")
    def _scouts_are_some_of_the_group(self) -> Algorithm:
        if self.scouts == 1 or self.scouts >= self.group:
            raise ValueError(
                f"scouts = {self.scouts} of a group of {self.group}: two at least show both outcomes, and some must be "
                "left to complete the group; 0 rolls whole groups"
            )
        return self

    @model_validator(mode="after")
    def _no_group_is_dull(self) -> Algorithm:
        if not isinstance(self.payment, Peak) and (self.scouts or self.refill):
            raise ValueError(
                f"payment '{self.payment.kind}' tells episodes apart that ended alike, which 'scouts' and 'refill' "
                "would drop; set both to 0"
            )
        return self

"""A published system as one file, and a scale as another: of both together a loop's folder is made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import model_validator

from coevo.records.base import Config
from coevo.records.outcomes import Criterion

Section = dict[str, Any]
"""Parameters of one stage, as in params.yaml. The stage's own class holds them to their types."""


class Claim(Config):
    """One thing that a publication reports, and where ours stands beside it."""

    line: str
    """The key of the system's file that it rests on, dotted: 'algorithm.estimator'."""
    says: str
    """What is claimed or was measured, in a few words."""
    published: float | None = None
    """Its figure; fractions where it is a share, a rate or a gain."""
    over: str = ""
    """What the figure was measured over."""
    metric: str | None = None
    """Our figure of the same kind, as figures.json calls it; none where a round measures no such thing."""
    arm: str | None = None
    """And whose it is: 'before', 'after', 'simulator', 'parent policy', 'start policy', 'trained policy'."""

    @model_validator(mode="after")
    def _names_both_or_neither(self) -> Claim:
        if (self.metric is None) != (self.arm is None):
            raise ValueError(f"metric = {self.metric}, arm = {self.arm}: a figure of ours is named by both")
        return self


class PolicyPart(Config):
    """The policy that the loop begins with."""

    file: str
    """Of configs/policy, without '.yaml'."""
    pretraining: Section = {}
    """How it is cloned from the demonstrations: parameters of pretrain_policy."""


class DataPart(Config):
    """What the world model learns from."""

    rollouts: Section = {}
    """How episodes are collected each round: parameters of collect_rollouts."""
    dataset: Section = {}
    """How they are mixed: parameters of build_dataset."""


class WorldModelPart(Config):
    """What the world model is, and how a round trains it: parameters of train_world_model."""

    file: str = "wan_laptop"
    """Of configs/world_model, without '.yaml': the whole of it."""
    form: Section = {}
    """What of that the base world model lacks with which loops begin: it goes on in this form."""
    training: Section = {}
    """Numbers of the training."""


class RewardPart(Config):
    """What reads the dreams."""

    file: str | None = None
    """Of configs/reward, without '.yaml'; none is the frame classifier that the loop begins with."""
    own_head: bool = False
    """Whether it is a head of the round's world model, which is then calibrated with it each round."""
    calibration: Section = {}
    """How it is trained and calibrated: parameters of calibrate_reward."""
    rollouts: Section = {}
    """Episodes of the cloned policy that it learns from, beside the demonstrations: parameters of collect_rollouts."""

    @model_validator(mode="after")
    def _a_head_has_a_file(self) -> RewardPart:
        if self.own_head and self.file is None:
            raise ValueError("own_head: true names no 'file'; give the file of configs/reward that describes the head")
        return self


class AlgorithmPart(Config):
    """How the policy learns in the dream."""

    file: str
    """Of configs/algorithm, without '.yaml'."""
    changes: Section = {}
    """What holds against the file."""


class ChecksPart(Config):
    """What is measured, and what it must reach."""

    criterion: Criterion
    """criterion.yaml of the loop: fixed before the data is seen."""
    admission: Section = {}
    """Parameters of admit_world_model."""


class System(Config):
    """A published system: which components, which data, which algorithm, what it claims."""

    source: str
    """Title of the publication."""
    setting: str
    """Robot, task, models and simulator of its figures, for the reader who compares."""
    policy: PolicyPart
    data: DataPart = DataPart()
    world_model: WorldModelPart = WorldModelPart()
    reward: RewardPart = RewardPart()
    algorithm: AlgorithmPart
    training: Section = {}
    """Other parameters of train_policy: whether dreams end at success, how often the policy is checked."""
    checks: ChecksPart
    claims: tuple[Claim, ...] = ()

    def stages(self) -> dict[str, Section]:
        """Sections of the loop's params.yaml that the system decides."""
        found = {
            "collect_rollouts": self.data.rollouts,
            "build_dataset": self.data.dataset,
            "train_world_model": {"form": self.world_model.form, "training": self.world_model.training},
            # A head of the world model's own is calibrated with it each round; another reward once, before the first.
            "calibrate_reward": self.reward.calibration if self.reward.own_head else {},
            "admit_world_model": self.checks.admission,
            "train_policy": {**self.training, "algorithm": self.algorithm.changes},
        }
        full = {name: {key: value for key, value in section.items() if value != {}} for name, section in found.items()}
        return {name: section for name, section in full.items() if section}

    def start(self) -> dict[str, Section]:
        """Sections of the params.yaml of the loop's own start that the system decides."""
        found = {
            "pretrain_policy": self.policy.pretraining,
            "collect_rollouts": self.reward.rollouts,
            "calibrate_reward": {} if self.reward.own_head else self.reward.calibration,
        }
        return {name: section for name, section in found.items() if section}


class Scale(Config):
    """How large: which files stand for which, and how much of everything."""

    simulator: str
    """Of configs/simulator, without '.yaml'."""
    own_world: str | None = None
    """File of configs/world_model from which the loop trains its own base world model, on its own initial states and
    demonstrations; none takes those that all loops share. The system's form comes in the rounds."""
    instead: dict[str, str] = {}
    """Files that stand in for those that a system names: {policy/small_tokens: openvla_oft}. One for the world model is
    what the base is trained from, and has the system's form already."""
    stages: dict[str, Section] = {}
    """Sections laid over the loop's params.yaml, where the system leaves them open: sizes and numbers of steps."""
    start: dict[str, Section] = {}
    """The same for the params.yaml of its own start."""

    def file(self, kind: str, name: str) -> str:
        """The file of configs/`kind` that stands for `name` at this scale."""
        return self.instead.get(f"{kind}/{name}", name)


def laid_over(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """`above` where both have a value, mappings key by key; one that changes its 'kind' is replaced whole."""
    made = dict(below)
    for key, value in above.items():
        old = made.get(key)
        merged = isinstance(value, Mapping) and isinstance(old, Mapping) and old.get("kind") == value.get("kind")
        made[key] = laid_over(old, value) if merged else value
    return made

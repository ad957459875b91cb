"""From a published system and a scale to a loop's folder: what its pipeline has that the default loop's has not."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from coevo.records.base import read_yaml
from coevo.records.system import Scale, System, laid_over
from flows.loops import Loop, OpenRound, Origin

Stage = dict[str, Any]
OWN_PARAMETERS = "loops/{}/start/params.yaml"
DEFAULT_SYSTEM = "configs/system/rl_inside_world_models.yaml"
"""Whose published figures the default loop's report shows."""
CLASSIFIER = "frame_classifier"
"""The reward that all loops share, and the referee of every admission."""


@dataclass(frozen=True)
class Recipe:
    """A system at a scale, for one loop."""

    loop: Loop
    system: System
    scale: Scale
    file: Path
    """Of the system."""
    origin: Origin

    @classmethod
    def read(cls, loop: Loop, system: str, scale: str) -> Recipe:
        """From configs/system and configs/scale; ValueError where one is missing or names files that are not there."""
        folder = loop.root / "configs"
        file, size = folder / "system" / f"{system}.yaml", folder / "scale" / f"{scale}.yaml"
        made = cls(
            loop, System.parse(read_yaml(file), str(file)), Scale.parse(read_yaml(size), str(size)), file,
            Origin(system=system, scale=scale, sha256=hashlib.sha256(file.read_bytes()).hexdigest()),
        )  # fmt: skip
        for named in made._files():
            read_yaml(loop.root / named)
        return made

    @property
    def world(self) -> str:
        """Where initial states, demonstrations and the base world model lie."""
        return self._own if self._base else "start"

    @property
    def _own(self) -> str:
        return f"{self.loop.name}/start"

    def parents(self) -> dict[str, str]:
        """What the first round starts from."""
        reward = f"{self._own}/reward" if self._reward and not self.system.reward.own_head else f"{self.world}/reward"
        return {
            "dataset": f"{self.world}/dataset", "world_model": f"{self.world}/world_model",
            "policy": f"{self._own}/policy", "reward": reward,
        }  # fmt: skip

    def parameters(self, default: Mapping[str, Any]) -> dict[str, Any]:
        """params.yaml of the loop: the default loop's, what the system decides, and how much of it at this scale."""
        chosen = read_yaml(self.loop.root / self._algorithm)
        training = default["train_policy"]
        left = {key: value for key, value in training["algorithm"].items() if key not in chosen}
        below = {**default, "simulator": self.scale.simulator, "train_policy": {**training, "algorithm": left}}
        decided = self.system.stages()
        if self._whole_world:
            decided["train_world_model"].pop("form", None)
        return laid_over(laid_over(below, decided), self.scale.stages)

    def start_parameters(self, shared: Mapping[str, Any]) -> dict[str, Any]:
        """params.yaml of the loop's own start, a section for each of its stages; `shared` is that of all loops."""
        order = {"select_states": {"outcomes": "any", "order": "length"}}
        given = laid_over(laid_over(laid_over(shared, order), self.system.start()), self.scale.start)
        keys = [key for stage in self.start_stages().values() for key in _keys(stage)]
        return {key: given.get(key, {}) for key in dict.fromkeys(keys)}

    def start_pipeline(self) -> str:
        """dvc.yaml of the loop's own start."""
        head = "# What this loop begins with beside what all loops share. As in start/dvc.yaml, stages name no code.\n"
        return head + yaml.safe_dump({"stages": self.start_stages()}, sort_keys=False, width=110)

    def start_stages(self) -> dict[str, Stage]:
        """Stages of the loop's own start, by name."""
        made = self._world() if self._base else {}
        demonstrations, states = f"data/{self.world}/demonstrations", f"data/{self.world}/train_states"
        made["pretrain_policy"] = self._stage(
            "The policy, cloned from demonstrations", "pretrain_policy", "policy",
            demonstrations=demonstrations, config=self._config("policy", self.system.policy.file),
        )  # fmt: skip
        if self._short_first:
            made["select_states"] = self._stage(
                "Train states in the order of their demonstrations' lengths, which a curriculum draws from",
                "select_states", "ordered_states", states=states, episodes=demonstrations,
            )  # fmt: skip
        rewards = self._rewards()
        if rewards:
            made["collect_rollouts"] = self._stage(
                "Episodes of the cloned policy, for a reward model to learn from", "collect_rollouts", "rollouts",
                policy=f"data/{self._own}/policy", starts=states, simulator=self._simulator,
            )  # fmt: skip
        for role, name in rewards.items():
            made[f"calibrate_{role}"] = self._stage(
                f"The {role}: trained where there is something to train, calibrated and frozen", "calibrate_reward",
                role, section=None if role == "reward" else f"calibrate_{role}",
                episodes=f"{demonstrations} data/{self._own}/rollouts", config=self._config("reward", name),
            )  # fmt: skip
        return made

    def adapt(self, stages: dict[str, Stage]) -> None:
        """Change the default loop's stages, in place, to those of the system."""
        self._add(stages["train_policy"], "algorithm", self._algorithm)
        if self._short_first:
            self._point(stages["train_policy"], "data/start/train_states", f"data/{self._own}/ordered_states")
        if self.system.reward.own_head:
            self._calibrate_own_head(stages["calibrate_reward"])
        self._point(stages["evaluate_start"], "data/start/policy", f"data/{self._own}/policy")
        if self._base:
            admission = stages["admit_world_model"]
            admission["cmd"] = admission["cmd"].replace("data/start/world_model_expert ", "")
            admission["deps"].remove("data/start/world_model_expert")
            for stage in stages.values():
                self._point(stage, "data/start/", f"data/{self.world}/")
        self._point(stages["compare_rounds"], DEFAULT_SYSTEM, f"loops/{self.loop.name}/system.yaml")
        if self._reward not in (None, CLASSIFIER):
            referee = f"data/{self._own}/referee" if self._base else "data/start/reward"
            self._add(stages["admit_world_model"], "referee", referee)

    def _files(self) -> list[str]:
        """Files of configs/ that the loop stands on."""
        named = [self._simulator, self._config("policy", self.system.policy.file), self._algorithm]
        named += [self._config("reward", self._reward)] if self._reward else []
        worlds = (self.system.world_model.file, self._base)
        return named + [self._config("world_model", name) for name in worlds if name]

    @property
    def _whole_world(self) -> str | None:
        """File that stands for the system's world model at this scale, whole."""
        return self.scale.instead.get(f"world_model/{self.system.world_model.file}")

    @property
    def _base(self) -> str | None:
        """File that the loop's own base world model is trained from; none where it takes what all loops share."""
        return self._whole_world or self.scale.own_world

    @property
    def _reward(self) -> str | None:
        """File of the reward that is the loop's own; none where it is the one that all loops share."""
        file = self.system.reward.file
        if file is None:
            return CLASSIFIER if self._base else None
        return self.scale.file("reward", file)

    def _rewards(self) -> dict[str, str]:
        """Role of each reward model that the start makes, and its file."""
        own = self._reward is not None and not self.system.reward.own_head
        made = {"reward": self._reward} if own else {}
        return made | ({"referee": CLASSIFIER} if self._base and self._reward != CLASSIFIER else {})

    def _world(self) -> dict[str, Stage]:
        """Initial states, demonstrations and a base world model of the loop's own."""
        simulator = {"simulator": self._simulator}
        states = self._stage(
            "Four sets that share no state", "make_initial_states", "${item.role}_states",
            section="${item.role}_states", **simulator,
        )  # fmt: skip
        own = f"data/{self._own}"
        return {
            "make_initial_states": {"matrix": {"role": ["train", "validation", "admission", "sealed"]}, **states},
            "collect_demonstrations": self._stage(
                "Episodes of the scripted expert", "collect_demonstrations", "demonstrations",
                starts=f"{own}/train_states", **simulator,
            ),
            "build_dataset": self._stage(
                "What the base world model learns from", "build_dataset", "dataset", sources=f"{own}/demonstrations"
            ),
            "pretrain_world_model": self._stage(
                "The base world model", "pretrain_world_model", "world_model", dataset=f"{own}/dataset",
                config=self._config("world_model", self._base),
            ),
        }  # fmt: skip

    @property
    def _short_first(self) -> bool:
        """Whether the algorithm has a curriculum, and so needs its states in order."""
        return read_yaml(self.loop.root / self._algorithm).get("curriculum") is not None

    @property
    def _simulator(self) -> str:
        return self._config("simulator", self.scale.simulator)

    @property
    def _algorithm(self) -> str:
        return self._config("algorithm", self.system.algorithm.file)

    def _config(self, kind: str, name: str) -> str:
        return f"configs/{kind}/{self.scale.file(kind, name)}.yaml"

    def _stage(self, desc: str, task: str, out: str, section: str | None = None, **options: str) -> Stage:
        """A stage of the loop's own start. Options are paths, several apart by a space: all of them dependencies."""
        parameters = OWN_PARAMETERS.format(self.loop.name)
        words = [f"--{name.replace('_', '-')} {value}" for name, value in options.items()]
        words += [f"--params {parameters}", *([f"--section {section}"] if section else [])]
        made = f"data/{self._own}/{out}"
        return {
            "desc": desc, "wdir": "../../..", "cmd": " ".join([f"python -m tasks.{task}", *words, f"--out {made}"]),
            "deps": sorted(path for value in options.values() for path in value.split()),
            "params": [{parameters: ["seed", section or task]}], "outs": [made],
        }  # fmt: skip

    def _calibrate_own_head(self, stage: Stage) -> None:
        """The round's world model has a new head, which is calibrated; another reward would be measured again."""
        config, world = self._config("reward", self._reward), "data/${loop}/${round}/world_model"
        parent = "data/${parents.reward}"
        stage["cmd"] = stage["cmd"].replace(f"--reward {parent}", f"--config {config} --world-model {world}")
        at = stage["deps"].index(parent)
        stage["deps"][at : at + 1] = [world]
        stage["deps"].insert(0, config)

    @staticmethod
    def _point(stage: Stage, old: str, new: str) -> None:
        """Have a stage read another place."""
        stage["cmd"] = stage["cmd"].replace(old, new)
        for index, dep in enumerate(stage["deps"]):
            stage["deps"][index] = dep.replace(old, new)

    @staticmethod
    def _add(stage: Stage, option: str, path: str) -> None:
        """Give a stage one more thing to read."""
        stage["cmd"] = stage["cmd"].replace("--out ", f"--{option} {path} --out ")
        if path not in stage["deps"]:
            stage["deps"].insert(0, path)


def opened(recipe: Recipe) -> OpenRound:
    """The first round of the recipe's loop."""
    return OpenRound(loop=recipe.loop.name, round="i001", parents=recipe.parents(), origin=recipe.origin)


def _keys(stage: Stage) -> list[str]:
    """Sections of the parameters that a stage reads, one for each item of its matrix."""
    (keys,) = stage["params"][0].values()
    items = stage.get("matrix", {}).get("role", [""])
    return [key.replace("${item.role}", item) for key in keys for item in items]

"""Training seeds and the controls that a claim needs, on one GPU in minutes.

- budgets: in-world RL, RL in the simulator and filtered behaviour cloning, each with so many simulator episodes in all
  (250, 500, 1000). In the world, all of them are data: of a world model trained from nothing, and of the reward.
- recipes: the corrected PPO recipe, the original one, the original with each fix alone, no critic, the corrected one
  for twice the updates, in the failure-mix world model with no choice of checkpoints; and no critic in the simulator.
- sampling: plain groups against states that were mixed before, scouts and refilled groups: share of useful frames.

    python -m benchmarks.seeds_and_controls --task pick_place --out OUT --parts budgets recipes sampling

Results are written after every run; what is made already is not made again, so a stopped call goes on where it was.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Any

from benchmarks.experiment import FAILURE_MIX
from benchmarks.first_round import Trials, arguments
from coevo.core.artifacts import Artifact
from coevo.workers.simulation import kept_pools

GRPO = dict(kind="grpo")
CORRECTED = dict(kind="ppo", horizon="termination", critic_warmup=4, value_learning_rate=1e-4)
ORIGINAL = dict(kind="ppo", horizon="truncation", critic_warmup=0, value_learning_rate=1e-3)


@dataclass(frozen=True)
class Recipe:
    """How a policy is trained from its file's start."""

    policy: str
    """File of configs/policy."""
    algorithm: dict[str, Any]
    in_simulator: bool = False


RECIPES = {
    "corrected": Recipe("small_critic", dict(estimator=CORRECTED)),
    "original": Recipe("small_critic_on_action", dict(estimator=ORIGINAL)),
    "critic_free": Recipe("small", dict(estimator=GRPO)),
    "original_and_termination": Recipe(
        "small_critic_on_action", dict(estimator=ORIGINAL | dict(horizon="termination"))
    ),
    "original_and_critic_on_features": Recipe("small_critic", dict(estimator=ORIGINAL | dict(critic_warmup=4))),
    "original_and_slow_critic": Recipe(
        "small_critic_on_action", dict(estimator=ORIGINAL | dict(value_learning_rate=1e-4))
    ),
    "corrected_longer": Recipe("small_critic", dict(estimator=CORRECTED, updates=32)),
    "in_simulator": Recipe("small", dict(estimator=GRPO), in_simulator=True),
}
SAMPLING = {
    "plain": {},
    "mixed_first": dict(scouts=3, refill=32, returning=0.75),
}
BUDGET_ARMS = ("in_world", "simulator_rl", "cloning", "cloning_twice", "in_world_from_base")


class Controls(Trials):
    """The three parts."""

    def run(self) -> None:
        """Seed by seed, so that what is there when time is up compares like with like."""
        if self.args.admit:
            self.admit("mix", self.mix)
            self.write()
        seeds, parts = range(self.args.seeds), self.args.parts
        runs: list[tuple] = []
        if "budgets" in parts:
            budgets, arms = self.args.budgets, self.args.budget_arms
            runs += [(self.budget, arm, seed, size) for seed in seeds for size in budgets for arm in arms]
        if "recipes" in parts:
            runs += [(self.recipe, name, seed) for seed in seeds for name in self.args.recipes]
        if "sampling" in parts:
            runs += [(self.sampled, name, seed) for seed in seeds for name in SAMPLING]
        for function, name, seed, *more in runs:
            if self.is_over(f"{name} seed {seed}"):
                break
            function(name, seed, *more)
            self.write()
        self.say()

    def budget(self, arm: str, seed: int, size: int) -> None:
        """One arm with so many simulator episodes in all."""
        name = f"{arm}_{size}_{seed}"
        match arm:
            case "simulator_rl":
                groups = min(self.args.states, self.args.simulator_states)
                algorithm = self.algorithm | dict(states=groups, updates=max(1, size // (groups * 8)))
                policy = self.trained(name, seed, self.start, dict(algorithm=algorithm))
            case "cloning":
                policy = self.cloned(name, seed, self.start, [self.data(size, seed)])
            case "cloning_twice":
                first = self.data(size // 2, seed)
                once = self.cloned(f"{name}_once", seed, self.start, [first])
                second = self.rollouts(f"data_{name}", once, self.train_states, size // 4, 2, seed)
                policy = self.cloned(name, seed, once, [first, second])
            case _:
                policy = self.in_world(name, seed, size, from_base=arm == "in_world_from_base")
        self.scored(name, f"{arm}_{size}", policy)

    def data(self, size: int, seed: int) -> Artifact:
        """The start policy's episodes that a budget buys, two from each state."""
        return self.rollouts(f"budget_{size}_{seed}", self.start, self.train_states, size // 2, 2, seed)

    def cloned(self, name: str, seed: int, policy: Artifact, episodes: list[Artifact]) -> Artifact:
        """Filtered behaviour cloning on a policy's own successes."""
        params = dict(cloning=dict(steps=self.args.clone_steps, learning_rate=3e-4))
        return self.lab.make("clone_successes", f"policy_{name}", params, seed=seed, policy=policy, episodes=episodes)

    def in_world(self, name: str, seed: int, size: int, from_base: bool) -> Artifact:
        """World model and reward from the budget's episodes, then training in it. The demonstrations behind the start
        policy are known to all arms; a base that saw further experts is counted with them."""
        data, lab = self.data(size, seed), self.lab
        shown = self.work.expert("demonstrations", [self.work.noisy(60, 0.1, 0.1) | dict(count=60)])
        dataset = self.work.dataset(f"data_{size}_{seed}", FAILURE_MIX, [shown, data])
        reward = lab.make(
            "calibrate_reward", f"reward_{size}_{seed}", {}, seed=seed, episodes=[data],
            config="configs/reward/frame_classifier.yaml",
        )  # fmt: skip
        if from_base:
            world = lab.make(
                "train_world_model", f"world_base_{size}_{seed}", self.fine_tuning(self.args.steps), seed=seed,
                dataset=dataset, world_model=self.world_base,
            )  # fmt: skip
        else:
            world = self.from_nothing(f"world_{size}_{seed}", dataset, seed)
        policy = self.trained(name, seed, self.start, {}, world_model=world, reward=reward)
        self.replayed(name, seed, policy, world, reward)
        return policy

    def recipe(self, recipe: str, seed: int) -> None:
        """One recipe in the failure-mix world model, or in the simulator; its last weights."""
        chosen = RECIPES[recipe]
        name, start = f"{recipe}_{seed}", self.started(chosen.policy)
        params = dict(algorithm=self.algorithm | chosen.algorithm)
        world = {} if chosen.in_simulator else dict(world_model=self.mix, reward=self.reward)
        policy = self.trained(name, seed, start, params, **world)
        self.scored(name, recipe, policy, start)
        if world:
            self.replayed(name, seed, policy, self.mix, self.reward)

    def started(self, file: str) -> Artifact:
        """The start policy, with a critic where the file has one: the same demonstrations, seed and steps."""
        if file == "small":
            return self.start
        work = self.work
        shown = work.expert("demonstrations", [work.noisy(60, 0.1, 0.1) | dict(count=60)])
        cloning = dict(steps=1500 if work.scale >= 0.5 else 250)
        return self.lab.make(
            "pretrain_policy", f"policy_{file}", dict(episodes=self.args.demonstrations, cloning=cloning), seed=0,
            demonstrations=shown, config=f"configs/policy/{file}.yaml",
        )  # fmt: skip

    def sampled(self, sampling: str, seed: int) -> None:
        """Group-relative training with one way to choose states."""
        name = f"{sampling}_{seed}"
        params = dict(algorithm=self.algorithm | SAMPLING[sampling])
        policy = self.trained(name, seed, self.start, params, world_model=self.mix, reward=self.reward)
        self.scored(name, sampling, policy)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--parts", nargs="+", default=["budgets"], choices=["budgets", "recipes", "sampling"])
    parser.add_argument("--recipes", nargs="+", default=list(RECIPES), choices=RECIPES)
    parser.add_argument("--admit", action="store_true", help="hold the world model against admission states first")
    parser.add_argument("--budgets", nargs="+", type=int, default=[250, 500, 1000], help="simulator episodes in all")
    parser.add_argument("--budget-arms", nargs="+", default=list(BUDGET_ARMS), choices=BUDGET_ARMS)
    parser.add_argument("--simulator-states", type=int, default=4, help="initial states of an update in the simulator")
    parser.add_argument("--clone-steps", type=int, default=500)
    args: argparse.Namespace = parser.parse_args()
    Controls(args, "seeds_and_controls").run()


if __name__ == "__main__":
    with kept_pools():
        main()

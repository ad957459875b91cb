"""What makes a second round gain: arms that differ in what refines the world model, on one GPU in minutes.

Round one is that of `benchmarks.one_gpu`: a failure-mix world model, a policy trained in it (the evolved policy). Every
arm has the same budget of simulator episodes of the evolved policy, and trains on from it:

- more_training: none of them; training goes on in the first world model (what a second round must beat).
- new: its rollouts alone.
- replay: its rollouts, with the first round's data replayed.
- forks: half of it from states whose outcomes were mixed, eight from each; such states are drawn more often.
- fork_pairs: half of it expert counterfactuals on those states, undisturbed and offset, all executed.
- fresh: rollouts from start states that no world model has seen; the policy trains from these as well.
- anew: the data of `replay`, a world model trained anew from the base.
- long: the data of `replay`, the first world model trained on at the first round's rate, `--long-steps` more.
- long_old: the same steps on the first round's data, no new episodes: what the steps do by themselves.

    python -m benchmarks.second_round --task pick_place --out OUT

Results are written after every run; what is made already is not made again, so a stopped call goes on where it was.
"""

from __future__ import annotations

from typing import Any

from benchmarks.experiment import FAILURE_MIX, fidelity_figures
from benchmarks.first_round import Trials, arguments
from coevo.core.artifacts import Artifact
from coevo.records.outcomes import Admission
from coevo.workers.simulation import kept_pools

OWN = {"rollout_success": 0.4, "rollout_failure": 0.6}
PAIRED = FAILURE_MIX | {"nominal": 0.1, "offset_failure": 0.15, "offset_success": 0.05}
WATCHED = ("discrimination_before", "discrimination", "recall_before", "recall", "fake_success_before", "fake_success")
ARMS = ("more_training", "replay", "forks", "fresh", "new", "fork_pairs", "anew", "long", "long_old")
FORK_REPEATS = 8
"""Episodes from each mixed state."""


class SecondRound(Trials):
    """World models first, each held against the evolved policy's own rollouts; then training from it, over seeds."""

    def run(self) -> None:
        """Arms in the order in which they matter."""
        work, args = self.work, self.args
        first = dict(algorithm=self.algorithm, validate_every=4)
        self.evolved = self.trained("first_round", 0, self.start, first, world_model=self.mix, reward=self.reward)
        self.scored("first_round", "first_round", self.evolved)
        self.held_out = self.rollouts("held_out", self.evolved, work.states("validation", 64), 64, 2)
        admission = work.states("admission", 144)
        self.evolved_rollouts = self.rollouts("admission_evolved", self.evolved, admission, 144, 4)
        worlds: dict[str, Artifact] = {}
        for arm in args.arms:
            if self.is_over(f"the world model of {arm}"):
                break
            worlds[arm] = self.mix if arm == "more_training" else self.refined(arm)
            self.judge_world(arm, worlds[arm])
            self.write()
        for arm, seed in ((arm, seed) for seed in range(args.seeds) for arm in worlds):
            if self.is_over(f"{arm} seed {seed}"):
                break
            self.train_on(arm, seed, worlds[arm])
            self.write()
        self.say()

    def refined(self, arm: str) -> Artifact:
        """The arm's world model, ended at its peak; one trained at the full rate runs its course."""
        lab, data = self.lab, self.data(arm)
        if arm in ("anew", "long", "long_old"):
            return lab.make(
                "train_world_model", f"world_{arm}", self.fine_tuning(self.args.long_steps), dataset=data,
                world_model=self.world_base if arm == "anew" else self.mix,
            )  # fmt: skip
        settings = self.training(self.args.refine_steps, 1e-4) | self.args.world_training | dict(warmup=20, ema=0.99)
        params: dict[str, Any] = dict(training=settings, watch_every=self.args.watch_every, recall_floor=0.8)
        if arm == "forks":
            params["mixed_weight"] = 3.0
        made = lab.make(
            "refine_world_model", f"world_{arm}", params, dataset=data, world_model=self.mix, reward=self.reward,
            held_out=self.held_out,
        )  # fmt: skip
        for metric in WATCHED:
            self.add_plain(f"watched_{metric}", arm, made.manifest.metrics[metric])
        self.add_plain("best_step", arm, made.manifest.metrics["best_step"], "count")
        for name, value in made.manifest.metrics.items():
            if name.startswith("newest_"):
                self.add_plain(name, arm, value, "count" if "states" in name else "fraction")
        return made

    def data(self, arm: str) -> Artifact:
        """The arm's mixture."""
        budget, mixture, sources, previous = self.args.budget, FAILURE_MIX, [], self.first_data
        if arm == "long_old":
            return self.first_data
        match arm:
            case "forks":
                sources = [self.own(budget // 2), self.forks(budget // 2)]
            case "fork_pairs":
                sources, mixture = [self.own(budget // 2), self.fork_pairs(budget // 2)], PAIRED
            case "fresh":
                sources = [self.rollouts("evolved_fresh", self.evolved, self.fresh, budget // 2, 2)]
            case "new":
                sources, mixture, previous = [self.own(budget)], OWN, None
            case _:
                sources = [self.own(budget)]
        params = dict(mixture=mixture, optional=list(mixture), age_decay=self.args.age_decay)
        more = {} if previous is None else dict(previous=previous)
        return self.lab.make("build_dataset", f"second_{arm}", params, sources=sources, **more)

    @property
    def fresh(self) -> Artifact:
        """Start states of another draw."""
        return self.work.states("train", 1280, "fresh_states", seed=1)

    def own(self, episodes: int) -> Artifact:
        """The evolved policy's rollouts, two from each state."""
        return self.rollouts(f"evolved_{episodes}", self.evolved, self.train_states, episodes // 2, 2)

    def mixed_states(self, episodes: int, count: int) -> Artifact:
        """States where the evolved policy's rollouts ended both ways."""
        return self.lab.make(
            "select_states", f"mixed_states_{count}", dict(count=max(count, 1)), states=self.train_states,
            episodes=self.own(episodes),
        )  # fmt: skip

    def forks(self, episodes: int) -> Artifact:
        """Several more episodes from each mixed state: the same start, other actions, other outcomes."""
        count = episodes // FORK_REPEATS
        chosen = self.mixed_states(episodes, count)
        return self.rollouts("evolved_forks", self.evolved, chosen, count, FORK_REPEATS, seed=1)

    def fork_pairs(self, episodes: int) -> Artifact:
        """On mixed states, the expert undisturbed and twice with an offset."""
        chosen = self.mixed_states(episodes, episodes // 3)
        count = int(chosen.manifest.metrics["chosen"])
        pair = dict(name="offset", perturbation=self.work.task.offset, states=count, per_state=2)
        params = dict(episodes=[], pairs=[pair], workers=self.work.workers)
        return self.lab.make(
            "collect_demonstrations", "evolved_pairs", params, simulator=self.work.task.simulator, starts=chosen
        )

    def judge_world(self, arm: str, model: Artifact) -> None:
        """Fidelity on the evolved policy's rollouts from admission states, and its replay mismatch there."""
        work = self.work
        made = self.lab.make(
            "admit_world_model", f"admission_evolved_{arm}", dict(strips=0, workers=work.workers, pixel_episodes=0),
            world_model=model, reward=self.reward, episodes=self.evolved_rollouts, policy=self.evolved,
            states=work.states("admission", 144), simulator=work.task.simulator, criterion="criterion.yaml",
        )  # fmt: skip
        record = Admission.model_validate_json((made.path / "admission.json").read_text())
        for row in record.fidelity:
            if row.arm == model.id:
                self.figures += fidelity_figures(arm, work.task.name, [row])
        self.add("mismatch_evolved_policy", arm, record.mismatch)

    def train_on(self, arm: str, seed: int, model: Artifact) -> None:
        """Training from the evolved policy in the arm's world model; the gain is over the evolved policy."""
        name = f"{arm}_{seed}"
        params = dict(algorithm=self.algorithm | dict(scouts=3, refill=32, returning=0.5), validate_every=4)
        policy = self.trained(
            f"second_{name}", seed, self.evolved, params, world_model=model, reward=self.reward,
            starts=self.fresh if arm == "fresh" else self.train_states,
        )  # fmt: skip
        self.scored(f"second_{name}", f"second_{arm}", policy, self.evolved)
        self.replayed(f"second_{name}", seed, policy, model, self.reward)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--arms", nargs="+", default=list(ARMS), choices=ARMS)
    parser.add_argument("--budget", type=int, default=512, help="simulator episodes that each arm's data cost")
    parser.add_argument("--long-steps", type=int, default=2500, help="of anew, long and long_old")
    parser.add_argument("--refine-steps", type=int, default=600)
    parser.add_argument("--watch-every", type=int, default=100)
    parser.add_argument("--age-decay", type=float, default=0.1, help="weight of the first round's data")
    SecondRound(parser.parse_args(), "second_round").run()


if __name__ == "__main__":
    with kept_pools():
        main()

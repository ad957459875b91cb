"""A run that is stopped after any of its updates goes on to the same end as one that was not."""

from __future__ import annotations

import pytest
import torch

from coevo.core.checkpoints import Checkpoint
from coevo.rl import training
from coevo.rl.alarms import Probed, Validation
from coevo.rl.config import Grpo, Ppo
from coevo.rl.update import moving_weights
from tests.doubles import toy_state
from tests.rl.examples import dream_roll, make_policy, small

STATES = [toy_state(column) for column in range(3, 11)]
# From some of these nothing can be won: which groups are refilled, and by what, hangs on the memory of the sampler.
FURTHER = [toy_state(column) for column in range(0, 10)]
SUCCESS = {0: 0.4, 2: 0.5, 4: 0.6, 6: 0.5}


class Stopped(Exception):
    """In place of a kill."""


def check(update: int) -> float:
    return SUCCESS[update]


def probe(update: int) -> Probed:
    return Probed(dreamed=16, won=4 + 2 * update, confirmed=4)


def run(algorithm, states, validation, checkpoint=None, stop_after=None, seed=0):
    """(outcome, policy, lines) of a run; with `stop_after` it dies once this update is logged and kept."""
    policy, lines = make_policy(seed, critic=True), []

    def log(update, numbers):
        lines.append((update, numbers))

    class Watched(Checkpoint):
        def save(self, state):
            super().save(state)
            if state["update"] == stop_after:
                raise Stopped

    kept = None if checkpoint is None else Watched(checkpoint, seconds=0.0)
    outcome = training.train(policy, algorithm, dream_roll(policy), states, 0, log, validation, checkpoint=kept)
    return outcome, policy, lines


@pytest.mark.parametrize(
    "algorithm, states, validation",
    [
        (small(updates=4, states=3, refill=2, returning=0.5), FURTHER, Validation(check, 2, 9, 50, probe)),
        (small(updates=4, states=3, estimator=Ppo(critic_warmup=2)), STATES, Validation(check, 2, 9, 50)),
        (small(updates=4, states=3, estimator=Grpo(), scouts=2), STATES, None),
        (small(updates=9, states=2), STATES, Validation(lambda update: 0.1 if update else 0.9, 1, 3, 50)),
    ],
    ids=["refilled and probed", "critic warm-up", "no checks", "stopped by its rule"],
)
def test_a_stopped_run_goes_on_to_the_same_policy_log_and_counts(tmp_path, algorithm, states, validation):
    whole, policy, lines = run(algorithm, states, validation)
    for last in [update for update, _ in lines]:
        kept = tmp_path / f"{last}.pt"
        with pytest.raises(Stopped):
            run(algorithm, states, validation, kept, stop_after=last)
        # Other weights to begin with: all must come from the checkpoint.
        outcome, again, logged = run(algorithm, states, validation, kept, seed=5)
        assert outcome == whole and logged == lines, last
        for name, weight in policy.state_dict().items():
            assert torch.equal(weight, again.state_dict()[name]), (last, name)


def test_alarms_in_a_row_are_counted_across_a_stop(tmp_path):
    """Dreamed success rises, validation falls, replays do not keep up: the second alarm in a row ends the run."""
    won, success = {0: 4, 1: 10, 2: 14}, {0: 0.5, 1: 0.45, 2: 0.45}
    validation = Validation(
        success.__getitem__, 1, 2, 50, lambda update: Probed(dreamed=16, won=won[update], confirmed=4)
    )
    kept = tmp_path / "kept.pt"
    with pytest.raises(Stopped):
        run(small(updates=9), STATES, validation, kept, stop_after=1)
    outcome, _, lines = run(small(updates=9), STATES, validation, kept)
    assert outcome.stopped.startswith("after update 2: since update 0 dreamed success rose from 0.250 to 0.875")
    assert [update for update, _ in lines] == [0, 1, 2] and lines[1][1]["alarm"] == 1.0


def test_parameters_that_no_update_moves_are_not_kept_twice():
    policy = make_policy()
    for weight in policy.backbone.parameters():
        weight.requires_grad_(False)
    kept = moving_weights(policy)
    assert kept and not [name for name in kept if name in dict(policy.backbone.named_parameters(prefix="backbone"))]
    assert kept["head.mean.weight"].data_ptr() != policy.head.mean.weight.data_ptr()

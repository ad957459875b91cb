"""The clipped update against hand-worked numbers and against autograd."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from coevo.core.types import take_rows
from coevo.rl.config import LeaveOneOut, Ppo
from coevo.rl.packing import pack
from coevo.rl.update import Learner, Part, _critic_gradient, clipped_loss, gradient, ratio_terms
from tests.doubles import TOY
from tests.rl.examples import changed, dream_roll, grouped, judged, make_policy, small, weights_of


def decisions(policy, algorithm, first=(2, 5, 5, 5, 4, 5, 4, 5)):
    made = dream_roll(policy)(grouped((0, 5)), (1,))[0]
    return pack(made, judged(made, list(first)), algorithm, TOY.chunk_frames)[0]


def test_the_clipped_loss_worked_by_hand():
    ratios, advantage = torch.tensor([1.5, 1.5, 0.5, 0.5]), torch.tensor([1.0, -1.0, 1.0, -1.0])
    log_ratio = ratios.log()[:, None].requires_grad_()
    loss, metrics = clipped_loss(log_ratio, advantage, 0.2)
    # min(1.5, 1.2), min(-1.5, -1.2), min(0.5, 0.8), min(-0.5, -0.8)
    assert loss.item() == pytest.approx(-(1.2 - 1.5 + 0.5 - 0.8) / 4)
    assert metrics["clipped"].item() == 0.5  # counted where the clip binds, before anything is clamped
    loss.backward()
    # d(-A r)/d log r = -A r where the clip does not bind, nothing where it does
    assert log_ratio.grad.flatten().tolist() == pytest.approx([0, 1.5 / 4, -0.5 / 4, 0])


def test_terms_of_a_decision_are_summed_and_decisions_averaged():
    loss, _ = clipped_loss(torch.zeros(2, 3), torch.tensor([1.0, 0.5]), 0.2)
    assert loss.item() == pytest.approx(-(3 * 1.0 + 3 * 0.5) / 2)


def test_ratios_are_taken_over_tokens_actions_or_the_chunk():
    difference = torch.log(torch.tensor([[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]]))
    assert ratio_terms(difference, "token", 2).exp().tolist() == [pytest.approx([1, 2, 3, 4, 5, 6])]
    assert ratio_terms(difference, "action", 2).exp().tolist() == [pytest.approx([6, 120])]
    assert ratio_terms(difference, "chunk", 2).exp().tolist() == [pytest.approx([720])]
    with pytest.raises(ValueError, match="ratio = 'word' is not one of token, action, chunk"):
        ratio_terms(difference, "word", 2)


@pytest.mark.parametrize("ratio", ["token", "action", "chunk"])
def test_the_first_gradient_is_the_policy_gradient_whatever_the_ratio_is_taken_over(ratio):
    """With every ratio at one, each form has the gradient of advantage times log-probability."""
    policy = make_policy()
    algorithm = small(estimator=LeaveOneOut(), ratio=ratio, gradient_clip=1e9)
    batch = decisions(policy, algorithm)
    log_prob, _ = policy.evaluate(batch.frames, batch.proprio, batch.words, batch.draw)
    (-(batch.advantage * log_prob.sum(1)).mean()).backward()
    expected = {name: weight.grad.clone() for name, weight in policy.named_parameters() if weight.grad is not None}
    policy.zero_grad()
    metrics = Learner(policy, algorithm, 0).update(batch)
    for name, weight in policy.named_parameters():
        if name in expected:
            torch.testing.assert_close(weight.grad, expected[name], atol=1e-5, rtol=1e-4)
    assert metrics["clipped"] == 0 and abs(metrics["kl"]) < 1e-6 and metrics["gradient_norm"] > 0


def test_an_update_makes_what_won_likelier():
    policy = make_policy()
    algorithm = small(estimator=LeaveOneOut(), epochs=4)
    batch = decisions(policy, algorithm)
    Learner(policy, algorithm, 0).update(batch)
    with torch.no_grad():
        log_prob, _ = policy.evaluate(batch.frames, batch.proprio, batch.words, batch.draw)
    change = (log_prob - batch.log_prob).sum(1)
    assert change[batch.advantage > 0].mean() > 0 > change[batch.advantage < 0].mean()


def test_the_clipped_share_grows_when_the_policy_runs_away():
    policy = make_policy()
    algorithm = small(estimator=LeaveOneOut(), epochs=1)
    batch = decisions(policy, algorithm)
    moved = replace(batch, log_prob=batch.log_prob - math.log(2.0) * batch.advantage.sign()[:, None])
    assert Learner(policy, algorithm, 0).update(moved)["clipped"] == pytest.approx(1.0)


def test_an_empty_batch_is_skipped_and_counted():
    policy = make_policy()
    before, algorithm = weights_of(policy), small(estimator=LeaveOneOut())
    learner = Learner(policy, algorithm, 0)
    assert learner.update(decisions(policy, algorithm, first=(5,) * 8)) == {"skipped": 1.0}
    assert not changed(before, policy)
    assert learner.update(decisions(policy, algorithm))["skipped"] == 0.0


def test_critic_warm_up_trains_the_critic_and_leaves_the_actor():
    policy = make_policy(critic=True)
    algorithm = small(estimator=Ppo(critic_warmup=1))
    before, learner = weights_of(policy), Learner(policy, algorithm, 0)
    metrics = learner.update(decisions(policy, algorithm))
    assert {name.split(".")[0] for name in changed(before, policy)} == {"critic"}
    assert "gradient_norm" not in metrics and metrics["value_loss"] > 0
    learner.update(decisions(policy, algorithm))
    assert {"critic", "head", "backbone"} == {name.split(".")[0] for name in changed(before, policy)}


def test_the_share_of_clipped_values_is_counted_before_clamping():
    policy = make_policy(critic=True)
    algorithm = small(estimator=Ppo(value_clip=0.2))
    batch = decisions(policy, algorithm)
    far = torch.zeros(len(batch))
    far[:3] = 0.3
    metrics = Learner(policy, algorithm, 0).update(replace(batch, value=batch.value - far))
    assert metrics["value_clipped"] == pytest.approx(3 / len(batch))


def test_the_gradient_of_the_clipped_value_loss_worked_by_hand():
    """Half the larger of two squared errors; where the clipped one is larger and binds, nothing is learned."""
    policy = make_policy(critic=True)
    batch = take_rows(decisions(policy, small(estimator=Ppo())), [0, 1, 2, 3])
    rows = replace(batch, value=torch.zeros(4), returns=torch.tensor([1.0, 1.0, 0.0, -1.0]))
    value = torch.tensor([0.1, 0.5, 0.5, 0.5], requires_grad=True)
    metrics = _critic_gradient(value, rows, 0.2, share=0.5)
    # Errors of the value: -0.9, -0.5, 0.5, 1.5; of the value clipped to 0.1, 0.2, 0.2, 0.2: -0.9, -0.8, 0.2, 1.2.
    assert value.grad.tolist() == pytest.approx([0.5 * error / 4 for error in (-0.9, 0.0, 0.5, 1.5)])
    assert metrics["value_loss"].item() == pytest.approx((0.81 + 0.64 + 0.25 + 2.25) / 8)
    assert metrics["value_clipped"].item() == 0.75


class Told(torch.nn.Module):
    """A policy whose log-probabilities are its only weights."""

    def __init__(self, log_prob: torch.Tensor) -> None:
        super().__init__()
        self.log_prob = torch.nn.Parameter(log_prob)
        self.critic, self.config = None, SimpleNamespace(segments=2)

    def evaluate(self, frames, proprio, words, draw):
        return self.log_prob, None


@pytest.mark.parametrize("ratio", ["token", "action", "chunk"])
def test_the_gradient_of_the_whole_loss_is_that_of_differences_of_its_values(ratio):
    """Clipped surrogate and divergence penalty together, away from the corners, against central differences."""
    old = decisions(make_policy(), small(estimator=LeaveOneOut()))
    batch = take_rows(old, range(4))
    moved = 0.04 * torch.randn(batch.log_prob.shape, generator=torch.Generator().manual_seed(0))
    batch = replace(batch, advantage=torch.tensor([1.0, -0.5, 0.25, -2.0]))
    algorithm = small(estimator=LeaveOneOut(), ratio=ratio, kl_weight=0.7, clip=0.1)

    def value(log_prob):
        difference = log_prob - batch.log_prob.double()
        terms, advantage = ratio_terms(difference, ratio, 2).exp(), batch.advantage.double()[:, None]
        surrogate = torch.minimum(advantage * terms, advantage * terms.clamp(0.9, 1.1))
        return -surrogate.sum(1).mean() + 0.7 * difference.square().sum(1).mean() / 2

    policy = Told(batch.log_prob + moved)
    found = gradient(policy, Part(batch, 1.0, algorithm, warming=False)).actor[0]
    at = policy.log_prob.detach().double()
    for place in [(0, 0), (1, 3), (2, 5), (3, 7)]:
        step = torch.zeros_like(at)
        step[place] = 1e-6
        assert found[place].item() == pytest.approx((value(at + step) - value(at - step)).item() / 2e-6, abs=1e-5)


def test_explained_variance_of_a_critic_that_knows_is_one():
    policy = make_policy(critic=True)
    algorithm = small(estimator=Ppo())
    batch = decisions(policy, algorithm)
    assert Learner(policy, algorithm, 0).update(replace(batch, value=batch.returns))["explained_variance"] == 1.0
    constant = replace(batch, returns=torch.ones(len(batch)))
    assert Learner(policy, algorithm, 0).update(constant)["explained_variance"] == 0.0


def test_one_decision_alone_makes_no_weight_nan():
    policy = make_policy(critic=True)
    algorithm = small(estimator=Ppo(critic_warmup=0))
    Learner(policy, algorithm, 0).update(take_rows(decisions(policy, algorithm), [0]))
    assert all(weight.isfinite().all() for weight in policy.parameters())


def test_a_divergence_penalty_holds_the_policy_back():
    moved = {}
    for weight in (0.0, 50.0):
        policy = make_policy()
        algorithm = small(estimator=LeaveOneOut(), epochs=8, kl_weight=weight)
        batch = decisions(policy, algorithm)
        Learner(policy, algorithm, 0).update(batch)
        with torch.no_grad():
            log_prob, _ = policy.evaluate(batch.frames, batch.proprio, batch.words, batch.draw)
        moved[weight] = (log_prob - batch.log_prob).abs().mean().item()
    assert moved[50.0] < 0.7 * moved[0.0]


def test_ppo_without_a_critic_is_refused():
    with pytest.raises(ValueError, match="critic: true"):
        Learner(make_policy(), small(estimator=Ppo()), 0)


def test_the_same_seed_gives_the_same_weights_and_steps_are_shuffled_differently():
    found = []
    for seed in (0, 0, 1):
        policy = make_policy()
        algorithm = small(estimator=LeaveOneOut(), minibatch=4)
        Learner(policy, algorithm, seed).update(decisions(policy, algorithm))
        found.append(policy.head.mean.weight.detach().clone())
    assert torch.equal(found[0], found[1]) and not torch.equal(found[0], found[2])

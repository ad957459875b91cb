"""Every head: log-probabilities against closed forms, losses against autograd by hand, keyed draws, learning."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.distributions import Laplace, Normal

from coevo.core import artifacts, random
from coevo.core.protocols import Policy
from coevo.core.types import Observation
from coevo.policies import build
from coevo.policies.backbone import Features
from coevo.policies.cloning import clone
from coevo.policies.config import (
    Cloning,
    FixedGaussian,
    FixedLaplace,
    Flow,
    LaplaceScale,
    LearnedNoise,
    SdeNoise,
    SmallPolicyConfig,
    Tokens,
)
from coevo.rl.config import Grpo, LeaveOneOut, Ppo
from coevo.rl.packing import pack
from coevo.rl.update import Learner
from tests.doubles import TOY
from tests.policies.examples import HEADS, demonstrations, evaluate, features_of, keys, make, seen
from tests.rl.examples import dream_roll, grouped, judged, small

EACH = pytest.mark.parametrize("name", sorted(HEADS))
OTHERS = sorted(set(HEADS) - {"gaussian"})


@EACH
@torch.no_grad()
def test_it_answers_the_protocol_and_scores_its_own_draw_the_same_again(name):
    policy, observation = make(name, critic=True), seen()
    assert isinstance(policy, Policy)
    chunk = policy.act(observation, keys(4), "sampled")
    assert chunk.actions.shape == (4, 4, 4) and chunk.actions.abs().max() <= 1
    log_prob, value = evaluate(policy, observation, chunk.draw)
    assert torch.equal(log_prob, chunk.log_prob) and torch.equal(value, chunk.value)
    assert log_prob.shape[1] % policy.config.segments == 0


@EACH
@torch.no_grad()
def test_a_row_draws_the_same_in_any_batch_and_another_key_draws_another(name):
    policy, observation = make(name), seen()
    whole = policy.act(observation, keys(4), "sampled")
    alone = policy.act(seen([6.0]), keys(4)[2:3], "sampled")
    torch.testing.assert_close(alone.draw[0], whole.draw[2], atol=1e-5, rtol=0)
    assert not torch.allclose(policy.act(observation, keys(4, "other"), "sampled").draw, whole.draw, atol=1e-2)
    greedy = policy.act(observation, keys(4), "greedy").draw
    assert torch.equal(greedy, policy.act(observation, keys(4, "other"), "greedy").draw)


@torch.no_grad()
def test_probabilities_of_the_bins_sum_to_one_and_are_the_softmax_of_the_logits():
    policy, observation = make("tokens"), seen()
    every = torch.stack([evaluate(policy, observation, torch.full((4, 8), float(bin)))[0] for bin in range(9)])
    torch.testing.assert_close(every.exp().sum(0), torch.ones(4, 8))
    logits = policy.head.logits(features_of(policy, observation))
    torch.testing.assert_close(every, (logits - logits.exp().sum(-1, keepdim=True).log()).permute(2, 0, 1))


@torch.no_grad()
def test_tokens_are_drawn_as_often_as_they_are_likely():
    policy, observation = make("tokens"), seen([3.0])
    policy.head.logits.weight.mul_(8.0)
    many = Observation(*(part.expand(6000, *part.shape[1:]) for part in (observation.frames, observation.proprio)),
                       observation.instructions * 6000)  # fmt: skip
    draw = policy.act(many, keys(6000), "sampled").draw
    expected = policy.head.log_probs(features_of(policy, observation))[0].exp()
    for number in (0, 7):
        found = torch.bincount(draw[:, number].long(), minlength=9) / 6000
        assert (found - expected[number]).abs().max() < 4 * math.sqrt(0.25 / 6000)
    assert torch.equal(policy.act(observation, keys(1), "greedy").draw[0], expected.argmax(1).float())


@torch.no_grad()
def test_a_token_stands_for_the_centre_of_its_bin_and_255_bins_are_those_of_openvla():
    head = make(Tokens(bins=4)).head
    assert head.held(torch.arange(4.0)[None]).tolist() == [[-0.75, -0.25, 0.25, 0.75]]
    assert head.tokens(torch.tensor([[-2.0, -0.51, -0.01, 0.0, 0.6, 1.0]])).tolist() == [[0, 0, 1, 2, 3, 3]]
    head = make(Tokens()).head
    edges = np.linspace(-1, 1, 256)
    np.testing.assert_allclose(head.held(torch.arange(255.0)[None])[0], (edges[1:] + edges[:-1]) / 2, atol=1e-6)


@torch.no_grad()
def test_the_scale_head_scores_as_laplace_does_and_keeps_its_bounds():
    policy, observation = make("laplace_scale"), seen()
    features = features_of(policy, observation)
    draw = torch.randn(4, 8, generator=random.generator(0, "draw"))
    mean, scale = policy.head.mean(features), policy.head.log_scale(features).exp()
    expected = -(draw - mean).abs() / scale - (2 * scale).log()
    torch.testing.assert_close(evaluate(policy, observation, draw)[0], expected)
    torch.testing.assert_close(expected, Laplace(mean, scale).log_prob(draw))
    assert (scale.log() - math.log(0.07)).abs().max() < 0.6  # where it starts
    for bias, bound in ((-50.0, 0.02), (50.0, 0.4)):
        policy.head.scale.bias.fill_(bias)
        torch.testing.assert_close(policy.head.log_scale(features).exp(), torch.full((4, 8), bound))


@pytest.mark.parametrize("mean_loss", ["l1", "likelihood"])
def test_the_gradient_of_the_scale_loss_worked_by_hand(mean_loss):
    """-log p = |e| / b + log 2b: the scale learns from the error, and the mean from it too if it is told to."""
    low, high = 0.02, 0.4
    policy = make(LaplaceScale(low=low, high=high, mean_loss=mean_loss))
    features, target = features_of(policy, seen()), torch.full((4, 8), 0.3)
    features = Features(features.pooled.detach().requires_grad_())
    policy.head.loss(features, target, random.generator(0)).backward()
    with torch.no_grad():
        error, log_scale = policy.head.mean(features) - target, policy.head.log_scale(features)
        share = (log_scale - math.log(low)) / (math.log(high) - math.log(low))
        by_log_scale = 1.0 - error.abs() / log_scale.exp()
        by_raw = by_log_scale * (math.log(high) - math.log(low)) * share * (1 - share) / 32
        by_mean = error.sign() / (log_scale.exp() if mean_loss == "likelihood" else 1.0) / 32
        torch.testing.assert_close(policy.head.scale.bias.grad, by_raw.sum(0))
        torch.testing.assert_close(policy.head.mean.bias.grad, by_mean.sum(0))
        through = by_mean @ policy.head.mean.weight
        if mean_loss == "likelihood":
            through = through + by_raw @ policy.head.scale.weight
        torch.testing.assert_close(features.pooled.grad, through)


def test_the_gradient_of_cross_entropy_is_probability_minus_truth():
    policy = make("tokens")
    features, target = features_of(policy, seen()), torch.zeros(4, 8)
    policy.head.loss(features, target, random.generator(0)).backward()
    truth = torch.zeros(9)
    truth[4] = 1.0  # zero lies in the middle one of nine bins
    expected = (policy.head.log_probs(features).exp() - truth).sum(0) / 32
    torch.testing.assert_close(policy.head.logits.bias.grad.view(8, 9), expected.detach())


@pytest.mark.parametrize("settings", [FixedGaussian(std=0.3), FixedLaplace(scale=0.3)], ids=lambda head: head.kind)
def test_the_gradient_of_a_fixed_heads_cloning_loss_is_its_error_or_the_sign_of_it(settings):
    policy = make(settings)
    features, target = features_of(policy, seen()), torch.full((4, 8), 0.3)
    policy.head.loss(features, target, random.generator(0)).backward()
    error = (policy.head.mean(features) - target).detach()
    by_mean = (2 * error if settings.kind == "gaussian" else error.sign()) / 32
    torch.testing.assert_close(policy.head.mean.bias.grad, by_mean.sum(0))


class Steady(torch.nn.Module):
    """An expert whose velocity is a matrix times the noised action, plus a constant."""

    def __init__(self, slope: float = 0.5, constant: float = 0.2) -> None:
        super().__init__()
        self.slope, self.constant = torch.nn.Parameter(torch.tensor(slope)), torch.nn.Parameter(torch.tensor(constant))

    def forward(self, noised, time, features):
        return self.slope * noised + self.constant + 0.0 * time[:, None], noised.new_zeros(len(noised), 32)


def steady(noise, steps=3):
    head = make(Flow(steps=steps, noise=noise, width=32)).head
    head.expert = Steady()
    return head


def test_the_gradient_of_flow_matching_worked_by_hand():
    head, target = steady(SdeNoise()), torch.full((4, 8), 0.3)
    head.loss(Features(torch.zeros(4, 32)), target, random.generator(0, "loss")).backward()
    source = random.generator(0, "loss")
    time = (0.999 * torch.rand(4, generator=source) ** (2 / 3) + 0.001)[:, None]
    noise = torch.randn(4, 8, generator=source)
    noised = time * noise + (1 - time) * target
    error = 0.5 * noised + 0.2 - (noise - target)
    assert head.expert.constant.grad.item() == pytest.approx(2 * error.mean().item(), rel=1e-4)
    assert head.expert.slope.grad.item() == pytest.approx(2 * (error * noised).mean().item(), rel=1e-4)


@torch.no_grad()
def test_the_chain_is_scored_as_the_product_of_its_normal_transitions():
    """Flow-SDE from its equation: dx = -(v + s^2 / (2 t) (x + (1 - t) v)) dt + s dw, s^2 = 0.16 t / (1 - t)."""
    head, draw = steady(SdeNoise(level=0.4)), torch.randn(5, 4 * 8, generator=random.generator(0, "chain"))
    terms = head.score(Features(torch.zeros(5, 32)), draw).log_prob.view(5, 2, 3, 4)  # action, step, dimension
    chain = draw.view(5, 4, 8)
    for step, (t, strength_at) in enumerate([(1.0, 2 / 3), (2 / 3, 2 / 3), (1 / 3, 1 / 3)]):
        x, variance = chain[:, step], 0.16 * strength_at / (1 - strength_at)
        v = 0.5 * x + 0.2
        mean = x - (v + variance / (2 * t) * (x + (1 - t) * v)) / 3
        expected = Normal(mean, math.sqrt(variance / 3)).log_prob(chain[:, step + 1])
        torch.testing.assert_close(terms[:, :, step].flatten(1), expected, atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_learned_noise_stands_around_the_euler_step():
    head, draw = steady(LearnedNoise(low=0.1, high=0.4)), torch.randn(5, 32, generator=random.generator(0, "chain"))
    head.noise.weight.zero_()
    head.noise.bias.zero_()  # halfway between the bounds' logarithms: 0.2
    terms = head.score(Features(torch.zeros(5, 32)), draw).log_prob.view(5, 2, 3, 4)
    chain = draw.view(5, 4, 8)
    for step in range(3):
        mean = chain[:, step] - (0.5 * chain[:, step] + 0.2) / 3
        expected = Normal(mean, 0.2).log_prob(chain[:, step + 1])
        torch.testing.assert_close(terms[:, :, step].flatten(1), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("noise", [SdeNoise(level=0.8), LearnedNoise(low=0.2, high=0.3)], ids=lambda noise: noise.kind)
@torch.no_grad()
def test_in_one_dimension_the_density_of_what_is_drawn_is_the_integral_over_all_chains(noise):
    """p(x_0) = integral of p(x_1) p(x_half | x_1) p(x_0 | x_half), against draws; numbers of a draw are independent."""
    head = steady(noise, steps=2)
    grid = torch.linspace(-6, 6, 241)
    width = (grid[1] - grid[0]).item()

    def links(step):
        """Density on the grid of each next link (columns) from each link (rows)."""
        pairs = torch.cartesian_prod(grid, grid)
        chain = torch.zeros(len(pairs), 3, 8)
        chain[:, step], chain[:, step + 1] = pairs[:, :1], pairs[:, 1:]
        scored = head.score(Features(torch.zeros(len(pairs), 32)), chain.flatten(1)).log_prob
        return scored.view(-1, 2, 2, 4)[:, 0, step, 0].exp().view(241, 241)

    density = Normal(0.0, 1.0).log_prob(grid).exp() @ links(0) * width @ links(1) * width
    assert density.sum().item() * width == pytest.approx(1.0, abs=1e-3)
    drawn = head.held(head.draw(Features(torch.zeros(4000, 32)), keys(4000, "chains"))).flatten()
    for quantile in (0.1, 0.5, 0.9):
        below = (density.cumsum(0) * width < quantile).sum()
        assert (drawn < grid[below]).float().mean().item() == pytest.approx(quantile, abs=0.02)


@pytest.mark.parametrize("name", ["tokens", "laplace_scale", "flow_sde"])
def test_cloning_learns_to_stop_the_dot_at_the_line(name):
    rows, observation = demonstrations()
    policy = make(Tokens(bins=21) if name == "tokens" else name)
    settings = Cloning(steps=200, batch=16 if name == "laplace_scale" else 64, learning_rate=4e-3, image_noise=0.02)
    clone(policy, settings, *rows, 0, lambda *line: None)
    with torch.no_grad():
        moves = policy.act(observation, keys(14), "greedy").actions
    error = (moves - rows[3])[:, :, 0].abs()
    assert error.mean() < 0.12 and (moves[:, :, 1:].abs() < 0.15).float().mean() > 0.95


def decisions(policy, algorithm, first=(2, 5, 5, 5, 4, 5, 4, 5)):
    made = dream_roll(policy)(grouped((0, 5)), (1,))[0]
    return pack(made, judged(made, list(first)), algorithm, TOY.chunk_frames)[0]


@pytest.mark.parametrize("ratio", ["token", "action", "chunk"])
@pytest.mark.parametrize("name", OTHERS)
def test_an_update_makes_what_won_likelier(name, ratio):
    policy = make(name)
    estimator = LeaveOneOut() if ratio == "action" else Grpo()
    algorithm = small(estimator=estimator, epochs=3, ratio=ratio, learning_rate=3e-4)
    batch = decisions(policy, algorithm)
    metrics = Learner(policy, algorithm, 0).update(batch)
    with torch.no_grad():
        log_prob, _ = policy.evaluate(batch.frames, batch.proprio, batch.words, batch.draw)
    change = (log_prob - batch.log_prob).sum(1)
    assert change[batch.advantage > 0].mean() > change[batch.advantage < 0].mean()
    assert (change * batch.advantage).mean() > 0 and metrics["gradient_norm"] > 0


@pytest.mark.parametrize("name", OTHERS)
def test_ppo_learns_with_a_critic_on_the_features_or_on_the_action_expert(name):
    reads = ("features", "expert") if name.startswith("flow") else ("features", "action")
    for read in reads:
        policy = make(name, critic=True, critic_input=read)
        algorithm = small(estimator=Ppo(critic_warmup=0), learning_rate=3e-4)
        metrics = Learner(policy, algorithm, 0).update(decisions(policy, algorithm))
        assert metrics["value_loss"] > 0 and metrics["gradient_norm"] > 0
        # The critic of the expert hears the noise of the chain, that of the features does not.
        value = policy.act(seen((3.0, 3.0)), keys(2), "sampled").value
        assert ((value[0] - value[1]).abs() < 1e-5) == (read == "features")


def test_a_critic_on_the_expert_needs_a_flow_head():
    with pytest.raises(ValueError, match="critic_input = 'expert' needs a flow head, this one is 'tokens'"):
        SmallPolicyConfig.parse({"head": {"kind": "tokens"}, "critic_input": "expert"}, "file")


@EACH
@torch.no_grad()
def test_a_saved_policy_acts_the_same(name, tmp_path):
    policy = make(name, seed=5, critic=True)
    with artifacts.writing(tmp_path / "policy") as folder:
        build.save(policy, folder)
        made = artifacts.publish(
            folder, tmp_path / "policy", kind="policy", id="x/policy", stage="tests", parents={}, config={}, seed=0,
            source_sha256="", metrics={}, states=(),
        )  # fmt: skip
    loaded = build.load(made)
    assert loaded.id == "x/policy" and loaded.config == policy.config
    first, second = (item.act(seen(), keys(4), "sampled") for item in (policy, loaded))
    assert torch.equal(first.draw, second.draw) and torch.equal(first.value, second.value)


SHIPPED = Path(__file__).resolve().parents[2] / "weights/policy"


@torch.no_grad()
def test_the_shipped_weights_give_the_numbers_that_they_gave_before_heads_and_backbones_were_apart():
    policy = build.load(artifacts.read(SHIPPED))
    camera = policy.interface.camera
    pixels = torch.arange(2 * camera.height * camera.width * 3) * 7919 % 251
    frames = pixels.to(torch.uint8).view(2, 1, camera.height, camera.width, 3)
    proprio = torch.tensor([[[0.05, 0.6, 0.2, -1.0, 0.1]], [[-0.05, 0.7, 0.1, 1.0, 0.5]]])
    rows = random.row_keys(0, "golden", rows=range(2))
    chunk = policy.act(Observation(frames, proprio, (policy.interface.instruction,) * 2), rows, "sampled")
    expected = torch.tensor(
        [
            [-0.0259464, 0.0669046, -0.2436629, -0.0916142, -0.0197840, 0.0254564, -0.2149737, 0.1449760],
            [0.0085959, 0.1486575, -0.0258136, 0.3942256, -0.2029195, 0.1381798, 0.0145608, 0.6112884],
        ]
    )
    torch.testing.assert_close(chunk.draw, expected, atol=2e-5, rtol=0)
    torch.testing.assert_close(chunk.log_prob.sum(1), torch.tensor([9.8975325, 10.3763533]), atol=1e-3, rtol=0)

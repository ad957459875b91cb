"""The small policy: exact log-probabilities, held actions, keyed sampling, cloning, and a round trip by disk."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats
import torch

from coevo.core import artifacts, text
from coevo.core.protocols import Policy
from coevo.core.types import Observation
from coevo.policies import build
from coevo.policies.cloning import clone
from coevo.policies.config import Cloning, FixedGaussian, FixedLaplace, SmallPolicyConfig
from tests.doubles import TOY, toy_state
from tests.policies.examples import evaluate, keys, seen

HEADS = [FixedGaussian(std=0.2), FixedLaplace(scale=0.07)]


def make(seed: int = 0, **choices):
    config = SmallPolicyConfig(channels=(16, 16, 32, 64), width=32, **choices)
    return build.build(config, TOY, seed).eval()


@torch.no_grad()
def mean_of(policy, observation) -> np.ndarray:
    return policy.act(observation, keys(len(observation.frames)), "greedy").draw.numpy()


def test_it_answers_the_protocol():
    assert isinstance(make(), Policy)


@pytest.mark.parametrize("head", HEADS, ids=lambda head: head.kind)
@torch.no_grad()
def test_the_log_probability_is_that_of_scipy(head):
    policy, observation = make(head=head), seen()
    chunk = policy.act(observation, keys(4), "sampled")
    if head.kind == "gaussian":
        expected = scipy.stats.norm(mean_of(policy, observation), head.std).logpdf(chunk.draw.numpy())
    else:
        expected = scipy.stats.laplace(mean_of(policy, observation), head.scale).logpdf(chunk.draw.numpy())
    assert chunk.log_prob.shape == (4, 8)  # 2 segments of 4 dimensions
    np.testing.assert_allclose(chunk.log_prob.numpy(), expected, atol=1e-4)


@pytest.mark.parametrize("head", HEADS, ids=lambda head: head.kind)
@torch.no_grad()
def test_draws_follow_the_head(head):
    policy, observation = make(head=head), seen([3.0])
    many = Observation(
        observation.frames.expand(4000, -1, -1, -1, -1), observation.proprio.expand(4000, -1, -1),
        observation.instructions * 4000,
    )  # fmt: skip
    drawn = policy.act(many, keys(4000), "sampled").draw.numpy() - mean_of(policy, observation)
    spread = scipy.stats.norm(0, head.std) if head.kind == "gaussian" else scipy.stats.laplace(0, head.scale)
    assert scipy.stats.kstest(drawn[:, 0], spread.cdf).pvalue > 0.001
    assert scipy.stats.kstest(drawn[:, 7], spread.cdf).pvalue > 0.001
    assert abs(np.corrcoef(drawn[:, 0], drawn[:, 7])[0, 1]) < 0.06


@torch.no_grad()
def test_the_ratio_is_one_before_the_first_update():
    policy, observation = make(critic=True), seen()
    chunk = policy.act(observation, keys(4), "sampled")
    log_prob, value = evaluate(policy, observation, chunk.draw)
    assert torch.equal(log_prob, chunk.log_prob) and torch.equal(value, chunk.value)


@torch.no_grad()
def test_an_action_is_held_for_its_segment_and_clipped_only_when_it_is_taken():
    policy = make()
    draw = torch.tensor([[0.5, -3.0, 0.0, 1.0, -0.5, 2.0, 0.25, -1.0]])
    expected = torch.tensor([[0.5, -1.0, 0.0, 1.0]] * 2 + [[-0.5, 1.0, 0.25, -1.0]] * 2)
    assert torch.equal(policy.actions(draw)[0], expected)
    assert torch.equal(policy.targets(expected[None])[0], draw[0].clamp(-1, 1))
    policy.head.mean.bias[:] = 5.0
    chunk = policy.act(seen(), keys(4), "sampled")
    assert (chunk.draw > 3).all() and (chunk.actions == 1).all()
    np.testing.assert_allclose(  # the score is of what was drawn, not of what was left of it
        chunk.log_prob.numpy(), scipy.stats.norm(mean_of(policy, seen()), 0.1).logpdf(chunk.draw), atol=1e-3
    )


@torch.no_grad()
def test_a_row_draws_the_same_in_any_batch_and_another_key_draws_another():
    policy, observation = make(), seen()
    whole = policy.act(observation, keys(4), "sampled")
    alone = policy.act(seen([6.0]), keys(4)[2:3], "sampled")
    torch.testing.assert_close(alone.draw[0], whole.draw[2], atol=1e-6, rtol=0)
    assert not torch.allclose(policy.act(observation, keys(4, "other"), "sampled").draw, whole.draw, atol=1e-2)
    greedy = policy.act(observation, keys(4), "greedy")
    assert torch.equal(greedy.draw, policy.act(observation, keys(4, "other"), "greedy").draw)


def test_segments_that_do_not_divide_the_chunk_are_refused():
    with pytest.raises(ValueError, match="segments = 3 does not divide the chunk of 4"):
        make(segments=3)


def test_learning_the_value_never_moves_the_policy():
    policy, observation = make(critic=True), seen()
    _, value = evaluate(policy, observation, torch.zeros(4, 8))
    value.sum().backward()
    moved = {name for name, weight in policy.named_parameters() if weight.grad is not None}
    assert moved == {name for name, _ in policy.named_parameters() if name.startswith("critic.")} != set()


@pytest.mark.parametrize("head", HEADS, ids=lambda head: head.kind)
def test_cloning_learns_to_stop_the_dot_at_the_line(head):
    """The expert moves by a tenth of the columns that are missing; the image alone says where the dot is."""
    columns = torch.arange(0, 14.0)
    states = [toy_state(column) for column in columns.tolist()]
    label = torch.zeros(14, 4, 4)
    label[:, :, 0] = ((7 - columns) / 10)[:, None]
    words = text.words([state.instruction for state in states])
    frames = torch.stack([state.frames[-1] for state in states])
    proprio = torch.tensor([[0.0, 7.0, 0.0, -1.0, 0.0]]).expand(14, -1)  # says nothing
    reported = []
    policy = make(head=head)
    settings = Cloning(steps=200, batch=32, learning_rate=3e-3, image_noise=0.02)
    clone(policy, settings, frames, proprio, words, label, 0, lambda *line: reported.append(line))
    observation = Observation(frames[:, None], proprio[:, None], tuple(state.instruction for state in states))
    with torch.no_grad():
        moves = policy.act(observation, keys(14), "greedy").actions
    assert (moves[:, :, 0] - label[:, :, 0]).abs().max() < 0.15
    assert moves[:, :, 1:].abs().max() < 0.1
    assert [step for step, _ in reported] == [100, 200] and reported[1][1] < reported[0][1]
    again = make(head=head)
    clone(again, settings, frames, proprio, words, label, 0, lambda *line: None)
    assert all(torch.equal(a, b) for a, b in zip(policy.parameters(), again.parameters(), strict=True))


@torch.no_grad()
def test_a_saved_policy_acts_the_same(tmp_path):
    policy = make(seed=5, critic=True, head=HEADS[1])
    with artifacts.writing(tmp_path / "policy") as folder:
        build.save(policy, folder)
        made = artifacts.publish(
            folder, tmp_path / "policy", kind="policy", id="x/policy", stage="tests", parents={}, config={}, seed=0,
            source_sha256="", metrics={}, states=(),
        )  # fmt: skip
    loaded = build.load(made)
    assert loaded.id == "x/policy" and loaded.interface == TOY and loaded.config == policy.config
    first, second = (item.act(seen(), keys(4), "sampled") for item in (policy, loaded))
    assert torch.equal(first.draw, second.draw) and torch.equal(first.value, second.value)


def test_weights_come_from_the_seed_and_not_from_the_global_generator():
    torch.manual_seed(1)
    first, state = make(seed=3), torch.get_rng_state()
    torch.manual_seed(2)
    second, other = make(seed=3), make(seed=4)
    assert torch.equal(first.head.mean.weight, second.head.mean.weight) and not torch.equal(
        first.head.mean.weight, other.head.mean.weight
    )
    torch.manual_seed(1)
    assert torch.equal(state, torch.get_rng_state())


@torch.no_grad()
def test_a_critic_on_the_action_hears_the_noise_and_one_on_the_features_does_not():
    observation = seen((3.0, 3.0))
    for read in ("features", "action"):
        policy = make(critic=True, critic_input=read)
        chunk = policy.act(observation, keys(2), "sampled")
        assert ((chunk.value[0] - chunk.value[1]).abs() < 1e-5) == (read == "features")
        _, value = evaluate(policy, observation, chunk.draw)
        torch.testing.assert_close(value, chunk.value)


def test_what_the_critic_reads_does_not_change_the_policy_that_is_cloned():
    plain, other = make(critic=True).state_dict(), make(critic=True, critic_input="action").state_dict()
    assert all(torch.equal(weight, other[name]) for name, weight in plain.items() if not name.startswith("critic"))

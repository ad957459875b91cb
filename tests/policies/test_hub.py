"""Policies on tiny models of the published classes: parallel decoding, an expert on keys and values, LoRA."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import PaliGemmaModel

from coevo.core import artifacts, random, text
from coevo.policies import build
from coevo.policies.cloning import clone
from coevo.policies.config import Cloning, OpenVlaConfig, PaliGemmaConfig
from coevo.rl.config import Grpo, Ppo
from coevo.rl.update import Learner
from tests.doubles import TOY
from tests.policies import hub_models
from tests.policies.examples import demonstrations, evaluate, features_of, keys, seen
from tests.policies.test_heads import decisions
from tests.rl.examples import small


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    return hub_models.openvla_parts(tmp_path_factory.mktemp("openvla"))


@pytest.fixture(scope="module")
def gemma(tmp_path_factory):
    return hub_models.paligemma(tmp_path_factory.mktemp("gemma"))


@pytest.fixture(params=["openvla", "openvla_scale", "paligemma"])
def made(request, parts, gemma):
    return policy_of(request.param, parts, gemma)


def policy_of(name, parts, gemma, **choices):
    heads = {
        "openvla": {"kind": "tokens", "bins": 9}, "openvla_scale": {"kind": "laplace_scale"},
        "paligemma": {"kind": "flow", "steps": 2, "noise": {"kind": "sde", "level": 0.4}},
    }  # fmt: skip
    kind, given = (PaliGemmaConfig, gemma) if name == "paligemma" else (OpenVlaConfig, parts)
    config = kind.parse(dict(head=heads[name], segments=4, critic=True) | given | choices, name)
    return build.build(config, TOY, 0).eval()


@torch.no_grad()
def test_it_acts_and_scores_its_own_draw_the_same_again(made):
    chunk = made.act(seen(), keys(4), "sampled")
    assert chunk.actions.shape == (4, 4, 4)
    log_prob, value = evaluate(made, seen(), chunk.draw)
    torch.testing.assert_close(log_prob, chunk.log_prob)
    torch.testing.assert_close(value, chunk.value)
    alone = made.act(seen([6.0]), keys(4)[2:3], "sampled")
    torch.testing.assert_close(alone.log_prob[0], chunk.log_prob[2], atol=1e-3, rtol=1e-3)


@torch.no_grad()
def test_image_proprioception_and_instruction_all_reach_the_features(made):
    observation = seen([3.0])
    frames, proprio = observation.frames[:, -1], observation.proprio[:, -1]
    made.backbone.remember(["push the dot away", "push the dot away now or later"])
    words = text.words(observation.instructions)
    base = made.backbone(frames, proprio, words).pooled
    for other in (
        made.backbone(255 - frames, proprio, words), made.backbone(frames, proprio + 3.0, words),
        made.backbone(frames, proprio, text.words(["push the dot away"])),
    ):  # fmt: skip
        assert (other.pooled - base).abs().max() > 1e-4
    # The padding of a shorter prompt beside a longer one changes nothing.
    longer = text.words(["push the dot away", "push the dot away now or later"])
    both = made.backbone(frames.expand(2, -1, -1, -1), proprio.expand(2, -1), longer)
    alone = made.backbone(frames, proprio, text.words(["push the dot away"]))
    torch.testing.assert_close(both.pooled[:1], alone.pooled, atol=1e-5, rtol=1e-4)
    with pytest.raises(ValueError, match="are of no instruction that this policy was shown"):
        made.backbone(frames, proprio, text.words(["never heard of"]))


def test_only_lora_heads_and_new_projections_learn_and_only_they_are_saved(made, tmp_path):
    before = {name: value.clone() for name, value in made.state_dict().items()}
    rows, _ = demonstrations()
    clone(made, Cloning(steps=6, batch=8), *rows, 0, lambda *line: None)
    moved = {name for name, value in made.state_dict().items() if not torch.equal(value, before[name])}
    assert any("lora_B" in name for name in moved) and any(name.startswith("head.") for name in moved)
    frozen = {f"backbone.{name}" for name in made.backbone.frozen_names()}
    assert frozen and not frozen & moved and not any("lora" in name for name in frozen)
    with artifacts.writing(tmp_path / "policy") as folder:
        build.save(made, folder)
        kept = set(load_file(folder / "weights.safetensors"))
        artifact = artifacts.publish(
            folder, tmp_path / "policy", kind="policy", id="x/policy", stage="tests", parents={}, config={}, seed=0,
            source_sha256="", metrics={}, states=(),
        )  # fmt: skip
    assert kept == set(before) - frozen
    first, second = (item.act(seen(), keys(4), "sampled") for item in (made, build.load(artifact)))
    torch.testing.assert_close(first.log_prob, second.log_prob)
    torch.testing.assert_close(first.actions, second.actions)


def test_cloning_lowers_the_loss_by_what_may_learn(made):
    (frames, proprio, words, label), _ = demonstrations(informative=True)
    still = torch.zeros(len(frames), 3, *frames.shape[1:3])

    @torch.no_grad()
    def loss():
        given = (frames, proprio, words, made.targets(label), still)
        return torch.stack([made.cloning_loss(*given, random.generator(draw)) for draw in range(8)]).mean()

    before = loss()
    settings = Cloning(steps=30, batch=14, learning_rate=1e-2, image_noise=0.0, command_noise=0.0, weight_decay=0.0)
    clone(made, settings, frames, proprio, words, label, 0, lambda *line: None)
    assert loss() < before - 0.4


@pytest.mark.parametrize("estimator", [Grpo(), Ppo(critic_warmup=0)], ids=lambda estimator: estimator.kind)
def test_an_update_makes_what_won_likelier(made, estimator):
    algorithm = small(estimator=estimator, epochs=2, ratio="chunk", learning_rate=1e-4, minibatch=16)
    batch = decisions(made, algorithm)
    metrics = Learner(made, algorithm, 0).update(batch)
    with torch.no_grad():
        log_prob, _ = made.evaluate(batch.frames, batch.proprio, batch.words, batch.draw)
    centred = batch.advantage - batch.advantage.mean()
    assert ((log_prob - batch.log_prob).sum(1) * centred).mean() > 0 and metrics["gradient_norm"] > 0


@torch.no_grad()
def test_tokens_begin_at_the_rows_that_openvla_writes_actions_with(parts, gemma):
    policy = policy_of("openvla", parts, gemma)
    rows = policy.backbone.language.get_output_embeddings().weight
    last = policy.backbone.tokenizer.vocab_size - 1
    assert torch.equal(policy.head.logits.weight[0], rows[last])  # the lowest bin is the last token
    assert torch.equal(policy.head.logits.weight[8], rows[last - 8])


@torch.no_grad()
def test_openvla_weights_are_taken_from_the_names_they_were_published_with(parts, gemma, tmp_path):
    plain = policy_of("openvla", parts, gemma, lora_rank=None)
    checkpoint = hub_models.openvla_checkpoint(tmp_path / "openvla", parts)
    loaded = policy_of("openvla", parts, gemma, checkpoint=checkpoint, lora_rank=None)
    for tower in loaded.backbone.towers:
        tower.config.hidden_act = "gelu"
    plain.backbone.projector.load_state_dict(loaded.backbone.projector.state_dict())
    plain.backbone.proprio.load_state_dict(loaded.backbone.proprio.state_dict())
    first, second = (features_of(policy, seen()).slots for policy in (plain, loaded))
    torch.testing.assert_close(first, second, atol=2e-2, rtol=2e-2)  # two forms of the same activation
    assert any(name.startswith("projector") for name in loaded.backbone.frozen_names())


@torch.no_grad()
def test_pi05_weights_are_taken_from_the_names_they_were_published_with(gemma, parts, tmp_path):
    made = policy_of("paligemma", parts, gemma, lora_rank=None)
    for weight in made.head.expert.parameters():
        weight.normal_(0.0, 0.2, generator=random.generator(0, "expert", len(weight)))
    vlm = PaliGemmaModel.from_pretrained(gemma["source"]).state_dict()
    state = {f"paligemma_with_expert.paligemma.model.{name}": value for name, value in vlm.items()}
    state = {name.replace("vision_tower.", "vision_tower.vision_model."): value for name, value in state.items()}
    state["paligemma_with_expert.paligemma.lm_head.weight"] = state.pop(
        "paligemma_with_expert.paligemma.model.language_model.embed_tokens.weight"
    )[:-5]  # fewer tokens than the hub's PaliGemma
    for name, value in made.head.expert.state_dict().items():
        if name.startswith("action_"):  # padded to 32 numbers
            padded = torch.zeros([32 if size == 4 else size for size in value.shape])
            padded[tuple(slice(size) for size in value.shape)] = value
            value = padded
        name = name.replace(".inner.", ".")
        state[f"paligemma_with_expert.gemma_expert.{name}" if name.startswith("model.") else name] = value
    save_file({name: value.clone().contiguous() for name, value in state.items()}, tmp_path / "model.safetensors")
    loaded = policy_of("paligemma", parts, gemma, checkpoint=str(tmp_path), lora_rank=None)
    loaded.critic.load_state_dict(made.critic.state_dict())
    first, second = (policy.act(seen(), keys(4), "sampled") for policy in (made, loaded))
    torch.testing.assert_close(first.draw, second.draw)
    torch.testing.assert_close(first.log_prob, second.log_prob)


@pytest.mark.parametrize("name", ["openvla", "paligemma"])
def test_published_weights_in_half_precision_act_and_learn(name, parts, gemma):
    policy = policy_of(name, parts, gemma, dtype="bfloat16")
    chunk = policy.act(seen(), keys(4), "sampled")
    assert chunk.log_prob.dtype == chunk.draw.dtype == torch.float32 and chunk.log_prob.isfinite().all()
    evaluate(policy, seen(), chunk.draw.detach())[0].sum().backward()
    learned = [weight for weight in policy.parameters() if weight.grad is not None]
    assert all(weight.dtype == torch.float32 and weight.grad.isfinite().all() for weight in learned) and learned


@torch.no_grad()
def test_a_gate_of_zero_silences_the_expert_until_it_learns(parts, gemma):
    """As the published modulation begins: the velocity is the projection of the embedded action alone."""
    policy = policy_of("paligemma", parts, gemma)
    expert, features = policy.head.expert, features_of(policy, seen())
    noised = torch.randn(4, 16, generator=random.generator(0, "noised"))
    tokens = expert.action_in_proj(noised.unflatten(1, (4, 4)))
    expected = expert.action_out_proj(tokens * torch.rsqrt(tokens.square().mean(2, keepdim=True) + 1e-6)).flatten(1)
    torch.testing.assert_close(expert(noised, torch.ones(4), features)[0], expected)


def test_two_instructions_with_the_same_first_words_are_refused(made):
    long = "put the red cup on the green plate now"
    with pytest.raises(ValueError, match="begin with the same 8 words; reword one of them"):
        made.backbone.remember([long, long.replace("now", "now") + " please"])

"""The checks of published claims, against numbers worked by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from benchmarks.claim_measures import (
    frames_handed_on,
    generated,
    kept_success,
    linear_probe,
    spoilt,
    useful_samples,
)
from coevo.core.types import Verdicts
from coevo.rewards.config import TopRewardConfig
from coevo.rewards.vlm_config import TinyVlm
from coevo.rewards.windowed import TopReward
from coevo.rl.config import Continuous, Differences, Peak
from tests.doubles import TOY, draw, toy_state


def test_groups_that_ended_alike_carry_gradient_by_their_reading_alone():
    # Two groups of two, two decisions of two frames: the first has both outcomes, the second lost twice.
    read = torch.tensor([[0, 0.1, 0.9, 0.2, 0.2], [0, 0.1, 0.2, 0.1, 0.3], [0, 0.1, 0.1, 0.1, 0.4], [0, 0, 0, 0, 0.2]])
    verdicts = Verdicts(read, torch.tensor([True, False, False, False]), torch.tensor([2, 5, 5, 5]), 0.8, "hand")
    group = torch.tensor([0, 0, 1, 1])
    # The success ends after its first decision, so of the mixed group's four decisions three are left, of eight.
    assert useful_samples(verdicts, group, 2, Peak()) == (3 / 8, 0.5)
    assert useful_samples(verdicts, group, 2, Continuous()) == (7 / 8, 0.0)
    assert useful_samples(verdicts, group, 2, Differences()) == (7 / 8, 0.0)


def test_a_success_that_is_undone_is_damage_unless_the_episode_ended_there():
    success = torch.tensor([[0, 1, 1, 0], [0, 0, 1, 1], [1, 0, 0, 0], [0, 0, 0, 0]], dtype=torch.bool)
    # Success counts from frame 2: the third episode's never does. Of two successes one is lost at the end.
    assert kept_success(success, torch.tensor([4, 4, 4, 4]), 2) == (0.5, 0.25, 0.5)
    assert kept_success(success, torch.tensor([2, 3, 4, 4]), 2) == (0.5, 0.5, 0.0)


def test_a_linear_probe_finds_what_is_linear_and_nothing_in_noise():
    source = np.random.default_rng(0)
    features = source.normal(size=(400, 6))
    states = [f"s{row // 4}" for row in range(400)]
    outcome = features @ np.array([1.0, -2.0, 0, 0, 0, 0]) + 3.0
    assert linear_probe(features, outcome, states) > 0.95
    assert linear_probe(features, source.normal(size=400), states) < 0.05


def test_the_published_processor_hands_on_four_of_sixteen_frames_unless_it_is_told_its_own_rate():
    assert frames_handed_on(16, 10.0) == {"without_metadata": 4, "told_the_rate": 4, "told_its_own_rate": 16}


def test_a_written_verdict_is_the_token_that_is_likelier_than_all_others():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = TopReward(TopRewardConfig(vlm=TinyVlm(hidden=16, heads=2), window=4, threshold=None), TOY)
    frames = torch.stack([draw(torch.tensor([[float(column), 7.0] for column in range(5)]))])
    with torch.no_grad():
        rows = model.look(frames, model.windows([2, 4]), [TOY.instruction])
        best = model.reader.model.lm_head(rows).argmax(dim=-1)[0]
    for answer in (int(best[0]), int(best[1]) + 1):
        model.answers[0] = answer
        expected = [float(token == answer) for token in best for _ in range(2)]
        assert generated(model, frames, [TOY.instruction]).tolist() == [[0.0, *expected]]


def test_shares_are_of_all_groups():
    read = torch.zeros(4, 5)
    verdicts = Verdicts(read, torch.zeros(4, dtype=torch.bool), torch.full((4,), 5), 0.8, "hand")
    assert useful_samples(verdicts, torch.tensor([0, 0, 1, 1]), 2, Continuous()) == (pytest.approx(0.0), 1.0)


def test_a_start_is_spoilt_by_as_much_as_asked_and_alike_every_time():
    start = toy_state(3.0)
    assert torch.equal(spoilt(start, 0.0, 0.0).frames, start.frames)
    grey = replace(start, frames=torch.full((1, 64, 64, 3), 100, dtype=torch.uint8))
    noisy = spoilt(grey, 12.0, 0.0)
    assert noisy.frames.float().std().item() == pytest.approx(12.0, rel=0.05)
    assert torch.equal(noisy.frames, spoilt(grey, 12.0, 0.0).frames) and noisy.id == grey.id
    shade = spoilt(grey, 0.0, 0.2).frames[0, 0, 0]
    assert torch.equal(spoilt(grey, 0.0, 0.2).frames, shade.expand(1, 64, 64, 3))
    assert 0 < (shade.int() - 100).abs().max() <= 20

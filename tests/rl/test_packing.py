"""Which decisions carry gradient."""

from __future__ import annotations

import pytest
import torch

from coevo.rl.config import Grpo, LeaveOneOut, Ppo
from coevo.rl.packing import groups_of, pack, valid_decisions
from tests.doubles import TOY
from tests.rl.examples import dream_roll, grouped, judged, make_policy, small

PER = TOY.chunk_frames  # 2 frames a decision, 2 decisions


def episodes(critic: bool = False, columns=(0, 5)):
    return dream_roll(make_policy(critic=critic))(grouped(columns), (1,))[0]


def test_decisions_after_the_first_success_are_left_out():
    made = episodes(columns=(0,))
    valid = valid_decisions(made, judged(made, [5, 1, 2, 3]), PER)
    # No success: both. At frame 1 or 2, drawn by the first decision: one. At frame 3, drawn by the second: both.
    assert valid.tolist() == [[True, True], [True, False], [True, False], [True, True]]


def test_decisions_that_were_never_taken_are_left_out():
    made = episodes(columns=(0,))
    made.length[:] = torch.tensor([1, 2, 1, 2])
    assert valid_decisions(made, judged(made, [5, 5, 5, 5]), PER).sum(1).tolist() == [1, 2, 1, 2]


def test_rows_of_one_start_form_a_group():
    assert groups_of(["a", "b", "a", "c"], "cpu").tolist() == [0, 1, 0, 2]


@pytest.mark.parametrize("estimator", [Grpo(), Grpo(normalise=False), LeaveOneOut()])
def test_groups_that_all_won_or_all_lost_are_left_out(estimator):
    made = episodes()
    packed, useful = pack(made, judged(made, [5, 5, 5, 5, 4, 4, 4, 4]), small(estimator=estimator), PER)
    assert len(packed) == 0 and useful.frames == 0 and useful.groups == 0


def test_a_mixed_group_is_packed_with_its_advantages():
    made = episodes()
    packed, useful = pack(made, judged(made, [2, 5, 5, 5, 4, 4, 4, 4]), small(estimator=LeaveOneOut()), PER)
    # The success took one decision, the three failures two each; the second group won throughout.
    assert packed.advantage.tolist() == pytest.approx([1, *[-1 / 3] * 6])
    assert useful.groups == 0.5 and useful.frames == 7 / 16
    assert torch.equal(packed.draw[:3], made.draw[[0, 1, 1], [0, 0, 1]])
    assert torch.equal(packed.frames[:3], made.frames[[0, 1, 1], [0, 0, 2]])
    assert torch.equal(packed.proprio[:3], made.proprio[[0, 1, 1], [0, 0, 2]])
    assert torch.equal(packed.log_prob[:3], made.log_prob[[0, 1, 1], [0, 0, 1]])


def test_with_a_critic_every_valid_decision_is_packed_and_the_reward_stands_at_the_last():
    made = episodes(critic=True)
    made.value[:] = 0.25
    ppo = small(estimator=Ppo(gae_lambda=1.0))
    packed, _ = pack(made, judged(made, [2, 5, 5, 5, 4, 4, 4, 4]), ppo, PER)
    assert packed.returns.tolist() == [1, *[0] * 6, *[1] * 8]
    assert packed.advantage.tolist() == pytest.approx([0.75, *[-0.25] * 6, *[0.75] * 8])
    assert packed.value.tolist() == [0.25] * 15


@pytest.mark.parametrize(("horizon", "expected"), [("termination", 0.0), ("truncation", 0.6)])
def test_the_critics_last_estimate_counts_only_where_the_horizon_truncates_and_nothing_was_won(horizon, expected):
    made = episodes(critic=True, columns=(0,))
    ppo = small(estimator=Ppo(gae_lambda=1.0, horizon=horizon))
    packed, _ = pack(made, judged(made, [5, 4, 5, 4]), ppo, PER, final_value=torch.full((4,), 0.6))
    assert packed.returns.tolist() == pytest.approx([expected] * 2 + [1] * 2 + [expected] * 2 + [1] * 2)

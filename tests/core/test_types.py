"""Frames, words, rows of batches, and captured calls on a CPU."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from coevo.core import frames, text
from coevo.core.capture import Captured
from coevo.core.types import Observation, Step, Truth, Verdicts, join_rows, take_rows, to_device
from coevo.records.interface import require_same
from tests.doubles import TOY


def test_every_grey_level_survives_float_and_back():
    levels = torch.arange(256, dtype=torch.uint8).view(1, 16, 16, 1).expand(1, 16, 16, 3)
    shown = frames.to_float(levels)
    assert shown.shape == (1, 3, 16, 16) and shown.min() == -1 and shown.max() == 1
    assert torch.equal(frames.to_uint8(shown), levels)


def test_values_beyond_the_range_are_clamped_not_wrapped():
    assert frames.to_uint8(torch.tensor([-1.5, 0.0, 1.5]).view(3, 1, 1)).tolist() == [[[0, 128, 255]]]


def test_words_are_the_same_numbers_whatever_stands_around_them():
    rows = text.words(["Put the block", "the BLOCK, put!", ""])
    assert rows.shape == (3, 8) and rows[2].tolist() == [0] * 8
    assert sorted(rows[0].tolist()) == sorted(rows[1].tolist())
    assert rows[0, 3:].tolist() == [0] * 5 and (rows[:2, :3] > 0).all() and rows.max() < text.VOCABULARY
    assert text.words(["one two three"], length=2).shape == (1, 2)


def step(rows: int) -> Step:
    counted = torch.arange(rows)
    frames, proprio = counted.byte().view(-1, 1, 1, 1, 1).expand(-1, 1, 1, 1, 3), counted.float().view(-1, 1, 1)
    seen = Observation(frames, proprio, tuple(f"row {i}" for i in range(rows)))
    return Step(seen, frames, proprio, Truth(counted[:, None] > 0, counted[:, None].float()))


@given(st.integers(1, 6).flatmap(lambda n: st.tuples(st.just(n), st.lists(st.integers(0, n - 1)))))
def test_taking_rows_takes_them_from_every_field(case):
    count, rows = case
    taken = take_rows(step(count), torch.tensor(rows, dtype=torch.int64))
    assert taken.proprio.flatten().tolist() == taken.truth.progress.flatten().tolist() == rows
    assert taken.observation.instructions == tuple(f"row {row}" for row in rows)
    assert taken.probability is None


def test_rows_may_be_named_by_a_mask():
    assert take_rows(step(3), torch.tensor([True, False, True])).proprio.flatten().tolist() == [0, 2]


def test_joined_rows_taken_apart_are_what_they_were():
    both = join_rows(step(2), step(3))
    assert both.proprio.flatten().tolist() == [0, 1, 0, 1, 2]
    assert both.observation.instructions == ("row 0", "row 1", "row 0", "row 1", "row 2")
    assert both.truth.success.flatten().tolist() == [False, True, False, True, True]


def test_fields_of_the_whole_batch_stay_the_firsts():
    one = Verdicts(torch.ones(2, 3), torch.ones(2).bool(), torch.ones(2).long(), 0.5, "reward")
    assert join_rows(one, replace(one, threshold=0.7)).threshold == 0.5


def test_moving_to_a_device_reaches_nested_fields():
    moved = to_device(step(2), "meta")
    assert moved.frames.is_meta and moved.observation.frames.is_meta and moved.truth.success.is_meta


def test_a_captured_call_on_a_cpu_is_the_call():
    total = torch.zeros(1)

    def add(x: torch.Tensor) -> tuple[torch.Tensor]:
        total.add_(x)
        return (total.clone(),)

    call = Captured(add, lambda: [total])
    assert [call(torch.ones(1))[0].item() for _ in range(3)] == [1, 2, 3]


def test_two_interfaces_that_differ_are_refused_with_both_values():
    require_same(TOY, "a", TOY, "b")
    other = TOY.model_copy(update={"stride": 4, "control_hz": 10.0})
    with pytest.raises(ValueError) as fault:
        require_same(TOY, "the policy", other, "the world model")
    assert "'stride': the policy has 2, the world model has 4" in str(fault.value)
    assert "'control_hz': the policy has 8.0, the world model has 10.0" in str(fault.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"stride": 3}, "stride 3 does not divide chunk 4"),
        ({"horizon": 9}, "chunk 4 does not divide horizon 9"),
        ({"success_from": 5}, "success_from 5 lies past the last frame 4"),
    ],
)
def test_an_interface_that_does_not_add_up_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        type(TOY).parse(TOY.model_dump() | change, "toy.yaml")

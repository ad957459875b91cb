"""Initial states on disk."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coevo.core import artifacts
from coevo.core.states import read_states, state_id, write_states
from coevo.core.types import InitialState
from coevo.records.interface import ActionSpace, Camera, Interface

INTERFACE = Interface(
    task="push", instruction="push the puck", action=ActionSpace(low=(-1, -1, 0), high=(1, 1, 1)),
    camera=Camera(width=6, height=5, lookat=(0, 0, 0), distance=1, azimuth=0, elevation=-30),
)


def make_state(seed: int, context: int = 1) -> InitialState:
    draw = np.random.default_rng(seed)
    full = draw.normal(size=9) * 10.0 ** draw.integers(-300, 300, size=9)
    return InitialState(
        id=state_id("push", full), task="push", instruction="push the puck", seed=seed, simulator_state=full,
        frames=torch.from_numpy(draw.integers(0, 256, size=(context, 5, 6, 3), dtype=np.uint8)),
        actions=torch.from_numpy(draw.normal(size=((context - 1) * 4, 4)).astype(np.float32)),
        proprio=torch.from_numpy(draw.normal(size=(context, 5)).astype(np.float32)), decision=context - 1,
    )


def publish(tmp_path, states):
    with artifacts.writing(tmp_path / "states") as folder:
        write_states(folder, states, INTERFACE)
        return artifacts.publish(
            folder, tmp_path / "states", kind="initial_states", id="states", stage="test", parents={}, config={},
            seed=0, source_sha256="", metrics={}, states=[state.id for state in states],
        )


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 2**32), st.integers(1, 4))
def test_a_state_comes_back_bit_for_bit(tmp_path, seed, context):
    states = [make_state(seed, context), make_state(seed + 1)]
    back, interface = read_states(publish(tmp_path, states))
    assert interface == INTERFACE
    for made, read in zip(states, back, strict=True):
        for name in ("id", "task", "instruction", "seed", "decision"):
            assert getattr(made, name) == getattr(read, name)
        assert made.simulator_state.tobytes() == read.simulator_state.tobytes()
        for name in ("frames", "actions", "proprio"):
            left, right = getattr(made, name), getattr(read, name)
            assert left.dtype == right.dtype and left.shape == right.shape and torch.equal(left, right)


def test_the_same_states_give_the_same_artifact(tmp_path):
    states = [make_state(1), make_state(2)]
    assert publish(tmp_path / "a", states).manifest.sha256 == publish(tmp_path / "b", states).manifest.sha256


def test_a_state_that_stands_twice_in_a_set_is_named(tmp_path):
    state = make_state(1)
    with pytest.raises(ValueError, match=state.id):
        write_states(tmp_path, [state, make_state(2), state], INTERFACE)

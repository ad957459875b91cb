"""Numbers published by others, shown beside ours. Another robot, task and model size: a yardstick, not a contest."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Published:
    """One published number, and where ours stands among a report's figures."""

    quantity: str
    value: float
    metric: str
    arm: str
    detail: str


RL_INSIDE_WORLD_MODELS = (
    Published("Fake success, base world model", 0.825, "fake_success", "before", "57 failures"),
    Published("Fake success, after failure data", 0.263, "fake_success", "after", "57 failures"),
    Published("Recall, after failure data", 0.964, "recall", "after", "28 successes"),
    Published("Fake success, simulator frames", 0.07, "fake_success", "simulator", "57 failures"),
    Published("Mean gain in the simulator", 0.097, "gain", "trained policy", "5 training seeds"),
    Published("Standard deviation of the gain", 0.040, "gain_sd", "trained policy", "5 training seeds"),
    Published("Replay mismatch before training", 0.17, "mismatch", "parent policy", "30 dreamed successes"),
    Published("Replay mismatch after training", 0.18, "mismatch", "trained policy", "5 seeds, 0.11 to 0.25"),
)
"""'RL inside World Models': RoboTwin adjust_bottle, pi0.5 in a 5B world model, 144 sealed states."""

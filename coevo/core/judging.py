"""One call for every reward model: those that read frames alone, and those that also read what was done."""

from __future__ import annotations

from coevo.core.protocols import EpisodeReader, Judge
from coevo.core.types import Seen, Verdicts


def judge(reward: Judge, seen: Seen) -> Verdicts:
    """Verdicts on episodes, by what the reward model needs of them."""
    if isinstance(reward, EpisodeReader):
        return reward.judge(seen)
    return reward.verdicts(seen.frames, seen.instructions)

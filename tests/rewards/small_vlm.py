"""Vision-language models small enough for a test, over the dot's frames of 16 x 16."""

from __future__ import annotations

from coevo.rewards.config import CompletionConfig, DenseProgressConfig, TopRewardConfig
from coevo.rewards.vlm_config import Prompt, TinyVlm

TINY = TinyVlm(hidden=32, heads=2, layers=2, vision_layers=1, patch=4)
ASK = Prompt(after=" True or False? {instruction}")

TOPREWARD = TopRewardConfig(vlm=TINY, prompt=ASK, window=2, threshold=None)
PROGRESS = DenseProgressConfig(vlm=TINY, prompt=ASK, window=2, rank=4, hidden=32)
COMPLETION = CompletionConfig(vlm=TINY, prompt=ASK, window=2, hidden=64)

"""Write a Qwen3-VL with random weights and our small tokenizer to a folder, to try a configuration without a download.

    python -m scripts.write_tiny_vlm /tmp/tiny_vlm
    # then, in a file of configs/reward:  vlm: {kind: pretrained, model: /tmp/tiny_vlm, dtype: float32}
"""

from __future__ import annotations

from pathlib import Path

import typer

from coevo.rewards import tiny
from coevo.rewards.vlm_config import TinyVlm


def main(folder: Path, hidden: int = 64, layers: int = 2, patch: int = 8, seed: int = 0) -> None:
    """Write model and tokenizer into FOLDER."""
    tiny.write(folder, TinyVlm(hidden=hidden, layers=layers, patch=patch), seed)


if __name__ == "__main__":
    typer.run(main)

"""What of this machine computes and draws, as JSON for `coevo doctor`; installs nothing.

python -m scripts.examine_machine
"""

from __future__ import annotations

import json
import os
import sys

import torch

from scripts.prepare_system import NEEDS


def main() -> None:
    json.dump([renderer(), processors(), gpu()], sys.stdout)


def renderer() -> dict[str, str]:
    """Whether the simulator can draw."""
    need = NEEDS["renderer"]
    message = need.missing()
    if message:
        return finding("renderer", "broken", message.splitlines()[0], f"sudo apt-get install -y {need.package}")
    return finding("renderer", "good", "draws")


def processors() -> dict[str, str]:
    """Cores that this process may use."""
    return finding("cpu", "good", f"{len(os.sched_getaffinity(0))} cores, torch {torch.__version__}")


def gpu() -> dict[str, str]:
    """Each GPU with its memory; none is no fault, since a laptop's round needs none."""
    if not torch.cuda.is_available():
        why = "none, or torch was built without CUDA; rounds at laptop size need none"
        return finding("gpu", "note", why, "a GPU needs its driver (nvidia-smi) and a CUDA build of torch")
    cards = [torch.cuda.get_device_properties(index) for index in range(torch.cuda.device_count())]
    return finding("gpu", "good", ", ".join(f"{card.name} ({card.total_memory / 2**30:.0f} GiB)" for card in cards))


def finding(name: str, state: str, said: str, mend: str = "") -> dict[str, str]:
    """One line of the doctor's."""
    return dict(name=name, state=state, said=said, mend=mend)


if __name__ == "__main__":
    main()

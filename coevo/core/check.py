"""Whether stages would take their parameters, asked before the first of them runs:

    echo '[["python", "-m", "tasks.train_policy", "--params", "params.yaml", ...], ...]' | python -m coevo.core.check

Nothing is opened but the files of parameters. All faults are listed, and end it with status 2.
"""

from __future__ import annotations

import importlib
import json
import sys

from coevo.core import stage


def faults(commands: list[list[str]]) -> list[str]:
    """What is wrong with the parameters of these commands. Those that are no `python -m package.stage` pass."""
    found = []
    for words in commands:
        if words[1:2] != ["-m"]:
            continue
        module = words[2]
        function = getattr(importlib.import_module(module), module.rsplit(".", 1)[-1])
        try:
            stage.parse_command(function, words[3:])
        except ValueError as error:
            found.append(str(error))
    return list(dict.fromkeys(found))


if __name__ == "__main__":
    wrong = faults(json.load(sys.stdin))
    print("\n".join(wrong), file=sys.stderr)
    sys.exit(2 if wrong else 0)

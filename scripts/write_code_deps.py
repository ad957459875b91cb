"""Bring the code dependencies in dvc.yaml files up to date: each stage's are exactly what its module imports.

    python -m scripts.write_code_deps [dvc.yaml loops/NAME/dvc.yaml ...]

In a stage's 'deps' the data come first; the lines after them that name files of coevo/ and tasks/ are this script's.
"""

from __future__ import annotations

import re
import sys

import yaml

from coevo.core.source import PACKAGES, ROOT, closure


def main() -> None:
    """Rewrite the files in place."""
    for name in sys.argv[1:] or ["dvc.yaml"]:
        file = ROOT / name
        file.write_text(with_code(file.read_text()))


def with_code(text: str) -> str:
    """The text of a dvc.yaml with each stage's code dependencies replaced; comments and all else stay."""
    modules = {name: module_of(entry["cmd"]) for name, entry in yaml.safe_load(text)["stages"].items()}
    lines: list[str] = []
    stage, in_deps = "", False
    for line in text.splitlines():
        heading = re.fullmatch(r"  (\w+):", line)
        if in_deps and not line.startswith("      - "):
            lines += [f"      - {path}" for path in closure(modules[stage])]
            in_deps = False
        if heading:
            stage = heading[1]
        if line.rstrip() == "    deps:":
            in_deps = stage in modules
        if not (in_deps and is_code(line.removeprefix("      - "))):
            lines.append(line)
    if in_deps:
        lines += [f"      - {path}" for path in closure(modules[stage])]
    return "\n".join(lines) + "\n"


def is_code(dep: str) -> bool:
    """Whether a dependency is a file of the packages, and no data or configuration."""
    return dep.startswith(tuple(f"{package}/" for package in PACKAGES))


def module_of(command: str) -> str:
    """'tasks.train_policy' of 'python -m tasks.train_policy ...'."""
    found = re.match(r"\s*python -m ([\w.]+)", command)
    if found is None:
        raise ValueError(f"a stage's command begins with 'python -m tasks.<stage>', this one is: {command}")
    return found[1]


if __name__ == "__main__":
    main()

"""Which files of this repository a module needs, so that a stage is stale exactly when its own code changed."""

from __future__ import annotations

import ast
import hashlib
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("coevo", "tasks")


@cache
def closure(module: str) -> tuple[Path, ...]:
    """Files that `module` imports from this repository, itself included, at any depth, relative to the root.

    Imports inside functions count. Package `__init__` files count too, since they run, and so does a template that
    bears its module's name (render.html.j2 beside render.py).
    """
    found: set[Path] = set()
    pending = [module]
    while pending:
        name = pending.pop()
        file = file_of(name)
        if file is None or file in found:
            continue
        found.add(file)
        parts = name.split(".")
        pending.extend(".".join(parts[:depth]) for depth in range(1, len(parts)))
        pending.extend(imports(file))
        template = file.with_suffix(".html.j2")
        if template.is_file():
            found.add(template)
    return tuple(sorted(path.relative_to(ROOT) for path in found))


def imports(file: Path) -> list[str]:
    """Names in this repository that a file imports; for 'from a import b', both a and a.b."""
    names: list[str] = []
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            names.extend(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.append(node.module)
            names.extend(f"{node.module}.{alias.name}" for alias in node.names)
    return [name for name in names if name.split(".")[0] in PACKAGES]


def file_of(module: str) -> Path | None:
    """The file of a module or package of this repository, or none if there is no such module."""
    path = ROOT.joinpath(*module.split("."))
    for candidate in (path.with_suffix(".py"), path / "__init__.py"):
        if candidate.is_file():
            return candidate
    return None


def source_sha256(module: str) -> str:
    """Hash over the names and contents of a module's closure."""
    digest = hashlib.sha256()
    for path in closure(module):
        digest.update(f"{path}\n".encode())
        digest.update((ROOT / path).read_bytes())
    return digest.hexdigest()

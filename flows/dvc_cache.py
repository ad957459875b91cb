"""What lies in DVC's cache, asked of DVC itself, in a process of its own:

python -m flows.dvc_cache unused            JSON: objects that can go, artifacts that lineage keeps
python -m flows.dvc_cache damaged           JSON: objects that are not what their name says
python -m flows.dvc_cache damaged OUT ...   the same, of these outputs alone
"""

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

from dvc.repo import Repo

FOLDER = ".dir"
"""Ending of the objects that list a folder's files."""


def unused(repo: Repo) -> dict[str, Any]:
    """{free: {path: bytes}, kept: {artifact id: bytes}}.

    In use is what the workspace's stages and sealed rounds name, for all loops. Of the rest, an artifact stays if one
    in use descends from it: its data may be asked for, and nothing could make it again.
    """
    cache = repo.cache.local
    present = set(cache.all())
    used = {id.value for ids in repo.used_objs().values() for id in ids} & present
    needed: set[str] = set()
    for oid in used:
        if oid.endswith(FOLDER):
            lineage = _member(cache, oid, "lineage.json")
            needed.update(lineage or {})
    kept: dict[str, int] = {}
    keeping: set[str] = set()
    for oid in present - used:
        manifest = _member(cache, oid, "manifest.json") if oid.endswith(FOLDER) else None
        if manifest is not None and manifest.get("sha256") in needed:
            members = {oid, *(entry["md5"] for entry in _listing(cache, oid))} & present
            kept[f"{manifest['id']} {manifest['sha256'][:12]}"] = _size(cache, members - used)
            keeping |= members
    free = sorted(present - used - keeping)
    return dict(free={cache.oid_to_path(oid): _size(cache, {oid}) for oid in free}, kept=kept)


def damaged(repo: Repo, outs: list[str]) -> list[str]:
    """Paths of objects whose content has another hash than they bear: DVC itself trusts what it once wrote."""
    cache = repo.cache.local
    if not outs:
        return [cache.oid_to_path(oid) for oid in sorted(cache.all()) if not _is_sound(cache, oid)]
    wrong = []
    for out in (found for path in outs for found in repo.find_outs_by_path(path, strict=False)):
        oid = out.hash_info.value
        members = {oid}
        if oid.endswith(FOLDER) and _is_sound(cache, oid):
            members |= {entry["md5"] for entry in _listing(cache, oid)}
        wrong += [cache.oid_to_path(each) for each in sorted(members) if not _is_sound(cache, each)]
    return wrong


def _is_sound(cache: Any, oid: str) -> bool:
    """Also where nothing is."""
    try:
        with open(cache.oid_to_path(oid), "rb") as file:
            return hashlib.file_digest(file, "md5").hexdigest() == oid.removesuffix(FOLDER)
    except FileNotFoundError:
        return True


def _listing(cache: Any, oid: str) -> list[dict[str, str]]:
    return json.loads(Path(cache.oid_to_path(oid)).read_text())


def _member(cache: Any, oid: str, name: str) -> dict[str, Any] | None:
    """A JSON file of a folder in the cache; none if there is none, or not here, or not whole."""
    try:
        found = next((entry["md5"] for entry in _listing(cache, oid) if entry["relpath"] == name), None)
        return json.loads(Path(cache.oid_to_path(found)).read_text()) if found else None
    except (FileNotFoundError, ValueError):
        return None


def _size(cache: Any, oids: set[str]) -> int:
    return sum(Path(cache.oid_to_path(oid)).stat().st_size for oid in oids)


if __name__ == "__main__":
    with Repo() as opened, opened.lock:
        question, *outs = sys.argv[1:]
        print(json.dumps(unused(opened) if question == "unused" else damaged(opened, outs)))

"""What must hold after any disturbance, once the same command has been given again."""

from __future__ import annotations

from tests.flows import toys
from tests.survival.site import Site, wait_for


def run_again(site: Site, undisturbed: dict[str, str], times: int = 1) -> None:
    """Run without disturbance, then: the same hashes, no piece of work done twice (or more than `times`), nothing left
    alive, nothing half written, and no flow run that the server takes for alive."""
    site.hurry()
    made = site.coevo("run")
    assert made.returncode == 0, made.stdout + made.stderr
    assert "Traceback" not in made.stdout + made.stderr, made.stdout + made.stderr
    require_sound(site, undisturbed, times)


def require_sound(site: Site, undisturbed: dict[str, str], times: int = 1) -> None:
    """All of it but the run."""
    require_done(site, undisturbed, times)
    wait_for(lambda: not site.unended(), "zombie runs to be gone", 30, step=1.0)


def require_done(site: Site, undisturbed: dict[str, str], times: int = 1) -> None:
    """What needs no server: hashes, each work done once, no orphan, nothing half written."""
    assert toys.hashes(site.root) == undisturbed
    assert site.dvc("status", "--json").strip() == "{}"
    again = {id: count for id, count in site.finished().items() if count > times}
    assert not again, f"done more than once: {again}"
    assert len(site.finished()) == len(undisturbed)
    wait_for(lambda: not site.stages() and not site.processes("flows.dvc_command"), "orphans to be gone", 10)
    assert not [path for path in (site.root / "data").rglob(".*") if path.is_dir()]

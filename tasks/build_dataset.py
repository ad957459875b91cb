"""Mix new episodes with what was there before: who is drawn how often, and which initial states validate."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from coevo.core import stage
from coevo.core.artifacts import Artifact
from coevo.core.stage import Result, Run
from coevo.episodes.dataset import write_dataset
from coevo.episodes.mixture import Mixture


@dataclass(frozen=True)
class Inputs:
    sources: tuple[Artifact, ...] = stage.artifact_list("episodes", "episodes that come in")
    previous: Artifact | None = stage.artifact("dataset", "dataset to carry on, a round older", optional=True)


class Params(Mixture):
    """The mixture of one arm; other arms are other stages, each with a section of its own."""


def build_dataset(inputs: Inputs, params: Params, run: Run) -> Result:
    """Link the sources into the run's folder and write the mixture."""
    rows = write_dataset(run.folder, inputs.sources, params, inputs.previous)
    metrics: dict[str, int] = dict(Counter(f"episodes/{row.split}" for row in rows))
    metrics |= Counter(f"drawn/{row.policy}_{row.outcome}" for row in rows if row.weight > 0)
    return Result("dataset", {"episodes": len(rows)} | metrics, sorted({row.state for row in rows}))


if __name__ == "__main__":
    stage.main(build_dataset)

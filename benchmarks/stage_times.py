"""Keep what the stages of a finished round took, for plans on machines that have run none.

    python -m benchmarks.stage_times --where "two cores" --out docs/results/laptop_stages.json

Reads the records of the round that is open here; run it where one has just been finished with nothing beside it.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, replace
from pathlib import Path

from flows.loops import Loop
from flows.plan import records


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--loop", default="default")
    parser.add_argument("--root", type=Path, default=Path.cwd(), help="repository in which the round was run")
    parser.add_argument("--where", required=True, help="the machine, in words")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    found = records(Loop(args.loop, args.root.resolve()))
    rows = {
        name: asdict(replace(run, where=args.where, seconds=round(run.seconds, 2), peak_mib=round(run.peak_mib)))
        for name, run in sorted(found.items())
    }
    args.out.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()

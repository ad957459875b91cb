"""What a flow says of a DVC that failed, and that it goes on where nobody reads what it says."""

import subprocess
import sys

import pytest

from flows import repro
from tests.flows import toys


@pytest.mark.parametrize(
    "last, said",
    [
        (["work: no such thing", "ERROR: failed to reproduce 'work': failed to run: python x, exited with 2"],
         "work: no such thing"),
        (["made work 1a2b", "ERROR: failed to reproduce 'work': [Errno 28] No space left on device"],
         "made work 1a2b\nERROR: failed to reproduce 'work': [Errno 28] No space left on device"),
        (["ERROR: failed to reproduce 'work': failed to run: python x, exited with -9"],
         "ERROR: failed to reproduce 'work': failed to run: python x, exited with -9"),
        ([], "DVC ended with status 255 and said nothing"),
    ],
)  # fmt: skip
def test_the_cause_is_said_by_the_stage_or_else_by_dvc(tmp_path, monkeypatch, last, said):
    monkeypatch.setattr(repro, "_run", lambda root, arguments, on_line: (255, last, True))
    with pytest.raises(repro.StageFailed) as failed:
        repro.reproduce(tmp_path, "work", print)
    assert str(failed.value) == said


def test_lines_that_nobody_reads_any_more_cost_no_work(tmp_path):
    work = (
        "import pathlib, sys; from rich.console import Console; from flows.console import StageLine, console\n"
        "input()\n"
        "for _ in range(3):\n"
        "    with StageLine('work'): console.print('counting')\n"
        "    Console(file=sys.stderr).print('counting')\n"
        "pathlib.Path('done').touch()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", work], cwd=tmp_path, env=toys.environment(), stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    process.stdout.close()
    process.stderr.close()
    process.stdin.write(b"go\n")
    process.stdin.close()
    assert process.wait(60) == 0 and (tmp_path / "done").exists()

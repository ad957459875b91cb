"""What a flow says of a DVC that failed."""

import pytest

from flows import repro


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

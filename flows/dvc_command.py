"""DVC's command line, which also tells a busy repository from a fault: python -m flows.dvc_command repro ...

DVC ends with the same status whatever went wrong. The exceptions that it logs say what it was, in any version's words.
"""

import logging
import sys

from dvc.cli import main
from dvc.lock import LockError

BUSY = 75
"""Exit status where another DVC command holds what this one needs (EX_TEMPFAIL of sysexits.h)."""


class _Listener(logging.Handler):
    """Notes whether a lock was refused; DVC hands every exception that it ends with to its log."""

    refused = False

    def emit(self, record: logging.LogRecord) -> None:
        fault = record.exc_info[1] if record.exc_info else None
        while fault is not None:
            self.refused = self.refused or isinstance(fault, LockError)
            fault = fault.__cause__ or fault.__context__


def run(arguments: list[str]) -> int:
    """Exit status of one DVC command."""
    listener = _Listener()
    logging.getLogger("dvc").addHandler(listener)
    code = main(arguments)
    return BUSY if code != 0 and listener.refused else code


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))

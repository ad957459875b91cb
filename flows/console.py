"""What a run says on the terminal: one line a stage, with the time left of long ones."""

import os
import re
import time
from dataclasses import dataclass

from rich.console import Console
from rich.status import Status

_PROGRESS = re.compile(
    r"PROGRESS (?P<label>.+?) (?P<done>\d+)/(?P<total>\d+)(?: (?P<left>\d+) s left)?(?: (?P<note>.+))?"
)
console = Console(highlight=False)


def _go_on(broken: Console) -> None:
    """What was to be read goes nowhere once its reader is gone: a killed runner, or whatever a shell piped it to.

    Rich would end the process, from within Prefect's log handler too, and with it the hours of work it speaks of.
    """
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, broken.file.fileno())
    os.close(nowhere)


Console.on_broken_pipe = _go_on


@dataclass(frozen=True)
class Progress:
    """A line of progress that a stage printed (coevo.core.stage, Run.progress)."""

    label: str
    done: int
    total: int
    left: int | None
    """Seconds, as the stage estimates them."""
    note: str

    @property
    def percent(self) -> float:
        """0 to 100."""
        return 100.0 * self.done / max(self.total, 1)

    def __str__(self) -> str:
        left = f", {clock(self.left)} left" if self.left is not None else ""
        return f"{self.label} {self.done}/{self.total}{left}{f'  {self.note}' if self.note else ''}"


def progress_of(line: str) -> Progress | None:
    """The progress that a line tells of, or none."""
    found = _PROGRESS.fullmatch(line.strip())
    if found is None:
        return None
    left = int(found["left"]) if found["left"] else None
    return Progress(found["label"], int(found["done"]), int(found["total"]), left, found["note"] or "")


class StageLine:
    """The line of one stage: it moves on a terminal, and is repeated every ten seconds elsewhere (a log file)."""

    def __init__(self, title: str):
        self.title = title
        self.began = self.spoke = time.monotonic()
        self.status: Status | None = None
        self.failed = False

    def __enter__(self) -> "StageLine":
        if console.is_terminal:
            self.status = console.status(self.title)
            self.status.start()
        return self

    def progress(self, progress: Progress) -> None:
        """Show how far the stage has come."""
        if self.status is not None:
            self.status.update(f"{self.title}  {progress}")
        elif time.monotonic() - self.spoke >= 10.0:
            self.spoke = time.monotonic()
            console.print(f"  {self.title}  {progress}")

    def say(self, text: str) -> None:
        """One line beside it."""
        console.print(f"  {text}", style="yellow", markup=False)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self.status is not None:
            self.status.stop()
        mark = "[green]done[/]" if kind is None and not self.failed else "[red]ended[/]"
        console.print(f"  {self.title}  {mark}  {clock(time.monotonic() - self.began)}")


def clock(seconds: float) -> str:
    """'8 s', '2 min 05 s'."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"

"""Bars and time left where a person watches, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn

from kerneleval.records import Event
from kerneleval.reports.text import duration, safe

OUTER = "run"
"""The kind of event that counts whole candidates; every other kind is a step within one."""
NOTE = "note"
"""The kind that is no step: its line stays."""

REFRESH_S = 0.1
LINE_S = 10.0
"""Shortest time between two plain lines."""


class TimeLeft:
    """Time left, from the mean pace since the first event: a resumed job starts with much done already."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._start: tuple[float, int] | None = None

    def seconds(self, done: int, total: int) -> float | None:
        """Seconds left; None while there is nothing to judge by."""
        now = self._clock()
        if self._start is None or done < self._start[1]:
            self._start = (now, done)
        began, first = self._start
        if done <= first or total <= 0:
            return None
        return (now - began) / (done - first) * (total - done)


class ProgressDisplay:
    """Shows events on stderr, so that stdout stays for results; a context manager that gives itself, to be called with
    each :class:`Event`.

    It has no thread of its own: the judge forks, and a fork in the middle of a drawing thread's lock would hang.
    """

    def __init__(self, console: Console | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = console or Console(stderr=True)
        self._clock = clock
        self._left = TimeLeft(clock)
        drawn = self._console.is_terminal and not self._console.is_dumb_terminal
        self._bars = _bars(self._console) if drawn else None
        self._tasks: dict[bool, TaskID] = {}
        self._drawn = -1e9

    def __enter__(self) -> Self:
        if self._bars is not None:
            self._bars.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        if self._bars is not None:
            self._bars.stop()

    def __call__(self, event: Event) -> None:
        """Show one event."""
        if event.kind == NOTE:
            self._console.print(f"{NOTE}: {safe(event.text)}", markup=False, highlight=False, soft_wrap=True)
            return
        left = self._left.seconds(event.done, event.total) if event.kind == OUTER else None
        if self._bars is None:
            self._line(event, left)
        else:
            self._bar(self._bars, event, left)

    def _bar(self, bars: Progress, event: Event, left: float | None) -> None:
        fields: dict[str, Any] = {
            "text": safe(event.text, 60).replace("\n", " "),
            "left": "" if left is None else f"{duration(left)} left",
        }
        total, outer = event.total or None, event.kind == OUTER
        if outer not in self._tasks:
            self._tasks[outer] = bars.add_task(event.kind, total=total, **fields)
        bars.update(self._tasks[outer], description=event.kind, completed=event.done, total=total, **fields)
        now = self._clock()
        if now - self._drawn >= REFRESH_S or event.done == event.total:
            bars.refresh()
            self._drawn = now

    def _line(self, event: Event, left: float | None) -> None:
        # Steps within a candidate would flood a log; without an outer count they are all that there is to show.
        if event.kind == OUTER:
            self._tasks[True] = TaskID(0)
        elif self._tasks:
            return
        now = self._clock()
        finished = event.total > 0 and event.done == event.total and event.kind == OUTER
        if now - self._drawn < LINE_S and not finished:
            return
        self._drawn = now
        count = f" {event.done}/{event.total}" if event.total else ""
        tail = f" ({duration(left)} left)" if left else ""
        text = safe(event.text, 120).replace("\n", " ")
        self._console.print(f"{event.kind}{count}: {text}{tail}", markup=False, highlight=False, soft_wrap=True)


def _bars(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=30),
        MofNCompleteColumn(),
        TextColumn("{task.fields[left]}", style="dim", markup=False),
        TextColumn("{task.fields[text]}", markup=False),
        console=console,
        auto_refresh=False,
        transient=True,
    )

"""What commands print (tables, JSON, progress, text that a terminal must not obey), and how they exit."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from kerneleval.records import Event

if TYPE_CHECKING:
    from rich.console import Console

PASSED = 0
"""The candidate passed; the command did its work."""
FAILED = 1
"""The candidate failed; an audit found a change; the doctor found a machine that cannot judge."""
ERROR = 2
"""Wrong usage, or the machine failed: nothing is said of the candidate."""
INTERRUPTED = 130
"""Ctrl-C, as shells count it: 128 and the signal's number."""
PIPE_CLOSED = 141
"""The reader of our output is gone."""


def console() -> Console:
    """Where tables go: stdout, as wide as the terminal, or wide enough for all columns."""
    from rich.console import Console

    # In a pipe or a log there is no width to fit into, and a table cut to 80 columns would lose figures.
    return Console(highlight=False, width=None if sys.stdout.isatty() or "COLUMNS" in os.environ else 140)


def one_line(message: str) -> str:
    """The message without line breaks, and without what a file's name or a candidate's text would do to a terminal."""
    from kerneleval.reports.text import safe

    return safe(" ".join(line.strip() for line in message.splitlines()), 4000).replace("\t", " ")


def print_json(value: Any) -> None:
    """One JSON document on stdout."""
    from kerneleval.reports import json

    sys.stdout.write(json.dumps(value) + "\n")


def progress(*, lines: bool) -> AbstractContextManager[Callable[[Event], None] | None]:
    """Bars on stderr where a person watches; elsewhere nothing, or with ``lines`` a line every ten seconds."""
    if not lines and not sys.stderr.isatty():
        return nullcontext(None)
    from kerneleval.reports.progress import ProgressDisplay

    return ProgressDisplay()


def show(found: Any, as_json: bool, render: Callable[[Any, Console], object]) -> int:
    """What a command found, as JSON or as ``render`` shows it; returns the exit code of a command that is done."""
    print_json(found) if as_json else render(found, console())
    return PASSED


def show_scores(scores: dict[str, Any], as_json: bool) -> int:
    """The scores of a run, as a table or as JSON; returns the exit code."""
    from kerneleval.reports import json, scores_view

    document = json.scores_document(scores["run"], scores["scores"]) if as_json else scores
    return show(document, as_json, scores_view.render_scores)

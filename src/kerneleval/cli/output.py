"""What commands print: tables, JSON, progress, and text from elsewhere that a terminal must not obey."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from kerneleval.cli.exits import PASSED
from kerneleval.records import Event

if TYPE_CHECKING:
    from rich.console import Console


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
    from kerneleval.reports import terminal

    return terminal.progress()


def show_scores(scores: dict[str, Any], as_json: bool) -> int:
    """The scores of a run, as a table or as JSON; returns the exit code."""
    if as_json:
        from kerneleval.reports import json

        print_json(json.scores_document(scores["run"], scores["scores"]))
    else:
        from kerneleval.reports import terminal

        terminal.render_scores(scores, console())
    return PASSED

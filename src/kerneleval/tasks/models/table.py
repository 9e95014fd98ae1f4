"""What a table of shapes is: which tasks it is for, and a row for each shape."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kerneleval.records import Task


@dataclass(frozen=True, kw_only=True)
class Table:
    """Shapes of one family of tasks."""

    dims: tuple[str, ...]
    """Names of the dims: the tasks have just these, in any order."""
    rows: tuple[tuple[str, tuple[int, ...]], ...]
    """``model.part`` and a value for each dim."""
    means: Callable[[Task], bool]
    """Whether a task with these dims is of the family."""


def tables(text: str, **means: Callable[[Task], bool]) -> tuple[Table, ...]:
    """Tables from text, an empty line between two; lines with ``#`` are left out.

    The first line of a table has the names of its dims (further ones behind a comma: the same rows for these, too) and,
    behind a colon, which of ``means`` says what tasks it is for; without one, all that have its dims. Each other line
    is a row: its name and then its numbers.
    """
    found = []
    for block in text.split("\n\n"):
        head, *lines = [line for line in map(str.strip, block.splitlines()) if line and line[0] != "#"]
        names, _, meant = head.partition(":")
        rows = tuple((name, tuple(map(int, values))) for name, *values in map(str.split, lines))
        for dims in names.split(","):
            family = means[meant.strip()] if meant else lambda task: True
            found.append(Table(dims=tuple(dims.split()), rows=rows, means=family))
    return tuple(found)


def transposed(task: Task) -> bool:
    """Whether it is a transposed convolution."""
    return "transpose" in task.name

"""What a table of shapes is: which tasks it is for, and a row for each shape."""

from __future__ import annotations

from collections.abc import Callable, Iterator
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


def _any(task: Task) -> bool:
    return True


def table(dims: str, rows: str, means: Callable[[Task], bool] = _any) -> Table:
    """A table from text: a line for each row, its name and then its numbers."""

    def read() -> Iterator[tuple[str, tuple[int, ...]]]:
        for line in filter(None, map(str.strip, rows.splitlines())):
            name, *values = line.split()
            yield name, tuple(map(int, values))

    return Table(dims=tuple(dims.split()), rows=tuple(read()), means=means)


def transposed(task: Task) -> bool:
    """Whether it is a transposed convolution."""
    return "transpose" in task.name

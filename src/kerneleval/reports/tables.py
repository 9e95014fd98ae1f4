"""Tables of figures in a terminal, narrow ones where the others have no room."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

Build = Callable[[bool], Table | None]
"""Makes a table, a narrow one on request; None where there is nothing to show."""


def grid(
    title: str,
    first: str,
    columns: Sequence[str | Text],
    *,
    narrow: bool = False,
    overflow: Literal["fold", "ellipsis"] = "ellipsis",
) -> Table:
    """An empty table of figures behind a first column of words, whose names a narrow one breaks."""
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, header_style="bold")
    table.add_column(first, no_wrap=not narrow, overflow="fold" if narrow else overflow, ratio=1 if narrow else None)
    return add_columns(table, columns, justify="right", overflow="fold", no_wrap=narrow)


def add_columns(table: Table, names: Iterable[str | Text], **style: Any) -> Table:
    """The table with further columns of one style."""
    for name in names:
        table.add_column(name, **style)
    return table


def show(console: Console, build: Build) -> bool:
    """Print a table, the narrow one where the other has no room; whether there was one."""
    table = build(False)
    if table is not None:
        console.print(table if fits(table, console, console.width) else build(True))
    return table is not None


def fits(table: Table, console: Console, width: int) -> bool:
    """Whether the table fits into that many columns without wrapping a cell."""
    unlimited = console.options.update(max_width=10_000)
    return Measurement.get(console, unlimited, table).maximum <= width

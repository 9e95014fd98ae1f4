"""The frame of a table of scores: generators down or across."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from kerneleval.reports.text import safe

Plain = dict[str, Any]


def names(scores: Mapping[str, Plain]) -> list[Text]:
    """The generators, as heads of columns."""
    return [Text(safe(name), style="bold") for name in scores]


def grid(title: str, first: str, columns: Sequence[str | Text]) -> Table:
    """An empty table: the first column for words, the others for figures."""
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, header_style="bold")
    table.add_column(first, no_wrap=True)
    for column in columns:
        table.add_column(column, justify="right", overflow="fold")
    return table

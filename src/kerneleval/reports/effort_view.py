"""What candidates cost to make and judge, and what their sources are like, for people."""

from __future__ import annotations

import math
from collections.abc import Mapping

from rich.table import Table

from kerneleval.reports.score_tables import Plain, grid, names
from kerneleval.reports.text import number, span

_COSTS = {
    "usd": "US dollars",
    "tokens_in": "tokens in",
    "tokens_out": "tokens out",
    "making_s": "making, s",
    "judging_s": "judging, s",
}


def cost_table(scores: Mapping[str, Plain], narrow: bool) -> Table | None:
    """Costs per sample, per correct one and per accepted speedup."""
    keys = [f"{kind}/{per}" for kind in _COSTS for per in ("sample", "correct", "accepted")]
    there = [key for key in keys if any(key in of.get("cost", {}) for of in scores.values())]
    if not there:
        return None
    table = grid("Cost", "", names(scores))
    for key in there:
        kind, _, per = key.partition("/")
        cells = (span(of.get("cost", {}).get(key), narrow=narrow) for of in scores.values())
        table.add_row(f"{_COSTS[kind]} per {'accepted speedup' if per == 'accepted' else per}", *cells)
    return table


_SOURCES = {
    "Maintainability index, 0 to 100": ("maintainability", ""),
    "Cyclomatic complexity, sum": ("complexity", "sum"),
    "of the most complex function": ("complexity", "max"),
    "K kernel complexity, 1 to 4": ("rubric", "K"),
    "R representation": ("rubric", "R"),
    "H hardware": ("rubric", "H"),
    "P performance": ("rubric", "P"),
    "A automation": ("rubric", "A"),
}
"""Row -> score, and which entry of it."""


def sources_table(scores: Mapping[str, Plain], narrow: bool) -> Table | None:
    """What the sources are like, where that was measured; None where it was not."""
    table = grid("Sources, and the Standard Kernel Rubric: medians over attempts", "", names(scores))
    for row, (name, entry) in _SOURCES.items():
        found = [of.get(name, {}) for of in scores.values()]
        found = [of.get(entry) for of in found] if entry else found
        if any(one and not math.isnan(number(one["value"])) for one in found):
            table.add_row(row, *(span(one or None, narrow=narrow) for one in found))
    return table if table.row_count else None

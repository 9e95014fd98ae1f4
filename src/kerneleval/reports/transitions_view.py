"""Transitions between iterations for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from kerneleval.reports.text import figure, number, plural, safe, span

_WORDS = {"rescue_rate": "wrong, then right", "regression_rate": "right, then wrong", "faster_rate": "faster"}


def render_transitions(found: Mapping[str, Any], console: Console) -> None:
    """Print what changed between iterations.

    Args:
        found: as :func:`kerneleval.pipeline.transitions` gives it.
        console: where to print.
    """
    total = found["transitions"]
    console.print(Text(f"{plural(total, 'transition')} of {plural(found['tasks'], 'task')}", style="bold"))
    if not total:
        console.print("No candidate names another one as its parent (docs/candidates.md, Origin).")
        return
    for stage, kinds in found["counts"].items():
        told = ", ".join(f"{n} {kind.replace('_', ' ')}" for kind, n in kinds.items())
        console.print(Text(f"  {stage:<8} {safe(told)}"))
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("Share")
    table.add_column("value", justify="right")
    for name, score in found["shares"].items():
        table.add_row(_WORDS.get(name, name), span(score))
    bias = found["repair_bias"]
    table.add_row("median speedup of the rescued", span(bias["rescued"], "x"))
    table.add_row("median speedup of those right before", span(bias["right_before"], "x"))
    console.print()
    console.print(table)
    console.print(Text(f"Mann-Whitney p of no difference between the two: {figure(number(bias['p']))}", style="dim"))
    console.print()
    console.print(Text(f"Pairs to learn from: {_listed(found['pairs'])}"))
    console.print(Text(f"Left out: {_listed(found['left_out'])}", style="dim"))
    if found.get("written"):
        console.print(Text(f"Written to {safe(found['written'])}"))


def _listed(counts: Mapping[str, int]) -> str:
    return safe(", ".join(f"{n} ({why})" for why, n in counts.items())) or "none"

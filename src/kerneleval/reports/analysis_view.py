"""Analyses of a run for people: what correctness depends on, what makes tasks hard, code, machines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from kerneleval.reports.text import figure, number, plural, safe, share, span

__all__ = ["render_analysis"]

Plain = Mapping[str, Any]

_SHOWN = 12

_METRICS = {
    "maintainability": "maintainability",
    "complexity_mean": "complexity, mean",
    "complexity_max": "complexity, largest",
    "logical_lines": "lines",
    "functions": "functions",
    "kernels": "kernels",
}


def render_analysis(found: Plain, console: Console) -> None:
    """Print the analyses of a run.

    Args:
        found: as :func:`kerneleval.pipeline.analyse` gives it.
        console: where to print.
    """
    for of in found["attribution"]:
        _attribution(of, console)
    _difficulty(found["difficulty"], console)
    _sources(found["sources"], console)
    _hardware(found["hardware"], console)


def _table(console: Console, title: str, columns: Sequence[str], rows: Sequence[Sequence[str | Text]]) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for i, column in enumerate(columns):
        table.add_column(column, justify="right" if i else "left", overflow="fold")
    for row in rows:
        table.add_row(*row)
    console.print(Text(title, style="bold"))
    console.print(table)


def _note(text: str, console: Console) -> None:
    if text:
        console.print(Text(f"  {safe(text, 300)}", style="dim"))


def _p(value: Any) -> str:
    """A p-value: in words where it is smaller than three places show."""
    p = number(value)
    return "< 0.001" if p < 0.001 else figure(p)


def _attribution(of: Plain, console: Console) -> None:
    taxonomy = {"category": "operator category", "group": "KernelBench-X's category"}.get(
        of["taxonomy"], str(of["taxonomy"])
    )
    rows: list[list[str | Text]] = []
    for name in ("category", "method", "both"):
        model = of[name]
        figures = [figure(number(model[key])) for key in ("pseudo_r2", "adjusted_r2")]
        rows.append([{"both": "category + method"}.get(name, name), *figures, Text(safe(model["note"], 120))])
    right = f"{share(of['right']).plain} of {of['right']['n']} pairs right"
    title = f"What correctness depends on, by {safe(taxonomy)}: {right}"
    _table(console, title, ("Model", "McFadden's pseudo-R2", "adjusted", "note"), rows)
    category, method = _p(of["category_beyond_method"]["p"]), _p(of["method_beyond_category"]["p"])
    _note(f"p of category beyond method {category}, of method beyond category {method}", console)
    _note(of["note"], console)
    console.print()


def _difficulty(of: Plain, console: Console) -> None:
    rows: list[list[str | Text]] = [
        [safe(c["proxy"].replace("_", " ")), span(c["rho"]), _p(c["p_adjusted"]), Text(safe(c["rho"]["note"], 80))]
        for c in of["correlations"]
    ]
    _table(console, "What goes with failure, over tasks", ("Proxy", "Spearman's rho", "adjusted p", "note"), rows)
    _note(of["note"], console)
    console.print()


def _sources(profiles: Mapping[str, Plain], console: Console) -> None:
    if profiles:
        rows: list[list[str | Text]] = [
            [safe(name), *(span(of.get(key)) for key in _METRICS)] for name, of in profiles.items()
        ]
        _table(console, "Sources, medians over attempts", ("Generator", *_METRICS.values()), rows)
        console.print()


def _hardware(of: Plain, console: Console) -> None:
    if len(of["machines"]) < 2:
        console.print(Text("Speedup from machine to machine: not evaluated, there is one machine", style="dim"))
        return
    kernels = [k for k in of["kernels"] if len(k["speedups"]) > 1]
    rows: list[list[str | Text]] = [
        [
            safe(f"{', '.join(k['generators'])}: {k['task']}"),
            ", ".join(f"{safe(machine)} {figure(number(v))}x" for machine, v in k["speedups"].items()),
            figure(number(k["cv"])),
            span(k["ratio"], "x"),
        ]
        for k in kernels[:_SHOWN]
    ]
    _table(console, "Speedup from machine to machine", ("Kernel", "speedup", "CV", "best / worst"), rows)
    if len(kernels) > _SHOWN:
        _note(f"{plural(len(kernels) - _SHOWN, 'more kernel')}: --json", console)
    for pair in of["agreements"]:
        told = pair["note"] or f"Kendall's tau-b {figure(number(pair['tau']))}, p {_p(pair['p'])}"
        _note(f"{pair['first']} and {pair['second']}, {plural(pair['kernels'], 'kernel')}: {told}", console)

"""The result of merging stores, for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from kerneleval.reports.tables import add_columns
from kerneleval.reports.text import plural, safe

_SHOWN = 20
_ROWS = {"outcomes": "cell", "candidates": "candidate", "responses": "kept answer"}


def render_merged(found: Mapping[str, Any], console: Console) -> None:
    """Print what :func:`kerneleval.pipeline.merge` gives: the runs of every source with what became of them, and what
    to do next.
    """
    for source in found["sources"]:
        console.print(Text(f"{safe(source['source'])} into {safe(found['store'])}", style="bold"), soft_wrap=True)
        table = Table(box=None, padding=(0, 2, 0, 0))
        add_columns(table, ("run", "name", "machines"), overflow="fold")
        table.add_column("judged", justify="right", no_wrap=True)
        table.add_column("", no_wrap=True)
        for run in source["runs"][:_SHOWN]:
            machines = ", ".join(f"{safe(m['name'], 60)} ({safe(m['device'], 20)})" for m in run["machines"])
            judged = f"{run['finished']} of {run['planned']}"
            table.add_row(run["id"], safe(run["name"], 60), machines, judged, run["change"])
        if source["runs"]:
            console.print(table)
        if len(source["runs"]) > _SHOWN:
            console.print(f"and {plural(len(source['runs']) - _SHOWN, 'run')} more")
        _figures(source, console)
    for name, ids in found["names"].items():
        said = f"{len(ids)} runs are named {safe(name, 60)!r}: the name means the latest, {ids[0]}; give identifiers"
        console.print(Text(said, style="yellow"), soft_wrap=True)
    ids = [run["id"] for source in found["sources"] for run in source["runs"]]
    if found["machines"] > 1:
        console.print(
            Text(f"next: kerneleval score {' '.join(dict.fromkeys(ids[:4]))} --store {safe(found['store'])}"),
            soft_wrap=True,
        )


def _figures(source: Mapping[str, Any], console: Console) -> None:
    new = [plural(source["rows"][name], word) for name, word in _ROWS.items() if source["rows"].get(name)]
    if not source["runs"]:
        console.print("It holds no run.")
    elif not source["rows"]:
        console.print("Nothing new: every run of it is there already.")
    elif new:
        console.print(f"new: {', '.join(new)}")
    if source["kept"]:
        console.print(f"{plural(source['kept'], 'cell')} known already with other figures, which stay")
    if source["refuted"]:
        said = f"{plural(source['refuted'], 'cell')} passed in one store and failed in the other; they have failed:"
        console.print(Text(said, style="yellow"), soft_wrap=True)
        for line in source["examples"]:
            console.print(Text(f"  {safe(line, 300)}"), soft_wrap=True)

"""The map of peers for people and as plain data: each name of a peer, and the tasks that cover it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from kerneleval.reports.text import safe
from kerneleval.tasks import peers


def summarise_peer(system: str) -> dict[str, Any]:
    """The map of one peer as plain data: counts, and its names in the order of the map.

    Args:
        system: the peer, in any case.

    Raises:
        UsageError: no such peer; the message lists those that there are.
    """
    rows = peers.names(system)
    counts = peers.covered(system)
    return {
        "system": rows[0].system,
        "names": counts.names,
        "mapped": counts.mapped,
        "listed": counts.listed,
        "listed_mapped": counts.listed_mapped,
        "tasks": counts.tasks,
        "rows": [
            {"group": row.group, "name": row.name, "tasks": list(row.tasks), "note": row.note, "listed": row.listed}
            for row in rows
        ],
    }


def render_peer(peer: Mapping[str, Any], console: Console) -> None:
    """The map of one peer, group by group, and counts.

    Args:
        peer: as :func:`summarise_peer` gives it.
        console: where it is printed.
    """
    rows = peer["rows"]
    for group in dict.fromkeys(row["group"] for row in rows):
        of = [row for row in rows if row["group"] == group]
        mapped = sum(bool(row["tasks"]) for row in of)
        table = Table(box=box.SIMPLE_HEAD, title=Text(f"{safe(group)}: {mapped} of {len(of)}"), title_justify="left")
        table.add_column("name", overflow="fold", ratio=2)
        table.add_column("tasks", overflow="fold", ratio=3)
        table.add_column("note", overflow="fold", style="dim", ratio=3)
        for row in of:
            tasks = Text(safe("\n".join(row["tasks"]))) if row["tasks"] else Text("none", style="dim")
            table.add_row(Text(safe(row["name"])), tasks, Text(safe(row["note"])))
        console.print(table)
    console.print(Text(safe(_counted(peer)), style="bold"))


def _counted(peer: Mapping[str, Any]) -> str:
    text = f"{peer['system']}: {peer['mapped']} of {peer['names']} mapped, to {peer['tasks']} tasks"
    if peer["listed"] < peer["names"]:
        text += f"; {peer['listed_mapped']} of {peer['listed']} of its own list"
    return text

"""An audit for people: every change with the line that replays it, then what did not change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from kerneleval.reports.text import figure, number, plural, safe

Plain = Mapping[str, Any]

STYLES = {"passed->failed": "bold red", "failed->passed": "bold yellow", "cells": "bold red"}


def render_audit(document: Plain, console: Console) -> None:
    """Print what :func:`kerneleval.pipeline.audit.audit` found."""
    protocol = document["protocol"]
    shapes = "the run's own shapes" if document["same_shapes"] else f"shapes of seed {protocol['suite_seed']}"
    head = f"audit {document['audit']} of {document['of']}, {protocol['tier']} tier, {shapes}"
    console.print(Text(safe(head), style="bold"))
    console.print()
    console.print(_table(document["verdicts"]))
    console.print()
    for entry in document["verdicts"]:
        if entry["changes"]:
            _change(entry, console)
    for note, entries in _notes(document["verdicts"]).items():
        console.print(Text(f"{plural(entries, 'verdict')}: {safe(note)}", style="dim"))
    if document["skipped"]:
        console.print(Text(f"{plural(document['skipped'], 'verdict')} had no candidate to judge again", style="dim"))
    changed, audited = document["changed"], plural(document["audited"], "verdict")
    line = f"{changed} of {audited} changed" if changed else f"{audited} judged again: nothing changed"
    console.print(Text(line, style="bold red" if changed else "green"))


def _name(entry: Plain) -> str:
    return safe(entry["generator"]) + (f" #{entry['sample']}" if entry["sample"] else "")


def _table(entries: list[Plain]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("generator", "task", "stored", "audit", "changed"):
        table.add_column(name, overflow="fold")
    for entry in entries:
        kinds = [change["kind"] for change in entry["changes"]]
        changed = Text(", ".join(kinds), style=STYLES.get(kinds[0], "yellow")) if kinds else Text("no", style="dim")
        before, after = (Text(_said(entry[when])) for when in ("before", "after"))
        table.add_row(Text(_name(entry)), Text(safe(entry["task"])), before, after, changed)
    return table


def _said(verdict: Plain) -> str:
    """``passed, custom, 1.50x`` or ``failed: correctness/wrong_output``."""
    if verdict["verdict"] != "passed":
        return safe(f"failed: {verdict['stage']}/{verdict['reason']}")
    speedup = "" if verdict["speedup"] is None else f", {figure(number(verdict['speedup'].get('value')))}x"
    return safe(f"passed, {verdict['track'] or 'no track'}{speedup}")


def _change(entry: Plain, console: Console) -> None:
    for change in entry["changes"]:
        line = Text(f"{_name(entry)}, {safe(entry['task'])}: ", style="bold")
        line.append(f"{change['kind']}: ", style=STYLES.get(change["kind"], "yellow"))
        when = "" if change["kind"] == "cells" else "now "  # both sides of a contradiction are stored
        console.print(line.append(safe(f"{change['before']}, {when}{change['after']}"), style="not bold"))
    console.print(Text(safe(entry["after"]["message"])))
    # never wrapped, so that it can be copied
    console.print(Text("replay: ", style="bold").append(safe(entry["replay"]), style="not bold"), soft_wrap=True)
    console.print()


def _notes(entries: list[Plain]) -> dict[str, int]:
    found: dict[str, int] = {}
    for entry in entries:
        for note in entry["notes"]:
            found[note] = found.get(note, 0) + 1
    return found

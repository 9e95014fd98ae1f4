"""What changed, for people: between two runs or generators, in an audit, between iterations."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from kerneleval.reports.tables import add_columns
from kerneleval.reports.text import figure, number, plural, safe, share, span

Plain = Mapping[str, Any]

_SHOWN = 20
"""Pairs that are listed; the rest is counted."""

_WORDS = {
    "rescued": "wrong before, right now",
    "broken": "right before, wrong now",
    "faster": "faster",
    "slower": "slower",
    "not_told": "no difference beyond noise",
    "other_rule": "right in both, timed by different rules",
    "untimed": "right in both, not timed in both",
    "both_wrong": "wrong in both",
}
_STYLES = {"rescued": "green", "faster": "green", "broken": "red", "slower": "red"}


def render_comparisons(document: Plain, console: Console) -> None:
    """Print the plain data of what :func:`kerneleval.pipeline.compare` gives."""
    for one in document["comparisons"]:
        console.print(Text(safe(f"{_named(one['after'])} against {_named(one['before'])}"), style="bold"))
        if one["by"] == "task":
            _by_task(one["comparison"], console)
        else:
            _summary(one, console)
            _changed(one["comparison"]["pairs"], console)
        if one["comparison"]["rules"]:
            console.print(Text(one["comparison"]["rules"], style="yellow"))
        console.print()
    for name in document["not_compared"]:
        console.print(Text(safe(f"{name} is in only one of the runs and is not compared"), style="dim"))
    if any(one["by"] == "cell" for one in document["comparisons"]):
        console.print(
            "Speedups against the same baseline; 95 % intervals. At most 5 % of the cells called faster or slower are "
            "expected to be neither.",
            style="dim",
        )


def _named(side: Plain) -> str:
    return f"{side['generator']} of {side['name']} ({side['run']})"


def _summary(one: Plain, console: Console) -> None:
    comparison, counts = one["comparison"], one["counts"]
    table = _facts(comparison)
    speed = comparison["speed"]
    table.add_row("speed, cells right in both", _speed(speed, speed["note"]))
    for change, words in _WORDS.items():
        if counts[change]:
            table.add_row(Text(words), Text(plural(counts[change], "cell"), style=_STYLES.get(change, "dim")))
    _one_sided(table, comparison, "cell")
    console.print(table)


def _facts(comparison: Plain) -> Table:
    """A table of names and values, that begins with the pairs that are right."""
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    p, pairs = number(comparison["p_correct"]), plural(len(comparison["pairs"]), "pair")
    right = Text.assemble(
        share(comparison["correct_before"]),
        " to ",
        share(comparison["correct_after"]),
        Text(f" of {pairs}, p = {p:.2g}{'' if p >= 0.05 else ': a difference'}", style="dim"),
    )
    table.add_row("right (operator, direction)", right)
    return table


def _speed(speed: dict[str, Any], said: str) -> Text:
    return Text.assemble(span(speed, "x"), Text(f"  {safe(said)}" if said else "", style="dim"))


def _one_sided(table: Table, comparison: Plain, unit: str) -> None:
    for side, words in (("only_before", "only in the first"), ("only_after", "only in the second")):
        if comparison[side]:
            table.add_row(Text(words), Text(plural(comparison[side], unit), style="dim"))


def _by_task(comparison: Plain, console: Console) -> None:
    """Two without a cell in common."""
    warning = (
        "The two have no cell in common (other shapes, machines or published results). Compared by task and direction, "
        "each side against its own baseline."
    )
    console.print(Text(warning, style="yellow"))
    table = _facts(comparison)
    speed = comparison["speed"]
    said = speed["note"] or f"over {plural(speed['n'], 'task')} right and timed in both"
    table.add_row("speedup over speedup", _speed(speed, said))
    _one_sided(table, comparison, "pair")
    console.print(table)
    _task_pairs(comparison["pairs"], console)


def _task_pairs(pairs: Sequence[Plain], console: Console) -> None:
    table = Table(box=box.SIMPLE_HEAD, title=Text("Pairs, the worst change first"), title_justify="left")
    add_columns(table, ("task", "direction"), overflow="fold")
    add_columns(table, ("right before", "right after", "speedup before", "speedup after"), justify="right")
    for pair in sorted(pairs, key=_task_rank)[:_SHOWN]:
        sides = pair["before"], pair["after"]
        table.add_row(
            Text(safe(pair["task"])),
            pair["direction"],
            *(f"{side['right']}/{side['samples']}" for side in sides),
            *(figure(number(side["speedup"]), "x") for side in sides),
        )
    _print_pairs(table, len(pairs), console)


def _task_rank(pair: Plain) -> tuple[float, float]:
    before, after = pair["before"], pair["after"]
    ratio = number(after["speedup"]) / number(before["speedup"])
    right = after["right"] / after["samples"] - before["right"] / before["samples"]
    return right, math.inf if math.isnan(ratio) else ratio


def _changed(pairs: Sequence[Plain], console: Console) -> None:
    changed = [p for p in pairs if p["before"] != p["after"] or p["faster"] or p["slower"]]
    if not changed:
        console.print("Nothing changed beyond noise.")
        return
    changed.sort(key=_rank)
    table = Table(box=box.SIMPLE_HEAD, title=Text("What changed, the worst first"), title_justify="left")
    add_columns(table, ("task", "direction", "right"), overflow="fold")
    add_columns(table, ("speed", "faster", "slower", "timed"), justify="right")
    for p in changed[:_SHOWN]:
        right = "yes" if p["before"] and p["after"] else "no" if p["before"] == p["after"] else ""
        text = Text(right, style="dim") if right else Text("rescued", "green") if p["after"] else Text("broken", "red")
        ratio = number(p["ratio"])
        table.add_row(
            Text(safe(p["task"])),
            p["direction"],
            text,
            figure(ratio, "x"),
            *(str(p[name]) if p[name] else "" for name in ("faster", "slower", "timed")),
        )
    _print_pairs(table, len(changed), console)


def _print_pairs(table: Table, pairs: int, console: Console) -> None:
    console.print(table)
    if pairs > _SHOWN:
        console.print(Text(f"and {plural(pairs - _SHOWN, 'more pair')}: --json has all", style="dim"))


def _rank(pair: Plain) -> tuple[int, float]:
    broken = pair["before"] and not pair["after"]
    rescued = pair["after"] and not pair["before"]
    ratio = number(pair["ratio"])
    return (0 if broken else 2 if rescued else 1, 0.0 if math.isnan(ratio) else ratio)


# -- Audits -----------------------------------------------------------------------------------------------------------

_KINDS = {"passed->failed": "bold red", "failed->passed": "bold yellow", "cells": "bold red"}


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
    for note, entries in Counter(note for entry in document["verdicts"] for note in entry["notes"]).items():
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
    add_columns(table, ("generator", "task", "stored", "audit", "changed"), overflow="fold")
    for entry in entries:
        kinds = [change["kind"] for change in entry["changes"]]
        changed = Text(", ".join(kinds), style=_KINDS.get(kinds[0], "yellow")) if kinds else Text("no", style="dim")
        before, after = (Text(_said(entry[when])) for when in ("before", "after"))
        table.add_row(Text(_name(entry)), Text(safe(entry["task"])), before, after, changed)
    return table


def _said(verdict: Plain) -> str:
    """``passed, custom, 1.50x`` or ``failed: correctness/wrong_output``."""
    if verdict["verdict"] != "passed":
        return safe(f"{verdict['verdict'].replace('_', ' ')}: {verdict['stage']}/{verdict['reason']}")
    speedup = "" if verdict["speedup"] is None else f", {figure(number(verdict['speedup'].get('value')))}x"
    return safe(f"passed, {verdict['track'] or 'no track'}{speedup}")


def _change(entry: Plain, console: Console) -> None:
    for change in entry["changes"]:
        line = Text(f"{_name(entry)}, {safe(entry['task'])}: ", style="bold")
        line.append(f"{change['kind']}: ", style=_KINDS.get(change["kind"], "yellow"))
        when = "" if change["kind"] == "cells" else "now "  # both sides of a contradiction are stored
        console.print(line.append(safe(f"{change['before']}, {when}{change['after']}"), style="not bold"))
    console.print(Text(safe(entry["after"]["message"])))
    # never wrapped, so that it can be copied
    console.print(Text("replay: ", style="bold").append(safe(entry["replay"]), style="not bold"), soft_wrap=True)
    console.print()


# -- Iterations -------------------------------------------------------------------------------------------------------

_SHARES = {"rescue_rate": "wrong, then right", "regression_rate": "right, then wrong", "faster_rate": "faster"}


def render_transitions(found: Mapping[str, Any], console: Console) -> None:
    """Print what changed between iterations, as :func:`kerneleval.pipeline.transitions` gives it."""
    total = found["transitions"]
    console.print(Text(f"{plural(total, 'transition')} of {plural(found['tasks'], 'task')}", style="bold"))
    if not total:
        console.print("No candidate names another one as its parent (docs/candidates.md, Origin).")
        return
    for stage, kinds in found["counts"].items():
        remark = ", ".join(f"{n} {kind.replace('_', ' ')}" for kind, n in kinds.items())
        console.print(Text(f"  {stage:<8} {safe(remark)}"))
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("Share")
    table.add_column("value", justify="right")
    for name, score in found["shares"].items():
        table.add_row(_SHARES.get(name, name), span(score))
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

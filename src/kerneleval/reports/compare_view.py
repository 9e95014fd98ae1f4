"""Two runs or generators side by side, for people: what got better, what got worse, what is undecided."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

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
    "untimed": "right in both, not timed in both",
    "both_wrong": "wrong in both",
}
_STYLES = {"rescued": "green", "faster": "green", "broken": "red", "slower": "red"}


def render_comparisons(document: Plain, console: Console) -> None:
    """Print what :func:`kerneleval.pipeline.compare` gives.

    Args:
        document: its plain data.
        console: where to print.
    """
    for one in document["comparisons"]:
        console.print(Text(safe(f"{_named(one['after'])} against {_named(one['before'])}"), style="bold"))
        if one["by"] == "task":
            _by_task(one["comparison"], console)
        else:
            _summary(one, console)
            _changed(one["comparison"]["pairs"], console)
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
    for name in ("task", "direction"):
        table.add_column(name, overflow="fold")
    for name in ("right before", "right after", "speedup before", "speedup after"):
        table.add_column(name, justify="right")
    for pair in sorted(pairs, key=_task_rank)[:_SHOWN]:
        sides = pair["before"], pair["after"]
        table.add_row(
            Text(safe(pair["task"])),
            pair["direction"],
            *(f"{side['right']}/{side['samples']}" for side in sides),
            *(figure(number(side["speedup"]), "x") for side in sides),
        )
    console.print(table)
    if len(pairs) > _SHOWN:
        console.print(Text(f"and {plural(len(pairs) - _SHOWN, 'more pair')}: --json has all", style="dim"))


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
    for name in ("task", "direction", "right"):
        table.add_column(name, overflow="fold")
    for name in ("speed", "faster", "slower", "timed"):
        table.add_column(name, justify="right")
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
    console.print(table)
    if len(changed) > _SHOWN:
        console.print(Text(f"and {plural(len(changed) - _SHOWN, 'more pair')}: --json has all", style="dim"))


def _rank(pair: Plain) -> tuple[int, float]:
    broken = pair["before"] and not pair["after"]
    rescued = pair["after"] and not pair["before"]
    ratio = number(pair["ratio"])
    return (0 if broken else 2 if rescued else 1, 0.0 if math.isnan(ratio) else ratio)

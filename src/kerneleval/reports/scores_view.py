"""Scores of a run for people: the table of KernelEval's Table 1 first, then where the numbers come from."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from kerneleval.records import CATEGORIES, GROUPS, SHAPE_CATEGORIES, to_plain
from kerneleval.reports.effort_view import cost_table, sources_table
from kerneleval.reports.score_tables import Plain, grid, names
from kerneleval.reports.text import count, figure, fits, number, plural, safe, share, span

# Column of Table 1 -> (score, unit)
COLUMNS = {
    "Speed (median)": ("speedup_med", "x"),
    "Peak": ("peak", "x"),
    "Shape CV": ("cv_shape", ""),
    "Coverage": ("c_op", ""),
    "Portability": ("p_hw", ""),
    "S": ("composite", ""),
}

SHOWN_REASONS = 12


def render_scores(document: Mapping[str, Any], console: Console) -> None:
    """Print the scores of a run.

    Args:
        document: ``run`` (a :class:`~kerneleval.store.RunInfo`, or None) and ``scores`` (as
            :func:`kerneleval.scores.score_all` gives them), as records or as plain data.
        console: where to print.
    """
    plain = to_plain(document)
    scores: dict[str, Plain] = plain["scores"]
    if plain.get("run"):
        _head(plain["run"], console)
    if not scores:
        console.print("No results: nothing was planned.")
        return
    _print(console, scores, _table_1)
    _notes(scores, console)
    _print(console, scores, _worth)
    _print(console, scores, _fast_p, _pass_at_k, _limits, cost_table, sources_table, _coverage, _groups, _shapes)
    _gap(scores, console)
    _print(console, scores, _cv_shapes, _cv, _devices, _failures)
    console.print("Definitions: kerneleval score --explain NAME, docs/scores.md. Intervals: 95 %.", style="dim")


def render_headline(document: Mapping[str, Any], console: Console) -> None:
    """Print the first table of a run and what a point on each axis would be worth.

    Args:
        document: as :func:`render_scores` takes it, with ``written``: the files of the report.
        console: where to print.
    """
    plain = to_plain(document)
    scores: dict[str, Plain] = plain["scores"]
    _head(plain["run"], console)
    if scores:
        _print(console, scores, _table_1)
        _notes(scores, console)
        _print(console, scores, _worth)
    for path in plain["written"]:
        console.print(Text(f"Written: {safe(path)}"))
    if not plain["written"]:
        console.print("The whole report: --html FILE; a summary for a pull request: --markdown FILE.", style="dim")


Builder = Callable[[Mapping[str, Plain], bool], Table | None]
"""Makes a table of the scores, a narrow one if asked for; None where there is nothing to show."""


def _print(console: Console, scores: Mapping[str, Plain], *builders: Builder) -> None:
    for build in builders:
        table = build(scores, False)
        if table is None:
            continue
        if not fits(table, console, console.width):
            table = build(scores, True)
        console.print(table)
        console.print()


def _head(run: Plain, console: Console) -> None:
    when = time.strftime("%Y-%m-%d %H:%M", time.gmtime(run["created_unix_s"]))
    machines = "; ".join(f"{m['name']} ({m['device']}, {m['arch']})" for m in run["machines"])
    protocol = run["protocol"]
    line = f"{run['name']}  {run['id']}  {when} UTC, {protocol['tier']} tier, against {protocol['baseline']}"
    console.print(Text(safe(line), style="bold"))
    console.print(Text(safe(machines), style="dim"))
    missing = run["planned"] - run["finished"]
    if missing:
        warning = f"{plural(missing, 'attempt')} of {run['planned']} not judged yet: counted as failed until then"
        console.print(Text(warning, style="yellow"))
    console.print()


# --------------------------------------------------------------------------------------------------------------------
# Whole suite
# --------------------------------------------------------------------------------------------------------------------


def _table_1(scores: Mapping[str, Plain], narrow: bool) -> Table:
    table = grid("Composite score", "Generator", list(COLUMNS))
    values = {name: number(of["composite"]["value"]) for name, of in scores.items()}
    best = max((v for v in values.values() if not math.isnan(v)), default=math.nan)
    for name, of in scores.items():
        cells = [span(of.get(key), unit, narrow=narrow) for key, unit in COLUMNS.values()]
        if values[name] == best and len(scores) > 1:
            cells[-1].stylize("bold green")
        table.add_row(Text(safe(name)), *cells)
    return table


def _notes(scores: Mapping[str, Plain], console: Console) -> None:
    """What the reader of Table 1 must know: each note once, with the generators that it is of."""
    said: dict[str, list[str]] = {}
    for name, of in scores.items():
        for label, (key, _unit) in COLUMNS.items():
            note = of.get(key, {}).get("note", "")
            if note and key != "composite":
                said.setdefault(f"{label}: {note}", []).append(name)
        if math.isnan(number(of["composite"]["value"])):
            said.setdefault(f"S: {of['composite']['note']}", []).append(name)
    for note, of_whom in said.items():
        who = "" if len(of_whom) == len(scores) else f"{', '.join(of_whom)}: "
        console.print(Text(safe(f"  {who}{note}"), style="dim"))
    console.print()


def _worth(scores: Mapping[str, Plain], narrow: bool) -> Table | None:
    """Where the next point would count most."""
    axes = {
        "speedup_med": "Speed + 0.01",
        "cv_shape": "Shape CV - 0.01",
        "c_op": "Coverage + 0.01",
        "p_hw": "Portability + 0.01",
    }
    if not all(axes.keys() <= of.get("worth", {}).keys() for of in scores.values()):
        return None
    table = grid("What a point on each axis would add to S", "Generator", list(axes.values()))
    for name, of in scores.items():
        values = {axis: number(of["worth"][axis]["value"]) for axis in axes}
        cells = [span(of["worth"][axis], narrow=narrow) for axis in axes]
        best = max(values.values())
        for cell, value in zip(cells, values.values(), strict=True):
            if value == best and value > 0:
                cell.stylize("bold")
        table.add_row(Text(safe(name)), *cells)
    return table


def _fast_p(scores: Mapping[str, Plain], narrow: bool) -> Table | None:
    thresholds = list(next(iter(scores.values())).get("fast_p", {}))
    if not thresholds:
        return None
    table = grid(
        "fast_p: share of all tasks correct and faster than p times the baseline",
        "Generator",
        [*(f"p = {p}" for p in thresholds), "geometric mean of the correct"],
    )
    for name, of in scores.items():
        table.add_row(
            Text(safe(name)),
            *(share(of["fast_p"].get(p)) for p in thresholds),
            span(of["geometric_mean"], "x", narrow=narrow),
        )
    return table


def _pass_at_k(scores: Mapping[str, Plain], narrow: bool) -> Table | None:
    """pass@k, where anyone has more than one sample."""
    ks = [
        k
        for k in next(iter(scores.values())).get("pass_at_k", {})
        if any(not math.isnan(number(of["pass_at_k"][k]["value"])) for of in scores.values())
    ]
    if len(ks) < 2:
        return None
    table = grid(
        "pass@k, correct and faster, and the speedup of the best",
        "Generator",
        [f"{what}@{k}" for k in ks for what in ("pass", "fast", "best")],
    )
    for name, of in scores.items():
        cells = []
        for k in ks:
            cells += [share(of[key].get(k)) for key in ("pass_at_k", "fast_p_at_k")]
            cells.append(span(of.get("best_of_k", {}).get(k), "x", narrow=narrow))
        table.add_row(Text(safe(name)), *cells)
    return table


def _limits(scores: Mapping[str, Plain], narrow: bool) -> Table | None:
    """How near to the machine, where its limits were measured."""
    columns = {"Fraction of limit (median)": "fraction_of_limit", "SOL score (mean over tasks)": "sol_score"}
    if all(
        math.isnan(number(of.get(key, {}).get("value", math.nan))) for of in scores.values() for key in columns.values()
    ):
        return None
    table = grid("How near to the machine's limit, forward", "Generator", list(columns))
    for name, of in scores.items():
        table.add_row(Text(safe(name)), *(span(of.get(key), narrow=narrow) for key in columns.values()))
    return table


# --------------------------------------------------------------------------------------------------------------------
# Where the numbers come from
# --------------------------------------------------------------------------------------------------------------------


def _union(scores: Mapping[str, Plain], key: str, order: Sequence[str] = ()) -> list[str]:
    """Keys of a table over all generators: the known order first, then as they come."""
    found = dict.fromkeys(k for of in scores.values() for k in of.get(key, {}))
    return [k for k in order if k in found] + [k for k in found if k not in order]


def _coverage(scores: Mapping[str, Plain], narrow: bool) -> Table | None:
    return _covered(scores, "c_op_by_category", CATEGORIES, "Coverage by operator category and direction", "Category")


def _groups(scores: Mapping[str, Plain], narrow: bool) -> Table | None:
    title = "Coverage by KernelBench-X's category and direction"
    return _covered(scores, "c_op_by_group", GROUPS, title, "Category")


def _covered(scores: Mapping[str, Plain], key: str, order: Sequence[str], title: str, first: str) -> Table | None:
    keys = _union(scores, key)
    categories = [c for c in (*order, *dict.fromkeys(k.partition("/")[0] for k in keys)) if f"{c}/all" in keys]
    directions = [d for d in ("forward", "backward") if f"all/{d}" in keys]
    if not categories:
        return None
    table = grid(
        title,
        first,
        [Text(f"{safe(name)}\n{direction}") for name in scores for direction in directions],
    )
    for category in dict.fromkeys(categories):
        cells = [
            share(of.get(key, {}).get(f"{category}/{direction}")) for of in scores.values() for direction in directions
        ]
        table.add_row(Text(safe(category)), *cells, end_section=category == "all")
    return table


def _by_generator(
    scores: Mapping[str, Plain],
    key: str,
    title: str,
    first: str,
    cell: Callable[[Plain | None], Text],
    order: Sequence[str] = (),
) -> Table | None:
    rows = _union(scores, key, order)
    if not rows:
        return None
    table = grid(title, first, names(scores))
    for row in rows:
        table.add_row(Text(safe(row)), *(cell(of.get(key, {}).get(row)) for of in scores.values()))
    return table


def _shapes(scores: Mapping[str, Plain], narrow: bool) -> Table | None:
    categories = _union(scores, "speedup_by_shape", SHAPE_CATEGORIES)
    if not categories:
        return None
    columns = [Text(f"{safe(name)}\n{what}") for name in scores for what in ("median speedup", "slower")]
    table = grid("Speedup and regressions by shape category", "Shapes", columns)
    for category in categories:
        cells = []
        for of in scores.values():
            cells += [
                span(of["speedup_by_shape"].get(category), "x", narrow=narrow),
                _slower(of["regressions"].get(category)),
            ]
        table.add_row(Text(safe(category)), *cells)
    return table


def _slower(score: Plain | None) -> Text:
    """Regressed cells of the timed ones."""
    if score is None:
        return Text("–", style="dim")
    slow = round(number(score["value"]) * score["n"])
    return Text(f"{slow}/{score['n']}", style="red" if slow else "dim")


def _gap(scores: Mapping[str, Plain], console: Console) -> None:
    """The widest gap between two shape categories of each generator."""
    for name, of in scores.items():
        values = {k: number(s["value"]) for k, s in of.get("speedup_by_shape", {}).items()}
        if len(values) < 2:
            continue
        fast, slow = max(values, key=values.__getitem__), min(values, key=values.__getitem__)
        ratio = values[fast] / values[slow] if values[slow] else math.inf
        text = (
            f"  {name}: {figure(ratio)}x between {fast} ({figure(values[fast])}x) and {slow} ({figure(values[slow])}x)"
        )
        even = of.get("shape_gap", {})
        if not math.isnan(number(even.get("value", math.nan))):
            text += f"; {span(even, 'x').plain} at powers of two as elsewhere"
        console.print(Text(safe(text), style="dim"))
    console.print()


def _cv(scores: Mapping[str, Plain], narrow: bool) -> Table | None:
    return _by_generator(
        scores,
        "cv_by_category",
        "Shape CV by operator category",
        "Category",
        lambda s: span(s, narrow=narrow),
        CATEGORIES,
    )


def _cv_shapes(scores: Mapping[str, Plain], narrow: bool) -> Table | None:
    title = "How far speedups lie from their task's mean, by shape category"
    return _by_generator(scores, "cv_by_shape", title, "Shapes", lambda s: span(s, narrow=narrow), SHAPE_CATEGORIES)


def _devices(scores: Mapping[str, Plain], narrow: bool) -> Table | None:
    """Where there is more than one device: the speedup by which portability is judged."""
    if len(_union(scores, "device_speedup")) < 2:
        return None
    title = "Speedup by device (median over the pairs tried, a wrong one is 0); portable from 0.8"
    return _by_generator(scores, "device_speedup", title, "Device", lambda s: span(s, "x", narrow=narrow))


def _failures(scores: Mapping[str, Plain], narrow: bool) -> Table | None:
    counts = {
        reason: sum(of.get("failures", {}).get(reason, {}).get("n", 0) for of in scores.values())
        for reason in _union(scores, "failures")
    }
    if not counts:
        return None
    reasons = sorted(counts, key=counts.__getitem__, reverse=True)
    table = grid("Failed cells by reason", "Reason", names(scores))
    table.add_column("Tasks", overflow="ellipsis", no_wrap=True, max_width=60)
    for reason in reasons[:SHOWN_REASONS]:
        of_each = [of.get("failures", {}).get(reason, {}) for of in scores.values()]
        tasks = "; ".join(dict.fromkeys(of["note"] for of in of_each if of))
        table.add_row(Text(safe(reason)), *(count(of.get("n", 0)) for of in of_each), Text(safe(tasks), style="dim"))
    if len(reasons) > SHOWN_REASONS:
        rest = sum(counts[r] for r in reasons[SHOWN_REASONS:])
        table.add_row(f"{plural(rest, 'cell')} for {plural(len(reasons) - SHOWN_REASONS, 'more reason')}")
    return table


# --------------------------------------------------------------------------------------------------------------------
# Definitions
# --------------------------------------------------------------------------------------------------------------------


def render_explanations(said: Sequence[Mapping[str, str]], console: Console) -> None:
    """What scores mean, one after another.

    Args:
        said: records of :func:`kerneleval.scores.explanation`.
        console: where it is printed.
    """
    for one in said:
        console.print(Text(safe(one["name"]), style="bold").append(f"  {safe(one['file'])}", style="not bold dim"))
        for paragraph in filter(None, (one["definition"], *one["details"].split("\n\n"))):
            console.print(Text(safe(paragraph.replace("``", "`"))))
        console.print()

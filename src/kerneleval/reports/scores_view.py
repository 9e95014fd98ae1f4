"""Scores of a run for people: the table of KernelEval's Table 1 first, then where the numbers come from."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from kerneleval.records import CATEGORIES, DIRECTIONS, GROUPS, SHAPE_CATEGORIES, to_plain
from kerneleval.reports.tables import grid, show
from kerneleval.reports.text import count, figure, not_judged, nothing_in, number, plural, safe, share, span
from kerneleval.scores.common.rules import old_rule

Plain = dict[str, Any]
Scores = Mapping[str, Plain]
"""Generator -> score -> plain score, or table of them."""

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
    """Print the scores of a run: ``run`` (a :class:`~kerneleval.store.RunInfo`, or None) and ``scores`` (as
    :func:`kerneleval.scores.score_all` gives them), as records or as plain data.
    """
    plain = to_plain(document)
    scores: Scores = plain["scores"]
    if plain.get("run"):
        _head(plain["run"], console)
    if not scores:
        console.print(f"No results: {nothing_in(plain.get('run'))}.")
        return
    _first_tables(scores, console)
    _print(console, scores, _fast_p, _pass_at_k, _limits, _costs, _sources, *_COVERAGE, _shapes)
    _gap(scores, console)
    _print(console, scores, *(partial(_table_of, key=key) for key in _BY), _devices, _failures)
    console.print("Definitions: kerneleval score --explain NAME, docs/scores.md. Intervals: 95 %.", style="dim")


def render_headline(document: Mapping[str, Any], console: Console) -> None:
    """Print the first table of a run and what a point on each axis would be worth: a document as
    :func:`render_scores` takes it, with ``written``, the files of the report.
    """
    plain = to_plain(document)
    _head(plain["run"], console)
    if plain["scores"]:
        _first_tables(plain["scores"], console)
    for path in plain["written"]:
        console.print(Text(f"Written: {safe(path)}"))
    if not plain["written"]:
        console.print("The whole report: --html FILE; a summary for a pull request: --markdown FILE.", style="dim")


def _print(console: Console, scores: Scores, *builders: Callable[[Scores, bool], Table | None]) -> None:
    for build in builders:
        if show(console, partial(build, scores)):
            console.print()


def _first_tables(scores: Scores, console: Console) -> None:
    _print(console, scores, _table_1)
    _notes(scores, console)
    _print(console, scores, _directions, _worth)


def _head(run: Plain, console: Console) -> None:
    when = time.strftime("%Y-%m-%d %H:%M", time.gmtime(run["created_unix_s"]))
    machines = "; ".join(f"{m['name']} ({m['device']}, {m['arch']})" for m in run["machines"])
    protocol = run["protocol"]
    line = f"{run['name']}  {run['id']}  {when} UTC, {protocol['tier']} tier, against {protocol['baseline']}"
    console.print(Text(safe(line), style="bold"))
    console.print(Text(safe(machines), style="dim"))
    if said := old_rule(protocol):
        console.print(Text(said, style="yellow"))
    missing = run["planned"] - run["finished"]
    if missing:
        warning = f"{plural(missing, 'attempt')} of {run['planned']} not judged yet: counted as failed until then"
        console.print(Text(warning, style="yellow"))
    for line in not_judged(run):
        console.print(Text(safe(line), style="yellow"))
    console.print()


# -- Whole suite: a row for each generator ----------------------------------------------------------------------------


def _rows(title: str, columns: Sequence[str], scores: Scores, cells: Callable[[Plain], Sequence[Text]]) -> Table:
    table = grid(title, "Generator", columns)
    for name, of in scores.items():
        table.add_row(Text(safe(name)), *cells(of))
    return table


def _table_1(scores: Scores, narrow: bool) -> Table:
    values = [number(of["composite"]["value"]) for of in scores.values()]
    best = max((v for v in values if not math.isnan(v)), default=math.nan)

    def cells(of: Plain) -> list[Text]:
        found = [span(of.get(key), unit, narrow=narrow) for key, unit in COLUMNS.values()]
        if number(of["composite"]["value"]) == best and len(scores) > 1:
            found[-1].stylize("bold green")
        return found

    return _rows("Composite score", list(COLUMNS), scores, cells)


def _notes(scores: Scores, console: Console) -> None:
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


_OF_DIRECTIONS = {
    "Speed": ("speedup_by_direction", "speedup_med", "x"),
    "Shape CV": ("cv_by_direction", "cv_shape", ""),
}
"""What is shown of each direction -> the table of it, the score of both directions, the unit."""


def _directions(scores: Scores, narrow: bool) -> Table | None:
    """The speeds that S is made of, of each direction and together."""
    directions = _union(scores, "speedup_by_direction", DIRECTIONS)
    if not directions:
        return None

    def cells(of: Plain) -> list[Text]:
        found = []
        for by, together, unit in _OF_DIRECTIONS.values():
            table = of.get(by, {})
            found += [span(one, unit, narrow=narrow) for one in (*map(table.get, directions), of.get(together))]
        return found

    columns = [f"{what}\n{d}" for what in _OF_DIRECTIONS for d in (*directions, "together")]
    title = "By direction; backward is the gradient alone on both sides, or with the forward call on both"
    return _rows(title, columns, scores, cells)


def _worth(scores: Scores, narrow: bool) -> Table | None:
    """Where the next point would count most."""
    axes = {
        "speedup_med": "Speed + 0.01",
        "cv_shape": "Shape CV - 0.01",
        "c_op": "Coverage + 0.01",
        "p_hw": "Portability + 0.01",
    }
    if not all(axes.keys() <= of.get("worth", {}).keys() for of in scores.values()):
        return None

    def cells(of: Plain) -> list[Text]:
        values = [number(of["worth"][axis]["value"]) for axis in axes]
        found = [span(of["worth"][axis], narrow=narrow) for axis in axes]
        for cell, value in zip(found, values, strict=True):
            if value == max(values) and value > 0:
                cell.stylize("bold")
        return found

    return _rows("What a point on each axis would add to S", list(axes.values()), scores, cells)


def _fast_p(scores: Scores, narrow: bool) -> Table | None:
    thresholds = list(next(iter(scores.values())).get("fast_p", {}))
    if not thresholds:
        return None
    return _rows(
        "fast_p: share of all tasks correct and faster than p times the baseline",
        [*(f"p = {p}" for p in thresholds), "geometric mean of the correct"],
        scores,
        lambda of: [*(share(of["fast_p"].get(p)) for p in thresholds), span(of["geometric_mean"], "x", narrow=narrow)],
    )


def _pass_at_k(scores: Scores, narrow: bool) -> Table | None:
    """pass@k, where anyone has more than one sample."""
    ks = [
        k
        for k in next(iter(scores.values())).get("pass_at_k", {})
        if any(not math.isnan(number(of["pass_at_k"][k]["value"])) for of in scores.values())
    ]
    if len(ks) < 2:
        return None

    def cells(of: Plain) -> list[Text]:
        found = []
        for k in ks:
            found += [share(of[key].get(k)) for key in ("pass_at_k", "fast_p_at_k")]
            found.append(span(of.get("best_of_k", {}).get(k), "x", narrow=narrow))
        return found

    columns = [f"{what}@{k}" for k in ks for what in ("pass", "fast", "best")]
    return _rows("pass@k, correct and faster, and the speedup of the best", columns, scores, cells)


def _limits(scores: Scores, narrow: bool) -> Table | None:
    """How near to the machine, where its limits were measured."""
    columns = {"Fraction of limit (median)": "fraction_of_limit", "SOL score (mean over tasks)": "sol_score"}
    found = [of.get(key, {}).get("value", math.nan) for of in scores.values() for key in columns.values()]
    if all(math.isnan(number(value)) for value in found):
        return None
    return _rows(
        "How near to the machine's limit, forward",
        list(columns),
        scores,
        lambda of: [span(of.get(key), narrow=narrow) for key in columns.values()],
    )


# -- Where the numbers come from: a column for each generator ---------------------------------------------------------


def _names(scores: Scores) -> list[Text]:
    """The generators, as heads of columns."""
    return [Text(safe(name), style="bold") for name in scores]


def _union(scores: Scores, key: str, order: Sequence[str] = ()) -> list[str]:
    """Keys of a table over all generators: the known order first, then as they come."""
    found = dict.fromkeys(k for of in scores.values() for k in of.get(key, {}))
    return [k for k in order if k in found] + [k for k in found if k not in order]


_BY = {
    "cv_by_shape": ("Distance of speedups from their task's mean, by shape category", "Shapes", "", SHAPE_CATEGORIES),
    "cv_by_category": ("Shape CV by operator category", "Category", "", CATEGORIES),
}
"""Score that is a table -> title, name of its entries, unit, known order of the entries."""


def _table_of(scores: Scores, narrow: bool, key: str) -> Table | None:
    """A row for each entry of a score that is a table."""
    title, first, unit, order = _BY[key]
    rows = _union(scores, key, order)
    if not rows:
        return None
    table = grid(title, first, _names(scores))
    for row in rows:
        cells = (span(of.get(key, {}).get(row), unit, narrow=narrow) for of in scores.values())
        table.add_row(Text(safe(row)), *cells)
    return table


def _devices(scores: Scores, narrow: bool) -> Table | None:
    """The speedups by which devices are judged, and those of each direction; none where there is but one device."""
    devices = _union(scores, "device_speedup")
    if len(devices) < 2:
        return None
    title = "Speedup by device (median over the pairs tried, a wrong one is 0); portable from 0.8, both directions"
    table = grid(title, "Device", _names(scores))
    parts = {
        name: of.get("device_speedup", {}) | of.get("device_speedup_by_direction", {}) for name, of in scores.items()
    }
    for row in (key for device in devices for key in (device, *(f"{device}/{d}" for d in DIRECTIONS))):
        if any(row in of for of in parts.values()):
            table.add_row(Text(safe(row)), *(span(of.get(row), "x", narrow=narrow) for of in parts.values()))
    return table


_COSTS = {
    "usd": "US dollars",
    "tokens_in": "tokens in",
    "tokens_out": "tokens out",
    "making_s": "making, s",
    "judging_s": "judging, s",
}


def _costs(scores: Scores, narrow: bool) -> Table | None:
    """Costs per sample, per correct one and per accepted speedup."""
    table = grid("Cost", "", _names(scores))
    for kind, words in _COSTS.items():
        for per, what in (("sample", "sample"), ("correct", "correct"), ("accepted", "accepted speedup")):
            found = [of.get("cost", {}).get(f"{kind}/{per}") for of in scores.values()]
            if any(score is not None for score in found):
                table.add_row(f"{words} per {what}", *(span(score, narrow=narrow) for score in found))
    return table if table.row_count else None


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


def _sources(scores: Scores, narrow: bool) -> Table | None:
    """What the sources are like, where that was measured."""
    table = grid("Sources, and the Standard Kernel Rubric: medians over attempts", "", _names(scores))
    for row, (name, entry) in _SOURCES.items():
        found = [of.get(name, {}) for of in scores.values()]
        found = [of.get(entry) for of in found] if entry else found
        if any(one and not math.isnan(number(one["value"])) for one in found):
            table.add_row(row, *(span(one or None, narrow=narrow) for one in found))
    return table if table.row_count else None


def _covered(scores: Scores, narrow: bool, key: str, order: Sequence[str], title: str) -> Table | None:
    keys = _union(scores, key)
    categories = [c for c in (*order, *dict.fromkeys(k.partition("/")[0] for k in keys)) if f"{c}/all" in keys]
    directions = [d for d in ("forward", "backward") if f"all/{d}" in keys]
    if not categories:
        return None
    table = grid(title, "Category", [Text(f"{safe(name)}\n{d}") for name in scores for d in directions])
    for category in dict.fromkeys(categories):
        cells = [share(of.get(key, {}).get(f"{category}/{d}")) for of in scores.values() for d in directions]
        table.add_row(Text(safe(category)), *cells, end_section=category == "all")
    return table


_COVERAGE = (
    partial(_covered, key="c_op_by_category", order=CATEGORIES, title="Coverage by operator category and direction"),
    partial(_covered, key="c_op_by_group", order=GROUPS, title="Coverage by KernelBench-X's category and direction"),
)


def _shapes(scores: Scores, narrow: bool) -> Table | None:
    categories = _union(scores, "speedup_by_shape", SHAPE_CATEGORIES)
    if not categories:
        return None
    columns = [Text(f"{safe(name)}\n{what}") for name in scores for what in ("median speedup", "slower")]
    table = grid("Speedup and regressions by shape category", "Shapes", columns)
    for category in categories:
        cells = []
        for of in scores.values():
            cells.append(span(of["speedup_by_shape"].get(category), "x", narrow=narrow))
            cells.append(_slower(of["regressions"].get(category)))
        table.add_row(Text(safe(category)), *cells)
    return table


def _slower(score: Plain | None) -> Text:
    """Regressed cells of the timed ones."""
    if score is None:
        return Text("–", style="dim")
    slow = round(number(score["value"]) * score["n"])
    return Text(f"{slow}/{score['n']}", style="red" if slow else "dim")


def _gap(scores: Scores, console: Console) -> None:
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


def _failures(scores: Scores, narrow: bool) -> Table | None:
    counts = {
        reason: sum(of.get("failures", {}).get(reason, {}).get("n", 0) for of in scores.values())
        for reason in _union(scores, "failures")
    }
    if not counts:
        return None
    reasons = sorted(counts, key=counts.__getitem__, reverse=True)
    table = grid("Failed cells by reason", "Reason", _names(scores))
    table.add_column("Tasks", overflow="ellipsis", no_wrap=True, max_width=60)
    for reason in reasons[:SHOWN_REASONS]:
        of_each = [of.get("failures", {}).get(reason, {}) for of in scores.values()]
        tasks = "; ".join(dict.fromkeys(of["note"] for of in of_each if of))
        table.add_row(Text(safe(reason)), *(count(of.get("n", 0)) for of in of_each), Text(safe(tasks), style="dim"))
    if len(reasons) > SHOWN_REASONS:
        rest = sum(counts[r] for r in reasons[SHOWN_REASONS:])
        table.add_row(f"{plural(rest, 'cell')} for {plural(len(reasons) - SHOWN_REASONS, 'more reason')}")
    return table


def render_explanations(said: Sequence[Mapping[str, str]], console: Console) -> None:
    """Print what scores mean: records of :func:`kerneleval.scores.explanation`, one after another."""
    for one in said:
        console.print(Text(safe(one["name"]), style="bold").append(f"  {safe(one['file'])}", style="not bold dim"))
        for paragraph in filter(None, (one["definition"], *one["details"].split("\n\n"))):
            console.print(Text(safe(paragraph.replace("``", "`"))))
        console.print()

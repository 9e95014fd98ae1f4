"""A verdict for people: the result, where it failed, how fast it is, and the line that replays it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from kerneleval.records import (
    REAL,
    SHAPE_CATEGORIES,
    CellResult,
    Failed,
    Passed,
    Timing,
    Verdict,
    caught_by,
    layer_of,
    layer_of_finding,
    layers_of,
    own_sizes_only,
    refusals,
)
from kerneleval.reports.tables import add_columns, fits
from kerneleval.reports.text import duration, figure, number, plural, safe, times

STYLES = {"faster": "green", "slower": "red", "equal": "", "inconclusive": "dim"}
LEVELS = {"info": "dim", "warn": "yellow", "fail": "bold red"}
SHOWN_FAILURES = 5
FRAME = 4  # columns that the panel takes


def render_verdict(verdict: Verdict, console: Console) -> None:
    """Print a verdict."""
    passed = verdict.verdict == "passed"
    style = "green" if passed else "red"
    title = Text(f" {verdict.verdict.upper()} ", style=f"bold reverse {style}")
    title.append(f" {safe(verdict.task)} on {safe(verdict.machine.name)} ", style="bold not reverse")
    parts: list[RenderableType] = [_facts(verdict)]
    shapes = None if _never_ran(verdict) else _shapes(verdict.cells, narrow=False)
    if shapes is not None and not fits(shapes, console, console.width - FRAME):
        shapes = _shapes(verdict.cells, narrow=True)
    if shapes is not None:
        parts += ["", shapes]
    if not _never_ran(verdict) and (rest := _not_shown(verdict.cells)):
        parts.append(Text(rest, style="dim"))
    parts += _failures(verdict)
    parts += _findings(verdict)
    console.print(Panel(Group(*parts), title=title, title_align="left", border_style=style))
    if verdict.replay:
        # outside the frame and never wrapped, so that it can be copied
        line = Text("replay: ", style="bold").append(safe(verdict.replay).replace("\n", " "), style="not bold")
        console.print(line, soft_wrap=True)


def _never_ran(verdict: Verdict) -> bool:
    """Whether it was not built or loaded for any case: then a table of them would say nothing."""
    outcomes = [cell.outcome for cell in verdict.cells]
    return all(isinstance(one, Failed) and one.stage in ("build", "load") for one in outcomes)


def _facts(verdict: Verdict) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    if verdict.verdict == "passed":
        table.add_row("stage", Text(f"passed all up to {safe(verdict.stage)}"))
        table.add_row("message", Text(safe(verdict.message) or "right in every case"))
    else:
        table.add_row("stage", Text(safe(verdict.stage)))
        reason = Text(safe(verdict.reason), style="red")
        table.add_row("reason", reason.append(_in_layer(caught_by(verdict)), style="dim"))
        table.add_row("message", Text(safe(verdict.message)))
    table.add_row("speedup", _speedup(verdict))
    table.add_row("track", Text(safe(verdict.track)) if verdict.track else Text("not decided", style="dim"))
    table.add_row("trust", _trust(verdict))
    table.add_row("judged", _counts(verdict))
    if own_sizes_only(verdict):
        table.add_row("shapes", Text("own only"))
    if layers := layers_of(verdict):
        table.add_row("layers", Text(safe("; ".join(f"{layer} {said}" for layer, said in layers.items()))))
    return table


_BY_TIME = {"call": "", "device": " by device time", "mixed": " by device time where there is one"}


def _speedup(verdict: Verdict) -> Text:
    found = verdict.speedup
    if found is None:
        return Text("not timed", style="dim")
    text = Text(f"{figure(found.value)}x", style=f"bold {STYLES.get(found.claim, '')}".strip())
    interval = f" [{figure(found.low)}, {figure(found.high)}]{_BY_TIME[found.time]}"
    text.append(f"{interval} against {safe(verdict.protocol.baseline)}: {found.claim}", style="not bold")
    cells = plural(found.cells, f"timed {found.direction} cell")
    return text.append(f", geometric mean of {cells}", style="dim not bold")


def _trust(verdict: Verdict) -> Text:
    style = {"strong": "green", "weak": "yellow"}.get(verdict.trust.level, "")
    text = Text(safe(verdict.trust.level), style=style)
    if verdict.trust.missing:
        text.append(f"; without {safe('; '.join(verdict.trust.missing))}", style="dim")
    return text


def _counts(verdict: Verdict) -> str:
    outcomes = [c.outcome for c in verdict.cells]
    passed = sum(isinstance(o, Passed) for o in outcomes)
    parts = [f"{passed} of {plural(len(outcomes), 'case')} right"]
    if left_out := refusals(outcomes):
        parts.append(safe(left_out))
    return f"{', '.join(parts)}; {verdict.protocol.tier} tier, {duration(verdict.seconds)}"


# -- Cells ------------------------------------------------------------------------------------------------------------


def _groups(cells: Sequence[CellResult]) -> dict[tuple[str, str, str, str], list[CellResult]]:
    """Cells by direction, shape category, dims and dtype."""
    order = {name: i for i, name in enumerate(SHAPE_CATEGORIES)}
    groups: dict[tuple[str, str, str, str], list[CellResult]] = {}
    for cell in sorted(cells, key=lambda c: (c.case.direction != "forward", order.get(c.case.shape_category, 99))):
        case = cell.case
        dims = " ".join(case.dims_texts)
        groups.setdefault((case.direction, case.shape_category, dims, case.dtype), []).append(cell)
    return groups


def _timings(cells: Sequence[CellResult]) -> list[Timing]:
    return [c.outcome.timing for c in cells if isinstance(c.outcome, Passed) and c.outcome.timing is not None]


def _interesting(cells: Sequence[CellResult]) -> bool:
    return bool(_timings(cells)) or any(isinstance(c.outcome, Failed) for c in cells)


def _shapes(cells: Sequence[CellResult], *, narrow: bool) -> Table | None:
    """One row for each shape that was timed or failed somewhere; None: there is none. Narrow: without the times."""
    groups = {key: of for key, of in _groups(cells).items() if _interesting(of)}
    if not groups:
        return None
    table = Table(box=None, pad_edge=False, header_style="bold")
    add_columns(table, ("direction", "shape", "dims", "dtype"), overflow="fold")
    add_columns(
        table, ("right", *(() if narrow else ("candidate", "baseline")), "speedup"), justify="right", overflow="fold"
    )
    others = {t.other.time for of in groups.values() for t in _timings(of) if t.other is not None}
    for kind in others:
        table.add_column(f"by {kind}", justify="right", overflow="fold")
    limited = not narrow and any(_limit(of) for of in groups.values())
    if not narrow:
        table.add_column("claim")
    if limited:
        table.add_column("of limit", justify="right")
    for (direction, category, dims, dtype), of in groups.items():
        shown = _figures(_timings(of), narrow=narrow, both=bool(others)) + ([_limit(of)] if limited else [])
        table.add_row(*(Text(safe(text)) for text in (direction, category, dims, dtype)), _right(of), *shown)
    return table


def _right(cells: Sequence[CellResult]) -> Text:
    supported = [c for c in cells if not (isinstance(c.outcome, Failed) and c.outcome.reason == "unsupported")]
    if not supported:
        return Text("unsupported", style="yellow")
    right = sum(isinstance(c.outcome, Passed) for c in supported)
    return Text(f"{right}/{len(supported)}", style="" if right == len(supported) else "red")


def _figures(timings: Sequence[Timing], *, narrow: bool, both: bool) -> list[Text]:
    """Median verified time of a call of candidate and baseline, speedup, the speedup by the other time, and claim;
    narrow: the speedups alone.
    """
    if not timings:
        return [Text()] * ((1 if narrow else 4) + both)
    found, style = timings[0], STYLES.get(timings[0].claim, "")
    speed = Text(f"{figure(found.speedup)}x [{figure(found.low)}, {figure(found.high)}]", style=style)
    other = [Text("" if found.other is None else f"{figure(found.other.speedup)}x")] if both else []
    if narrow:
        return [speed, *other]
    medians = [Text(times(ns)) for ns in found.medians_ns]
    return [*medians, speed, *other, Text(safe(found.claim), style=style)]


def _limit(cells: Sequence[CellResult]) -> Text:
    """Share of the machine's limit that the first timed cell reaches, and what the limit is."""
    for cell in cells:
        if isinstance(cell.outcome, Passed) and isinstance(limit := cell.outcome.evidence.get("limit"), Mapping):
            share = 100 * number(limit.get("fraction"))
            return Text(f"{share:.{0 if share >= 1 else 2}f} % {safe(str(limit.get('bound', '')), 20)}")
    return Text()


def _not_shown(cells: Sequence[CellResult]) -> str:
    quiet = [c for of in _groups(cells).values() if not _interesting(of) for c in of]
    if not quiet:
        return ""
    more = "more " if len(quiet) < len(cells) else ""
    return f"{plural(len(quiet), f'{more}case')} right and not timed"


# -- Failures and findings --------------------------------------------------------------------------------------------


def _failures(verdict: Verdict) -> list[RenderableType]:
    """The first failed cells with their messages; a failure of the whole candidate is shown above already."""
    failed = [
        (c, c.outcome)
        for c in verdict.cells
        if isinstance(c.outcome, Failed) and c.outcome.reason != "unsupported" and c.outcome.message != verdict.message
    ]
    lines: list[RenderableType] = []
    for cell, outcome in failed[:SHOWN_FAILURES]:
        line = Text(f"{safe(cell.case.key)} ", style="bold")
        if cell.case.shape_category.startswith(REAL):
            line.append(f"({safe(cell.case.shape_category)}) ", style="not bold")
        layer = layer_of(outcome.stage, outcome.reason)
        line.append(f"{safe(outcome.stage)}/{safe(outcome.reason)}{_in_layer(layer)}: ", style="red not bold")
        lines.append(line.append(safe(outcome.message), style="not bold"))
    if len(failed) > SHOWN_FAILURES:
        lines.append(Text(f"and {plural(len(failed) - SHOWN_FAILURES, 'more failed case')}", style="dim"))
    return ["", Text("failed", style="bold"), *lines] if lines else []


def _in_layer(layer: str) -> str:
    return f" ({layer})" if layer else ""


def _findings(verdict: Verdict) -> list[RenderableType]:
    lines: list[RenderableType] = []
    for finding in verdict.findings:
        line = Text(f"{finding.level:<4} ", style=LEVELS[finding.level])
        check, layer = finding.check, layer_of_finding(finding)
        where = check + _in_layer(layer if layer != check else "")
        lines.append(line.append(safe(f"{where}: {finding.message}"), style="not bold"))
    return ["", Text("findings", style="bold"), *lines] if lines else []

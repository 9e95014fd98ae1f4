"""A report as Markdown for a pull request: the headline, what failed, what got slower, where. Sixty lines at most.

Every text of others is put into a code span, where Markdown, HTML, mentions and links have no effect.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Mapping
from typing import Any

from kerneleval.reports.html.document import Document
from kerneleval.reports.text import ends, figure, not_judged, nothing_in, number, plural, safe
from kerneleval.scores.common.rules import old_rule

Plain = Mapping[str, Any]

LINES = 60
"""Lines of a summary at most."""
GENERATORS = 8
"""Generators that are listed; the rest is counted."""
REASONS = 6
"""Reasons of failures; the rest is counted."""
WARNINGS = 3
"""Warnings about machines; the rest is counted."""
MACHINES = 3
"""Machines named; the rest is counted."""

_COLUMNS = (
    ("S", "composite", "", ""),
    ("Speed", "speedup_med", "", "x"),
    ("Forward", "speedup_by_direction", "forward", "x"),
    ("Backward", "speedup_by_direction", "backward", "x"),
    ("Shape CV", "cv_shape", "", ""),
    ("Coverage", "c_op", "", "%"),
    ("Portability", "p_hw", "", "%"),
    ("fast_1", "fast_p", "1", "%"),
    ("pass@1", "pass_at_k", "1", "%"),
)
"""Columns of the headline: title, score, key in its table, unit."""


def render(document: Document) -> str:
    """The summary of the document of an HTML report, at most :data:`LINES` lines."""
    lines = [*_head(document), "", *_headline(document), *_failures(document), *_regressions(document)]
    lines += [*_findings(document), *_machines(document)]
    return "\n".join(lines) + "\n"


def _code(text: str, limit: int = 80, *, cell: bool = False) -> str:
    """A code span that holds the text, on one line, whatever is in it; ``cell``: in a table, where a bar ends one."""
    shown = " ".join(safe(text if len(text) <= limit else f"{text[: limit - 1]}…").split()) or "–"
    shown = shown.replace("|", "\\|") if cell else shown
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", shown)), default=0))
    pad = " " if shown.startswith("`") or shown.endswith("`") else ""
    return f"{fence}{pad}{shown}{pad}{fence}"


def _head(document: Document) -> list[str]:
    run = document["run"]
    when = time.strftime("%Y-%m-%d %H:%M", time.gmtime(run["created_unix_s"]))
    protocol = run["protocol"]
    trust = ", ".join(_code(level) for level in document["conditions"]["trust"]) or "no verdict yet"
    facts = f"Run {_code(run['id'])}, {when} UTC, {protocol['tier']} tier against {_code(protocol['baseline'])}, "
    facts += f"trust {trust}, {document['cells']['total']:,} cells."
    lines = [f"### KernelEval: {_code(run['name'])}", "", facts]
    if said := old_rule(protocol):
        lines += ["", f"**{said}**"]
    if run["finished"] < run["planned"]:
        left = run["planned"] - run["finished"]
        lines += [
            "",
            f"**{plural(left, 'attempt')} of {run['planned']} not judged yet:** counted as failed until then.",
        ]
    if aside := not_judged(run):
        lines += ["", f"**{plural(len(aside), 'task')} not judged:** {_code(aside[0], 300)}"]
    return lines


def _headline(document: Document) -> list[str]:
    scores = document["scores"]
    if not scores:
        return [f"Not evaluated: {nothing_in(document['run'])}."]
    lines = [
        "| Generator | " + " | ".join(title for title, *_ in _COLUMNS) + " |",
        "|---|" + "---:|" * len(_COLUMNS),
    ]
    for name, of in _ranked(document)[:GENERATORS]:
        cells = [_score(of.get(key, {}).get(part) if part else of.get(key), unit) for _, key, part, unit in _COLUMNS]
        lines.append(f"| {_code(name, 40, cell=True)} | " + " | ".join(cells) + " |")
    if len(scores) > GENERATORS:
        lines += ["", f"Showing {GENERATORS} of {len(scores)} generators, those with the highest S."]
    said = "Intervals are 95 %; – is a score without a value."
    without = [(name, of["cv_shape"]["note"]) for name, of in _ranked(document)[:GENERATORS] if _no_cv(of)]
    if without:
        names = ", ".join(_code(name, 24) for name, _ in without)
        said += f" No shape CV of {names}: {_code(without[0][1], 200)}."
    return [*lines, "", said]


def _no_cv(of: Plain) -> bool:
    return "cv_shape" in of and math.isnan(ends(of["cv_shape"])[0])


def _ranked(document: Document) -> list[tuple[str, Plain]]:
    """Generators with their scores, the highest S first, those without one last."""

    def rank(item: tuple[str, Plain]) -> float:
        value, _, _ = ends(item[1].get("composite"))
        return math.inf if math.isnan(value) else -value

    return sorted(document["scores"].items(), key=rank)


def _score(score: Plain | None, unit: str) -> str:
    value, low, high = ends(score)
    if math.isnan(value):
        return "–"
    share = unit == "%"
    shown = f"**{100 * value:.0f} %**" if share else f"**{figure(value, unit)}**"
    if math.isnan(low) or math.isnan(high):
        return shown
    return shown + (f" ({100 * low:.0f}–{100 * high:.0f})" if share else f" ({figure(low)}–{figure(high)})")


def _failures(document: Document) -> list[str]:
    groups = document["failures"]
    if not groups:
        return ["", "#### Failures", "", "No cell failed." if document["cells"]["total"] else "Not evaluated."]
    lines = ["", "#### Failures", "", "| Stage | Reason | Cells | Generators | Tasks |", "|---|---|---:|---|---|"]
    for group in groups[:REASONS]:
        generators = _some(list(group["generators"]), len(group["generators"]))
        tasks = _some(list(group["tasks"]), group["all_tasks"])
        stage, reason = (_code(group[name], cell=True) for name in ("stage", "reason"))
        lines.append(f"| {stage} | {reason} | {group['cells']:,} | {generators} | {tasks} |")
    if len(groups) > REASONS:
        rest = sum(group["cells"] for group in groups[REASONS:])
        lines += ["", f"And {rest:,} cells for {plural(len(groups) - REASONS, 'more reason')}."]
    return lines


def _some(names: list[str], total: int) -> str:
    """Three of the names, and how many more there are."""
    more = total - len(names[:3])
    return ", ".join(_code(name, 24, cell=True) for name in names[:3]) + (f" and {more} more" if more > 0 else "")


def _regressions(document: Document) -> list[str]:
    entries = []
    for name, of in _ranked(document)[:GENERATORS]:
        score = of.get("regressions", {}).get("all")
        if score is None:
            entries.append(f"- {_code(name, 40)}: not evaluated, no correct cell was timed")
            continue
        slow = round(number(score["value"]) * score["n"])
        worst = f"; {_code(score['note'], 120)}" if score["note"] else ""
        entries.append(f"- {_code(name, 40)}: {slow} of {plural(score['n'], 'timed cell')} slower beyond noise{worst}")
    left = len(document["scores"]) - len(entries)
    entries += [f"- and {plural(left, 'more generator')}"] if left else []
    return ["", "#### Regressions", "", *(entries or ["Not evaluated: nothing was planned."])]


def _findings(document: Document) -> list[str]:
    counts: dict[str, int] = {}
    for one in document["findings"]["counts"]:
        counts[one["level"]] = counts.get(one["level"], 0) + one["count"]
    said = f"{plural(counts.get('fail', 0), 'failure')}, {plural(counts.get('warn', 0), 'warning')}"
    return ["", f"**Honesty checks:** {said}."]


def _machines(document: Document) -> list[str]:
    machines = document["run"]["machines"]
    lines = ["", "#### Machines", ""]
    for m in machines[:MACHINES]:
        lines.append(f"- {_code(m['name'])} ({_code(m['device'])}, {_code(m['arch'])}), PyTorch {_code(m['torch'])}")
    if len(machines) > MACHINES:
        lines.append(f"- and {len(machines) - MACHINES} more")
    missing = document["run"]["not_evaluated"]
    if missing:
        entries = [f"{_code(device)} ({_code(why or 'not available', 120)})" for device, why in missing.items()]
        more = f" and {len(entries) - MACHINES} more" if len(entries) > MACHINES else ""
        lines.append(f"- not evaluated: {', '.join(entries[:MACHINES])}{more}")
    warnings = document["conditions"]["warnings"]
    lines += [f"- {_code(one['message'], 160)} ({plural(one['verdicts'], 'verdict')})" for one in warnings[:WARNINGS]]
    if len(warnings) > WARNINGS:
        lines.append(f"- and {plural(len(warnings) - WARNINGS, 'more kind')} of warning")
    return lines

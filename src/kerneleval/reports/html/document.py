"""The document that a report is rendered from: plain data, made of a run, its scores, results and verdicts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, TypedDict

from kerneleval.records import Result, Score, UsageError, Verdict, near, to_plain
from kerneleval.reports.html import sections
from kerneleval.reports.html.gather import CODE_IN_ALL, FINDINGS, Gathered, Sources, gather, source_of
from kerneleval.reports.text import nothing_in, number
from kerneleval.scores import Setting, by_generator, explanation
from kerneleval.scores.common.registry import all_scores
from kerneleval.store import Attempt, RunInfo

Plain = dict[str, Any]

FORMAT = 1
"""Raised whenever a field of the document changes its meaning or goes away."""

SECTIONS: dict[str, str] = {
    "overview": "Overview",
    "leaderboard": "Leaderboard",
    "fast-p": "Correct and fast",
    "shapes": "Shape robustness",
    "coverage": "Coverage",
    "portability": "Portability",
    "roofline": "Roofline",
    "failures": "Failures",
    "findings": "Attack findings",
    "cost": "Cost",
    "rounds": "Rounds of refinement",
    "rubric": "Rubric",
    "machine": "Machine and conditions",
    "cells": "Every cell",
    "definitions": "Definitions",
}
"""Sections in the order of the page: identifier -> title."""

EXTRAS = ("limits", "roofline", "rounds", "rubric")
"""What :func:`build` takes besides scores, results and verdicts."""


class Document(TypedDict):
    """Everything that a report shows; JSON-ready (numbers that JSON lacks are the strings nan, inf and -inf). What has
    the name of a function of ``sections.py`` is what that gives; ``fast_p``: its curves, ``cost``: its costs.
    """

    format: int
    run: Plain
    """The run as plain data, its machines with their ``fingerprint``."""
    primary: str
    """Name of the device on which speed and coverage are judged."""
    scores: dict[str, Plain]
    """Generator -> score -> plain score, or table of them; in the order of colours."""
    definitions: dict[str, dict[str, str]]
    """Score -> what :func:`kerneleval.scores.explanation` says."""
    fast_p: Plain
    shapes: Plain
    coverage: list[Plain]
    portability: list[Plain]
    roofline: list[Plain]
    """Points: ``generator``, ``task``, ``case``, ``intensity`` (FLOP a byte), ``achieved_flop_s``, ``fraction``."""
    limits: dict[str, Plain]
    """Fingerprint or name of a machine -> ``bandwidth_byte_s`` and ``flop_s`` (dtype -> operations a second)."""
    failures: list[Plain]
    """``stage``, ``reason``, ``cells``, ``generators``, ``tasks`` and ``examples``, the commonest first."""
    sources: dict[str, list[Plain]]
    """Candidate hash -> :func:`gather.source_of`, of the candidates that ``failures`` shows."""
    findings: Plain
    """``listed``, ``total``, ``counts``, ``tracks`` and ``caught``."""
    cost: Plain
    rounds: Plain
    """``by_round``, ``transitions``, ``counts``, ``shares``, ``repair_bias``, ``chains`` and ``total``
    (``pipeline/rounds.py``); empty: nothing was refined."""
    rubric: Plain
    """Generator -> axis -> level -> attempts; ``none``: not classified, ``why``."""
    conditions: Plain
    """``trust``, ``missing``, ``machines`` (fingerprint -> reading -> text) and ``warnings``."""
    cells: Plain
    not_evaluated: dict[str, str]
    """Section -> why it has nothing to show."""


def build(
    run: RunInfo,
    scores: Mapping[str, Mapping[str, Score | Mapping[str, Score]]] | Mapping[str, Plain],
    results: Iterable[Result],
    verdicts: Iterable[tuple[Attempt, Verdict]],
    sources: Sources,
    extras: Mapping[str, Any] | None = None,
) -> Document:
    """Collect what a report shows. Results and verdicts are read once each, results first; cells of verdicts are not.

    Args:
        run, results, verdicts: the run, all its results, and its finished attempts with their verdicts.
        scores: what :func:`kerneleval.scores.score_all` gives of the results, as records or as plain data.
        sources: candidate hash -> candidate; only those that are shown are looked up.
        extras: any of :data:`EXTRAS`, else UsageError; without ``limits`` the run's own are shown.
    """
    given = dict(extras or {})
    for name in given:
        if name not in EXTRAS:
            raise UsageError(f"a report has no extra part {name!r}; {near(name, EXTRAS)}")
    found = gather(results, verdicts)
    rows = by_generator(found.rows)
    setting, label = _setting(run, found)
    plain_scores: dict[str, Plain] = to_plain(scores)
    plain_run = to_plain(run) | {"machines": [to_plain(m) | {"fingerprint": m.fingerprint} for m in run.machines]}
    names = dict.fromkeys(name for of in plain_scores.values() for name in of)
    failures = _failures(found)
    document = Document(
        format=FORMAT,
        run=plain_run,
        primary=label,
        scores=plain_scores,
        definitions={name: explanation(name) for name in names if name in all_scores()},
        fast_p=sections.curves(rows, setting),
        shapes=sections.shapes(rows, setting),
        coverage=sections.coverage(plain_scores),
        portability=sections.portability(rows, plain_scores, run.machines, run.not_evaluated),
        roofline=to_plain(given.get("roofline") or []),
        limits=to_plain(given.get("limits") or _limits(run)),
        failures=failures,
        sources=_sources(failures, sources),
        findings=_findings(found),
        cost=to_plain(sections.costs(rows, setting)),
        rounds=to_plain(given.get("rounds") or {}),
        rubric=to_plain(given.get("rubric") or {}),
        conditions=_conditions(found),
        cells=sections.cells(rows),
        not_evaluated={},
    )
    document["not_evaluated"] = _not_evaluated(document)
    return document


def _setting(run: RunInfo, found: Gathered) -> tuple[Setting, str]:
    """As :func:`kerneleval.scores.score_all` has it: the primary device is that of the first result."""
    from kerneleval.scores.common.cells import device_names

    names = device_names(found.rows)
    if not found.rows:
        return Setting(not_evaluated=run.not_evaluated), ""
    first = found.rows[0].machine
    return Setting(primary=first, not_evaluated=run.not_evaluated), names[first]


def _limits(run: RunInfo) -> Plain:
    return {
        fingerprint: {"bandwidth_byte_s": of.bandwidth_bytes_per_s, "flop_s": dict(of.flop_per_s)}
        for fingerprint, of in run.limits.items()
    }


def _failures(found: Gathered) -> list[Plain]:
    groups = [
        {
            "stage": stage,
            "reason": reason,
            "cells": of["cells"],
            "examples": of["examples"],
            "generators": dict(of["generators"]),
            "tasks": dict(of["tasks"].most_common(8)),
            "all_tasks": len(of["tasks"]),
        }
        for (stage, reason), of in found.failures.items()
    ]
    return sorted(groups, key=_rank)


def _rank(group: Plain) -> tuple[int, int]:
    """The commonest first; what was never made after what was wrong, and last what was declared unsupported."""
    return 2 if group["reason"] == "unsupported" else int(group["stage"] == "generate"), -group["cells"]


def _sources(failures: list[Plain], sources: Sources) -> dict[str, list[Plain]]:
    shown: dict[str, list[Plain]] = {}
    room = CODE_IN_ALL
    for example in (example for group in failures for example in group["examples"]):
        name = example["candidate"]
        if not name or name in shown:
            continue
        candidate = sources.get(name)
        if candidate is not None:
            shown[name] = source_of(candidate, room)
            room -= sum(len(file["text"]) for file in shown[name])
    return shown


def _findings(found: Gathered) -> Plain:
    counts = [
        {"level": level, "check": check, "layer": layer, "generator": generator, "count": count}
        for (level, check, layer, generator), count in found.counted.most_common()
    ]
    return {
        "listed": sorted(found.findings, key=lambda one: one["level"] != "fail"),
        "most": FINDINGS,
        "total": sum(found.counted.values()),
        "counts": sorted(counts, key=lambda one: one["level"] != "fail"),
        "tracks": {name: dict(of) for name, of in found.tracks.items()},
        "caught": {name: dict(of) for name, of in found.caught.items()},
    }


def _conditions(found: Gathered) -> Plain:
    machines = {
        machine: {name: _reading(value) for name, value in of.items()} for machine, of in found.conditions.items() if of
    }
    warnings = [
        {"machine": machine, **said}
        for (machine, _), said in sorted(found.unsteady.items(), key=lambda item: -item[1]["verdicts"])[:50]
    ]
    return {
        "trust": dict(found.trust),
        "missing": dict(found.missing.most_common(50)),
        "machines": machines,
        "warnings": warnings,
        "kinds_of_warning": len(found.unsteady),
    }


def _reading(value: tuple[float, float] | set[str]) -> str:
    if isinstance(value, set):
        return ", ".join(sorted(value)) or "none"
    low, high = (f"{v:,.4g}" if abs(v) < 1e4 else f"{v:,.0f}" for v in value)
    return low if low == high else f"{low} to {high}"


def _not_evaluated(document: Document) -> dict[str, str]:
    """Why a section is empty, for each that is."""
    why: dict[str, str] = {}
    if not document["scores"]:
        nothing = nothing_in(document["run"])
        why |= dict.fromkeys(("leaderboard", "fast-p", "coverage", "portability", "cost", "cells"), nothing)
    elif not document["fast_p"]["largest"] and not any(
        number(c["value"][0]) for c in document["fast_p"]["curves"].values() if c["value"]
    ):
        why["fast-p"] = "no task is right in every supported case, so every curve is 0"
    if not document["shapes"]["timed"]:
        why["shapes"] = "no correct cell was timed"
    if not any(0 < number(point["intensity"]) < math.inf for point in document["roofline"]):
        measured = "no correct, timed forward cell has a known number of operations" if document["limits"] else ""
        why["roofline"] = measured or "the limits of this machine were not measured"
    if not document["failures"]:
        why["failures"] = "" if document["cells"]["total"] else nothing_in(document["run"])
    if not any(_recorded(of) for of in document["cost"].values()):
        why["cost"] = "not recorded: no sample of this run has tokens, money or time"
    if not document["rounds"]:
        why["rounds"] = "no sample of this run was refined"
    if not document["rubric"]:
        why["rubric"] = "no rubric levels were given with this run"
    return {section: text for section, text in why.items() if text}


def _recorded(cost: Plain) -> bool:
    names = ("tokens_in", "tokens_out", "money_usd", "seconds", "judged_s")
    return any(cost[name] is not None and not math.isnan(number(cost[name])) for name in names)

"""One pass over results and one over verdicts: what a report keeps of each cell, and examples of what failed.

Raw timing samples, evidence and messages of single cells are dropped at once, except for the failures that are shown:
a run of any size takes some hundred bytes a cell.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from kerneleval.records import (
    Candidate,
    Conditions,
    Evidence,
    Failed,
    Passed,
    Result,
    Samples,
    Verdict,
    caught_by,
    layer_of,
    layer_of_finding,
    to_plain,
)
from kerneleval.store import Attempt

Plain = dict[str, Any]

EXAMPLES = 12
"""Failed cells shown of one stage and reason, of different generators and tasks."""
EXAMPLES_OF_ONE = 4
"""Of these, how many may be of one generator."""
FINDINGS = 300
"""Findings listed; all are counted."""
CODE_LINES = 400
CODE_CHARACTERS = 40_000
"""What is shown of one source file."""
CODE_IN_ALL = 6_000_000
"""Characters of all sources of a report."""
FIGURES = (
    *("expected", "got", "worst_index", "tolerance", "relative_rms_error", "relative_rms_bound", "beyond", "of"),
    *("nan", "inf"),
)
"""Evidence that is shown first."""
_LABELS = {"beyond": "beyond bound", "of": "of elements", "nan": "NaN", "inf": "infinite"}
_EVIDENCE = 24  # entries shown
_TEXT = 4000  # characters of one of them
_READINGS = 24  # conditions shown of one machine
_ENERGY = ("candidate_j", "candidate_w", "baseline_j", "baseline_w")


class Sources(Protocol):
    """Where sources are looked up: a dict, or a store behind it; only candidates that are shown are looked up."""

    def get(self, key: str, /) -> Candidate | None:
        """The candidate with this content hash; None: it is not at hand."""


@dataclass(kw_only=True)
class Gathered:
    """What the two passes give."""

    rows: list[Result] = field(default_factory=list)
    """Every cell, without samples, evidence and messages."""
    failures: dict[tuple[str, str], Plain] = field(default_factory=dict)
    """(stage, reason) -> ``cells``, ``generators`` (name -> cells), ``tasks``, ``examples``."""
    findings: list[Plain] = field(default_factory=list)
    """Warnings and failures of the honesty checks, at most :data:`FINDINGS`."""
    counted: Counter[tuple[str, str, str, str]] = field(default_factory=Counter)
    """(level, check, layer, generator) -> findings."""
    tracks: dict[str, Counter[str]] = field(default_factory=dict)
    """Generator -> track -> candidates."""
    caught: dict[str, Counter[str]] = field(default_factory=dict)
    """Layer that made a verdict fail -> generator -> verdicts."""
    trust: Counter[str] = field(default_factory=Counter)
    """Trust level -> verdicts."""
    missing: Counter[str] = field(default_factory=Counter)
    """Layer of containment that was not available, with the reason -> verdicts."""
    conditions: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Machine -> reading -> (lowest, highest), or the set of what was read."""
    unsteady: dict[tuple[str, str], Plain] = field(default_factory=dict)
    """(machine, warning about its conditions without its figures) -> ``message`` (the first) and ``verdicts``."""


def gather(results: Iterable[Result], verdicts: Iterable[tuple[Attempt, Verdict]]) -> Gathered:
    """Read all results, then all verdicts."""
    found = Gathered()
    for result in results:
        found.rows.append(_without_samples(result))
        if isinstance(result.outcome, Failed):
            _add_failure(found, result, result.outcome)
        elif isinstance(energy := result.outcome.evidence.get("energy"), Mapping):
            stated = {name: energy[name] for name in _ENERGY if isinstance(energy.get(name), float)}
            _add_conditions(found.conditions.setdefault(result.machine, {}), Conditions(first=stated))
    replays: dict[tuple[str, str, int, str], str] = {}
    for attempt, verdict in verdicts:
        found.trust[verdict.trust.level] += 1
        found.missing.update(verdict.trust.missing)
        if verdict.track:
            found.tracks.setdefault(attempt.generator, Counter())[verdict.track] += 1
        if layer := caught_by(verdict):
            found.caught.setdefault(layer, Counter())[attempt.generator] += 1
        _add_findings(found, attempt, verdict)
        _add_conditions(found.conditions.setdefault(attempt.machine, {}), verdict.conditions)
        if verdict.verdict != "passed":
            replays[attempt.generator, attempt.task, attempt.sample, attempt.machine] = verdict.replay
    for group in found.failures.values():
        for shown in group["examples"]:
            key = shown["generator"], shown["task"], shown["sample"], shown["machine"]
            shown["replay"] = shown["replay"] or replays.get(key, "")
    return found


_NO_SAMPLES = Samples()
_NUMBER = re.compile(r"\d+(?:\.\d+)?")


def _without_samples(result: Result) -> Result:
    outcome = result.outcome
    if isinstance(outcome, Failed):
        return dataclasses.replace(result, outcome=Failed(stage=outcome.stage, reason=outcome.reason))
    if outcome.timing is None:
        return dataclasses.replace(result, outcome=Passed())
    return dataclasses.replace(result, outcome=Passed(timing=dataclasses.replace(outcome.timing, samples=_NO_SAMPLES)))


# -- Failures ---------------------------------------------------------------------------------------------------------


def _add_failure(found: Gathered, result: Result, outcome: Failed) -> None:
    empty: Plain = {"cells": 0, "generators": Counter(), "tasks": Counter(), "examples": []}
    group = found.failures.setdefault((outcome.stage, outcome.reason), empty)
    group["cells"] += 1
    group["generators"][result.generator] += 1
    group["tasks"][result.task] += 1
    shown: list[Plain] = group["examples"]
    same = [one for one in shown if one["generator"] == result.generator]
    if len(shown) < EXAMPLES and len(same) < EXAMPLES_OF_ONE and all(one["task"] != result.task for one in same):
        shown.append(_example(result, outcome))


def _example(result: Result, outcome: Failed) -> Plain:
    case = result.case
    figures, texts = _evidence(outcome.evidence)
    return {
        **{name: getattr(result, name) for name in ("generator", "task", "sample", "device", "machine", "candidate")},
        "case": case.key,
        "shape": case.shape_category,
        "layer": layer_of(outcome.stage, outcome.reason),
        "message": outcome.message[:_TEXT],
        "figures": figures,
        "texts": texts,
        "replay": outcome.replay[:_TEXT],
    }


def _evidence(evidence: Evidence) -> tuple[list[list[str]], list[list[str]]]:
    """(name, figure) pairs, the best known first; and (name, text) pairs of what has several lines or is long."""
    known = [name for name in FIGURES if name in evidence]
    rest = [name for name in evidence if name not in known and name not in ("cell", "judged")]
    figures: list[list[str]] = []
    texts: list[list[str]] = []
    for name in (known + rest)[:_EVIDENCE]:
        text = _as_text(evidence[name])
        (texts if "\n" in text or len(text) > 120 else figures).append(
            [_LABELS.get(name, str(name)[:80].replace("_", " ")), text]
        )
    if len(known + rest) > _EVIDENCE:
        figures.append(["left out", f"{len(known + rest) - _EVIDENCE} more entries"])
    return figures, texts


def _as_text(value: Any) -> str:
    if isinstance(value, float):
        text = f"{value:.6g}"
    elif isinstance(value, str):
        text = value
    else:
        text = json.dumps(to_plain(value), ensure_ascii=False)
    return text if len(text) <= _TEXT else f"{text[:_TEXT]} … ({len(text) - _TEXT:,} more characters)"


# -- Verdicts ---------------------------------------------------------------------------------------------------------


def _add_findings(found: Gathered, attempt: Attempt, verdict: Verdict) -> None:
    own: list[Plain] = [
        {"level": one.level, "check": one.check, "layer": layer_of_finding(one), "message": one.message[:_TEXT]}
        for one in verdict.findings
        if one.level != "info"
    ]
    if verdict.stage == "honesty" and verdict.verdict != "passed":
        stated = any(one["message"] == verdict.message[:_TEXT] for one in own)
        layer = layer_of(verdict.stage, verdict.reason)
        if not stated:
            own.append({"level": "fail", "check": verdict.reason, "layer": layer, "message": verdict.message[:_TEXT]})
    for one in own:
        found.counted[one["level"], one["check"], one["layer"], attempt.generator] += 1
        if one["check"] == "conditions":
            alike = attempt.machine, _NUMBER.sub("#", one["message"])
            found.unsteady.setdefault(alike, {"message": one["message"], "verdicts": 0})["verdicts"] += 1
        if len(found.findings) < FINDINGS:
            place = {name: getattr(attempt, name) for name in ("generator", "task", "sample", "device")}
            found.findings.append(one | place | {"replay": verdict.replay[:_TEXT], "candidate": attempt.candidate})


def _add_conditions(known: dict[str, Any], conditions: Conditions) -> None:
    for reading in (conditions.first, conditions.last):
        for name, value in (reading or {}).items():
            if name == "energy_mj":  # a counter since some moment: of no interest by itself
                continue
            if name not in known and len(known) >= _READINGS:
                continue
            figure = isinstance(value, (int, float)) and not isinstance(value, bool)
            seen = known.setdefault(name, (value, value) if figure else set())
            if isinstance(seen, tuple) and figure:
                known[name] = (min(seen[0], value), max(seen[1], value))
            elif isinstance(seen, set) and len(seen) < _READINGS:
                seen.update(str(one)[:200] for one in (value if isinstance(value, (list, tuple)) else [value]))


# -- Sources ----------------------------------------------------------------------------------------------------------


def source_of(candidate: Candidate, room: int) -> list[Plain]:
    """The files of a candidate as they are shown, in at most ``room`` characters: ``path``, ``text`` (shortened),
    ``lines`` and ``note`` (what was left out; empty: nothing).
    """
    files: list[Plain] = []
    for path, text in candidate.files:
        lines = text.replace("\r\n", "\n").removesuffix("\n").split("\n")
        whole = "\n".join(lines[:CODE_LINES])
        shown = whole[: max(0, min(CODE_CHARACTERS, room))]
        room -= len(shown)
        note = ""
        if len(shown) < len(whole) or len(lines) > CODE_LINES:
            count = shown.count("\n") + 1 if shown else 0
            note = f"the first {count:,} of {len(lines):,} lines, {len(shown):,} of {len(text):,} characters"
        files.append({"path": path[:500], "text": shown, "lines": len(lines), "note": note})
    return files

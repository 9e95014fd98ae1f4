"""What changed between two verdicts on the same candidate: an earlier one, and that of an audit."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import stats

from kerneleval.records import Failed, Passed, Pooled, Timing, Verdict, pooled
from kerneleval.scores.common.cells import by_key
from kerneleval.scores.common.rules import rule_of

KINDS = ("passed->failed", "failed->passed", "cells", "reason", "track", "speedup")
"""What can change, the worst first; ``cells``: the stored verdict and its stored cells contradict each other."""

_LEAST_CELLS = 3
"""With fewer timed cells the scatter of the same candidate's cells is not known."""

_SURE = 3.29 / 1.96
"""A 99.9 % interval is so many times as wide as the 95 % one: an audit compares many verdicts."""

_LEVEL = 0.9995
"""Quantile of a two-sided statement at 99.9 %."""

_ELSEWHERE = {"hard_coded_shapes": "unsupported"}
"""Reason -> its counterpart at other shapes: a candidate that supports the planned sizes alone refuses all others."""


@dataclass(frozen=True, kw_only=True)
class Change:
    """One thing in which two verdicts differ."""

    kind: str
    """One of :data:`KINDS`."""
    before: str
    after: str


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Two verdicts side by side."""

    changes: tuple[Change, ...]
    """In the order of :data:`KINDS`; empty: nothing changed."""
    notes: tuple[str, ...] = ()
    """What was not compared, and why."""
    same_shapes: bool = True
    """Whether both were reached at the same cases."""


def compare(before: Verdict, after: Verdict) -> Comparison:
    """What changed from one verdict to a later one on the same candidate and task.

    Verdicts change when one passed and the other failed. A stored verdict that its own cells contradict was changed
    after it was stored, or another run's verdict on the same cells was another. Reasons change when the earlier reason
    occurs nowhere in the later verdict: which cell fails first depends on the shapes. Tracks change when both were
    decided and differ. Speedups are compared where both passed, see :func:`_speed`.
    """
    same_shapes = {c.case for c in before.cells} == {c.case for c in after.cells}
    changes: list[Change] = []
    notes: list[str] = []
    if before.verdict != after.verdict:
        kind = f"{before.verdict}->{after.verdict}"
        changes.append(Change(kind=kind, before=_said(before), after=_said(after)))
    if contradiction := _contradiction(before):
        changes.append(Change(kind="cells", before=f"the stored verdict says {_said(before)}", after=contradiction))
    if before.verdict == after.verdict == "failed" and not _same_reason(before, after, same_shapes):
        changes.append(Change(kind="reason", before=_said(before), after=_said(after)))
    if before.track and after.track and before.track != after.track:
        changes.append(Change(kind="track", before=before.track, after=after.track))
    if before.verdict == after.verdict == "passed":
        found = _speed(before, after, same_shapes)
        if isinstance(found, Change):
            changes.append(found)
        elif found:
            notes.append(found)
    return Comparison(changes=tuple(changes), notes=tuple(notes), same_shapes=same_shapes)


def _contradiction(verdict: Verdict) -> str:
    """How the cells of a stored verdict contradict it; empty: they do not."""
    failed = [c.outcome for c in verdict.cells if isinstance(c.outcome, Failed) and c.outcome.reason != "unsupported"]
    passed = any(isinstance(c.outcome, Passed) for c in verdict.cells)
    if verdict.verdict == "passed" and failed:
        return f"its stored cells say {failed[0].stage}/{failed[0].reason}"
    if verdict.verdict == "passed" and not passed:
        return "none of its stored cells passed"
    # a store keeps no passed cell of a candidate that failed as a whole
    return "its stored cells all passed" if verdict.verdict == "failed" and passed and not failed else ""


def _said(verdict: Verdict) -> str:
    return "passed" if verdict.verdict == "passed" else f"{verdict.stage}/{verdict.reason}"


def _same_reason(before: Verdict, after: Verdict, same_shapes: bool) -> bool:
    later = {after.reason}
    for cell in after.cells:
        if isinstance(cell.outcome, Failed) and cell.outcome.reason != "unsupported":
            later.add(cell.outcome.reason)
    return before.reason in later or (not same_shapes and _ELSEWHERE.get(before.reason) == after.reason)


# -- Speed ------------------------------------------------------------------------------------------------------------


def _speed(before: Verdict, after: Verdict, same_shapes: bool) -> Change | str:
    """The change of the speedup; a sentence where the two can't be compared; empty: none that statistics support.

    Timed cells are paired: case by case, or at other shapes by direction, dtype and shape category. The mean ratio of
    the speedups must be further from 1 than each of these: both intervals of the means together, at 99.9 %; both
    noise floors together; and Student's 99.9 % interval of the pairs' own scatter, which holds what other shapes or
    another hour of the machine do to a cell and no single measurement can know.
    """
    if before.speedup is None and after.speedup is None:
        return ""
    if why := _incomparable(before, after):
        return f"speedups not compared: {why}"
    earlier, later = (_pooled(verdict, same_shapes) for verdict in (before, after))
    pairs = [(side, later[key]) for key, side in earlier.items() if key in later]
    if len(pairs) < _LEAST_CELLS:
        return f"speedups not compared: {len(pairs)} pairs of timed cells, which is less than {_LEAST_CELLS}"
    differences = np.array([now.centre - then.centre for then, now in pairs])
    mean, n = float(differences.mean()), len(pairs)
    intervals = _SURE * sum(math.sqrt(sum(side.half**2 for side in of)) / n for of in zip(*pairs, strict=True))
    floors = sum(math.log1p(float(np.mean([side.noise for side in of]))) for of in zip(*pairs, strict=True))
    scatter = float(stats.t.ppf(_LEVEL, n - 1) * differences.std(ddof=1) / math.sqrt(n))
    if abs(mean) <= max(intervals, floors, scatter):
        return ""
    means = [math.exp(float(np.mean([side.centre for side in of]))) for of in zip(*pairs, strict=True)]
    return Change(
        kind="speedup",
        before=f"{means[0]:.3g}x",
        after=f"{means[1]:.3g}x over {n} pairs of cells, {math.exp(mean):.3g} times as fast",
    )


def _incomparable(before: Verdict, after: Verdict) -> str:
    """Why two verdicts' speedups can't be compared; empty: they can."""
    if before.speedup is None or after.speedup is None:
        return "only one of the two was timed"
    if before.machine.fingerprint != after.machine.fingerprint:
        return "judged on another machine"
    if before.protocol.baseline != after.protocol.baseline:
        return f"against {before.protocol.baseline} then, {after.protocol.baseline} now"
    versions = before.protocol.version, after.protocol.version
    rules = [rule_of(v.direction, n) for v, n in zip((before.speedup, after.speedup), versions, strict=True)]
    if rules[0] != rules[1]:
        return f"timed by protocol version {versions[0]} then, {versions[1]} now"
    for when, verdict in (("then", before), ("now", after)):
        if any(f.check == "conditions" and f.level == "warn" for f in verdict.findings):
            return f"the machine was unsteady {when}"
    return ""


def _pooled(verdict: Verdict, same_shapes: bool) -> dict[object, Pooled]:
    """Timed cells of the verdict's direction by what pairs them: the case, or direction, dtype and shape category."""
    direction = "forward" if verdict.speedup is None else verdict.speedup.direction
    groups: dict[object, list[Timing]] = by_key(
        (c.case if same_shapes else (c.case.direction, c.case.dtype, c.case.shape_category), c.outcome.timing)
        for c in verdict.cells
        if isinstance(c.outcome, Passed) and c.outcome.timing is not None and c.case.direction == direction
    )
    return {key: pooled(timings) for key, timings in groups.items()}

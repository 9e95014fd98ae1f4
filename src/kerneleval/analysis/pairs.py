"""Pairs to learn from: a failed candidate and the right one made from it, a right one and a faster one."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kerneleval.analysis.transitions import Transition

COLUMNS: Mapping[str, str] = {
    **dict.fromkeys(("kind", "task", "chain"), "string"),
    **dict.fromkeys(("round_before", "round_after"), "int"),
    **dict.fromkeys(("before", "after", "failed_stage", "failed_reason", "failed_message"), "string"),
    **dict.fromkeys(("speedup_before", "speedup_after", "ratio"), "float"),
    **dict.fromkeys(("generator", "model", "machine", "source", "licence"), "string"),
}
"""Column of a row -> type, as tables are written (``reports/export.py``). ``before`` and ``after`` are code."""


def pairs(found: Sequence[Transition]) -> Iterator[dict[str, Any]]:
    """A row for every ``correction`` (wrong, then right) and every ``optimisation`` (right, then right and faster
    beyond noise) whose code is there on both sides and really changed.
    """
    for one in found:
        kind, _why = _kind(one)
        if kind:
            before, after = one.before, one.after
            yield {
                "kind": kind,
                "task": before.task,
                "chain": before.chain,
                "round_before": before.round,
                "round_after": after.round,
                "before": before.code,
                "after": after.code,
                "failed_stage": before.stage,
                "failed_reason": before.reason,
                "failed_message": before.message,
                "speedup_before": before.speedup,
                "speedup_after": after.speedup,
                "ratio": one.ratio,
                "generator": after.generator,
                "model": after.model,
                "machine": after.machine,
                "source": after.source,
                "licence": after.licence,
            }


def left_out(found: Sequence[Transition]) -> dict[str, int]:
    """Why transitions are no pairs: reason -> number of them, the most frequent first."""
    why = Counter(reason for kind, reason in map(_kind, found) if not kind)
    return dict(why.most_common())


def _kind(one: Transition) -> tuple[str, str]:
    """The kind of a pair, or why it is none."""
    if not one.after.correct:
        return "", "the second is wrong"
    if not one.before.code.strip() or not one.after.code.strip():
        return "", "a source is missing"
    if not one.code_changed:
        return "", "the code did not change"
    if not one.before.correct:
        return "correction", ""
    if one.speed == "faster":
        return "optimisation", ""
    return "", "not timed on both sides" if math.isnan(one.ratio) else f"the speed is {one.speed.replace('_', ' ')}"

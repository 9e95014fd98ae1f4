"""The same call in the other forms that its layout has: one argument's strides are not another's, and not all follow
from one.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from kerneleval.judge.probes.bound_case import BoundCase, Drawn
from kerneleval.judge.windows.answers import raised
from kerneleval.judge.windows.buffers import CallLayout
from kerneleval.records import Case, Evidence, Failed, Outcome, Passed
from kerneleval.worker.host import WorkerError

if TYPE_CHECKING:
    from kerneleval.judge.probes.cells import CellJudge

__all__ = ["OTHERWISE", "OtherLayouts", "native_wrong"]

OTHERWISE = "otherwise"
"""Evidence of an outcome that came in calls laid out otherwise (:meth:`BoundCase.otherwise`)."""

_LARGE_BYTES = 1 << 30
"""Forms that take more together get a window each."""


def native_wrong(outcomes: Mapping[Case, Outcome]) -> list[Evidence]:
    """A finding about the calls in which PyTorch itself is wrong, or raises; none where there are none."""
    found = {case: int(o.evidence.get("native_is_wrong", 0)) for case, o in outcomes.items()}
    where = [case.key for case, count in found.items() if count]
    if not where:
        return []
    calls, cells = sum(found.values()), len(where)
    text = f"{calls} calls in {cells} cells say nothing about the candidate: PyTorch itself is wrong there, or raises"
    return [{"check": "reference", "level": "info", "message": f"{text}; first at {where[0]}"}]


class OtherLayouts:
    """The windows in other forms of a layout that one candidate gets.

    Args:
        cells: judges the candidate.
    """

    def __init__(self, cells: CellJudge) -> None:
        self._cells = cells
        self._exchanged: set[tuple[str, str, str]] = set()  # kinds of ``Repeats.kind``
        self.under_way = False
        """Whether the calls of the case that is judged now were laid out otherwise."""

    def judge(self, bound: BoundCase, first: Drawn, outcome: Passed) -> Outcome:
        """What becomes of the outcome in these forms. For the first case of each kind (``Repeats.kind``) they come
        twice, neighbours on unlike inputs and then on each other's, so that nothing kept by address lasts in any; not
        where one call takes more than ten seconds.

        Forms in which PyTorch itself is wrong, or raises, tell nothing: the evidence has ``native_is_wrong``, how many.
        """
        forms = bound.otherwise(first)
        if not forms:
            return outcome
        affordable = self._cells.affordable(len(forms))
        forms = secrets.SystemRandom().sample(forms, max(1, affordable))
        self.under_way = True
        kind = self._cells.repeats.kind(bound.case)
        known = kind is None or kind in self._exchanged
        pair = self._cells.repeats.pair(bound, first) if affordable and not known else None
        turns = [(bound, [first])] if pair is None or pair[0] is not bound else []
        if pair is not None and kind is not None:
            self._exchanged.add(kind)
            there, one, other = pair
            turns += [(there, [one, other]), (there, [other, one])]
        left_out = 0
        for there, drawn in turns:
            calls = [(drawn[place % len(drawn)], form) for place, form in enumerate(forms)]
            found = self._in_forms(there, calls)
            if isinstance(found, Failed) and found.reason == "exception":
                telling = [(one, form) for one, form in calls if there.native_is_right(one, form)]
                if len(telling) < len(calls):
                    left_out = max(left_out, len(calls) - len(telling))
                    found = self._in_forms(there, telling)
            if isinstance(found, Failed):
                return self.told(found)
            left_out = max(left_out, found.evidence.get("native_is_wrong", 0))
        return _with(outcome, left_out)

    def told(self, failed: Failed) -> Failed:
        """The outcome with words, and evidence, of where it was, if in calls laid out otherwise."""
        if not self.under_way:
            return failed
        words = f"{failed.message}; only where a part of the arguments is contiguous, or strided in another way"
        return replace(failed, message=words, evidence=dict(failed.evidence) | {"strides": OTHERWISE})

    def _in_forms(self, bound: BoundCase, calls: Sequence[tuple[Drawn, CallLayout]]) -> Passed | Failed:
        """The outcome of these calls, one window for all or, where they are large, for each."""
        large = sum(form.input_bytes + form.output_bytes for _, form in calls) > _LARGE_BYTES
        left_out = 0
        for part in [[call] for call in calls] if large else [calls][: len(calls)]:
            drawn, forms = [one for one, _ in part], [form for _, form in part]

            def excused(index: int, part: Sequence[tuple[Drawn, CallLayout]] = part) -> bool:
                return not bound.native_is_right(*part[index])

            try:
                outcome = self._cells.window(bound, drawn, forms=forms, excused=excused)
            except WorkerError as error:
                if error.unsupported:
                    raise
                return raised(error)
            if isinstance(outcome, Failed):
                return outcome
            left_out += outcome.evidence.get("native_is_wrong", 0)
        return _with(Passed(evidence={}), left_out)


def _with(outcome: Passed, left_out: int) -> Passed:
    return replace(outcome, evidence=dict(outcome.evidence) | {"native_is_wrong": left_out}) if left_out else outcome

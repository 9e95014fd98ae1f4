"""How long a candidate may keep the judge waiting, in one window and in all.

It bounds time of the candidate's own making. Pauses have a bound of their own (``worker/pausing.py``). Whether a
candidate runs or is being compiled is seen by ``worker/host.py`` and ``worker/compiling.py``.
"""

from __future__ import annotations

import time

from kerneleval import languages
from kerneleval.records import Candidate
from kerneleval.worker.host import TimeLimit

__all__ = ["CALLS_S", "LOAD_LONGEST_S", "LOAD_S", "LONGEST_S", "Patience"]

CALLS_S = 15.0
"""Seconds of a window in which nothing is compiled."""

LONGEST_S = 120.0
"""Seconds that one window may take at most: code may be compiled or tuned in it."""

LOAD_S = 15.0
"""Seconds that loading a candidate or making its module may take in which nothing is compiled or imported."""

LOAD_LONGEST_S = 240.0
"""Seconds in all: an extension by ``load_inline`` alone takes 25 s on two idle cores."""

_COMPILING = 5.0
"""Times the budget that code may be compiled. It must end, for that it is compiled is what the worker says."""

_MULTIPLE = 50.0
"""How many times as slow as the judge's work for the same calls (reference in fp64 and natively) a window may be."""

_SHARE = 1.0
"""Seconds that a candidate is given in all for one that the judge works itself, or would for the references of all its
calls: equal ones need one."""

_INTERPRETED_SHARE = 5.0
"""The same of kernels that are interpreted: each window of theirs takes tenths of a second."""

_INTERPRETED = 2.0
"""Times the budget that these have: a quarter of what they take shows no sign of progress. An online softmax in all
quick cases took 63 s beside 164 s of signs."""


class Patience:
    """The judge's patience with one candidate: all that it waits for its workers counts, be it for loading, for calls
    or for collecting. ``budget_s`` is what that may be beyond what is given (``Protocol.patience_s``).
    """

    def __init__(self, candidate: Candidate, device: str, budget_s: float) -> None:
        self._built = languages.find(candidate.language).needs_build
        self._interpreted = candidate.language == "triton" and device == "cpu"
        self._budget_s = budget_s * (_INTERPRETED if self._interpreted else 1.0)
        self._own_s = self._compiled_s = self._references_s = 0.0
        self._began_s, self._waited_s = time.monotonic(), 0.0

    @property
    def left_s(self) -> float:
        """What is left of the budget."""
        judged_s = max(0.0, time.monotonic() - self._began_s - self._waited_s)
        share = _INTERPRETED_SHARE if self._interpreted else _SHARE
        return self._budget_s + share * (judged_s + self._references_s) - self._own_s

    @property
    def _may_compile_s(self) -> float:
        return max(0.0, _COMPILING * self._budget_s - self._compiled_s)

    def limit(self, reference_s: float, *, first: bool) -> TimeLimit:
        """How long a window may take.

        Args:
            reference_s: what the judge needed for the expectations of its calls.
            first: whether one of its calls is the first of its layout: code may be compiled for it.
        """
        return self.limit_of(_MULTIPLE * reference_s, first=first)

    def limit_of(self, expected_s: float, *, first: bool) -> TimeLimit:
        """How long a window may take that may need so many seconds."""
        calls_s = min(LONGEST_S, max(CALLS_S, expected_s))
        if (self._interpreted or (first and not self._built)) and self._may_compile_s:
            return TimeLimit(calls_s, min(LONGEST_S, calls_s + self._may_compile_s))
        return TimeLimit(calls_s)

    def limit_of_loading(self, reference_s: float) -> TimeLimit:
        """How long loading may take, or making a module for which the judge needed so many seconds."""
        calls_s = min(LOAD_LONGEST_S, max(LOAD_S, _MULTIPLE * reference_s))
        return TimeLimit(calls_s, min(LOAD_LONGEST_S, calls_s + self._may_compile_s))

    def give(self, reference_s: float) -> None:
        """Calls were made for whose references the judge needed so many seconds, or a cell was timed that may take as
        long by its tier: a kernel that is twice as slow as the baseline waits for as long again.
        """
        self._references_s += reference_s

    def charge(self, took_s: float, own_s: float, compiled_s: float) -> str:
        """Count the wait for one answer; why there is no patience left, or empty.

        Args:
            took_s: how long the judge waited.
            own_s: the same without what others kept the worker from running.
            compiled_s: for how long of it something was compiled, or an interpreted kernel went on.
        """
        compiled_s = min(compiled_s, own_s, self._may_compile_s)
        self._waited_s += took_s
        self._compiled_s += compiled_s
        self._own_s += own_s - compiled_s
        if self.left_s >= 0:
            return ""
        return (
            f"it kept the judge waiting for {self._own_s:.0f} s in all, {self._budget_s:g} s longer than the judge's "
            f"own work accounts for; --patience gives it more"
        )

"""How long a candidate's calls may take, each and all together.

It bounds time of the candidate's own making. Pauses have a bound of their own (``worker/pausing.py``), messages that
need no candidate another (``worker/host.py``). Whether a candidate runs or is being compiled is seen by
``worker/host.py`` and ``worker/compiling.py``.
"""

from __future__ import annotations

import time

from kerneleval import languages
from kerneleval.records import Candidate
from kerneleval.worker.host import TimeLimit

__all__ = ["CALLS_S", "LONGEST_S", "Patience"]

CALLS_S = 15.0
"""Seconds of a window, beyond what the judge's own reference needs, in which nothing is compiled."""

LONGEST_S = 120.0
"""Seconds that one window may take at most: code may be compiled or tuned in it."""

_COMPILING = 10.0
"""Times the budget that code may be compiled in all windows together. It must end, for that it is compiled is what the
worker says; what compiles within the time of a call goes on. ``torch.compile`` took 200 s for a quick verdict on two
busy processors."""

_MULTIPLE = 50.0
"""How many times as slow as the judge's work for the same calls (reference in fp64 and natively) a candidate may be."""

_FREE_S = 0.5
"""Seconds of a window that need not count: 0.1 s were seen where five programs shared two processors."""

_WINDOW_S = 0.05
"""Seconds that a window takes whatever is called, and never count: a median of 0.01 s there."""

_SHORT_S = 0.01
"""Seconds of the judge's work for a window that say nothing of how long its calls should take."""

_FREE_SHARE = 0.5
"""How long the free seconds, and those given for such work, may be in all, for a second that the judge works itself;
what is beyond counts. Honest candidates needed 0 to 0.2, with eight programs on two processors."""

_INTERPRETED_SHARE = 5.0
"""The same of kernels that are interpreted: each window of theirs takes tenths of a second."""


class Patience:
    """The judge's patience with one candidate: ``budget_s`` is what all windows together may take beyond what they are
    given (``Protocol.patience_s``).
    """

    def __init__(self, candidate: Candidate, device: str, budget_s: float) -> None:
        self._budget_s = budget_s
        self._built = languages.find(candidate.language).needs_build
        self._interpreted = candidate.language == "triton" and device == "cpu"
        self._over_s = self._free_s = self._compiled_s = 0.0
        self._began_s, self._waited_s = time.monotonic(), 0.0

    @property
    def left_s(self) -> float:
        """What is left of the budget."""
        own_s = max(0.0, time.monotonic() - self._began_s - self._waited_s)
        share = _INTERPRETED_SHARE if self._interpreted else _FREE_SHARE
        return self._budget_s - self._over_s - max(0.0, self._free_s - share * own_s)

    def limit(self, reference_s: float, *, first: bool) -> TimeLimit:
        """How long a window may take.

        Args:
            reference_s: what the judge needed for the expectations of its calls.
            first: whether one of its calls is the first of its layout: code may be compiled for it.
        """
        return self.limit_beyond(_MULTIPLE * reference_s, first=first)

    def limit_beyond(self, further_s: float, *, first: bool) -> TimeLimit:
        """How long a window may take whose calls are given so many seconds beside the usual ones."""
        calls_s = min(LONGEST_S, CALLS_S + further_s)
        if self._interpreted or (first and not self._built and self._compiled_s < _COMPILING * self._budget_s):
            return TimeLimit(calls_s, LONGEST_S)
        return TimeLimit(calls_s)

    def spend(self, seconds: float) -> None:
        """Count what the candidate took beside its calls; :meth:`charge` says whether that was too long."""
        self._over_s += seconds

    def charge(self, took_s: float, reference_s: float, compiled_s: float = 0.0) -> str:
        """Count a window; why the candidate is too slow to be judged, or empty.

        Args:
            took_s: how long the judge waited for it.
            reference_s: as in :meth:`limit`.
            compiled_s: for how long of it something was compiled, or interpreted.
        """
        own_s = took_s - compiled_s
        over_s = max(0.0, own_s - _FREE_S - _MULTIPLE * reference_s)
        slow_s = max(0.0, own_s - _WINDOW_S - _MULTIPLE * max(0.0, reference_s - _SHORT_S))
        self._over_s += over_s
        self._waited_s += took_s
        if not compiled_s:  # else some of it was that: it is looked for twice a second
            self._free_s += max(0.0, slow_s - over_s)
        if not self._interpreted:
            self._compiled_s += compiled_s
        if self.left_s >= 0:
            return ""
        return (
            f"it kept the judge waiting {self._budget_s:g} s longer than {_MULTIPLE:g} times what the reference needs; "
            f"--patience gives it more"
        )

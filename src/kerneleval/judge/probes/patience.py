"""How long a candidate's calls may take, each and all together.

It bounds time of the candidate's own making. Pauses have a bound of their own (``worker/pausing.py``), messages that
need no candidate another (``worker/host.py``). Whether a candidate runs or is being compiled is seen by
``worker/host.py`` and ``worker/compiling.py``.
"""

from __future__ import annotations

from kerneleval import languages
from kerneleval.records import Candidate
from kerneleval.worker.host import TimeLimit

__all__ = ["CALLS_S", "LONGEST_S", "Patience"]

CALLS_S = 15.0
"""Seconds of a window, beyond what the judge's own reference needs, in which nothing is compiled."""

LONGEST_S = 120.0
"""Seconds that one window may take at most: code may be compiled or tuned in it."""

_COMPILING = 30.0
"""Times the budget that code may be compiled in all windows together. It must end, for that it is compiled is what the
worker says; what compiles within the time of a call goes on. ``torch.compile`` took 200 s for a quick verdict on two
busy processors."""

_MULTIPLE = 50.0
"""How many times as slow as the judge's work for the same calls (reference in fp64 and natively) a candidate may be."""

_FREE_S = 0.5
"""Seconds of a window that count against no budget: 0.1 s were seen where five programs shared two processors."""


class Patience:
    """The judge's patience with one candidate: ``budget_s`` is what all windows together may take beyond what they are
    given (``Protocol.patience_s``).
    """

    def __init__(self, candidate: Candidate, device: str, budget_s: float) -> None:
        self._budget_s = budget_s
        self._built = languages.find(candidate.language).needs_build
        self._interpreted = candidate.language == "triton" and device == "cpu"
        self._over_s = self._compiled_s = 0.0

    @property
    def left_s(self) -> float:
        """What is left of the budget."""
        return self._budget_s - self._over_s

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

    def charge(self, took_s: float, reference_s: float, compiled_s: float = 0.0) -> str:
        """Count a window; why the candidate is too slow to be judged, or empty.

        Args:
            took_s: what it took.
            reference_s: as in :meth:`limit`.
            compiled_s: for how long of it something was compiled, or interpreted.
        """
        self._over_s += max(0.0, took_s - _FREE_S - _MULTIPLE * reference_s - compiled_s)
        if not self._interpreted:
            self._compiled_s += compiled_s
        if self.left_s >= 0:
            return ""
        return (
            f"its calls kept the judge waiting {self._budget_s:g} s longer than {_MULTIPLE:g} times what the reference "
            f"needs and {_FREE_S:g} s a window; --patience gives them more"
        )

"""How long a candidate's calls may take while correctness is judged, each and all together.

It bounds time of the candidate's own making. Pauses have a bound of their own (``worker/pausing.py``), messages that
need no candidate another (``worker/host.py``), and timed windows a limit of the clock's (``timing/``).
"""

from __future__ import annotations

import re
import sys

from kerneleval import languages
from kerneleval.records import Candidate

__all__ = ["BUDGET_S", "Patience"]

BUDGET_S = 60.0
"""Seconds by which all windows together may exceed what they are given."""

_CALL_S = 15.0
"""Seconds of a window beyond what the judge's own reference needs, where nothing is compiled: an endless loop ends."""

_MULTIPLE = 50.0
"""How many times as slow as the judge's work for the same calls (reference in fp64 and natively) a candidate may be."""

_FREE_S = 0.5
"""Seconds of a window that count against no budget: 0.1 s were seen where five programs shared two processors."""

_COMPILES = re.compile(r"compile|jit|inline|extension|subprocess|ctypes|exec|import_")
"""What the sources of a candidate name that compiles when it is called."""

_IMPORTED = re.compile(r"^[ \t]*(?:import|from)[ \t]+(\w+)", re.MULTILINE)
_COMPILES_NOTHING = sys.stdlib_module_names | {"torch", "numpy"}
"""Other libraries may compile in their first calls, as Numba, Triton and Warp do."""


def _may_compile(text: str) -> bool:
    return bool(_COMPILES.search(text)) or not _COMPILES_NOTHING.issuperset(_IMPORTED.findall(text))


class Patience:
    """The judge's patience with one candidate."""

    def __init__(self, candidate: Candidate, device: str) -> None:
        built = languages.find(candidate.language).needs_build
        self.may_compile = not built and any(_may_compile(text) for _, text in candidate.files)
        """Whether its first calls may take long."""
        self._interpreted = candidate.language == "triton" and device == "cpu"
        self._over_s = 0.0

    @property
    def left_s(self) -> float:
        """What is left of the budget."""
        return BUDGET_S - self._over_s

    def limit_s(self, reference_s: float, *, first: bool, longest_s: float) -> float:
        """How long a window may take.

        Args:
            reference_s: what the judge needed for the expectations of its calls.
            first: whether one of its calls is the first of its layout: code may be compiled for it.
            longest_s: the limit where code is compiled, and the highest one.
        """
        if self._interpreted or (first and self.may_compile):
            return longest_s
        return min(longest_s, _CALL_S + _MULTIPLE * reference_s)

    def charge(self, took_s: float, reference_s: float, compiling_s: float = 0.0) -> str:
        """Count a window; why the candidate is too slow to be judged, or empty.

        Args:
            took_s: what it took.
            reference_s: as in :meth:`limit_s`.
            compiling_s: the CPU time that compilers may have used meanwhile.
        """
        if not self._interpreted:
            self._over_s += max(0.0, took_s - _FREE_S - _MULTIPLE * reference_s - compiling_s)
        if self.left_s >= 0:
            return ""
        return (
            f"its calls kept the judge waiting {BUDGET_S:g} s longer than {_MULTIPLE:g} times what the reference needs "
            f"and {_FREE_S:g} s a window"
        )

"""How long the judge waits for a worker: for one answer, and for all answers of one candidate.

It bounds time of the candidate's own making. Pauses have a bound of their own (``pausing.py``). Whether a candidate
runs or is being compiled is seen here from outside, and by ``compiling.py`` from inside.
"""

from __future__ import annotations

import math
import os
import re
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from kerneleval import languages
from kerneleval.devices.cpu import processors
from kerneleval.records import Candidate, Protocol
from kerneleval.sandbox import processes

__all__ = ["CALLS_S", "LOAD_LONGEST_S", "LOAD_S", "LONGEST_S", "Patience", "StolenTime", "TimeLimit", "Waiting"]

CALLS_S = 15.0
"""Seconds of a window in which nothing is compiled."""

LONGEST_S = 120.0
"""Seconds that one window may take at most: code may be compiled or tuned in it. A ``Protocol.patience_s`` above its
default raises this by the same factor."""

LOAD_S = 15.0
"""Seconds that loading a candidate or making its module may take in which nothing is compiled or imported."""

LOAD_LONGEST_S = 240.0
"""Seconds in all, raised alike: an extension by ``load_inline`` alone takes 25 s on two idle cores."""

_COMPILING = 5.0
"""Times the budget that code may be compiled: only the worker says that it is, so there must be an end."""

_MULTIPLE = 50.0
"""How many times as slow as the judge's work for the same calls (reference in fp64 and natively) a window may be."""

_WORK_SHARE = 1.0
"""Seconds that a candidate is given for each that the judge works itself, or would work for the references of all calls
(of equal calls one reference is computed)."""

_INTERPRETED_SHARE = 5.0
"""The same of kernels that are interpreted: each window of theirs takes tenths of a second."""

_INTERPRETED = 2.0
"""Times the budget that these have: a quarter of what they take shows no sign of progress. An online softmax in all
quick cases took 63 s beside 164 s of signs."""

_BUSY_S = 120.0
"""Seconds, and thrice the limit, by which it is put off where others keep the worker's threads from running."""

_LOOK_S = 1.0
"""Seconds between two looks at the programs that the worker started."""

_WORKING_S = 0.1
"""CPU time of theirs between two looks that tells a compiler from a program that waits."""

_COMPILERS = re.compile(
    r"(?:[\w.]+-)*(?:as|c\+\+|cc|cc1|cc1plus|cicc|clang|clang\+\+|collect2|cudafe\+\+|fatbinary|g\+\+|gcc|gold|hipcc|icpx|"
    r"ispc|ld|lld|llc|lto1|lto-wrapper|metal|nvcc|nvlink|opt|ptxas|rustc)(?:-[\d.]+)?"
)
"""Names of the programs that compile, with what stands before and after them (``x86_64-linux-gnu-g++-12``)."""

_COMPILE_WORKER = re.compile(r"_inductor/compile_worker|multiprocessing\.(?:forkserver|spawn)")
"""What stands in the command of a Python that compiles for another."""

_COMPUTING_SHARE = 0.02
"""CPU time per second from which on a worker compiles or imports; one that sleeps in a library uses less."""

_CREDIT = 10.0
"""Seconds of compilation for one of CPU time at most: the least share of a processor that a busy machine gives."""

_OFTEN_S, _SELDOM_S = 0.2, 3.0
"""Seconds between two signs of compilation: an earlier one is not heard, and a longer time counts as so much."""

_STOLEN_S = 0.5
"""Seconds between two looks whether a worker's processes compute beside the judge: one takes 0.3 ms."""


@dataclass(frozen=True, slots=True)
class TimeLimit:
    """How long a worker may take."""

    calls_s: float
    """Seconds without a sign that code is compiled."""
    longest_s: float = 0.0
    """Seconds in all, where code may be compiled; 0: none may."""

    @property
    def watched(self) -> bool:
        """Whether signs of compilation count."""
        return self.longest_s > self.calls_s


class Waiting:
    """The wait for one answer.

    Args:
        family: every process of the worker.
        own: those of them that were there before the candidate.
    """

    def __init__(self, limit: TimeLimit, family: Callable[[], Iterable[int]], own: frozenset[int]) -> None:
        self._limit, self._family, self._own = limit, family, own
        self._held = processes.Held(family)
        self._began_s = self._signed_s = self._looked_s = time.monotonic()
        self._deadline_s = self._began_s + limit.calls_s
        self._waited_s = 0.0
        self._used_ns: dict[int, int] = {}
        self._work = _Work(family)
        self.compiled_s = 0.0
        """For how long there were signs of compilation, and something computed."""

    @property
    def left_s(self) -> float:
        """Seconds until it may be over."""
        return self._deadline_s - time.monotonic()

    def look(self) -> None:
        """See what the worker's processes do; called all the time while the judge waits."""
        self._held.begin()
        if not self._limit.watched:
            return
        self._work.begin()
        if time.monotonic() < self._looked_s + _LOOK_S:
            return
        self._looked_s = time.monotonic()
        programs = (pid for pid in self._family() if pid not in self._own and _compiles(pid))
        used_ns = {pid: processes.activity(pid).cpu_ns for pid in programs}
        worked_ns = sum(max(0, now_ns - self._used_ns.get(pid, 0)) for pid, now_ns in used_ns.items())
        self._used_ns = used_ns
        if worked_ns >= 1e9 * _WORKING_S:
            self.sign()

    def sign(self) -> None:
        """Something is being compiled now, if the worker or what it started computes."""
        now_s = time.monotonic()
        if now_s < self._signed_s + _OFTEN_S or (worked_s := self._work.done_s(_COMPUTING_SHARE)) <= 0:
            return
        self._waited_s += self._held.waited_s()
        self._held = processes.Held(self._family)
        self.compiled_s += min(now_s - self._signed_s, _SELDOM_S, _CREDIT * worked_s)
        self._signed_s = now_s
        self._deadline_s = min(now_s + self._limit.calls_s, self._latest_s(self._waited_s))

    def is_over(self) -> bool:
        """Whether the worker has had its time, and that in which others kept it from running beside."""
        if self.left_s > 0:
            return False
        held_s = self._held.waited_s()
        put_off_s = min(held_s, _BUSY_S, 3 * self._limit.calls_s)
        latest_s = self._latest_s(self._waited_s + held_s)
        self._deadline_s = min(self._signed_s + self._limit.calls_s + put_off_s, latest_s)
        return self.left_s <= 0

    def spent(self) -> tuple[float, float, float]:
        """How long it has taken so far, the same without what others kept the worker from running, and for how long of
        it there were signs of compilation.
        """
        took_s = time.monotonic() - self._began_s
        return took_s, max(0.0, took_s - self._waited_s - self._held.waited_s()), self.compiled_s

    def why(self) -> str:
        """What was waited for in vain."""
        took_s, own_s, _ = self.spent()
        held = f", of which it waited {took_s - own_s:.0f} s for a processor" if took_s - own_s >= 1 else ""
        last = ""
        if self.compiled_s and took_s < self._limit.longest_s:
            last = f", the last {self._limit.calls_s:.0f} s of them without a sign of progress"
        elif self.compiled_s:
            last = " (with signs of progress; --patience gives it more)"
        return f"within {took_s:.0f} s{held}{last}"

    def _latest_s(self, waited_s: float) -> float:
        """When it is over in any case."""
        longest_s = max(self._limit.longest_s, self._limit.calls_s)
        return self._began_s + longest_s + min(waited_s, _BUSY_S, 3 * self._limit.calls_s)


class _Work:
    """The CPU time of some processes."""

    def __init__(self, pids: Callable[[], Iterable[int]]) -> None:
        self._pids = pids
        self._before: tuple[float, dict[int, int]] | None = None

    def begin(self) -> None:
        """Measure from now on, if not from earlier on."""
        if self._before is None:
            self._before = self._now()

    def done_s(self, share: float) -> float:
        """CPU time since the last answer above 0 (s); 0: less than ``share`` of the time. Infinity where the system
        does not say.
        """
        (began_s, before), now = self._before or (-math.inf, {}), self._now()
        now_s, used_ns = now
        if not any(used_ns.values()):
            return math.inf
        done_s = sum(max(0, used - before.get(pid, 0)) for pid, used in used_ns.items()) / 1e9
        if self._before is not None and done_s < share * (now_s - began_s):
            return 0.0
        self._before = now
        return done_s

    def _now(self) -> tuple[float, dict[int, int]]:
        return time.monotonic(), {pid: processes.activity(pid).cpu_ns for pid in self._pids()}


class StolenTime:
    """Time for which a worker's processes kept the judge from a processor while it waited for no answer of theirs."""

    def __init__(self, family: Callable[[], Iterable[int]]) -> None:
        self._family = family
        self._looked_s, self._waited_s, self._delay_s = -math.inf, 0.0, 0.0
        self._used_ns: dict[int, int] = {}
        self._thread = 0

    def taken_s(self, waited_s: float) -> float:
        """Seconds since the last look, of which there are two a second at most; ``waited_s``: what the judge has waited
        for an answer since this was last asked.
        """
        self._waited_s += waited_s
        if (now_s := time.monotonic()) < self._looked_s + _STOLEN_S:
            return 0.0
        used_ns = {pid: processes.activity(pid).cpu_ns for pid in self._family()}
        spent_s = sum(max(0, used - self._used_ns.get(pid, 0)) for pid, used in used_ns.items()) / 1e9
        delay_s, thread = processes.delay_s(), threading.get_ident()
        taken_s = (
            min(delay_s - self._delay_s, spent_s - processors() * self._waited_s) if thread == self._thread else 0.0
        )
        self._looked_s, self._waited_s, self._delay_s = now_s, 0.0, delay_s
        self._used_ns, self._thread = used_ns, thread
        return max(0.0, taken_s)


def _compiles(pid: int) -> bool:
    """Whether it is a program that compiles, by its command."""
    command = processes.command(pid)
    if not command:
        return False
    return bool(_COMPILERS.fullmatch(os.path.basename(command[0])) or _COMPILE_WORKER.search(" ".join(command[1:])))


class Patience:
    """The judge's patience with one candidate: all that it waits for its workers counts, be it for loading, for calls
    or for collecting. ``budget_s`` is what that may be beyond what is given (``Protocol.patience_s``).
    """

    def __init__(self, candidate: Candidate, device: str, budget_s: float) -> None:
        self._built = languages.find(candidate.language).needs_build
        self._interpreted = candidate.language == "triton" and device == "cpu"
        self._budget_s = budget_s * (_INTERPRETED if self._interpreted else 1.0)
        self._more = max(1.0, budget_s / Protocol().patience_s) if math.isfinite(budget_s) else 1.0
        self._own_s = self._compiled_s = self._given_s = 0.0
        self._began_s, self._waited_s = time.monotonic(), 0.0

    @property
    def left_s(self) -> float:
        """What is left of the budget."""
        judged_s = max(0.0, time.monotonic() - self._began_s - self._waited_s)
        share = _INTERPRETED_SHARE if self._interpreted else _WORK_SHARE
        return self._budget_s + share * (judged_s + self._given_s) - self._own_s

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
        longest_s = self._more * LONGEST_S
        calls_s = min(longest_s, max(CALLS_S, expected_s))
        if (self._interpreted or (first and not self._built)) and self._may_compile_s:
            return TimeLimit(calls_s, min(longest_s, calls_s + self._may_compile_s))
        return TimeLimit(calls_s)

    def limit_of_loading(self, reference_s: float) -> TimeLimit:
        """How long loading may take, or making a module for which the judge needed so many seconds."""
        longest_s = self._more * LOAD_LONGEST_S
        calls_s = min(longest_s, max(LOAD_S, _MULTIPLE * reference_s))
        return TimeLimit(calls_s, min(longest_s, calls_s + self._may_compile_s))

    def give(self, seconds: float) -> None:
        """Seconds more: what the judge needed for the references of some calls, or what a session of a timed cell may
        take by its tier.
        """
        self._given_s += seconds

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

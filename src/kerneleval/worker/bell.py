"""The bell: a page of shared memory by which judge and worker tell each other that a window begins and that it has
ended, without a system call. Used where both stay awake for a window; what a message costs there (0.1 to 0.4 ms, and a
scatter of a tenth of that) would hide the calls of a short window.

Each side writes one word of its own, at once and whole. The worker's word is a claim, as its message ``computed`` is.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import time
from dataclasses import dataclass

_BYTES = mmap.PAGESIZE
_GO, _DONE = 0, 8
"""Places of the two words (int64), in cache lines of their own."""

_CALL_BITS, _ROUND_BITS, _NUMBER_BITS = 14, 19, 15


@dataclass(frozen=True, slots=True)
class Go:
    """What is to be computed now."""

    start: int
    """The first call."""
    stop: int
    """The call after the last."""
    rounds: int = 1
    """How many times all of them are made."""
    recorded: bool = False
    """Whether they are launched as they were recorded."""

    @property
    def fits(self) -> bool:
        """Whether it can be said in one word."""
        return self.stop < 1 << _CALL_BITS and self.rounds < 1 << _ROUND_BITS


class Bell:
    """One side's view of the page."""

    def __init__(self, fd: int) -> None:
        self._memory = mmap.mmap(fd, _BYTES)
        self._words = memoryview(self._memory).cast("q")
        self._number = 0

    @staticmethod
    def possible() -> bool:
        """Whether this system has files in memory alone that can be sealed (Linux); else messages say all."""
        return hasattr(os, "memfd_create")

    @staticmethod
    def file() -> int:
        """Descriptor of a new page."""
        fd = os.memfd_create("kerneleval-bell", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(fd, _BYTES)
        # a worker that truncated it would kill the judge (SIGBUS) when it next looks
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
        return fd

    def ring(self, go: Go) -> None:
        """Judge: let the worker begin."""
        self._number = self._number % ((1 << _NUMBER_BITS) - 1) + 1
        word = self._number << _CALL_BITS | go.start
        word = word << _CALL_BITS | go.stop
        self._words[_GO] = (word << _ROUND_BITS | go.rounds) << 1 | go.recorded

    def ended(self, spin_s: float) -> int:
        """Judge: when the worker said that it had ended (``perf_counter_ns``); 0: not within so many seconds."""
        words, number = self._words, self._number
        limit = time.perf_counter_ns() + int(1e9 * spin_s)
        while words[_DONE] != number:
            if time.perf_counter_ns() > limit:
                return 0
        return time.perf_counter_ns()

    def heard(self) -> Go | None:
        """Worker: what the judge asks for now; None: nothing new."""
        word = self._words[_GO]
        number = word >> (2 * _CALL_BITS + _ROUND_BITS + 1)
        if number == self._number:
            return None
        self._number = number
        recorded, word = bool(word & 1), word >> 1
        rounds, word = word & ((1 << _ROUND_BITS) - 1), word >> _ROUND_BITS
        stop, word = word & ((1 << _CALL_BITS) - 1), word >> _CALL_BITS
        return Go(word & ((1 << _CALL_BITS) - 1), stop, rounds, recorded)

    def end(self) -> None:
        """Worker: what was asked for last has ended."""
        self._words[_DONE] = self._number

"""Stops every process of a worker for a while, and tells whether one of them ran all the same.

It reads ``/proc`` and sends signals; ``host.py`` says which processes are the worker's and ends it for an offence.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable

from kerneleval.records import Reason
from kerneleval.sandbox import processes

__all__ = ["Pauses"]

_REST_S = 2.0
"""How long one pause waits until a stopped process rests. That takes microseconds, but on a busy machine every thread
must have its turn first."""

_UNREST_S = 10.0
"""Seconds that stopping a worker may take in all of its pauses together: waits for threads that no signal stops, where
none of them waits for a processor, and the judge's own CPU time for stopping very many. A thread that reads a large
file, or starts a program, takes milliseconds."""

_USUAL_UNREST_S = 0.001
"""What each pause makes up for: 91 sleeping threads gathered 1.9 s in 3,144 pauses."""

_SPIN_S = 0.001
"""How long the judge looks without a sleep: nearly every process rests sooner."""

_ROUNDS = 1
"""Times that one pause may find further processes: one that is stopped makes no more. Candidates that started a program
every 20 ms needed none in 113 of 116 pauses and 1 in the others, chains of clones 2.5 on average (2 virtual processors,
26 November 2026)."""

_CHASE = 24
"""Rounds above these that a worker's pauses may have gathered; a pause that needs none makes up for one."""

_OWN_WORK_S = 0.005
"""CPU time of the judge that stopping a worker takes at most where it has some 50 processes or 300 threads."""

_RAN_NS = 50_000_000
"""CPU time that stopped processes of a worker may seem to have used, over all of its pauses. The scheduler books what
a thread did just before its stop when the processor is taken from it, which a busy machine does later."""

_MOST_WOKEN = 5
"""Pauses in which a stopped process may seem to have got a processor: one that is preempted on its last way to rest
gets it once more."""


class Pauses:
    """All pauses of one worker. :meth:`stop`, then :meth:`look`, then :meth:`release`; ``offence`` after each."""

    def __init__(self) -> None:
        self.offence: tuple[Reason, str] | None = None
        """Reason and message, once the worker has done what none may."""
        self._stopped: dict[int, str] = {}
        """Processes by id with the time at which they began: an id may be another process's the next time."""
        self._resting: dict[int, processes.Activity] = {}
        self._chased = 0
        self._restless = False
        self._ran_ns = 0
        self._woken = 0
        self._unrest_s = 0.0

    def stop(self, family: Callable[[], Iterable[int]], *, trusted: bool = False) -> None:
        """Stop every process that ``family`` names, and wait until each of them rests; of a ``trusted`` worker only
        those of the last time, without waiting.
        """
        # first those of the last time, without a look at the whole family: it takes microseconds
        began_s = time.thread_time()
        self._stopped = {pid: began for pid, began in self._stopped.items() if processes.start_time(pid) == began}
        self._resting = {}
        processes.signal_each(self._stopped, signal.SIGSTOP)
        if trusted and self._stopped:
            return
        self._chased = max(0, self._chased - _ROUNDS)
        self._unrest_s = max(0.0, self._unrest_s - _USUAL_UNREST_S)
        while fresh := set(family()) - self._stopped.keys():
            self._chased += 1
            if self._chased > _CHASE:
                self.offence = "tampering", "its processes start others faster than they can be stopped"
                return
            processes.signal_each(fresh, signal.SIGSTOP)
            self._stopped |= {pid: processes.start_time(pid) for pid in fresh}
        deadline_s = time.monotonic() + _REST_S
        for pid in self._stopped:
            if (activity := self._at_rest(pid, deadline_s)) is not None:
                self._resting[pid] = activity
        self._unrest_s += max(0.0, time.thread_time() - began_s - _OWN_WORK_S)
        if self._unrest_s > _UNREST_S:
            self.offence = "timeout", f"stopping the processes and threads of the candidate took {_UNREST_S:g} s in all"

    def look(self) -> None:
        """See whether a process that rested has run since."""
        now = {pid: processes.activity(pid) for pid in self._resting}
        self._ran_ns += sum(max(0, now[pid].cpu_ns - then.cpu_ns) for pid, then in self._resting.items())
        self._woken += any(now[pid].dispatches != then.dispatches for pid, then in self._resting.items())
        if self._restless or self._ran_ns > _RAN_NS or self._woken > _MOST_WOKEN:
            self.offence = "tampering", "a process of the candidate ran while it was stopped: something let it go on"

    def release(self) -> None:
        """Let every process go on."""
        processes.signal_each(self._stopped, signal.SIGCONT)

    def _at_rest(self, pid: int, deadline_s: float) -> processes.Activity | None:
        """What the process has done when all of its threads rest; None where one does not in time.

        A system call, such as reading a large file, goes on to its end first. Only time in which no thread waits for a
        processor counts against the worker, and CPU time.
        """
        began = last = time.monotonic()
        before, own_s = processes.activity(pid), 0.0
        while states := processes.thread_states(pid).strip("Tt"):
            now = time.monotonic()
            if "R" not in states:
                own_s += now - last
            last = now
            if now >= deadline_s:
                break
            if now - began < _SPIN_S:
                os.sched_yield()
            else:
                time.sleep(_SPIN_S / 10)
        after = processes.activity(pid)
        used_s = (after.cpu_ns - before.cpu_ns) / 1e9
        self._unrest_s += max(own_s, used_s)
        # a stopped thread neither sleeps nor computes that long
        self._restless |= "S" in states or bool(states and used_s >= _REST_S / 2)
        return None if states else after

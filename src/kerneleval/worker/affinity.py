"""On which processors the worker's own thread may run.

Loading an OpenMP library binds the thread that loads it to the first processor, if helper threads are to be bound.
Threads that a candidate starts by itself inherit the mask, and would all share that one processor.
"""

from __future__ import annotations

import os

__all__ = ["allow", "allowed"]


def allowed() -> frozenset[int]:
    """Processors of the calling thread; empty where the system does not tell."""
    return frozenset(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else frozenset()


def allow(processors: frozenset[int]) -> None:
    """Let the calling thread run there; empty: nothing is changed."""
    if processors:
        os.sched_setaffinity(0, processors)

"""The processor on which the workers of one judge wait, one after another; no other judge takes it.

On one processor, candidate and baseline see the same clock and the same neighbours; on two of a busy machine the same
code differs by several per cent for minutes. Where kernels run on a GPU, workers compute on that processor too, so no
other judge may use it: on a host with two GPUs, two judges on one processor saw calls against themselves scatter by 27
to 49 %. The worker goes there itself, when a window opens (``worker/child.py``).
"""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path

__all__ = ["CpuPin"]

_TOPOLOGY = Path("/sys/devices/system/cpu")


class CpuPin:
    """A processor of this machine; :attr:`processor` is its number, -1 where the system does not say."""

    def __init__(self, *, alone: bool) -> None:
        """Take one.

        Args:
            alone: the last processor that this process may use and that neither another judge nor a hyperthread beside
                one sits on, until :meth:`leave` or the process's end; the last one where all are taken. Else, where
                processors are the device, the first one, shared, to which OpenMP binds no helper thread: a call that
                begins on a helper's processor goes on there, and each thread waits for the other.
        """
        self._taken: socket.socket | None = None
        allowed = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()
        processors = sorted(allowed, reverse=alone)
        self.processor = processors[0] if processors else -1
        for processor in processors if alone else ():
            if self._take(processor):
                self.processor = processor
                break

    def leave(self) -> None:
        """Let another judge have it."""
        if self._taken is not None:
            self._taken.close()
            self._taken = None

    def _take(self, processor: int) -> bool:
        """Names in the abstract namespace are gone with the process that bound them, however it ends."""
        siblings = str(processor)
        with contextlib.suppress(OSError):
            siblings = (_TOPOLOGY / f"cpu{processor}/topology/thread_siblings_list").read_text().strip() or siblings
        with contextlib.ExitStack() as unless_taken:
            try:
                taken = unless_taken.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
                taken.bind(f"\0kerneleval/processors/{siblings}")
            except OSError:
                return False
            unless_taken.pop_all()
            self._taken = taken
            return True

"""Turns at measuring: of the judges of one host, one measures on a piece of hardware, and the others wait.

Two judges that time side by side on one device take its time slices, caches and power from each other. What they do
besides, building, drawing, comparing, calls that are not timed, goes on meanwhile.
"""

from __future__ import annotations

import contextlib
import errno
import socket
import sys
import threading
import time
from collections.abc import Iterator

from kerneleval.records import InfrastructureError, digest

__all__ = ["turn"]

_POLL_S = 0.003
"""A measurement of the quick tier takes some tens of milliseconds."""

_PATIENCE_S = 1800.0
"""The longest measurements are minutes long, and a dozen judges may wait for one another."""


_mine = threading.local()
"""``hardware``: on what this thread measures now."""


@contextlib.contextmanager
def turn(hardware: str, patience_s: float = _PATIENCE_S) -> Iterator[None]:
    """Inside the block nobody else measures on this hardware; waits until that is so. Turns may be nested in a thread.

    Turns are names in Linux's abstract namespace of sockets, which are gone with the process that bound them, however
    it ends. Judges in network namespaces of their own do not see one another, nor does anybody elsewhere than on Linux.

    Args:
        hardware: as :meth:`Device.hardware` names it.
        patience_s: how long to wait at most.

    Raises:
        InfrastructureError: another process has kept its turn for so long.
    """
    if not sys.platform.startswith("linux") or hardware == getattr(_mine, "hardware", ""):
        yield
        return
    name = f"\0kerneleval/turns/{digest(hardware)[:32]}"  # the system has room for 108 bytes
    ends = time.monotonic() + patience_s
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as taken:
        while True:
            try:
                taken.bind(name)
                break
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise InfrastructureError(f"no turn to measure on {hardware} can be taken: {error}") from error
            if time.monotonic() > ends:
                raise InfrastructureError(
                    f"another process has been measuring on {hardware} for {patience_s:g} s (the socket @{name[1:]} in "
                    "/proc/net/unix): end it, or begin again when it is done"
                )
            time.sleep(_POLL_S)
        before = getattr(_mine, "hardware", "")
        _mine.hardware = hardware
        try:
            yield
        finally:
            _mine.hardware = before

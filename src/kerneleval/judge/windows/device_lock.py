"""Turns at measuring: of the judges of one host, one measures on a piece of hardware, and the others wait in line.

Two judges that time side by side on one device take its time slices, caches and power from each other. What they do
besides, building, drawing, comparing, calls that are not timed, goes on meanwhile;
:func:`judge_count` says how many do it.

All of it is names in Linux's abstract namespace of sockets, which are gone with the process that bound them, however it
ends. Judges in network namespaces of their own do not see one another, nor does anybody elsewhere than on Linux.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import struct
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path

from kerneleval.records import InfrastructureError, digest

__all__ = ["device_lock", "judge_count", "registered"]

_PATIENCE_S = 1800.0
"""Nobody keeps a turn for so long who still works: it is offered to others after :data:`_LONG_S`."""

_LONG_S = 20.0
"""The precise tier needs about so long for a cell; a candidate may take two minutes for each of many windows."""

_LOOK_S = 1.0
"""Whoever waits looks so often whether the line is still what it was."""

_STOPPED_S = 5.0
"""Whoever is first in the line and has not taken a free turn for so long is stopped, or debugged."""

_LINUX = sys.platform.startswith("linux")
_LIST = Path("/proc/net/unix")

_mine = threading.local()
"""``turn``: this thread's, if it has one."""

_held: weakref.WeakSet[socket.socket] = weakref.WeakSet()
"""Every name that this process has bound. A fork has copies of them, and would keep them bound."""


def _leave_to_parent() -> None:
    for one in tuple(_held):
        one.close()
    _held.clear()
    _mine.__dict__.clear()


os.register_at_fork(after_in_child=_leave_to_parent)


@contextlib.contextmanager
def device_lock(
    hardware: str, patience_s: float = _PATIENCE_S, *, whole: bool = False
) -> Iterator[Callable[[], float]]:
    """Inside the block nobody else measures on this hardware; waits until that is so, first come, first served.

    Turns may be nested in a thread: the outer one counts. What it yields is to be called where the device is idle
    between two measurements: after 20 s it lets everybody who waits go first. It gives the seconds that this took.

    Args:
        hardware: as :meth:`Device.hardware` names it.
        patience_s: how long one and the same process may keep everybody waiting.
        whole: never let others go first: they wait for what is found out here.

    Raises:
        InfrastructureError: another process has kept its turn for so long.
    """
    outer: _Lock | None = getattr(_mine, "turn", None)
    if outer is not None and outer.hardware == hardware:
        yield outer.offer
        return
    if not _LINUX:
        yield _nobody_waits
        return
    taken = _Lock(hardware, patience_s, whole)
    _mine.turn = taken
    try:
        yield taken.offer
    finally:
        _mine.turn = outer
        taken.end()


@contextlib.contextmanager
def registered(hardware: str) -> Iterator[None]:
    """Inside the block this thread judges on the hardware, measuring or not; see :func:`judge_count`."""
    if not _LINUX:
        yield
        return
    with _bound(f"{_judges(hardware)}{_signature()}") or contextlib.nullcontext():
        yield


def judge_count(hardware: str) -> int:
    """How many judge on the hardware at the moment, whoever asks among them; 0: the system does not say."""
    return sum(path.startswith(_judges(hardware)) for path in _names())


def _nobody_waits() -> float:
    return 0.0


def _name(hardware: str) -> str:
    return f"kerneleval/{digest(hardware)[:32]}"  # the system has room for 108 bytes


def _judges(hardware: str) -> str:
    return f"{_name(hardware)}/judges/"


def _signature() -> str:
    """Sorted by age, and nobody else's."""
    return f"{time.monotonic_ns():020d}-{os.getpid()}-{threading.get_native_id()}"


class _Lock:
    """A turn of one thread."""

    def __init__(self, hardware: str, patience_s: float, whole: bool) -> None:
        self.hardware = hardware
        self._patience_s, self._whole = patience_s, whole
        self._name = f"{_name(hardware)}/turn"
        self._line = f"{_name(hardware)}/line/"
        self._socket: socket.socket | None = None
        self._offered = 0.0
        self._take()

    def offer(self) -> float:
        """Let those who wait go first, if it has been held for long; how long that took (s)."""
        now = time.monotonic()
        if self._whole or now < self._offered + _LONG_S:
            return 0.0
        self._offered = now - _LONG_S + _LOOK_S
        if any(path.startswith(self._line) for path in _names()):
            self.end()
            self._take()
        return time.monotonic() - now

    def end(self) -> None:
        """Whoever is next may measure."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _take(self) -> None:
        own = f"{self._line}{_signature()}"
        with _bound(own) or contextlib.nullcontext():
            self._socket = self._when_first(own)
        self._offered = time.monotonic()

    def _when_first(self, own: str) -> socket.socket:
        """The turn, when nobody is ahead in the line and whoever has it lets go of it."""
        since, seen = time.monotonic(), ("", "")
        with contextlib.closing(_Wait()) as wait:
            while True:
                names = _names()
                ahead = sorted(path for path in names if path.startswith(self._line) and path < own)
                waited_s = time.monotonic() - since
                free = not ahead or (self._name not in names and waited_s > _STOPPED_S)  # who is first does not take it
                if free and (taken := _bound(self._name)) is not None:
                    return taken
                ended = wait.for_end_of(ahead[-1] if ahead else self._name, min(_LOOK_S, self._patience_s - waited_s))
                line = (" ".join(ahead), names.get(self._name, ""))
                if ended or line != seen:
                    since, seen = time.monotonic(), line
                if time.monotonic() - since > self._patience_s:
                    whose = f"process {wait.process}" if wait.process else "another process"
                    raise InfrastructureError(
                        f"{whose} has kept its turn to measure on {self.hardware} for {self._patience_s:g} s (the "
                        f"socket @{wait.name} in {_LIST}): end it, or begin again when it is done"
                    )


class _Wait:
    """A connection to whoever has a name. Nobody answers it: the system holds it until the name is let go of."""

    def __init__(self) -> None:
        self.name = ""
        self.process = 0
        """Who was waited for last; 0: not known."""
        self._connection: socket.socket | None = None
        self._refused = 0

    def close(self) -> None:
        """Wait for nobody."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def for_end_of(self, name: str, seconds: float) -> bool:
        """Wait until the name is let go of, or for so long; whether it was seen to be."""
        if name != self.name or self._connection is None:
            self.close()
            if not self._connect(name):
                return False
        assert self._connection is not None
        self._connection.settimeout(max(seconds, 1e-3))
        try:
            self._connection.recv(1)
        except TimeoutError:
            return False
        except ConnectionResetError:
            pass
        self.close()
        return True

    def _connect(self, name: str) -> bool:
        if name != self.name:
            self.name, self.process = name, 0
        try:
            made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        except OSError as error:
            raise InfrastructureError(f"nobody's turn at measuring can be waited for: {error}") from error
        try:
            made.settimeout(_LOOK_S)
            made.connect(f"\0{name}")
            told = made.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        except OSError:  # let go of, or not listened to yet, or never
            made.close()
            self._refused += 1
            time.sleep(min(1e-3 * self._refused, 0.05))
            return False
        self._connection, self._refused = made, 0
        self.process = int(struct.unpack("3i", told)[0])
        return True


def _bound(name: str) -> socket.socket | None:
    """A socket that listens by that name; None: it is taken."""
    made = None
    try:
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        _held.add(made)
        made.bind(f"\0{name}")
        made.listen(1024)
    except OSError as error:
        if made is not None:
            made.close()
        if error.errno == errno.EADDRINUSE:
            return None
        raise InfrastructureError(f"the name @{name} for turns at measuring cannot be had: {error}") from error
    return made


def _names() -> dict[str, str]:
    """Names that listen on this host, with the system's number of their sockets; empty: it does not say."""
    found = {}
    with contextlib.suppress(OSError), _LIST.open(encoding="utf-8", errors="replace") as file:
        for line in file:
            columns = line.split()
            if len(columns) == 8 and columns[7].startswith("@kerneleval/") and columns[3] == "00010000":
                found[columns[7][1:]] = columns[6]
    return found

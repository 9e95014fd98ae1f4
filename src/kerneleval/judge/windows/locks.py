"""What the judges of one host take turns at: the device that one of them measures on, and the processors of workers.

Building, drawing, comparing and calls that are not timed need no lock; :func:`judge_count` says how many judges are at
it. Locks, the line before them and processors are names in Linux's abstract namespace of sockets: free again when the
process that bound them ends, however it ends. Judges in network namespaces of their own do not see one another; on
other systems than Linux there is no lock. ``timing/clock.py`` takes the lock, ``worker_pool.py`` the processor.
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

_PATIENCE_S = 1800.0
"""Seconds after which a lock that another process still holds is an error: it is offered after :data:`_LONG_S`."""

_LONG_S = 20.0
"""Seconds after which the lock is offered to others: about what a cell of the precise tier takes. A candidate may take
two minutes for each of many windows."""

_LOOK_S = 1.0
"""Seconds between two looks at the line while waiting."""

_STOPPED_S = 5.0
"""Seconds after which a process that is first in line and has not taken a free lock counts as stopped."""

_LINUX = sys.platform.startswith("linux")
_LIST = Path("/proc/net/unix")

_mine = threading.local()
"""``lock``: the one that this thread holds, if any."""

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
    """Inside the block no other judge measures on this hardware; waits for the lock, first come, first served.

    A thread may nest it: the outer lock counts. It yields a function to be called where the device is idle between two
    measurements: after 20 s that lets all who wait go first. It returns the seconds that this took.

    Args:
        patience_s: how long one process may hold the lock while this one waits.
        whole: never let others go first: they need what is measured here (noise floor, peaks).

    Raises:
        InfrastructureError: another process has held the lock for longer.
    """
    outer: _Lock | None = getattr(_mine, "lock", None)
    if outer is not None and outer.hardware == hardware:
        yield outer.offer
        return
    if not _LINUX:
        yield lambda: 0.0
        return
    taken = _Lock(hardware, patience_s, whole)
    _mine.lock = taken
    try:
        yield taken.offer
    finally:
        _mine.lock = outer
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
    """How many judges are on the hardware now, this one included; 0: the system does not say."""
    return sum(path.startswith(_judges(hardware)) for path in _names())


def _name(hardware: str) -> str:
    return f"kerneleval/{digest(hardware)[:32]}"  # the system has room for 108 bytes


def _judges(hardware: str) -> str:
    return f"{_name(hardware)}/judges/"


def _signature() -> str:
    """Of this thread alone; sorts by age."""
    return f"{time.monotonic_ns():020d}-{os.getpid()}-{threading.get_native_id()}"


class _Lock:
    def __init__(self, hardware: str, patience_s: float, whole: bool) -> None:
        self.hardware = hardware
        self._patience_s, self._whole = patience_s, whole
        self._name = f"{_name(hardware)}/turn"
        self._line = f"{_name(hardware)}/line/"
        self._socket: socket.socket | None = None
        self._offered = 0.0
        self._take()

    def offer(self) -> float:
        """Let those who wait go first, if the lock has been held for long; how long that took (s)."""
        now = time.monotonic()
        if self._whole or now < self._offered + _LONG_S:
            return 0.0
        self._offered = now - _LONG_S + _LOOK_S
        if any(path.startswith(self._line) for path in _names()):
            self.end()
            self._take()
        return time.monotonic() - now

    def end(self) -> None:
        """Release the lock."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _take(self) -> None:
        own = f"{self._line}{_signature()}"
        with _bound(own) or contextlib.nullcontext():
            self._socket = self._when_first(own)
        self._offered = time.monotonic()

    def _when_first(self, own: str) -> socket.socket:
        """The socket that is the lock, once this thread is first in line and the lock is free."""
        since, seen = time.monotonic(), ("", "")
        with contextlib.closing(_Wait()) as wait:
            while True:
                names = _names()
                before = sorted(path for path in names if path.startswith(self._line) and path < own)
                waited_s = time.monotonic() - since
                free = not before or (self._name not in names and waited_s > _STOPPED_S)  # the first does not take it
                if free and (taken := _bound(self._name)) is not None:
                    return taken
                ended = wait.for_end_of(before[-1] if before else self._name, min(_LOOK_S, self._patience_s - waited_s))
                line = (" ".join(before), names.get(self._name, ""))
                if ended or line != seen:
                    since, seen = time.monotonic(), line
                if time.monotonic() - since > self._patience_s:
                    whose = f"process {wait.process}" if wait.process else "another process"
                    raise InfrastructureError(
                        f"{whose} has held the lock of {self.hardware} for {self._patience_s:g} s (the "
                        f"socket @{wait.name} in {_LIST}): end that process, or try again when it is done"
                    )


class _Wait:
    """A connection to the process that holds a name. It is never answered; it breaks when the name is released."""

    def __init__(self) -> None:
        self.name = ""
        self.process = 0
        """The process that was waited for last; 0: not known."""
        self._connection: socket.socket | None = None
        self._refused = 0

    def close(self) -> None:
        """Stop waiting."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def for_end_of(self, name: str, seconds: float) -> bool:
        """Wait until the name is released, or for so long; whether it was released."""
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
            raise InfrastructureError(f"cannot wait for the device lock: {error}") from error
        try:
            made.settimeout(_LOOK_S)
            made.connect(f"\0{name}")
            peer = made.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        except OSError:  # released, or not listened to yet, or never
            made.close()
            self._refused += 1
            time.sleep(min(1e-3 * self._refused, 0.05))
            return False
        self._connection, self._refused = made, 0
        self.process = int(struct.unpack("3i", peer)[0])
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
        raise InfrastructureError(f"the device lock cannot be made (socket @{name}): {error}") from error
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

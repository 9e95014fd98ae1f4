"""A command under way: its output as it comes, its time, its end."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_KEPT_BYTES = 512 * 1024
"""Of the output: so much of its beginning and of its end."""

_GRACE_S = 8.0
"""Time between asking the command's monitor to end it, which takes five seconds at most, and killing that."""

_POLL_S = 0.1

_REST = 64
"""Reads of what a command left in the pipe: more than it holds."""


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a command ended."""

    code: int
    """Exit code; negative: the signal that ended it."""
    cut: str
    """Why it was ended: ``time``, ``stopped``; empty: it ended by itself."""
    output: str
    """What it wrote to standard output and standard error, without the middle of what is longer than 1 MiB."""


def run(
    argv: Sequence[str],
    *,
    folder: Path,
    environment: Mapping[str, str],
    seconds: float,
    stop: threading.Event,
    paused_s: Callable[[], float],
) -> Ended:
    """Run a command, in a session of its own, to its end, or until its time is over or it is stopped: then SIGTERM,
    and SIGKILL after a while. ``environment`` is all of its environment; ``paused_s`` gives the seconds so far that do
    not count. Raises OSError where it could not be started.
    """
    process = subprocess.Popen(
        argv,
        cwd=folder,
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,  # a Ctrl-C at the terminal is not the command's
    )
    output, cut, asked = _Output(), "", 0.0
    begun = time.monotonic()
    assert process.stdout is not None
    try:
        with process.stdout, selectors.DefaultSelector() as selector:
            os.set_blocking(process.stdout.fileno(), False)
            selector.register(process.stdout, selectors.EVENT_READ)
            while not _has_ended(process):
                selector.select(_POLL_S)
                if not output.take(process.stdout.fileno()):
                    time.sleep(_POLL_S / 10)  # it closed its output, or has nothing to say
                now = time.monotonic()
                if not cut and (stop.is_set() or now - begun - paused_s() > seconds):
                    cut, asked = "stopped" if stop.is_set() else "time", now
                    _signal(process.pid, signal.SIGTERM)
                elif cut and now - asked > _GRACE_S:
                    _signal(process.pid, signal.SIGKILL)
            _signal(process.pid, signal.SIGKILL)  # what is left of the group, where no monitor has seen to it
            process.wait()
            for _ in range(_REST):
                if not output.take(process.stdout.fileno()):
                    break
    finally:
        if process.returncode is None:
            _end(process)
    return Ended(code=process.returncode, cut=cut, output=output.text())


def _end(process: subprocess.Popen[bytes]) -> None:
    """SIGTERM, and SIGKILL after a while."""
    _signal(process.pid, signal.SIGTERM)
    deadline = time.monotonic() + _GRACE_S
    while not _has_ended(process) and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    _signal(process.pid, signal.SIGKILL)
    process.wait()


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Whether it has; its status stays to be collected, so that no other process gets its number meanwhile."""
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _signal(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


class _Output:
    """The beginning and the end of what is written."""

    def __init__(self) -> None:
        self._head, self._tail, self._dropped = bytearray(), bytearray(), 0

    def take(self, handle: int) -> bool:
        """Read what is there just now; False: nothing."""
        try:
            part = os.read(handle, 1 << 16)
        except BlockingIOError:
            return False
        room = _KEPT_BYTES - len(self._head)
        self._head += part[:room]
        self._tail += part[room:]
        if len(self._tail) > 2 * _KEPT_BYTES:
            self._trim()
        return bool(part)

    def _trim(self) -> None:
        over = len(self._tail) - _KEPT_BYTES
        if over > 0:
            del self._tail[:over]
            self._dropped += over

    def text(self) -> str:
        """All that is kept, as text."""
        self._trim()
        gap = f"\n[... {self._dropped} bytes are left out ...]\n".encode() if self._dropped else b""
        return bytes(self._head + gap + self._tail).decode("utf-8", "replace")

"""The judge's end of ``kerneleval check``: drafts come through a Unix socket in the workspace, one by one."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

from kerneleval.generators.agent.client import LIMIT_BYTES, NOBODY, REJECTED, RIGHT, USED_UP, WRONG
from kerneleval.generators.common.prompts.facts import clean
from kerneleval.records import Candidate, UsageError

_PATIENCE_S = 10.0
"""Time that a client has for its message, and for taking the answer."""

_HEADER = 200
_WAITING = 64


class CheckSocket:
    """Listens in a folder, where ``socket`` and ``word`` are made, until it is closed; to be used in a ``with``
    statement. ``draft_of`` makes a candidate of a draft's bytes, ``check`` judges it (None: there is no judge),
    ``budget`` times.

    The folder is in the workspace, so the agent can do anything to the socket: it harms only its own checks.
    """

    def __init__(
        self,
        folder: Path,
        draft_of: Callable[[bytes], Candidate],
        check: Callable[[Candidate], tuple[bool, str]] | None,
        budget: int,
    ) -> None:
        self._folder, self._draft_of, self._check, self._budget = folder, draft_of, check, budget
        self._word = secrets.token_hex(16)
        self._lock = threading.Lock()
        self.used = 0
        """Drafts that were judged, or are just being."""
        self._judging_s, self._since = 0.0, 0.0
        self._closed = threading.Event()
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._thread = threading.Thread(target=self._serve, name="kerneleval-checks", daemon=True)

    @property
    def judging_s(self) -> float:
        """Time so far for which a draft was with the judge, in seconds."""
        with self._lock:
            return self._judging_s + (time.monotonic() - self._since if self._since else 0.0)

    def __enter__(self) -> CheckSocket:
        (self._folder / "word").write_text(self._word, encoding="ascii")
        handle = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self._listener.bind(f"/proc/self/fd/{handle}/socket")  # its own path may be too long for a socket
        except OSError:
            self._listener.close()
            raise
        finally:
            os.close(handle)
        self._listener.listen(_WAITING)
        self._thread.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._closed.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread up
        self._listener.close()
        self._thread.join(timeout=1.0)  # a judge that still works is not waited for

    # What follows runs in the socket's thread.

    def _serve(self) -> None:
        while not self._closed.is_set():
            try:
                channel, _ = self._listener.accept()
            except OSError:
                if self._closed.is_set():
                    return
                time.sleep(0.05)  # too many open files, for a moment
                continue
            with channel:
                self._answer(channel)

    def _answer(self, channel: socket.socket) -> None:
        try:
            code, text = self._judged(_receive(channel, self._word))
        except (_MalformedError, UsageError) as error:
            code, text = WRONG, str(error)
        except OSError:
            return  # it hung or went away
        if self._closed.is_set():
            return
        with contextlib.suppress(OSError):
            channel.settimeout(_PATIENCE_S)
            channel.sendall(json.dumps({"code": code, "text": clean(text)}).encode())

    def _judged(self, data: bytes) -> tuple[int, str]:
        if self._check is None:
            return NOBODY, "No judge is available for drafts in this call."
        if self.used >= self._budget:
            return USED_UP, f"The budget of {self._budget} checks is used up."
        candidate = self._draft_of(data)
        with self._lock:
            self.used += 1
            self._since = time.monotonic()
        try:
            passed, text = self._check(candidate)
        except Exception:  # noqa: BLE001 - it is raised where it arose; an agent gets no detail of the judge
            return NOBODY, "The judge failed; this draft was not judged."
        finally:
            with self._lock:
                self._judging_s += time.monotonic() - self._since
                self._since = 0.0
        left = f"({self._budget - self.used} of {self._budget} checks are left.)"
        return RIGHT if passed else REJECTED, f"{text}\n\n{left}"


class _MalformedError(Exception):
    """A message that no client of ours sends."""


def _receive(channel: socket.socket, word: str) -> bytes:
    """The draft of a message ``check WORD LENGTH``, a line end, and so many bytes. Raises _MalformedError for
    another message, OSError where it did not come in time, or the client went away.
    """
    deadline = time.monotonic() + _PATIENCE_S
    data = bytearray()
    while b"\n" not in data:
        if len(data) > _HEADER:
            raise _MalformedError("The message is not understood.")
        data += _some(channel, _HEADER, deadline)
    header, _, rest = bytes(data).partition(b"\n")
    parts = header.split(b" ")
    if len(parts) != 3 or parts[0] != b"check" or not parts[2].isdigit() or len(header) > _HEADER:
        raise _MalformedError("The message is not understood.")
    if not secrets.compare_digest(parts[1], word.encode()):
        raise _MalformedError("This is another workspace's judge.")
    length = int(parts[2])
    if length > LIMIT_BYTES:
        raise _MalformedError(f"The file is larger than {LIMIT_BYTES} bytes, the limit.")
    data = bytearray(rest)
    while len(data) < length:
        data += _some(channel, length - len(data), deadline)
    return bytes(data[:length])


def _some(channel: socket.socket, most: int, deadline: float) -> bytes:
    channel.settimeout(max(0.01, deadline - time.monotonic()))
    if time.monotonic() > deadline:
        raise TimeoutError
    part = channel.recv(min(most, 1 << 16))
    if not part:
        raise ConnectionResetError
    return part

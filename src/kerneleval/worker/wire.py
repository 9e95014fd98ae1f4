"""The wire: length-prefixed JSON with limits, and descriptors beside it. Nothing is ever unpickled or evaluated.

A frame is a 4-byte little-endian length and that many bytes of UTF-8 JSON, an object. The reader trusts nothing:
a frame over the limit, text that is no JSON object, NaN or Infinity literals, or nesting beyond what the parser
allows raise :class:`WireError`. What JSON loses of plain Python values (tuples, NaN, infinities, dtypes, small tensors)
is marked: an object with the single key ``__kind__`` beside its content. Both directions check what they meet; decoding
builds tensors, containers and configurations of ``transformers`` (in a worker), never arbitrary objects.
"""

from __future__ import annotations

import array
import fcntl
import json
import math
import os
import resource
import select
import signal
import socket
import struct
import time
from collections.abc import Mapping, Sequence
from typing import Any

from kerneleval.records import KernelEvalError, UsageError, config_of, config_text, is_config

MAX_FRAME_BYTES = 32 << 20
"""Largest frame that is sent, and that a worker accepts: a source of 4 MiB, escaped in JSON, takes up to 24 MiB."""

_HEADER = struct.Struct("<I")
_MAX_FDS = 8


class WireError(KernelEvalError):
    """The other side sent something that is no message."""


class Closed(WireError):  # noqa: N818 - an event of the wire, read as a word
    """The other side is gone."""


class WireTimeout(WireError):  # noqa: N818 - an event of the wire, read as a word
    """Nothing complete arrived in time."""


LOST = 83
"""Exit code of a worker that can no longer speak with a judge."""

STUCK = signal.SIGUSR2
"""Signal at which a worker with a candidate prints in which Python frames its first thread is."""


class Channel:
    """One end of a stream socket that carries messages (JSON objects) and descriptors.

    Only the untrusted end accepts descriptors (``accept_fds``): on the judge's end the kernel discards what a worker
    attaches. A message of more than ``limit_bytes`` is refused; what is sent may have ``MAX_FRAME_BYTES``.
    """

    def __init__(self, sock: socket.socket, *, accept_fds: bool = False, limit_bytes: int = MAX_FRAME_BYTES) -> None:
        self.sock = sock
        self._limit = limit_bytes
        self._accept_fds = accept_fds
        self._buffer = bytearray()
        self._fds: list[int] = []
        sock.setblocking(True)

    def fileno(self) -> int:
        """Descriptor of the socket."""
        return self.sock.fileno()

    def close(self) -> None:
        """Close the socket and every descriptor that arrived and was not taken."""
        self.sock.close()
        for fd in self._fds:
            os.close(fd)
        self._fds.clear()

    def send(self, message: Mapping[str, Any], fds: Sequence[int] = (), timeout_s: float = 30.0) -> None:
        """Send one message, with descriptors attached to its first byte. Raises Closed: the other side is gone;
        WireTimeout: it does not read.
        """
        body = json.dumps(message, allow_nan=False, separators=(",", ":")).encode()
        if len(body) > MAX_FRAME_BYTES:
            raise WireError(f"message of {len(body)} bytes exceeds the limit of {MAX_FRAME_BYTES}")
        data = memoryview(_HEADER.pack(len(body)) + body)
        try:
            self.sock.settimeout(timeout_s)
            if fds:
                ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))]
                data = data[self.sock.sendmsg([data], ancillary) :]
            self.sock.sendall(data)
        except TimeoutError as error:
            raise WireTimeout(f"the other side did not read for {timeout_s} s") from error
        except OSError as error:
            raise Closed(f"the other side is gone: {error}") from error
        finally:
            if self.sock.fileno() >= 0:
                self.sock.setblocking(True)

    def poll(self) -> dict[str, Any] | None:
        """Read what is there without waiting; a complete message or None. Raises WireError and Closed."""
        if (message := self._take()) is not None:
            return message
        if not select.select([self.sock], [], [], 0)[0]:
            return None
        self._receive()
        return self._take()

    def recv(self, timeout_s: float | None, spin_s: float = 0.0) -> dict[str, Any]:
        """Wait for one message; None waits for ever. Raises WireTimeout, WireError and Closed.

        For the first ``spin_s`` seconds the processor is kept busy looking: waking a sleeping thread costs tens of
        microseconds, and more in a virtual machine.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        spin_until = time.monotonic() + spin_s
        while spin_s and time.monotonic() < spin_until:
            if (message := self.poll()) is not None:
                return message
        while True:
            if (message := self._take()) is not None:
                return message
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                raise WireTimeout(f"no message within {timeout_s} s")
            if select.select([self.sock], [], [], left)[0]:
                self._receive()

    def take_fd(self) -> int:
        """The oldest descriptor that arrived; the caller closes it. Raises WireError when there is none."""
        if not self._fds:
            most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
            raise WireError(f"a file descriptor was sent and none arrived; the process may open {most} files")
        return _above_the_standard(self._fds.pop(0))

    def _receive(self) -> None:
        try:
            if self._accept_fds:
                data, fds, _flags, _address = socket.recv_fds(self.sock, 1 << 16, _MAX_FDS)
                self._fds += fds
            else:
                data = self.sock.recv(1 << 16)
        except ConnectionError as error:
            raise Closed(f"the other side is gone: {error}") from error
        if not data:
            raise Closed("the other side is gone")
        self._buffer += data

    def _take(self) -> dict[str, Any] | None:
        if len(self._buffer) < _HEADER.size:
            return None
        (length,) = _HEADER.unpack_from(self._buffer)
        if length > self._limit:
            raise WireError(f"a frame of {length} bytes exceeds the limit of {self._limit}")
        end = _HEADER.size + length
        if len(self._buffer) < end:
            return None
        body = bytes(self._buffer[_HEADER.size : end])
        del self._buffer[:end]
        return _parse(body)


def _above_the_standard(fd: int) -> int:
    """The descriptor under a number that no standard stream has. A candidate may have closed these: what is printed
    would go to the file that took one's place, and so to memory of the judge. The null device takes it.
    """
    above = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3)
    os.close(fd)
    null = os.open(os.devnull, os.O_RDWR)
    while null < 3:
        null = os.dup(null)
    os.close(null)
    return above


def _refuse(token: str) -> Any:
    raise ValueError(f"{token} is no JSON")


def _parse(body: bytes) -> dict[str, Any]:
    try:
        message = json.loads(body.decode(), parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise WireError(f"a frame holds no JSON: {str(error)[:200]}") from error
    if not isinstance(message, dict):
        raise WireError(f"a frame holds a {type(message).__name__}, not an object")
    return message


_MAX_TENSOR_ELEMENTS = 4096
_MARK = "__kind__"


def encode_plain(value: Any) -> Any:
    """JSON-ready form of numbers, strings, None, tuples, lists, string-keyed dicts, dtypes, small tensors and
    configurations of ``transformers``. Raises UsageError: for anything else.
    """
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {_MARK: "float", "text": repr(value)}
    if isinstance(value, tuple):
        return {_MARK: "tuple", "items": [encode_plain(v) for v in value]}
    if isinstance(value, list):
        return [encode_plain(v) for v in value]
    if isinstance(value, Mapping):
        if not all(isinstance(k, str) for k in value):
            raise UsageError(f"a mapping with keys that are no strings cannot be sent to a worker: {value!r:.80}")
        return {_MARK: "dict", "items": {k: encode_plain(v) for k, v in value.items()}}
    if is_config(value):
        return {_MARK: "config", "text": config_text(value)}
    return _encode_torch(value)


def _encode_torch(value: Any) -> dict[str, Any]:
    import torch

    if isinstance(value, torch.dtype):
        return {_MARK: "dtype", "name": str(value)[6:]}
    if isinstance(value, torch.Size):
        return {_MARK: "tuple", "items": list(value)}
    if isinstance(value, torch.Tensor):
        if value.numel() > _MAX_TENSOR_ELEMENTS:
            raise UsageError(
                f"a tensor of {value.numel()} elements is no plain argument; at most {_MAX_TENSOR_ELEMENTS} are sent"
            )
        items = [encode_plain(v) for v in value.detach().cpu().flatten().tolist()]
        return {_MARK: "tensor", "dtype": str(value.dtype)[6:], "shape": list(value.shape), "items": items}
    raise UsageError(f"a {type(value).__name__} cannot be sent to a worker: {value!r:.80}")


def decode_plain(value: Any) -> Any:
    """The inverse of :func:`encode_plain`. Raises UsageError for a mark that is unknown."""
    if isinstance(value, list):
        return [decode_plain(v) for v in value]
    if not isinstance(value, dict):
        return value
    kind = value.get(_MARK)
    if kind == "tuple":
        return tuple(decode_plain(v) for v in value["items"])
    if kind == "dict":
        return {k: decode_plain(v) for k, v in value["items"].items()}
    if kind == "float":
        return float(value["text"])
    if kind == "config":
        return config_of(value["text"])
    if kind in ("dtype", "tensor"):
        import torch

        dtype = getattr(torch, value["name"] if kind == "dtype" else value["dtype"])
        if kind == "dtype":
            return dtype
        return torch.tensor([decode_plain(v) for v in value["items"]], dtype=dtype).reshape(value["shape"])
    raise UsageError(f"unknown mark {kind!r:.80} in a plain value")

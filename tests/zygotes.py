"""Zygotes for the judges of tests, in milliseconds each: a server that has loaded PyTorch once forks them.

Loading costs two seconds of processor time. A zygote forked so has the environment, the session and the preloaded
modules of one that :class:`kerneleval.worker.host.Zygote` starts by itself, which ``tests/worker`` tests.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from kerneleval.worker import host, zygote
from kerneleval.worker.wire import Channel, Closed

_START_TIMEOUT_S = 120.0
_BOOT = "import sys; exec(compile(sys.stdin.read(), 'zygote', 'exec'))"
"""Neither a worker's call stack nor its command line names a file of the tests: a candidate would take it for being
checked."""

_MADV_COLLAPSE = 25

_OWN = ("TMPDIR",)
"""Variables that two zygotes of one server may have in different values: nothing reads them while it loads."""

_lock = threading.Lock()
_servers: dict[object, Channel] = {}
"""By what they have loaded; they end with this process."""


class Forked(host.Zygote):
    """A zygote that is forked from a server of this test process."""

    def __init__(self, device: str, arch: str) -> None:
        self._arch = arch
        super().__init__(device, arch)

    def _start(self, fd: int, environment: dict[str, str]) -> Any:
        loading = tuple(sorted((n, v) for n, v in environment.items() if n not in _OWN))
        with _lock:
            key = (self.device, self._arch, loading)
            if key not in _servers:
                _servers[key] = _server(self.device, self._arch, environment)
            _servers[key].send({"environment": environment}, fds=(fd,))
            return _Process(_servers[key].recv(_START_TIMEOUT_S)["pid"])


class _Process:
    """What the host asks of :class:`subprocess.Popen`, for a process that is not this one's child."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        """0 once it has ended, however it did."""
        self._fd = os.pidfd_open(pid)

    def poll(self) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            if not select.select([self._fd], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("zygote", timeout or 0)
            os.close(self._fd)
            self.returncode = 0
        return self.returncode

    def kill(self) -> None:
        if self.returncode is None:
            signal.pidfd_send_signal(self._fd, signal.SIGKILL)


def _server(device: str, arch: str, environment: dict[str, str]) -> Channel:
    ours, theirs = socket.socketpair()
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-c", _BOOT, str(theirs.fileno()), device, arch],
            pass_fds=(theirs.fileno(),),
            env=environment,
            stdin=subprocess.PIPE,
            cwd="/",
            start_new_session=True,
        )
    assert process.stdin is not None
    with process.stdin as text:
        text.write(Path(__file__).read_bytes())
    return Channel(ours)


def _use_huge_pages() -> None:
    """Hold what this process has in memory by pages of 2 MiB, where the kernel can (Linux 6.1): a fork copies an entry
    for every page, and of these there are 512 times fewer. Users do not: a baseline made before, and a candidate
    made after, might differ in speed.
    """
    if not Path("/proc/self/maps").exists():
        return
    madvise = ctypes.CDLL(None).madvise
    for line in Path("/proc/self/maps").read_text(errors="replace").splitlines():
        area, rights, _, _, _, *name = line.split()
        if rights == "rw-p" and name in ([], ["[heap]"]):
            start, end = (int(place, 16) for place in area.split("-"))
            # what the kernel refuses stays as it was
            madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), ctypes.c_int(_MADV_COLLAPSE))


def _serve(fd: int, device: str, arch: str) -> None:
    """Fork a zygote for every request, until the tests are over."""
    loaded = zygote._preload(device, lambda: arch)
    zygote._preload_gradients()
    gc.collect()
    gc.freeze()
    _use_huge_pages()  # half a second, which the first ten workers save
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them here
    channel = Channel(socket.socket(fileno=fd), accept_fds=True)
    while True:
        environment, theirs = channel.recv(None)["environment"], channel.take_fd()
        pid = os.fork()
        if not pid:
            channel.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.setsid()
            os.environ.clear()
            os.environ.update(environment)
            with contextlib.suppress(Closed):
                own = Channel(socket.socket(fileno=theirs), accept_fds=True)
                own.recv(None)  # for what compilers are made ready: the server knew
                own.send({"op": "zygote", "pid": os.getpid(), "loaded": loaded})
                zygote.serve(own, device)
            os._exit(0)
        os.close(theirs)
        channel.send({"pid": pid})


if __name__ == "__main__":
    sys.path[0] = "/"  # as for a zygote, which imports nothing of the tests
    with contextlib.suppress(Closed):
        _serve(int(sys.argv[1]), sys.argv[2], sys.argv[3])

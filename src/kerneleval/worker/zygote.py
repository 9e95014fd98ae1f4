"""The zygote: a process with PyTorch and Triton imported, no device context and no secret, that forks workers.

Started by the host as ``python -m kerneleval.worker.zygote FD DEVICE`` with an environment made from scratch. It speaks
the wire on descriptor FD: ``prepare`` says for which architecture compilers are made ready, ``fork`` makes a worker
(two descriptors travel along: the worker's end of its own socket and the write end of its output pipe), ``reap`` says
how a worker ended, ``preload`` loads what candidates in a language load, ``quit`` ends it. It runs nothing of a
candidate.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from typing import Any

from kerneleval.devices.cpu import allow_processors, allowed_processors
from kerneleval.worker.wire import Channel, Closed

_PR_SET_PDEATHSIG = 1


def _preload(device: str, arch_of: Callable[[], str]) -> dict[str, Any]:
    """Load what workers need; ``arch_of`` is asked once PyTorch is loaded."""
    started, before = time.perf_counter(), allowed_processors()
    import numpy  # noqa: F401 - candidates import it
    import torch  # noqa: F401

    found: dict[str, Any] = {"torch_s": time.perf_counter() - started, "triton": True, "not_preloaded": {}}
    try:
        import triton
        import triton.language
    except ImportError:
        found["triton"] = False
    else:
        import triton.runtime  # noqa: F401
    from kerneleval import devices, languages
    from kerneleval.worker import child  # noqa: F401 - so that a fork finds it imported

    devices.find(device)  # the files of all devices are imported
    arch = arch_of()
    for name, language in languages.all_languages().items():
        if device in language.devices and not language.missing(device) and not language.preload_when_met:
            try:
                language.preload(device, arch)
            except Exception as error:  # noqa: BLE001 - a worker meets it again, and reports it as its own
                found["not_preloaded"][name] = f"{type(error).__name__}: {error}"[:500]

    allow_processors(before)
    found["total_s"] = time.perf_counter() - started
    return found


def _preload_gradients() -> None:
    """What PyTorch imports when the first gradient is taken, SymPy with it: else half a second in every worker. Then
    its operators are counted.
    """
    with contextlib.suppress(ImportError):  # it is no public module
        import torch.fx.experimental.symbolic_shapes  # noqa: F401
    from kerneleval.worker import below

    below.registered()


def _preload_language(name: str, device: str, arch: str) -> None:
    from kerneleval import languages

    with contextlib.suppress(Exception):  # a worker meets it again, and reports it as its own
        languages.find(name).preload(device, arch)
    gc.collect()
    gc.freeze()


def _reap(pid: int, wait_s: float) -> dict[str, Any]:
    deadline = time.monotonic() + wait_s
    while True:
        try:
            done, status = os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            return {"op": "reaped", "known": False}
        if done:
            return {"op": "reaped", "known": True, "code": os.waitstatus_to_exitcode(status)}
        if time.monotonic() >= deadline:
            return {"op": "reaped", "known": False}
        time.sleep(0.002)


def main(fd: int, device: str) -> int:
    """Load, then serve until the host is gone; returns the exit code."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    channel = Channel(socket.socket(fileno=fd), accept_fds=True)
    with contextlib.suppress(Closed):  # the judge is gone: there is nothing left to do
        loaded = _preload(device, lambda: str(channel.recv(None)["arch"]))
        channel.send({"op": "zygote", "pid": os.getpid(), "loaded": loaded})
        _preload_gradients()  # while the judge prepares its first window
        gc.collect()
        gc.freeze()  # no worker's collector walks through what was imported here: 0.1 s each time
        serve(channel, device)
    return 0


def serve(channel: Channel, device: str) -> None:
    """Fork a worker at every request. Raises Closed: the host is gone."""
    while True:
        message = channel.recv(None)
        operation = message["op"]
        if operation == "quit":
            return
        if operation == "reap":
            channel.send(_reap(message["pid"], message["wait_s"]))
            continue
        if operation == "preload":
            _preload_language(message["language"], device, message["arch"])
            continue
        started = time.perf_counter()
        zygote_pid = os.getpid()
        worker_fd, output_fd = channel.take_fd(), channel.take_fd()
        pid = os.fork()
        if pid == 0:
            os.close(channel.sock.detach())
            from kerneleval.worker import child

            child.main(worker_fd, output_fd, message["slot"], message["limits"], device, zygote_pid)
            os._exit(0)
        os.close(worker_fd)
        os.close(output_fd)
        channel.send({"op": "forked", "pid": pid, "fork_s": time.perf_counter() - started})


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2]))

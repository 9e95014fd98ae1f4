"""What this machine's sandbox really holds: entered in a child, attacked from inside, timed."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import select
import shutil
import socket
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kerneleval.records import InfrastructureError, Trust, from_plain
from kerneleval.sandbox import lifecycle, reaper
from kerneleval.sandbox import slot as slots

__all__ = ["Probe", "probe"]

_TIMEOUT_S = 30.0
_REFUSED = {errno.EPERM, errno.EACCES, errno.EROFS, errno.ENOENT, errno.ESRCH, errno.ENETUNREACH, errno.EAFNOSUPPORT}


@dataclass(frozen=True, kw_only=True)
class Probe:
    """Outcome of :func:`probe`."""

    trust: Trust
    """The level and layers; a layer that an attempt from inside got past counts as missing."""
    costs_ms: dict[str, float]
    """Median milliseconds of each step, of ``ready`` (fork to contained) and of ``end`` (kill, reap, remove)."""


def probe(device: str = "cpu", *, rounds: int = 1) -> Probe:
    """Enter the sandbox in a child of this process, ``rounds`` times, and try to get out of it.

    The caller should be a small process: the times contain three forks of it.

    Raises:
        InfrastructureError: no child could enter.
    """
    found: list[tuple[Trust, list[str], dict[str, float]]] = []
    root = Path(tempfile.mkdtemp(prefix="kerneleval-probe-"))
    try:
        root.chmod(0o711)
        bait = root / "bait"
        bait.write_text("x")
        found += [_round(number, root, bait, device) for number in range(max(rounds, 1))]
    finally:
        shutil.rmtree(root)
    trust, broken, _ = found[-1]
    if broken:
        layers = tuple(layer for layer in trust.layers if layer not in {b.split(":")[0] for b in broken})
        trust = replace(trust, level=lifecycle.level_of(layers), layers=layers, missing=(*trust.missing, *broken))
    names = dict.fromkeys(name for _, _, costs in found for name in costs)
    costs = {name: statistics.median(c[name] for _, _, c in found if name in c) for name in names}
    return Probe(trust=trust, costs_ms=costs)


def _round(number: int, root: Path, bait: Path, device: str) -> tuple[Trust, list[str], dict[str, float]]:
    slot = slots.prepare(number, root)
    ours, theirs = socket.socketpair()
    listener = socket.create_server(("127.0.0.1", 0))
    facts = {"host": os.getpid(), "port": listener.getsockname()[1], "bait": str(bait)}
    started = time.perf_counter()
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        ours.close()
        listener.close()
        _child(slot, device, theirs.detach(), parent, facts)
    theirs.close()
    try:
        answer = _answer(ours)
    finally:
        ending = time.perf_counter()
        leftovers = reaper.kill_all(slot, pid)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)
        ended = time.perf_counter()
        ours.close()
        listener.close()
    if "error" in answer:
        raise InfrastructureError(f"the sandbox cannot be entered here: {answer['error']}")
    costs = dict(answer["costs"])
    costs["ready"] = (answer["ready"] - started) * 1e3
    costs["end"] = (ended - ending) * 1e3
    return from_plain(Trust, answer["trust"]), [*answer["broken"], *(f"process: {text}" for text in leftovers)], costs


def _answer(sock: socket.socket) -> dict[str, Any]:
    data = b""
    deadline = time.monotonic() + _TIMEOUT_S
    while not data.endswith(b"\n"):
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([sock], [], [], left)[0]:
            raise InfrastructureError(f"the sandbox was not entered within {_TIMEOUT_S:g} s")
        piece = sock.recv(1 << 16)
        if not piece:
            raise InfrastructureError("the process that should enter the sandbox died")
        data += piece
    return dict(json.loads(data))


def _child(slot: slots.Slot, device: str, fd: int, parent: int, facts: dict[str, Any]) -> None:
    try:
        costs: dict[str, float] = {}
        trust = lifecycle.enter(slot, slots.ResourceLimits(), device, keep_fds=(fd,), parent_pid=parent, costs=costs)
        ready = time.perf_counter()
        plain = {"level": trust.level, "layers": list(trust.layers), "missing": list(trust.missing)}
        answer = {"trust": plain, "ready": ready, "costs": costs, "broken": _attack(trust, facts)}
    except Exception as error:
        answer = {"error": f"{type(error).__name__}: {error}"}
    os.write(fd, json.dumps(answer).encode() + b"\n")
    time.sleep(_TIMEOUT_S)
    os._exit(0)


def _attack(trust: Trust, facts: dict[str, Any]) -> list[str]:
    """``layer: what got past it`` for every layer in force that does not hold."""

    def connect() -> None:
        with socket.create_connection(("127.0.0.1", facts["port"]), timeout=1.0):
            pass

    def open_for(path: str, flags: int) -> Callable[[], None]:
        return lambda: os.close(os.open(path, flags))

    beyond = "/etc/kerneleval-probe"
    attempts: dict[str, list[tuple[str, Callable[[], None]]]] = {
        "netns": [("a connection to a server on the loopback", connect)],
        "view": [("reading a file of the judge", open_for(facts["bait"], os.O_RDONLY))],
        "landlock": [
            ("reading a file of the judge", open_for(facts["bait"], os.O_RDONLY)),
            ("writing into /etc", open_for(beyond, os.O_WRONLY | os.O_CREAT)),
            ("the memory of the judge", open_for(f"/proc/{facts['host']}/mem", os.O_RDONLY)),
        ],
        "proc": [("the judge's entry in /proc", open_for(f"/proc/{facts['host']}/stat", os.O_RDONLY))],
        "seccomp": [("an internet socket", lambda: socket.socket(socket.AF_INET).close())],
        "uid": [("becoming the superuser", lambda: os.setuid(0))],
    }
    broken = []
    for layer, tries in attempts.items():
        if layer in trust.layers:
            broken += [f"{layer}: {what} was possible" for what, action in tries if not _is_refused(action)]
    return broken


def _is_refused(action: Callable[[], None]) -> bool:
    try:
        action()
    except OSError as error:
        return error.errno in _REFUSED
    return False

"""A slot: the user, the directory and the reach that one worker gets, and its limits. Made on the trusted side.

It starts no process: ``worker/host.py`` does, and ``lifecycle.py`` takes the slot inside the fork. The kernel enforces
limits; resident memory is watched from outside too, by ``worker/host.py``. Those of a machine are another thing
(``judge/machine/peaks.py``).
"""
# Paths are strings here: they end in system calls on names that another process chose.

from __future__ import annotations

import json
import os
import secrets
import socket
import stat
import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from kerneleval.languages import torch_device
from kerneleval.records import InfrastructureError, UsageError, to_plain
from kerneleval.sandbox import processes

UID_BASE = 61000
"""First of the numeric users that workers run as when the judge is root; no account needs to exist."""
UID_COUNT = 1024
"""How many of them."""

MARK = "host.json"
"""File in a slot's base that names its host; see :func:`kerneleval.sandbox.reaper.sweep`."""

_KEEP = -1
_locks: dict[int, socket.socket] = {}


@dataclass(frozen=True, kw_only=True)
class Slot:
    """Where one worker lives."""

    number: int
    """Number among the slots of one judge."""
    base: str
    """Directory that holds all of it; the judge's, the worker can't change it."""
    directory: str
    """The private directory, mode 0700, the worker's own and its working directory."""
    uid: int = _KEEP
    """User and group of the worker; -1: those of the judge, which is no superuser."""
    groups: tuple[int, ...] = ()
    """Supplementary groups, those that own the device nodes."""
    readable: tuple[str, ...] = ()
    token: str = ""
    """Marks the worker's processes where no user of its own does."""


@dataclass(frozen=True, kw_only=True)
class ResourceLimits:
    """What one worker may use. All are positive."""

    memory_bytes: int = 8 << 30
    """Memory beyond what the zygote maps. On the CPU a limit on address space; everywhere for the host to watch."""
    cpu_seconds: int = 600
    """CPU time of each process; past it SIGXCPU, a second later SIGKILL."""
    processes: int = 512
    """Processes and threads at a time, those of the whole worker together."""
    open_files: int = 1024
    """Descriptors of each process."""
    file_bytes: int = 2 << 30
    """Size of one file."""
    disk_bytes: int = 2 << 30
    """Temporary files together, where the worker has a file system of its own for them."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
                raise UsageError(f"ResourceLimits: field {field.name!r} must be a positive integer, got {value!r:.80}")


def prepare(number: int, root: str | Path, *, readable: Sequence[str] = ()) -> Slot:
    """Make the directories of a slot under ``root`` and, for a superuser, choose a user for its worker: users are tried
    from ``UID_BASE + number`` on. The worker may also read the paths ``readable``.

    ``root`` is an existing directory of the host. As a superuser it must be open for others to pass (mode 0711), as
    must every directory above it. Raises UsageError: ``root`` is missing or closed to other users; InfrastructureError:
    every user of the range is in use.
    """
    root = Path(root).resolve()
    if not root.is_dir():
        raise UsageError(f"sandbox: the root directory {root} does not exist")
    superuser = os.geteuid() == 0
    if superuser and (closed := first_closed(str(root))):
        raise UsageError(f"sandbox: other users cannot pass {closed} on the way to {root}; chmod o+x {closed}")
    uid = _claim_uid(number) if superuser else _KEEP
    token = secrets.token_hex(8)
    base = root / f"slot-{number}-{token}"
    private = base / "private"
    base.mkdir(mode=0o711)
    base.chmod(0o711)  # mkdir's mode is cut by the umask
    (base / "view").mkdir()
    private.mkdir(mode=0o700)
    private.chmod(0o700)
    if uid != _KEEP:
        os.chown(private, uid, uid)
    groups = tuple(sorted(_device_groups())) if superuser else ()
    slot = Slot(
        number=number,
        base=str(base),
        directory=str(private),
        uid=uid,
        groups=groups,
        readable=tuple(readable),
        token=token,
    )
    # word of who made the slot, so that a later host can clean up after one that was killed
    (base / MARK).write_text(json.dumps(host_word() | {"slot": to_plain(slot)}))
    return slot


def host_word() -> dict[str, Any]:
    """This process, so that no later one with its number is taken for it."""
    return {"host": os.getpid(), "started": processes.start_time(os.getpid())}


def release(slot: Slot) -> None:
    """Let other judges have the slot's user again."""
    lock = _locks.pop(slot.uid, None)
    if lock is not None:
        lock.close()


def claim(uid: int) -> bool:
    """Take a user for this process, until :func:`release` or its end; False when another host has it."""
    if uid in _locks:
        return False
    if not sys.platform.startswith("linux"):
        return True
    lock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        lock.bind(f"\0kerneleval-uid-{uid}")  # the kernel frees the name with the last descriptor
    except OSError:
        lock.close()
        return False
    _locks[uid] = lock
    return True


def _claim_uid(number: int) -> int:
    busy = {uid for _, uid in processes.owners()}
    for offset in range(UID_COUNT):
        uid = UID_BASE + (number + offset) % UID_COUNT
        if uid not in busy and claim(uid):
            return uid
    last = UID_BASE + UID_COUNT - 1
    raise InfrastructureError(f"sandbox: every user from {UID_BASE} to {last} runs processes already")


def first_closed(path: str) -> str:
    """The topmost directory on the way to ``path`` that other users may not pass; empty when there is none."""
    parts = Path(path).parts
    for end in range(1, len(parts) + 1):
        part = os.path.join(*parts[:end])
        mode = os.stat(part).st_mode
        if stat.S_ISDIR(mode) and not mode & 0o001:
            return part
    return ""


def device_nodes(device: str) -> list[str]:
    """Device nodes that a worker needs: the harmless ones and, off the host, those of accelerators."""
    names = ["null", "zero", "full", "random", "urandom"]
    if torch_device(device) != "cpu":
        try:
            listed = sorted(os.listdir("/dev"))
        except OSError:
            listed = []
        names += [n for n in listed if n.startswith("nvidia") or n in ("dri", "kfd", "dxg", "infiniband")]
    return [path for name in names if os.path.exists(path := f"/dev/{name}")]


def _device_groups() -> set[int]:
    groups = set()
    for path in device_nodes("any"):
        paths = [os.path.join(path, name) for name in os.listdir(path)] if os.path.isdir(path) else [path]
        for node in paths:
            status = os.stat(node)
            if stat.S_ISCHR(status.st_mode) and status.st_mode & 0o060 == 0o060 and status.st_mode & 0o006 != 0o006:
                groups.add(status.st_gid)
    return groups - {0}

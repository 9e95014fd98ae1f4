"""The end of a worker, on the trusted side: find its processes, kill them, remove its files, report what remains.

A monitor inside (``monitor.py``) does the same first; this holds also where the monitor was killed. What killed hosts
left is removed too: only directories that carry this program's mark and whose host no longer runs are touched.
"""
# Paths are strings here: they end in system calls on names that another process chose.

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import stat
import subprocess
import sys
import tempfile
import time
from dataclasses import fields
from pathlib import Path
from typing import Any

from kerneleval.records import UsageError, from_plain
from kerneleval.sandbox import processes
from kerneleval.sandbox.slot import MARK, Slot, claim, host_word, release

STARTED = "started"
"""File in a slot's base that names the worker's first process and its start time, so that no reused id is killed."""

_PREFIX = "kerneleval-"
"""How the names of root directories begin."""

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_DEPTH = 100  # directories open at a time while removing
_IS_LINUX = sys.platform.startswith("linux")
_PATIENCE_S = 6.0
_POLL_S = 0.001
_ROUNDS_S = 3.0
_HELPER = "import os,sys;u=int(sys.argv[1]);os.setgroups([]);os.setresgid(u,u,u);os.setresuid(u,u,u);os.kill(-1,9)"


def mark_started(slot: Slot) -> None:
    """Called by the worker's first process, before anything else, while it still may write there."""
    pid = os.getpid()
    Path(slot.base, STARTED).write_text(f"{pid} {processes.start_time(pid)}\n")


def resident_bytes(slot: Slot, pid: int) -> int:
    """Memory of a worker and all it started, in bytes, without the monitor and its kind.

    Pages shared between processes of the worker after a fork count once for each: an upper bound. Temporary files in
    memory are not in it; they are bounded by ``ResourceLimits.disk_bytes``. Zero when the worker is gone.
    """
    children = processes.descendants(pid)
    if not _IS_LINUX:
        return processes.resident_bytes([pid, *children])  # no monitor there
    return processes.resident_bytes(p for p in children or [pid] if not processes.is_namespace_init(p))


def kill_all(slot: Slot, pid: int) -> list[str]:
    """End every process of a worker, remove its directories, free its user.

    Safe to call more than once and after the worker ended. Where the caller is the worker's parent it is reaped too;
    otherwise that stays with the zygote. Returns what is left after a few seconds of trying (processes that a driver
    keeps, files that cannot be removed), in words; empty when nothing is.
    """
    left: list[int] = []
    if pid > 0 and _is_ours(slot, pid):
        if _IS_LINUX:
            _end_monitor(pid)
        else:
            left = _end_group(pid)
    if _IS_LINUX:
        left = _kill_strays(slot)
    if pid > 0:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
    leftovers = [f"process {stray} ({processes.name_of(stray)}) does not end" for stray in left]
    leftovers += remove(slot.base)
    if not left:
        release(slot)
    return leftovers


def _is_ours(slot: Slot, pid: int) -> bool:
    """Whether ``pid`` is still the process that the zygote forked for this slot, and no later one with its number."""
    started = processes.start_time(pid)
    if not started:
        return False
    try:
        recorded = Path(slot.base, STARTED).read_text().split()
    except OSError:
        # It died, or was never scheduled, before its first act: its number is ours if it began after the slot did.
        return _began_after(pid, slot)
    return recorded == [str(pid), started]


def _began_after(pid: int, slot: Slot) -> bool:
    try:
        made = os.stat(slot.base).st_mtime
        uptime = float(Path("/proc/uptime").read_text().split()[0])
        began = time.time() - uptime + int(processes.start_time(pid)) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError):
        return False
    return began >= made - 1.0


def _end_monitor(pid: int) -> None:
    """Let the monitor clean up; kill it only when it does not. What is left is for :func:`_strays` to say."""
    processes.signal_each([pid], signal.SIGTERM)
    deadline = time.monotonic() + _PATIENCE_S
    while processes.is_running(pid) and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    if processes.is_running(pid):
        family = processes.descendants(pid)
        processes.signal_each([*family, pid], signal.SIGKILL)


def _end_group(pid: int) -> list[int]:
    """Where there is no monitor: kill the worker's process group and descendants; a daemon of it gets away."""
    deadline, left = time.monotonic() + _ROUNDS_S, [pid]
    while time.monotonic() < deadline:
        family = {pid, *processes.group_members(pid), *processes.descendants(pid)}
        left = [member for member in family if processes.is_running(member)]
        if not left:
            return []
        processes.signal_each(left, signal.SIGKILL)
        time.sleep(_POLL_S)
    return left


def _strays(slot: Slot) -> list[int]:
    """Processes of the slot that run: by its user, and among those of this user by the marks that they carry."""
    own = [pid for pid in processes.of_uid(slot.uid) if processes.is_running(pid)] if slot.uid >= 0 else []
    return own + [pid for pid in processes.of_uid(os.geteuid()) if _is_marked(pid, slot)]


def _is_marked(pid: int, slot: Slot) -> bool:
    if pid == os.getpid():
        return False
    base = os.fsencode(slot.base)
    for link in ("cwd", "root"):
        with contextlib.suppress(OSError):
            if os.readlink(os.fsencode(f"/proc/{pid}/{link}")).startswith(base + b"/"):
                return processes.is_running(pid)
    with contextlib.suppress(OSError):
        return f"KERNELEVAL_SLOT={slot.token}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return False


def _kill_strays(slot: Slot) -> list[int]:
    deadline = time.monotonic() + _ROUNDS_S
    while left := _strays(slot):
        if time.monotonic() > deadline:
            return left
        processes.signal_each(left, signal.SIGKILL)
        if slot.uid >= 0:
            # One call that reaches every process of the user at once, which no fork bomb outruns.
            command = [sys.executable, "-I", "-S", "-c", _HELPER, str(slot.uid)]
            subprocess.run(command, check=False, stdin=subprocess.DEVNULL)
        time.sleep(_POLL_S)
    return []


def remove(base: str) -> list[str]:
    """Remove a tree of any depth and any modes without following links; returns what stays, with the reason."""
    try:
        top = os.open(base, _DIRECTORY)
    except FileNotFoundError:
        return []
    except OSError as error:
        return [f"{base}: {error}"]
    failed: list[str] = []
    moved: list[str] = []
    try:
        _empty(top, top, moved, failed, _DEPTH)
        while moved:
            _remove_directory(top, moved.pop(), top, moved, failed, _DEPTH)
        os.rmdir(base)
    except OSError as error:
        failed.append(f"{base}: {error}")
    finally:
        os.close(top)
    return failed


def _empty(directory: int, top: int, moved: list[str], failed: list[str], depth: int) -> None:
    """Remove all in ``directory``. What is deeper than ``depth`` is moved to ``top`` for later, under a new name.

    So neither recursion, nor open descriptors, nor the length of a path is a limit.
    """
    for name in os.listdir(directory):
        try:
            if not stat.S_ISDIR(os.lstat(name, dir_fd=directory).st_mode):
                os.unlink(name, dir_fd=directory)
            elif depth:
                _remove_directory(directory, name, top, moved, failed, depth - 1)
            else:
                os.chmod(name, 0o700, dir_fd=directory)
                moved.append(f".moved-{secrets.token_hex(8)}")
                os.rename(name, moved[-1], src_dir_fd=directory, dst_dir_fd=top)
        except OSError as error:
            failed.append(f"{name!r}: {error}")


def _remove_directory(parent: int, name: str, top: int, moved: list[str], failed: list[str], depth: int) -> None:
    os.chmod(name, 0o700, dir_fd=parent)
    directory = os.open(name, _DIRECTORY, dir_fd=parent)
    try:
        _empty(directory, top, moved, failed, depth)
    finally:
        os.close(directory)
    os.rmdir(name, dir_fd=parent)


# -- Root directories of hosts: made, removed, and removed later for hosts that were killed ----------------------------


def make_root(directory: str | Path | None = None) -> Path:
    """A new directory for the slots of this process, in ``directory`` or where temporary files go."""
    root = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=directory)).resolve()
    root.chmod(0o711)  # users of workers must pass
    (root / MARK).write_text(json.dumps(host_word()))
    return root


def sweep(directory: str | Path | None = None) -> list[str]:
    """Remove what dead hosts of this user left in ``directory``, by default where temporary files go.

    Looks at this user's directories with such names that hold slots; a slot whose host still runs is left alone.
    Nothing outside of those directories is touched, and no link is followed. Returns what could not be ended or
    removed, in words.
    """
    leftovers: list[str] = []
    for root in sorted(Path(directory or tempfile.gettempdir()).glob(_PREFIX + "*")):
        if not _is_own_directory(root):
            continue
        slots = [base for base in sorted(root.glob("slot-*")) if _is_own_directory(base)]
        for base in slots:
            word = _read(base / MARK)
            if word is not None and not _lives(word):
                leftovers += _end(_slot(word, base), base)
        word = _read(root / MARK)
        if word is not None and not _lives(word):
            leftovers += remove(str(root))
    return leftovers


def _is_own_directory(path: Path) -> bool:
    try:
        status = path.lstat()
    except OSError:
        return False
    return path.is_dir() and not path.is_symlink() and status.st_uid == os.geteuid()


def _read(path: Path) -> dict[str, Any] | None:
    """What a host wrote there; None where it is not a host's, or is being written just now."""
    try:
        word = json.loads(path.read_text())
        known = isinstance(word["host"], int) and isinstance(word["started"], str)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return word if known else None


def _slot(word: dict[str, Any], base: Path) -> Slot | None:
    names = {field.name for field in fields(Slot)}
    try:  # an older version may have written fields that are gone; the others find what it left running
        slot = from_plain(Slot, {name: value for name, value in word["slot"].items() if name in names})
    except (AttributeError, KeyError, TypeError, UsageError):
        return None
    return slot if Path(slot.base) == base.resolve() else None


def _lives(word: dict[str, Any]) -> bool:
    return processes.is_running(word["host"]) and processes.start_time(word["host"]) == word["started"]


def _end(slot: Slot | None, base: Path) -> list[str]:
    if slot is None:
        return remove(str(base))
    if slot.uid >= 0 and not claim(slot.uid):
        return remove(str(base))  # another host has the user, and took it when it ran nothing
    return kill_all(slot, -1)

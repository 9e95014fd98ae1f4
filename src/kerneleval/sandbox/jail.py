"""A command of a user's (a coding agent) that reaches nothing but what it is granted: a program, and its command line.

It is no candidate: it may run for long, start what it likes and, where that is granted, reach the network. What it may
not is read the judge's files, trace or end other processes, or leave any behind. The program becomes the command's
monitor (:mod:`kerneleval.sandbox.monitor`): SIGTERM to it, or the death of its parent, is SIGTERM to all that
the command started, and SIGKILL to what is left five seconds later; when the command ends, the rest is killed at once.

``docs/agents.md`` says what is kept from a command, and what is not.
"""
# Paths are strings here: they end in system calls, and links among them are followed by the kernel.

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import stat
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from kerneleval.sandbox import landlock, linux, monitor, processes, seccomp

GRACE_S = 5.0
"""Time between SIGTERM and SIGKILL."""

REFUSED = 2
"""Exit code where the command was not run, for it could not be confined."""

_NOT_FOUND, _NOT_RUNNABLE = 127, 126

_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store", "/gnu/store")
_MACHINE = ("/proc/cpuinfo", "/proc/filesystems", "/proc/meminfo", "/proc/stat", "/proc/uptime", "/proc/version")
"""What ``/proc`` says of the machine; the rest of it has names and arguments of other processes."""

_NODES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty")
_BOOT = "import sys; sys.path.append(sys.argv.pop(1)); from kerneleval.sandbox.jail import main; main(sys.argv[1:])"


def command(
    argv: Sequence[str], readable: Sequence[Path], writable: Sequence[Path], *, network: bool = False
) -> list[str]:
    """Words that start a process which confines itself and becomes the monitor of ``argv``; for this process to start.
    Raises UsageError: this system cannot confine it.

    ``argv`` is looked up on the ``PATH`` of the environment that the process is started with. ``readable`` files and
    directories may be read and executed, besides the system, this interpreter, and what of ``/etc`` everybody may read;
    device nodes may be used. ``writable`` ones may be changed; new files can be made there. Without ``network`` it gets
    no socket but Unix ones.
    """
    if said := _why_not():
        from kerneleval.records import UsageError  # the program itself, which starts for every command, needs none

        raise UsageError(f"no agent can be run here: {said}")
    plan = {
        "readable": [str(path) for path in readable],
        "writable": [str(path) for path in writable],
        "network": network,
        "parent": os.getpid(),
    }
    package = str(Path(__file__).resolve().parents[2])
    # At the end of the search path: nothing next to this package may stand in for the standard library.
    return [sys.executable, "-I", "-c", _BOOT, package, json.dumps(plan), "--", *argv]


def _why_not() -> str:
    """Why a command cannot be confined; empty: it can be tried."""
    try:
        landlock.abi_version()
    except OSError as error:
        return (
            f"this system has no Landlock ({error.strerror or error}), which keeps a command from other files; Linux "
            "5.13 has it, where it is among the modules of /sys/kernel/security/lsm"
        )
    return ""


def main(words: Sequence[str] | None = None) -> NoReturn:
    """Confine and run: ``PLAN -- COMMAND ...``, the plan as :func:`command` writes it; ends as the command ends."""
    words = sys.argv[1:] if words is None else words
    if len(words) < 3 or words[1] != "--":
        _refuse("the words of the command line must be PLAN -- COMMAND ...")
    plan = json.loads(words[0])
    if said := _why_not():
        _refuse(said)
    with contextlib.suppress(PermissionError):  # it leads a session already
        os.setsid()
    monitor.prepare_monitor()
    if plan["parent"] != os.getppid():
        os._exit(REFUSED)  # the parent died before its death could be watched
    reach = monitor.reach_alone()
    monitor_pid = os.getpid()
    child = os.fork()
    if child:
        _watch(child, reach)
        monitor.become_monitor(child, None, reach, -1)
    try:
        _confine(plan, monitor_pid)
    except OSError as error:
        _refuse(str(error))
    _become(words[2:])


def _refuse(reason: str) -> NoReturn:
    _say(f"the command is not run, for it cannot be confined: {reason}")
    os._exit(REFUSED)


def _say(text: str) -> None:
    with contextlib.suppress(OSError):
        os.write(2, f"kerneleval: {text}\n".encode(errors="replace"))


# -- The monitor -------------------------------------------------------------------------------------------------------


def _watch(child: int, reach: monitor.Reach) -> None:
    """Until the command has ended, or had its time after SIGTERM; its status stays to be collected."""
    while not _has_ended(child):
        if signal.sigwait({signal.SIGTERM, signal.SIGCHLD}) != signal.SIGTERM:
            continue
        if reach == "domain":
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(-1, signal.SIGTERM)  # reaches this domain, and never this process
        else:
            processes.signal_each(processes.descendants(os.getpid()), signal.SIGTERM)
        deadline = time.monotonic() + GRACE_S
        while not _has_ended(child) and (left := deadline - time.monotonic()) > 0:
            signal.sigtimedwait({signal.SIGCHLD}, left)
        processes.signal_each([child], signal.SIGKILL)
        return


def _has_ended(child: int) -> bool:
    """Whether the command has; orphans that this process adopted are collected on the way."""
    while True:
        try:
            found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return True
        if found is None:
            return False
        if found.si_pid == child:
            return True
        os.waitpid(found.si_pid, 0)


# -- The command -------------------------------------------------------------------------------------------------------


def _confine(plan: Mapping[str, Any], monitor_pid: int) -> None:
    """In the child, for itself and all that it starts. Raises OSError where a layer cannot be had: none is left out."""
    linux.prctl(linux.PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != monitor_pid:
        os._exit(REFUSED)
    os.setsid()
    monitor.leave_monitor()
    for ignored in (signal.SIGPIPE, signal.SIGXFSZ):  # by this interpreter, and a program would inherit it
        signal.signal(ignored, signal.SIG_DFL)
    linux.close_from({0, 1, 2})
    linux.prctl(linux.PR_SET_NO_NEW_PRIVS, 1)
    with contextlib.suppress(PermissionError):  # an ordinary user may not, and has none to give up
        linux.drop_bounding_set()
    linux.drop_capabilities()
    network = bool(plan["network"])
    landlock.restrict(_grants(plan["readable"], plan["writable"]), network=network)
    if not network:
        seccomp.install(memfd=True)  # Landlock knows TCP alone


def _grants(readable: Sequence[str], writable: Sequence[str]) -> list[landlock.Grant]:
    paths = [*_SYSTEM, *_MACHINE, *_prefixes(), *_public("/etc")[1], os.path.realpath("/etc/resolv.conf")]
    grants = [landlock.Grant(path=path) for path in paths]
    grants += [landlock.Grant(path=path, device=True) for path in _NODES]
    grants += [landlock.Grant(path=path, device=path.startswith("/dev/")) for path in readable]
    return grants + [landlock.Grant(path=path, write=True) for path in writable]


def _prefixes() -> list[str]:
    """Where this interpreter and its packages are, but for what would grant a home or all temporary files with it."""
    guarded = [os.path.realpath(p) for p in (os.path.expanduser("~"), "/home", "/root", "/tmp", "/var/tmp")]
    found = {os.path.realpath(p) for p in (sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix)}
    return sorted(p for p in found if not any(g == p or g.startswith(p.rstrip("/") + "/") for g in guarded))


def _public(path: str) -> tuple[bool, list[str]]:
    """What everybody may read at ``path`` and below, in as few paths as possible; first whether that is all of it.

    Modes are read, and access is not tried: as the superuser a command reads what its owner alone may read.
    """
    try:
        mode = os.lstat(path).st_mode
        if stat.S_ISLNK(mode):
            return True, []  # its target must be granted under its own name
        wanted = 0o005 if stat.S_ISDIR(mode) else 0o004
        if mode & wanted != wanted:
            return False, []
        names = os.listdir(path) if stat.S_ISDIR(mode) else []
    except OSError:
        return False, []
    parts = [_public(os.path.join(path, name)) for name in names]
    if all(whole for whole, _ in parts):
        return True, [path]
    return False, [one for _, found in parts for one in found]


def _become(argv: Sequence[str]) -> NoReturn:
    try:
        os.execvp(argv[0], list(argv))
    except OSError as error:
        hint = ""
        if error.errno in (errno.EACCES, errno.EPERM):
            hint = "; where it, its interpreter or its libraries lie outside of /usr, that must be granted ('reads')"
        _say(f"{argv[0]!r} cannot be started: {error.strerror or error}{hint}")
        os._exit(_NOT_FOUND if error.errno == errno.ENOENT else _NOT_RUNNABLE)


if __name__ == "__main__":
    main()

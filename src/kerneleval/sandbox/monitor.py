"""The monitor: a process between zygote and worker that outlives the worker, ends all it started, then ends alike.

The process that the zygote forked becomes the monitor; the worker is its child (or grandchild, below the first process
of a PID namespace). The monitor runs nothing of the candidate and holds no descriptor of it. SIGTERM to it, the death
of the zygote, or the death of the worker make it kill every process that the worker left, and end with the worker's
own status. How it reaches them all, the strongest first:

* a PID namespace: killing its first process kills the rest, atomically;
* a user of the worker's own: ``kill(-1)`` as that user, atomically;
* a Landlock domain with scoped signals (Linux 6.12): ``kill(-1)`` from inside reaches only the domain, atomically;
* else as subreaper: every orphan becomes the monitor's child and is killed, until there is none.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import struct
import time
from typing import Literal, NoReturn

from kerneleval.sandbox import landlock, linux, processes

_STATUS = struct.Struct("=i")
_GIVE_UP_S = 5.0
_WATCHED = {signal.SIGTERM, signal.SIGCHLD}  # blocked from before the fork on, so that a monitor misses none


Reach = Literal["pidns", "uid", "domain", "tree"]
"""How a monitor reaches the worker's processes."""


def reach_alone() -> Reach:
    """The best way without a PID namespace or a user of the worker's own; enters the Landlock domain where it can."""
    try:
        landlock.scope_signals()
    except OSError:
        return "tree"
    return "domain"


def prepare_monitor() -> None:
    """Before the fork: adopt orphans, end with the parent, wait for signals, leave no core file."""
    for ignored in (signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(ignored, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    linux.prctl(linux.PR_SET_CHILD_SUBREAPER, 1)
    linux.prctl(linux.PR_SET_PDEATHSIG, signal.SIGTERM)
    linux.prctl(linux.PR_SET_DUMPABLE, 0)


def leave_monitor() -> None:
    """After the fork, in the worker: signals as a program expects them."""
    for usual in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(usual, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _WATCHED)


def become_init(worker: int, report: int) -> NoReturn:
    """First process of a PID namespace: reap orphans until the worker ends, report its status, end and all with it."""
    linux.close_from({report})
    ended = status = 0
    while ended != worker:
        ended, status = os.waitpid(-1, 0)
    os.write(report, _STATUS.pack(status))
    os._exit(0)


def become_monitor(child: int, report: int | None, reach: Reach, uid: int) -> NoReturn:
    """Wait for the worker, kill what it left, end as it ended. ``child`` is the worker, or the first process of its PID
    namespace, which reports the worker's status on the pipe whose read end is ``report``; ``uid`` is the worker's user.
    """
    linux.close_from(set() if report is None else {report})
    status = _watch(child)
    if report is not None:
        said = os.read(report, _STATUS.size)
        status = _STATUS.unpack(said)[0] if len(said) == _STATUS.size else int(signal.SIGKILL)
    if reach != "pidns":
        _kill_rest(reach, uid)
    _end_like(status)


def _watch(child: int) -> int:
    """Status of ``child`` when it has ended; SIGTERM ends it."""
    while True:
        while True:
            done, status = os.waitpid(-1, os.WNOHANG)
            if done == child:
                return status
            if not done:
                break
        if signal.sigwait(_WATCHED) == signal.SIGTERM:
            os.kill(child, signal.SIGKILL)


def _kill_rest(reach: Reach, uid: int) -> None:
    if reach == "uid":
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    deadline = time.monotonic() + _GIVE_UP_S
    while time.monotonic() < deadline:
        if reach == "tree":
            processes.signal_each(processes.descendants(os.getpid()), signal.SIGKILL)
        else:
            with contextlib.suppress(ProcessLookupError, PermissionError):  # none left, or none may be signalled
                os.kill(-1, signal.SIGKILL)  # reaches the worker's user, or this domain, and never this process
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(0.001)


def _end_like(status: int) -> NoReturn:
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
        os._exit(128 + number)
    os._exit(os.waitstatus_to_exitcode(status))

"""The sandbox of one worker: :func:`prepare` on the trusted side, :func:`enter` in the fork, :func:`kill_all` after.

Layers are tried strongest first, each for real; what could not be had is named with the reason in the
:class:`~kerneleval.records.Trust` that :func:`enter` returns. What each level stops: ``docs/threat-model.md``.

Levels:

* ``strong``: a user (or user namespace) of its own, network, IPC and mount namespaces, a root directory of its own,
  Landlock, seccomp, resource limits, no new privileges, and no signal reaches beyond it;
* ``standard``: at least two of own user or user namespace, Landlock and seccomp, and resource limits;
* ``weak``: anything less.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from kerneleval.records import InfrastructureError, Trust
from kerneleval.worker import linux, reach, steps
from kerneleval.worker.limits import Limits
from kerneleval.worker.processes import descendants
from kerneleval.worker.reach import clean_environment, package_folders
from kerneleval.worker.reaper import disk_bytes, kill_all, mark_started, resident_bytes
from kerneleval.worker.slot import Slot, prepare
from kerneleval.worker.steps import level_of
from kerneleval.worker.sweep import make_root, remove_root, sweep

__all__ = [
    "Limits",
    "Slot",
    "clean_environment",
    "descendants",
    "disk_bytes",
    "enter",
    "kill_all",
    "level_of",
    "make_root",
    "package_folders",
    "prepare",
    "protect_host",
    "remove_root",
    "resident_bytes",
    "seal",
    "sweep",
]

_entered: steps.Entry | None = None
"""The worker's own sandbox, for :func:`seal`."""


def protect_host() -> None:
    """Called once in the judge: processes of the same user can then neither trace it nor read its memory."""
    if sys.platform.startswith("linux"):
        linux.prctl(linux.PR_SET_DUMPABLE, 0)


def enter(
    slot: Slot,
    limits: Limits,
    device: str,
    *,
    keep_fds: Sequence[int] = (),
    parent_pid: int | None = None,
    costs: dict[str, float] | None = None,
) -> Trust:
    """Contain the process that was just forked, before anything of a candidate is read.

    Returns in the process that is to run the candidate. That is a grandchild of the caller's parent: the forked
    process itself stays behind as monitor, never returns, kills whatever the worker leaves and ends with the worker's
    exit status or signal. So its id is the worker's handle, for :func:`kill_all`, :func:`resident_bytes` and reaping.

    Args:
        slot: from :func:`prepare`.
        limits: resource limits.
        device: device kind; ``cpu`` allows more to be taken away than a driver would bear.
        keep_fds: descriptors to keep besides standard output and error; every other is closed, so Python objects that
            own one must have been closed or detached before.
        parent_pid: the zygote's id, read before the fork: tells a zygote that died meanwhile.
        costs: filled with the milliseconds that each step took.

    Raises:
        InfrastructureError: a step failed half-way; the process must end without running anything.
    """
    entry = steps.Entry(slot, limits, device, costs)
    try:
        mark_started(slot)
        if not sys.platform.startswith("linux"):
            steps.confine_elsewhere(entry, keep_fds)
            return entry.trust()
        steps.detach(entry, keep_fds)
        steps.leave_namespaces(entry)
        readable, nodes = reach.readable_paths(slot, device), reach.nodes(device)
        if entry.has("pidns"):
            steps.split(entry, parent_pid)  # first: only inside can the namespace's own /proc be mounted
            steps.change_view(entry, readable, nodes)
        else:
            steps.change_view(entry, readable, nodes)  # first: a monitor's Landlock domain ends all mounting
            steps.split(entry, parent_pid)
        steps.confine(entry, readable, nodes)
    except OSError as error:
        raise InfrastructureError(f"sandbox: {error}") from error
    global _entered
    _entered = entry
    return entry.trust()


def seal() -> bool:
    """Called in the worker between building and loading: from here on nothing of it outlives it.

    The private directory becomes read-only, so that built files stay what the compiler made and nothing is left to
    clean up; temporary files can still be written, to memory of bounded size where the worker has a root of its own.
    A process that is in no sandbox with Landlock is left as it is.

    Returns:
        whether it is sealed.

    Raises:
        OSError: the kernel refused.
    """
    if _entered is None or not _entered.has("landlock"):
        return False
    steps.seal(_entered)
    return True

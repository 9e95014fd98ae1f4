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
from kerneleval.sandbox import entry, linux, reach
from kerneleval.sandbox.entry import level_of
from kerneleval.sandbox.processes import descendants
from kerneleval.sandbox.reach import clean_environment, package_folders
from kerneleval.sandbox.reaper import disk_bytes, kill_all, mark_started, resident_bytes
from kerneleval.sandbox.resource_limits import ResourceLimits
from kerneleval.sandbox.slot import Slot, prepare
from kerneleval.sandbox.sweep import make_root, remove_root, sweep

__all__ = [
    "ResourceLimits",
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

_entered: entry.Entry | None = None
"""The worker's own sandbox, for :func:`seal`."""


def protect_host() -> None:
    """Called once in the judge: processes of the same user can then neither trace it nor read its memory."""
    if sys.platform.startswith("linux"):
        linux.prctl(linux.PR_SET_DUMPABLE, 0)


def enter(
    slot: Slot,
    limits: ResourceLimits,
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
        parent_pid: the zygote's id, read before the fork: shows that the zygote died meanwhile.
        costs: filled with the milliseconds that each step took.

    Raises:
        InfrastructureError: a step failed half-way; the process must end without running anything.
    """
    entered = entry.Entry(slot, limits, device, costs)
    try:
        mark_started(slot)
        if not sys.platform.startswith("linux"):
            entry.confine_elsewhere(entered, keep_fds)
            return entered.trust()
        entry.detach(entered, keep_fds)
        entry.leave_namespaces(entered)
        readable, nodes = reach.readable_paths(slot, device), reach.nodes(device)
        if entered.has("pidns"):
            entry.split(entered, parent_pid)  # first: only inside can the namespace's own /proc be mounted
            entry.change_view(entered, readable, nodes)
        else:
            entry.change_view(entered, readable, nodes)  # first: a monitor's Landlock domain ends all mounting
            entry.split(entered, parent_pid)
        entry.confine(entered, readable, nodes)
    except OSError as error:
        raise InfrastructureError(f"sandbox: {error}") from error
    global _entered
    _entered = entered
    return entered.trust()


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
    entry.seal(_entered)
    return True

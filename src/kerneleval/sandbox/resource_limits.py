"""Resource limits of one worker: memory, CPU time, processes, files, disk.

The kernel enforces what :func:`apply` sets. Resident memory is watched from outside too, by ``worker/host.py``.
These are no limits of a machine (``judge/machine/machine_limits.py``).
"""

from __future__ import annotations

import os
import resource
import sys
from dataclasses import dataclass, fields
from pathlib import Path

from kerneleval.languages import torch_device
from kerneleval.records import UsageError
from kerneleval.sandbox import linux

__all__ = ["ResourceLimits", "apply", "counts_processes_per_namespace"]

_THREAD_BYTES = 80 << 20
"""Address space, not memory, that one thread of the C library takes: a stack of 8 MiB and a heap arena of 64 MiB."""


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


def apply(limits: ResourceLimits, device: str, *, processes_now: int) -> tuple[str, ...]:
    """Set the limits of this process.

    Args:
        limits: what to set.
        device: on devices other than the host the address space stays free: their drivers reserve terabytes of it.
        processes_now: processes that the kernel already counts against this user, to be allowed on top.

    Returns:
        ``name: reason`` for each limit that could not be set.
    """
    wanted = {
        "CORE": (0, 0),
        "CPU": (limits.cpu_seconds, limits.cpu_seconds + 1),
        "NOFILE": (limits.open_files,) * 2,
        "FSIZE": (limits.file_bytes,) * 2,
        "NPROC": (limits.processes + processes_now,) * 2,
        "RTPRIO": (0, 0),
        "MSGQUEUE": (0, 0),
    }
    failed = []
    if sys.platform != "linux":
        del wanted["NPROC"]  # it counts every process of the user, and the system does not say how many those are
        failed.append("processes: only Linux can limit those of a worker")
    if torch_device(device) == "cpu" and sys.platform == "linux":
        threads = 2 * (os.cpu_count() or 1)
        wanted["AS"] = (_mapped_bytes() + limits.memory_bytes + threads * _THREAD_BYTES,) * 2
    for name, values in wanted.items():
        kind = getattr(resource, f"RLIMIT_{name}", None)
        if kind is None:
            continue  # the system does not know this resource
        _, ceiling = resource.getrlimit(kind)
        soft, hard = values if ceiling == resource.RLIM_INFINITY else (min(v, ceiling) for v in values)
        try:
            resource.setrlimit(kind, (soft, hard))
        except (OSError, ValueError) as error:
            failed.append(f"{name.lower()}: {error}")
    return tuple(failed)


def _mapped_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def counts_processes_per_namespace() -> bool:
    """Whether RLIMIT_NPROC counts from zero in a new user namespace (Linux 5.14)."""
    return linux.kernel_version() >= (5, 14)

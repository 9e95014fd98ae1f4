"""What every device says of the machine around it: its processor, its memory, the version of Triton."""

from __future__ import annotations

import os
import platform
from pathlib import Path

__all__ = ["cpu_name", "meminfo_bytes", "triton_version"]


def cpu_name() -> str:
    """The processor as the system calls it."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass  # not Linux: the generic name below is all there is
    return platform.processor() or platform.machine()


def meminfo_bytes(field: str) -> int:
    """A field of ``/proc/meminfo`` in bytes; all of the memory where the system has no such file."""
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith(field + ":"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass  # not Linux: ask POSIX below
    return int(os.sysconf("SC_PAGE_SIZE")) * int(os.sysconf("SC_PHYS_PAGES"))


def triton_version() -> str:
    """The installed version of Triton; empty: there is none."""
    from importlib import metadata

    try:
        return metadata.version("triton")
    except metadata.PackageNotFoundError:
        return ""

"""Processes as ``/proc`` shows them: whose they are, who started them, whether they run."""
# Paths are strings here: they end in system calls on names that another process chose.

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

__all__ = [
    "descendants",
    "descendants_by_scan",
    "is_namespace_init",
    "is_running",
    "name_of",
    "of_uid",
    "owners",
    "signal_each",
    "start_time",
]


def owners() -> Iterator[tuple[int, int]]:
    """Process id and effective user of every process; nothing where there is no ``/proc``."""
    try:
        names = os.listdir("/proc")
    except OSError:
        return
    for name in names:
        if name.isdigit():
            try:
                yield int(name), os.stat(f"/proc/{name}").st_uid
            except OSError:
                continue  # it ended meanwhile


def of_uid(uid: int) -> list[int]:
    """Ids of the processes of one user, zombies included."""
    return [pid for pid, owner in owners() if owner == uid]


def signal_each(pids: Iterable[int], number: int) -> None:
    """Send a signal to each process that still exists and may be signalled."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def _stat(pid: int) -> list[str]:
    """Fields of ``/proc/PID/stat`` from the state on; empty when the process is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return []
    return text[text.rindex(")") + 2 :].split()


def start_time(pid: int) -> str:
    """When it started, in clock ticks since boot, as the kernel writes it; empty when the process is gone."""
    fields = _stat(pid)
    return fields[19] if len(fields) > 19 else ""


def is_running(pid: int) -> bool:
    """Whether it exists and is no zombie."""
    fields = _stat(pid)
    return bool(fields) and fields[0] not in "ZX"


def _children(pid: int) -> Iterator[int]:
    directory = f"/proc/{pid}/task"
    try:
        threads = os.listdir(directory)
    except OSError:
        return
    for thread in threads:
        try:
            text = Path(directory, thread, "children").read_text()
        except OSError:
            continue
        yield from (int(word) for word in text.split())


def descendants_by_scan(pid: int) -> list[int]:
    """As :func:`descendants`, from a look at every process."""
    below: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and (fields := _stat(int(name))):
            below.setdefault(int(fields[1]), []).append(int(name))
    found, queue = [], [pid]
    while queue:
        children = below.get(queue.pop(), [])
        found += children
        queue += children
    return found


def descendants(pid: int) -> list[int]:
    """Ids of the children of a process, their children and so on, at this moment."""
    if not os.path.exists(f"/proc/self/task/{os.getpid()}/children"):
        return descendants_by_scan(pid)
    found: list[int] = []
    queue = [pid]
    while queue:
        children = [child for child in _children(queue.pop()) if child not in found]
        found += children
        queue += children
    return found


def is_namespace_init(pid: int) -> bool:
    """Whether it is the first process of a PID namespace below ours."""
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    line = next((row for row in text.splitlines() if row.startswith("NSpid:")), "")
    ids = line.split()[1:]
    return len(ids) > 1 and ids[-1] == "1"


def name_of(pid: int) -> str:
    """Name of the program, ``?`` when the process is gone. The process chose it."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return "?"

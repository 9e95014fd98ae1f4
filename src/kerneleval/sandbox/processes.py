"""Facts about processes: owner, parent, state, memory. From ``/proc``, or from ``ps`` where there is none.

It ends nothing but what :func:`signal_each` is given; ``reaper.py`` decides which processes are a worker's.
"""
# Paths are strings here: they end in system calls on names that another process chose.

from __future__ import annotations

import contextlib
import os
import resource
import stat
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

HAS_PROC = os.path.exists("/proc/self/stat")
"""Whether processes are read from ``/proc``, which takes microseconds; ``ps`` takes milliseconds."""
_LISTS_CHILDREN = os.path.exists(f"/proc/self/task/{os.getpid()}/children")
_READ_BYTES = 1 << 14
_CPU_CLOCK = 2
"""``CPUCLOCK_SCHED``: the kind of clock in the lowest three bits of a clock's number; the others hold ``~pid``."""
_COLUMNS = ("pid", "ppid", "pgid", "uid", "rss", "state", "lstart")
_PS = ["ps", "-A", *(word for column in _COLUMNS for word in ("-o", f"{column}="))]


class _Row(NamedTuple):
    pid: int
    parent: int
    group: int
    uid: int
    resident_bytes: int
    state: str
    started: str


def _rows() -> dict[int, _Row]:
    """Every process as ``ps`` lists it."""
    text = subprocess.run(_PS, capture_output=True, text=True, check=True, env={"PATH": os.defpath}).stdout
    rows = {}
    for line in text.splitlines():
        pid, parent, group, uid, kilobytes, state, started = line.split(None, 6)
        rows[int(pid)] = _Row(int(pid), int(parent), int(group), int(uid), int(kilobytes) << 10, state, started.strip())
    return rows


def group_members(group: int) -> list[int]:
    """Ids of the processes of a process group that run; for systems without ``/proc``."""
    return [row.pid for row in _rows().values() if row.group == group and row.state[0] not in "ZX"]


def owners() -> Iterator[tuple[int, int]]:
    """Process id and effective user of every process."""
    if not HAS_PROC:
        yield from ((row.pid, row.uid) for row in _rows().values())
        return
    for name in os.listdir("/proc"):
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


def _read(path: str) -> str:
    """A file of ``/proc`` as text; a process may give itself a name that is no UTF-8, and it stands there as it is."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)  # a dozen of them at every pause: half the time of a file object
    try:
        parts = []
        while part := os.read(file, _READ_BYTES):
            parts.append(part)
    finally:
        os.close(file)
    return b"".join(parts).decode("utf-8", "replace")


def _stat(process: int | str) -> list[str]:
    """Fields of ``/proc/PID/stat`` from the state on, or of ``PID/task/THREAD``; empty when it is gone."""
    try:
        text = _read(f"/proc/{process}/stat")
    except OSError:
        return []
    return text[text.rindex(")") + 2 :].split()


def start_time(pid: int) -> str:
    """When it started, as the system writes it (on Linux in clock ticks since boot); empty when the process is gone."""
    if not HAS_PROC:
        row = _rows().get(pid)
        return row.started.replace(" ", "_") if row else ""
    fields = _stat(pid)
    return fields[19] if len(fields) > 19 else ""


def thread_states(pid: int) -> str:
    """States of the threads of a process, a letter each, without those that have ended: ``R`` runs, ``S`` sleeps, ``D``
    is in a system call that nothing interrupts, ``T`` is stopped. Empty when it is gone or nothing is known.
    """
    try:
        threads = os.listdir(f"/proc/{pid}/task") if HAS_PROC else []
    except OSError:
        return ""
    found = (_stat(f"{pid}/task/{thread}") for thread in threads)
    return "".join(fields[0] for fields in found if fields and fields[0] not in "ZX")


class Activity(NamedTuple):
    """What a process has done so far; zeros when it is gone or nothing is known."""

    dispatches: int
    """How often its first thread got a processor: a stopped one gets none."""
    cpu_ns: int
    """CPU time of all its threads, those that have ended among them."""


def activity(pid: int) -> Activity:
    """What a process has done so far. Takes microseconds, however many threads it has."""
    if not HAS_PROC:
        return Activity(0, 0)
    with contextlib.suppress(OSError):
        dispatches = int(_read(f"/proc/{pid}/schedstat").split()[2])
        return Activity(dispatches, time.clock_gettime_ns((~pid << 3) | _CPU_CLOCK))
    # a kernel without these files, or an emulated one
    fields = _stat(pid)
    tick_ns = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
    return Activity(0, tick_ns * (int(fields[11]) + int(fields[12])) if fields else 0)


def delay_s() -> float:
    """How long the calling thread has been ready to run and waited for a processor; 0 where the system does not say."""
    try:
        return int(_read("/proc/thread-self/schedstat").split()[1]) / 1e9
    except OSError:
        return 0.0


class Held:
    """How long others kept some processes from running, from the first :meth:`begin` on."""

    def __init__(self, pids: Callable[[], Iterable[int]]) -> None:
        self._pids = pids
        self._before: tuple[float, dict[str, int], int] | None = None

    def begin(self) -> None:
        """Measure from now on, if not from earlier on."""
        if self._before is None and HAS_PROC:
            self._before = self._now()

    def waited_s(self) -> float:
        """How long the thread that waited longest for a processor did so, beyond what the processes' own use of
        processors explains; 0 where the system does not say.
        """
        if self._before is None:
            return 0.0
        (began_s, delays, cpu_ns), (now_s, later, used_ns) = self._before, self._now()
        delayed_s = max((delay - delays.get(thread, 0) for thread, delay in later.items()), default=0) / 1e9
        own_s = (used_ns - cpu_ns) / 1e9 / len(os.sched_getaffinity(0))
        return max(0.0, min(delayed_s, now_s - began_s - own_s))

    def _now(self) -> tuple[float, dict[str, int], int]:
        """The time, what each thread has waited for processors (ns), and the CPU time of all (ns)."""
        delays: dict[str, int] = {}
        pids = list(self._pids())
        for pid in pids:
            with contextlib.suppress(OSError):
                for thread in os.listdir(f"/proc/{pid}/task"):
                    with contextlib.suppress(OSError):
                        delays[thread] = int(_read(f"/proc/{pid}/task/{thread}/schedstat").split()[1])
        return time.monotonic(), delays, sum(activity(pid).cpu_ns for pid in pids)


def is_running(pid: int) -> bool:
    """Whether it exists and is no zombie."""
    if not HAS_PROC:
        row = _rows().get(pid)
        return row is not None and row.state[0] not in "ZX"
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
            text = _read(f"{directory}/{thread}/children")
        except OSError:
            continue
        yield from (int(word) for word in text.split())


def descendants_by_scan(pid: int) -> list[int]:
    """As :func:`descendants`, from a look at every process."""
    below: dict[int, list[int]] = {}
    if HAS_PROC:
        for name in os.listdir("/proc"):
            if name.isdigit() and (fields := _stat(int(name))):
                below.setdefault(int(fields[1]), []).append(int(name))
    else:
        for row in _rows().values():
            below.setdefault(row.parent, []).append(row.pid)
    found, queue = [], [pid]
    while queue:
        children = below.get(queue.pop(), [])
        found += children
        queue += children
    return found


def descendants(pid: int) -> list[int]:
    """Ids of the children of a process, their children and so on, at this moment."""
    if not _LISTS_CHILDREN:
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
        text = _read(f"/proc/{pid}/status")
    except OSError:
        return False
    line = next((row for row in text.splitlines() if row.startswith("NSpid:")), "")
    ids = line.split()[1:]
    return len(ids) > 1 and ids[-1] == "1"


def resident_bytes(pids: Iterable[int]) -> int:
    """Memory of some processes together, an upper bound: what they share beyond the largest share counts again."""
    if not HAS_PROC:
        rows = _rows()
        return sum(rows[pid].resident_bytes for pid in pids if pid in rows)
    page = resource.getpagesize()
    private, shared = 0, 0
    for pid in pids:
        try:
            words = _read(f"/proc/{pid}/statm").split()
        except OSError:
            continue  # it ended meanwhile
        private += (int(words[1]) - int(words[2])) * page
        shared = max(shared, int(words[2]) * page)
    return private + shared


def shared_bytes(pids: Iterable[int]) -> int:
    """Shared memory that some processes have mapped, counted for each of them; 0 where the system does not say."""
    found = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            line = next((row for row in _read(f"/proc/{pid}/status").splitlines() if row.startswith("RssShmem:")), "")
            found += 1024 * int((line.split() or ["", "0"])[1]) if line else 0
    return found


def deleted_bytes(pids: Iterable[int]) -> int:
    """Room that files take which some processes hold open and nothing names any more, those in memory among them; 0
    where the system does not say.
    """
    found: dict[tuple[int, int], int] = {}
    for pid in pids:
        with contextlib.suppress(OSError):
            for name in os.listdir(f"/proc/{pid}/fd"):
                with contextlib.suppress(OSError):
                    status = os.stat(f"/proc/{pid}/fd/{name}")
                    if stat.S_ISREG(status.st_mode) and not status.st_nlink:
                        found[status.st_dev, status.st_ino] = status.st_blocks * 512
    return sum(found.values())


def command(pid: int) -> list[str]:
    """Its command and arguments, empty where they are not known. The process may have chosen others since."""
    try:
        return _read(f"/proc/{pid}/cmdline").rstrip("\0").split("\0")
    except OSError:
        return []


def name_of(pid: int) -> str:
    """Name of the program, ``?`` when the process is gone. The process chose it."""
    try:
        return _read(f"/proc/{pid}/comm").strip()
    except OSError:
        return "?"

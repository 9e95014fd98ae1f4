"""The CPU: shared memory is an anonymous file that both sides map."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import functools
import importlib
import mmap
import os
import platform
import re
import secrets
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kerneleval.devices.common.base import (
    Arena,
    Capabilities,
    EventTimer,
    Sharing,
    SynchronisedClock,
    Uncounted,
    cpu_name,
    meminfo_bytes,
    register,
    triton_version,
)
from kerneleval.records import InfrastructureError, Machine

if TYPE_CHECKING:
    import torch

SPIN_COUNT = 30_000
"""``GOMP_SPINCOUNT``: how often OpenMP's helper threads look for work before they sleep. 0.5 to 2 ms, from one
call's parallel region to the next; GNU's default is ten times that, and lasts into the other worker's window."""

_SETTLE_S = 0.001
"""At least, whatever was measured."""

_SMALL_BYTES = 32 << 20
"""A case of less is judged by one thread. Where another process runs on the same processors, each step of several
threads waits for the slowest of them, which waits for its turn: on two processors with some five programs a quick
verdict on GELU took 40 to 53 s with two threads and 9 to 11 s with one."""

_LONGEST_SPIN_S = 0.03
"""The longest wait, in seconds, for helper threads of this process."""


_PACKAGE, _PART = re.compile(r"intel-rapl:\d+"), re.compile(r"intel-rapl:\d+:\d+")


class Rapl:
    """Energy of the host's processors and their DRAM, by the kernel's ``powercap`` files (RAPL, of Intel and AMD).
    The counters of all packages are added up, from the first reading on.

    A counter begins again at ``max_energy_range_uj``, after some minutes of full load; one reading a minute is enough
    to notice. Parts of a package (``core``, ``uncore``) are in the package's own figure, and ``psys`` is that of the
    platform: none of them is added. Since Linux 5.10 only root may read them, unless their modes were changed.
    """

    def __init__(self, root: str | Path = "/sys/class/powercap") -> None:
        self._root = Path(root)
        self._zones: dict[Path, int] | None = None  # with the number at which each begins again
        self._last: dict[Path, int] = {}
        self._sum_uj = 0

    def read_mj(self) -> float | None:
        """Millijoules since the first reading; None: the kernel has none, or not for this user."""
        try:
            if self._zones is None:
                self._zones = self._begin()
            for zone, range_uj in self._zones.items():
                now = _number(zone / "energy_uj")
                gone = now - self._last[zone]
                self._sum_uj += gone if gone >= 0 else gone + range_uj
                self._last[zone] = now
        except (OSError, ValueError):
            return None
        return self._sum_uj / 1e3 if self._zones else None

    def _begin(self) -> dict[Path, int]:
        zones = {}
        for zone in sorted(self._root.glob("intel-rapl:*")):
            name = (zone / "name").read_text().strip()
            package = _PACKAGE.fullmatch(zone.name) and name.startswith("package")
            if package or (_PART.fullmatch(zone.name) and name == "dram"):
                zones[zone] = _number(zone / "max_energy_range_uj")
                self._last[zone] = _number(zone / "energy_uj")
        return zones


def _number(path: Path) -> int:
    return int(path.read_text())


HOST = Rapl()
"""This host's."""


@functools.cache
def processors() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@functools.cache
def threads() -> int:
    """How many threads workers compute with, and the judge where its answer is compared with theirs: sums of gradients
    (layer norm in PyTorch) are made in as many parts, which in half types round otherwise.

    As many as there are processors, or fewer where ``OMP_NUM_THREADS`` says so: judges side by side on the same
    processors would wait for one another's helper threads at every barrier.
    """
    asked = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()  # a list: one number for each nesting level
    return min(processors(), int(asked)) if asked.isdecimal() and int(asked) else processors()


@contextlib.contextmanager
def own_threads(nbytes: int = 0) -> Iterator[None]:
    """In the block PyTorch computes with one thread, or with as many as workers have, where a case's arguments and
    outputs take 32 MiB or more: the judge's own arithmetic.
    """
    with _thread_count(1 if nbytes < _SMALL_BYTES else threads()):
        yield


@contextlib.contextmanager
def worker_threads(args: Sequence[Any]) -> Iterator[None]:
    """In the block PyTorch computes with as many threads as workers have, if any argument lies on the CPU: sums must
    round as those of workers do.
    """
    import torch

    on_host = any(isinstance(a, torch.Tensor) and a.device.type == "cpu" for a in args)
    with _thread_count(threads() if on_host else torch.get_num_threads()):
        yield


@contextlib.contextmanager
def _thread_count(count: int) -> Iterator[None]:
    """In the block PyTorch computes with so many threads."""
    import torch

    before = torch.get_num_threads()
    if count == before:
        yield
        return
    set_threads(count)
    try:
        yield
    finally:
        set_threads(before)


def set_threads(count: int) -> None:
    """Let PyTorch compute with so many threads, where this thread calls it: by OpenMP's own call, if PyTorch uses it.
    After ``torch.set_num_threads`` MKL's LU factors of a batch of matrices are wrong, and ``solve`` raises.
    """
    import torch

    torch.get_num_threads()  # sets a number itself, the first time
    if (by_openmp := _openmp()) is not None:
        by_openmp(count)
    if torch.get_num_threads() != count:
        torch.set_num_threads(count)


@functools.cache
def _openmp() -> Any:
    """``omp_set_num_threads`` of the library that PyTorch has loaded; None where it has none."""
    import torch

    try:
        return ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so")).omp_set_num_threads
    except (OSError, AttributeError):
        return None


def allowed_processors() -> frozenset[int]:
    """Processors on which the calling thread may run; empty where the system does not say."""
    return frozenset(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else frozenset()


def allow_processors(processors: frozenset[int]) -> None:
    """Let the calling thread run there; empty: nothing is changed.

    Loading an OpenMP library binds the thread that loads it to the first processor, if helper threads are to be bound.
    Threads that a candidate starts by itself inherit the mask, and would all share that one processor.
    """
    if processors:
        os.sched_setaffinity(0, processors)


@register
class Cpu(Uncounted):
    """Host processor through PyTorch's CPU backend."""

    name = "cpu"
    torch_device = "cpu"
    judge_device = "cpu"
    sharing: Sharing = "mapped"
    on_hardware = True
    spin_s = 0.0
    pauses = True
    streams = False
    slow_wakes = True

    def available(self) -> str:
        return ""

    def machine(self) -> Machine:
        import torch

        return Machine(
            device="cpu",
            name=cpu_name(),
            arch=platform.machine(),
            memory_bytes=meminfo_bytes("MemTotal"),
            cache_bytes=_last_level_cache(),
            units=threads(),
            driver=platform.release(),
            torch=str(torch.__version__),  # else of a class of PyTorch's own
            triton=triton_version(),
            host=cpu_name(),
        )

    def hardware(self) -> str:
        """The processors of the host, on which OpenCL computes too."""
        return "processors"

    def capabilities(self) -> Capabilities:
        """Every type, by library or by conversion; no events, no count of memory."""
        return Capabilities(sharing=self.sharing)

    def memory_budget_bytes(self) -> int:
        """A sixteenth of what is free now, at most 128 MiB: it is drawn, copied and compared for every window."""
        return min(meminfo_bytes("MemAvailable") // 16, 128 << 20)

    def case_budget(self) -> tuple[int, int]:
        """4 MiB, which few second-level caches hold, and 0.075 GFLOP a core: a call takes 2.5 ms on one AVX2 core."""
        cores = self.machine().units
        return min(4 << 20, self.memory_budget_bytes() // 8), 75_000_000 * cores

    def largest_case_bytes(self) -> int:
        """A twelfth of what is free now."""
        return meminfo_bytes("MemAvailable") // 12

    def allocate(self, nbytes: int) -> Arena:
        sealed = hasattr(os, "memfd_create")
        fd = os.memfd_create("kerneleval", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING) if sealed else _shared_object()
        try:
            os.ftruncate(fd, max(nbytes, 1))
            if sealed:
                # a worker that truncated the file would kill the judge (SIGBUS) when it next reads its own mapping
                fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
            return self._map(fd, max(nbytes, 1))
        except OSError as error:
            os.close(fd)
            raise InfrastructureError(f"cannot share {nbytes} bytes of memory with a worker: {error}") from error

    def open(self, handle: Mapping[str, Any], fd: int) -> Arena:
        return self._map(fd, int(handle["nbytes"]))

    def _map(self, fd: int, nbytes: int) -> Arena:
        import torch

        view = mmap.mmap(fd, nbytes)
        return Arena(bytes=torch.frombuffer(view, dtype=torch.uint8), handle={"nbytes": nbytes}, fd=fd, keep=view)

    def release(self, arena: Arena) -> None:
        """Close the descriptor; the pages go when the last tensor over them does."""
        if arena.fd >= 0:
            os.close(arena.fd)
            arena.fd = -1

    def own_storage(self, arena: Arena, offset: int, nbytes: int) -> torch.Tensor:
        """uint8 tensor over a part of the mapping, with a storage of just that extent."""
        import torch

        if nbytes == 0:
            return torch.empty(0, dtype=torch.uint8)
        return torch.frombuffer(arena.keep, dtype=torch.uint8, count=nbytes, offset=offset)

    def warm_up(self) -> None:
        """Start the thread pool."""
        import torch

        torch.ones(1 << 18).add_(1)

    def synchronize(self) -> None:
        """Nothing is asynchronous."""

    def settle(self, since_ns: int = 0) -> None:
        """Sleep until this process's helper threads stopped spinning: they would take a processor. Workers that are not
        measured are paused.
        """
        past_s = (time.perf_counter_ns() - since_ns) / 1e9 if since_ns else 0.0
        time.sleep(max(0.0, max(_SETTLE_S, _spin_s()) - past_s))

    def timer(self) -> EventTimer:
        return SynchronisedClock(self.synchronize)

    def energy_mj(self) -> float | None:
        """Of all packages and DRAM."""
        return HOST.read_mj()

    def conditions(self) -> dict[str, Any]:
        """Load average and, where the kernel has them, the clock of core 0 and the energy of all packages and DRAM."""
        found: dict[str, Any] = {"load_1min": os.getloadavg()[0]}
        energy_mj = self.energy_mj()
        if energy_mj is not None:
            found["energy_mj"] = energy_mj
        path = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq")
        if path.exists():
            found["clock_khz"] = int(path.read_text())
        return found

    def unsteady(self, first: Mapping[str, Any], last: Mapping[str, Any]) -> str:
        """More runnable threads than processors, over the last minute."""
        load, cores = float(last.get("load_1min", 0.0)), len(os.sched_getaffinity(0))
        return f"the load average is {load:.1f} on {cores} processors: other work runs here" if load > cores + 1 else ""


def _shared_object() -> int:
    """Descriptor of a POSIX shared memory object without a name: what other systems than Linux have. macOS gives such
    an object its size once, so that no worker can change it.
    """
    _posixshmem = importlib.import_module("_posixshmem")  # what multiprocessing uses too
    name = f"/kerneleval-{secrets.token_hex(8)}"
    fd = _posixshmem.shm_open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL, mode=0o600)
    _posixshmem.shm_unlink(name)
    return int(fd)


@functools.cache
def _last_level_cache() -> int:
    return max(_caches("/sys/devices/system/cpu", "cpu0").values(), default=0)


@functools.cache
def caches_bytes(root: str = "/sys/devices/system/cpu") -> int:
    """Every cache of every processor together, in bytes, each counted once; 0 where the kernel does not say.

    A machine has several last-level caches, one a socket or a group of cores, and exclusive ones add up.
    """
    return sum(_caches(root, "cpu[0-9]*").values())


def _caches(root: str, processor: str) -> dict[tuple[str, ...], int]:
    """(level, kind, processors that share it) -> bytes of each cache with data."""
    found: dict[tuple[str, ...], int] = {}
    for index in Path(root).glob(f"{processor}/cache/index*"):
        kind, level, shared, size = (_text_of(index / name) for name in ("type", "level", "shared_cpu_list", "size"))
        if kind != "Instruction" and size[:-1].isdigit():
            found[level, kind, shared] = int(size[:-1]) * {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(size[-1], 0)
    return found


def _text_of(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


@functools.cache
def _spin_s() -> float:
    """How long this process's helper threads spin after a parallel region, in seconds, a tenth added.

    The process may have loaded OpenMP before anybody could set a spin count, so it is measured: processor time that
    passes while nothing is done.
    """
    import torch

    values, seen = torch.ones(1 << 18), []
    helpers = max(threads() - 1, 1)
    for _ in range(5):
        with _thread_count(threads()):  # the caller may have set one thread, which wakes no helper
            values.add_(1)
        before = time.process_time()
        time.sleep(_LONGEST_SPIN_S)
        seen.append((time.process_time() - before) / helpers)
    return min(1.1 * statistics.median(seen), _LONGEST_SPIN_S)

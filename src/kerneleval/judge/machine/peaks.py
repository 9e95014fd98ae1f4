"""A machine's peaks (bandwidths, matrix products, multiply-adds), measured once and kept, and its limits from them.

A peak is the best of all samples at the best size: everything else only takes time. PyTorch's own copies, sums and
matrix products are what is measured, and chains of multiply-adds (``vector_rate.py``). Nothing comes from a data sheet.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from kerneleval.devices import Device
from kerneleval.devices.cpu import caches_bytes, processors, set_threads
from kerneleval.judge.machine.vector_rate import NotAvailable, vector_work
from kerneleval.judge.windows.locks import device_lock
from kerneleval.records import InfrastructureError, Limits, Machine, Peak, Peaks, UsageError, from_plain, to_plain

BANDWIDTHS: tuple[str, ...] = ("copy", "read", "write", "triad")
"""Bytes that come from memory and go there: a copy (2 bytes for each byte of the array), a sum (1), a fill (1), and
``a = b + s * c`` (3), McCalpin's STREAM (1995) but for the names."""

MATRIX: tuple[str, ...] = ("float64", "float32", "tf32", "float16", "bfloat16", "float8_e4m3fn", "int8")
"""Types in which large matrix products are measured; ``float32`` strictly so, ``tf32`` is its shortcut."""

VECTOR: tuple[str, ...] = ("float64", "float32", "float16", "bfloat16")
"""Types in which chains of multiply-adds are measured: every machine has operations in them."""

NAMES: tuple[str, ...] = (
    *BANDWIDTHS,
    "cache",
    *(f"matrix/{dtype}" for dtype in MATRIX),
    *(f"vector/{dtype}" for dtype in VECTOR),
)
"""Every peak, in the order in which they are shown."""

_VERSION = 1
_REPEATS, _FOR_S = 7, 0.15
"""At least so many samples at each size, for at least so long."""

_FEWEST, _ENOUGH_S = 3, 1.0
"""So many are enough where they take so long together."""

_LEAST_S = 4e-3
"""A sample takes about so long at least; shorter calls are queued one after another."""

_MOST_S = 0.4
"""Sizes grow no further when a call takes so long."""

_MOST_CALLS = 1000
_GROWS, _IDLE = 1.02, 2
"""Sizes double until the rate has not grown by 2 % twice in a row."""

_SMALLEST, _LARGEST = 256, 16384
"""Rows and columns of matrices."""

_CACHES, _LEAST_BYTES, _CASES = 4, 2**28, 3
"""Arrays take so many times the caches together, so many bytes at least, and so many times the largest case at most."""

_SHORTEST = 512
"""Rounds of the first chains."""

_MEMORY_SIDE_BYTES = 256 << 20
"""Infinity Cache of AMD's GPUs, which no property tells: 256 MiB on MI300X, less on others."""

_SMALLEST_CACHED = 2**14
_QUEUED = 64
"""Calls over cached arrays in one graph: between two kernels of a graph lies about a microsecond."""

_TF32_SINCE = 8
"""Major compute capability."""


@dataclass(frozen=True, kw_only=True)
class _Found:
    rates: tuple[float, ...]
    call_s: float
    how: str


def cached(machine: Machine, cache_dir: Path) -> Peaks | None:
    """The peaks of this very machine that were measured before, by this version; None: none were.

    Raises:
        InfrastructureError: the file in the cache is broken; it has been removed.
    """
    path = _path(machine, cache_dir)
    try:
        text = path.read_text()
    except FileNotFoundError:
        return None
    try:
        return from_plain(Peaks, json.loads(text))
    except (ValueError, UsageError, TypeError, AttributeError) as error:
        path.unlink(missing_ok=True)
        text = f"{path} held no peaks and has been removed; measure again: kerneleval peaks ({error})"
        raise InfrastructureError(text) from None


def known(
    device: Device,
    machine: Machine,
    cache_dir: Path,
    names: Sequence[str] = NAMES,
    *,
    again: bool = False,
    on_measure: Callable[[str, int, int], None] | None = None,
) -> Peaks:
    """The peaks of a machine: from the cache, and measured and kept there as far as they are not known.

    Args:
        machine: its description: another driver or PyTorch is another machine, and nothing of it is known.
        names: which of :data:`NAMES`; those of a device that has no such unit say why.
        again: measure all of them anew.

    Raises:
        InfrastructureError: no memory left to measure with, or the cache cannot be read.
    """
    kept = cached(machine, cache_dir)
    if kept is not None and not again and all(kept.find(name) is not None for name in names):
        return kept
    with device_lock(device.hardware(), whole=True):
        kept = cached(machine, cache_dir) or Peaks(machine=machine.fingerprint)  # others may have measured meanwhile
        missing = [name for name in names if again or kept.find(name) is None]
        found: dict[str, Peak] = {peak.name: peak for peak in kept.peaks}
        room = _Room(device)
        for done, name in enumerate(missing):
            if on_measure is not None:
                on_measure(name, done, len(missing))
            if name not in BANDWIDTHS:
                room.leave()
            found[name] = measure(device, machine, name, room)
            kept = _keep(machine, cache_dir, found)  # at once: an interrupted measurement goes on from there
    return kept


def improve(device: Device, machine: Machine, cache_dir: Path) -> Peaks:
    """Measure the bandwidths again and keep what is better than before: a machine may have been busy at the time.

    Raises:
        InfrastructureError: no memory left to measure with, or the cache cannot be read.
    """
    with device_lock(device.hardware(), whole=True):
        room = _Room(device)
        now = [measure(device, machine, name, room) for name in BANDWIDTHS]
        kept = cached(machine, cache_dir) or Peaks(machine=machine.fingerprint)
        best = {p.name: p for p in kept.peaks} | {p.name: p for p in now if p.best > kept.rate(p.name)}
        return _keep(machine, cache_dir, best)


def _keep(machine: Machine, cache_dir: Path, found: Mapping[str, Peak]) -> Peaks:
    merged = Peaks(machine=machine.fingerprint, peaks=tuple(found[name] for name in NAMES if name in found))
    path = _path(machine, cache_dir)
    path.parent.mkdir(parents=True, exist_ok=True)
    staging = path.with_suffix(f".{os.getpid()}")
    staging.write_text(json.dumps(to_plain(merged)))
    staging.rename(path)
    return merged


def resident_bytes(device: Device) -> int:
    """How much of a window's data the caches may hold, all of them together, in bytes; rather more than less."""
    if device.torch_device == "cpu":
        return caches_bytes()
    machine = device.machine()
    return machine.cache_bytes + (_MEMORY_SIDE_BYTES if machine.arch.startswith("gfx") else 0)


def _path(machine: Machine, cache_dir: Path) -> Path:
    return cache_dir / "peaks" / f"{machine.fingerprint}-v{_VERSION}.json"


class _Room:
    """Arrays for one measurement after the other: on a host most of the time goes into pages that are new."""

    def __init__(self, device: Device) -> None:
        self._where = device.torch_device
        self._held: torch.Tensor | None = None

    def arrays(self, count: int, numel: int) -> list[torch.Tensor]:
        """So many of so many float32 numbers, none of them 0 or infinite."""
        if self._where != "cpu":
            return [torch.ones(numel, dtype=torch.float32, device=self._where) for _ in range(count)]
        if self._held is None or self._held.numel() < count * numel:
            self._held = None
            self._held = torch.ones(count * numel, dtype=torch.float32)
        return list(self._held[: count * numel].view(count, numel))

    def leave(self) -> None:
        """Give them back."""
        self._held = None


def measure(device: Device, machine: Machine, name: str, room: _Room | None = None) -> Peak:
    """Measure one of :data:`NAMES` now.

    TF32 is off but for ``matrix/tf32``; the process gets its own setting back.

    Args:
        room: where arrays come from that the next measurement uses too.

    Raises:
        InfrastructureError: the device has no memory left to measure with.
    """
    kind, _, dtype = name.partition("/")
    unit = "B/s" if not dtype else "OP/s" if dtype.startswith("int") else "FLOP/s"
    peak = Peak(name=name, unit=unit, date=datetime.datetime.now(tz=datetime.UTC).date().isoformat())
    try:
        if kind == "matrix":
            with _tf32(dtype == "tf32"):
                best = _matrix(device, machine, dtype)
        elif kind == "vector":
            best = _vector(device, dtype)
        else:
            with _every_processor(device):
                best = _cache(device) if kind == "cache" else _bandwidth(device, kind, room or _Room(device))
    except NotAvailable as error:
        return replace(peak, why_not=" ".join(str(error).split()))
    except torch.OutOfMemoryError as error:
        raise InfrastructureError(f"{device.name}: no memory left to measure the device's limits: {error}") from error
    finally:
        device.trim()
    return replace(peak, best=max(best.rates), median=statistics.median(best.rates), n=len(best.rates), how=best.how)


def _samples(device: Device, call: Callable[[], object], amount: float, how: str) -> _Found:
    """Rates of so much work a call, by the host's clock around as many calls as make a sample long enough."""
    call()
    count = 1
    while True:
        times: list[float] = []
        while len(times) < _REPEATS or sum(times) < _FOR_S:
            times.append(_timed_s(device, call, count))
            if len(times) >= _FEWEST and sum(times) > _ENOUGH_S:
                break
            if min(times) < _LEAST_S / 2 and len(times) == _FEWEST and count < _MOST_CALLS:
                break  # too short; one long sample is something else's work
        if min(times) >= _LEAST_S / 2 or count == _MOST_CALLS:
            return _Found(rates=tuple(amount * count / t for t in times), call_s=min(times) / count, how=how)
        count = min(_MOST_CALLS, max(2 * count, int(count * _LEAST_S / min(times)) + 1))


def _timed_s(device: Device, call: Callable[[], object], count: int) -> float:
    device.synchronize()
    began = time.perf_counter()
    for _ in range(count):
        call()
    device.synchronize()
    return max(time.perf_counter() - began, 1e-9)


def _best(found: Iterator[_Found], growth: int, idles: int = _IDLE) -> _Found:
    """The best of sizes that grow, until ``idles`` in a row gain nothing or the next one takes too long. The work of a
    size is ``growth`` times that of the one before.
    """
    best, idle = next(found), 0
    for one in () if growth * best.call_s > _MOST_S else found:
        idle = 0 if max(one.rates) > _GROWS * max(best.rates) else idle + 1
        if max(one.rates) > max(best.rates):
            best = one
        if idle == idles or growth * one.call_s > _MOST_S:
            break
    return best


@contextlib.contextmanager
def _every_processor(device: Device) -> Iterator[None]:
    """A block in which PyTorch has a thread for each processor of the host, where that is the device: whatever
    ``OMP_NUM_THREADS`` says, a candidate may start as many, and what memory can do must not be understated.
    """
    before = torch.get_num_threads()
    if device.torch_device == "cpu":
        set_threads(processors())
    try:
        yield
    finally:
        set_threads(before)


def _bandwidth(device: Device, name: str, room: _Room) -> _Found:
    least = max(_CACHES * resident_bytes(device), _LEAST_BYTES)
    most = max(_CASES * device.largest_case_bytes(), _LEAST_BYTES)
    if least > most:
        raise NotAvailable(
            f"arrays must be larger than the caches, and {least / 2**30:.1f} GiB are more than there is room for "
            f"({most / 2**30:.1f} GiB)"
        )

    def sizes() -> Iterator[_Found]:
        nbytes = least
        while nbytes <= most:
            yield _streamed(device, name, nbytes, room)
            device.trim()
            nbytes *= 2

    # On a host one is enough: a call costs nothing beside arrays of that size, and most of the time is page faults.
    return _best(sizes(), 2, 1 if device.torch_device == "cpu" else _IDLE)


def _streamed(device: Device, name: str, nbytes: int, room: _Room, queued: int = 1) -> _Found:
    """One of :data:`BANDWIDTHS` over arrays that take so many bytes together, float32.

    Args:
        queued: so many calls are launched at once where the device can (CUDA's and HIP's graphs): over small arrays a
            call takes less time than to launch it.
    """
    arrays = {"copy": 2, "read": 1, "write": 1, "triad": 3}[name]
    numel = nbytes // arrays // 4 // 1024 * 1024
    a, *others = room.arrays(arrays, numel)
    calls: dict[str, Callable[[], object]] = {
        "copy": lambda: a.copy_(others[0]),
        "read": a.sum,
        "write": lambda: a.fill_(1.0),
        "triad": lambda: torch.add(others[0], others[1], alpha=3.0, out=a),
    }
    how = f"{name} over {_size(4 * numel * arrays)}"
    if queued > 1 and device.torch_device == "cuda":
        return _samples(device, _graph(calls[name], queued), 4.0 * numel * arrays * queued, f"{how}, {queued} at once")
    return _samples(device, calls[name], 4.0 * numel * arrays, how)


def _graph(call: Callable[[], object], count: int) -> Callable[[], object]:
    call()  # what it makes once, as a sum's workspace, is no part of it
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(count):
            call()
    return graph.replay


def _cache(device: Device) -> _Found:
    """The best of reading and of triads over arrays that fit the caches, of any size: the smallest lie nearest."""
    best: _Found | None = None
    nbytes, most = _SMALLEST_CACHED, max(resident_bytes(device) // 2, _SMALLEST_CACHED)
    while nbytes <= most:
        for name in ("read", "triad"):
            one = _streamed(device, name, nbytes, _Room(device), queued=_QUEUED)
            if best is None or max(one.rates) > max(best.rates):
                best = one
        nbytes *= 2
    assert best is not None
    return best


def _size(nbytes: int) -> str:
    return f"{nbytes / 2**20:.0f} MiB" if nbytes >= 2**20 else f"{nbytes / 2**10:.0f} KiB"


@contextlib.contextmanager
def _tf32(allowed: bool) -> Iterator[None]:
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = allowed
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def _matrix(device: Device, machine: Machine, dtype: str) -> _Found:
    if dtype == "tf32":
        major = machine.arch.removeprefix("sm_")[:-1]
        if not machine.arch.startswith("sm_") or not major.isdigit() or int(major) < _TF32_SINCE:
            raise NotAvailable("PyTorch has TF32 on NVIDIA GPUs from sm_80 on")

    def sizes() -> Iterator[_Found]:
        size = _SMALLEST
        while size <= _LARGEST:
            call = _product(device, dtype, size)
            yield _samples(device, call, 2.0 * size**3, f"torch product, {size} x {size} x {size}")
            size *= 2

    try:
        return _best(sizes(), 8)
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, TypeError, NotImplementedError, AttributeError) as error:
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise NotAvailable(f"PyTorch has no matrix products of {dtype} here: {first}"[:200]) from error


def _product(device: Device, dtype: str, size: int) -> Callable[[], object]:
    """A square product in a type; the second matrix of eight-bit types is column-major, as their instructions want."""
    where = device.torch_device
    if dtype == "int8":
        left, right = (torch.randint(-8, 8, (size, size), dtype=torch.int8, device=where) for _ in range(2))
        return lambda: torch._int_mm(left, right.t())
    real = "float32" if dtype == "tf32" else dtype
    a, b = (torch.randn(size, size, device=where).to(getattr(torch, real)) for _ in range(2))
    if dtype.startswith("float8"):
        one = torch.ones((), device=where)
        return lambda: torch._scaled_mm(
            a, b.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16, use_fast_accum=True
        )
    out = torch.empty_like(a)
    return lambda: torch.mm(a, b, out=out)


def _vector(device: Device, dtype: str) -> _Found:
    rounds = _SHORTEST
    while True:
        call, operations, how = vector_work(device, dtype, rounds)
        taken_s = min(_timed_s(device, call, 1) for _ in range(_FEWEST))
        if taken_s >= _LEAST_S:
            return _samples(device, call, operations, how)
        rounds = max(2 * rounds, int(rounds * 1.5 * _LEAST_S / taken_s))


def computed(dtypes: Sequence[str]) -> set[str]:
    """Those of the types in which every machine has operations to measure."""
    return set(dtypes) & set(VECTOR)


def needed(dtypes: Sequence[str]) -> tuple[str, ...]:
    """Names of the peaks that the limits in these data types follow from."""
    matrix = (f"matrix/{dtype}" for dtype in MATRIX if dtype in dtypes)
    vector = (f"vector/{dtype}" for dtype in VECTOR if dtype in dtypes)
    return (*BANDWIDTHS, "cache", *matrix, *vector)


def limits_of(found: Peaks, device: Device, dtypes: Sequence[str]) -> Limits | None:
    """The limits in these types (``tf32`` is one here); None: no bandwidth of the memory is known. Bandwidth is the
    best of copy, read, write and triad, a type's rate the better one of matrix products and of multiply-adds.
    """
    bandwidth = found.rate(*BANDWIDTHS)
    if not bandwidth:
        return None
    order = (*VECTOR, *(dtype for dtype in MATRIX if dtype not in VECTOR))
    rates = ((dtype, found.rate(f"matrix/{dtype}", f"vector/{dtype}")) for dtype in order if dtype in dtypes)
    return Limits(
        bandwidth_bytes_per_s=bandwidth,
        flop_per_s=tuple((dtype, rate) for dtype, rate in rates if rate),
        cache_bytes_per_s=max(found.rate("cache"), bandwidth),
        cache_bytes=resident_bytes(device),
    )


def measure_limits(
    device: Device,
    machine: Machine,
    cache_dir: Path,
    dtypes: Sequence[str],
    on_measure: Callable[[str, int, int], None] | None = None,
) -> Limits:
    """The limits of a machine in these data types: from the cache, or measured now, which takes some seconds.

    Raises:
        InfrastructureError: the device has no memory left to measure with.
    """
    found = known(device, machine, cache_dir, needed(dtypes), on_measure=on_measure)
    limits = limits_of(found, device, dtypes)
    if limits is None:
        reasons = [peak.why_not for peak in found.peaks if peak.name in BANDWIDTHS]
        raise InfrastructureError(f"{device.name}: the bandwidth of the memory cannot be measured: {reasons[0]}")
    return limits

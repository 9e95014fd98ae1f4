"""A machine's limits, from its measured peaks: bytes and operations a second at best, the roofs of a roofline.

It measures through ``peaks.py``. How near a cell comes to a limit is decided in ``timing/roofline.py``; limits of a
worker process are in ``sandbox/slot.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from kerneleval.devices import Device
from kerneleval.judge.machine import peaks
from kerneleval.records import InfrastructureError, Limits, Machine, Peaks

_COMPUTED = ("float64", "float32", "float16", "bfloat16")


def computed(dtypes: Sequence[str]) -> set[str]:
    """Those of the types in which every machine has operations to measure."""
    return set(dtypes) & set(_COMPUTED)


def needed(dtypes: Sequence[str]) -> tuple[str, ...]:
    """Names of the peaks that the limits in these data types follow from."""
    matrix = (f"matrix/{dtype}" for dtype in peaks.MATRIX if dtype in dtypes)
    vector = (f"vector/{dtype}" for dtype in peaks.VECTOR if dtype in dtypes)
    return (*peaks.BANDWIDTHS, "cache", *matrix, *vector)


def limits_of(found: Peaks, device: Device, dtypes: Sequence[str]) -> Limits | None:
    """The limits in these types (``tf32`` is one here); None: no bandwidth of the memory is known. Bandwidth is the
    best of copy, read, write and triad, a type's rate the better one of matrix products and of multiply-adds.
    """
    bandwidth = found.rate(*peaks.BANDWIDTHS)
    if not bandwidth:
        return None
    order = (*_COMPUTED, *(dtype for dtype in peaks.MATRIX if dtype not in _COMPUTED))
    rates = ((dtype, found.rate(f"matrix/{dtype}", f"vector/{dtype}")) for dtype in order if dtype in dtypes)
    return Limits(
        bandwidth_bytes_per_s=bandwidth,
        flop_per_s=tuple((dtype, rate) for dtype, rate in rates if rate),
        cache_bytes_per_s=max(found.rate("cache"), bandwidth),
        cache_bytes=peaks.resident_bytes(device),
    )


def measure(
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
    found = peaks.known(device, machine, cache_dir, needed(dtypes), on_measure=on_measure)
    limits = limits_of(found, device, dtypes)
    if limits is None:
        reasons = [peak.why_not for peak in found.peaks if peak.name in peaks.BANDWIDTHS]
        raise InfrastructureError(f"{device.name}: the bandwidth of the memory cannot be measured: {reasons[0]}")
    return limits

"""Measuring a machine's limits, by PyTorch's own copies, sums and matrix products in the judge's process."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import torch

from kerneleval.devices import Device
from kerneleval.records import InfrastructureError, Limits

__all__ = ["computed", "measure"]

_REPEATS, _FOR_S = 7, 0.15
"""At least so many calls, for at least so long; the fastest counts: a limit is what the machine can do, and everything
else only takes time."""

_LEAST_S = 4e-3
"""Matrix products grow until one takes so long: shorter ones are measured by what a call costs."""

_SMALLEST = 512
"""Rows and columns of the smallest matrices."""

_LARGEST = 16384
"""Rows and columns of the largest matrices."""

_CACHES, _LEAST_BYTES = 8, 2**28
"""Copied buffers are so many times as large as the last-level cache, and so large at least."""

_COMPUTED = ("float64", "float32", "float16", "bfloat16")


def computed(dtypes: Sequence[str]) -> set[str]:
    """Those of the types in which :func:`measure` measures operations."""
    return set(dtypes) & set(_COMPUTED)


def measure(device: Device, dtypes: Sequence[str]) -> Limits:
    """The limits of a device in these data types (those that have matrix products in PyTorch); takes about a second.

    TF32 is off, as it is in judging, unless the process has turned it on.

    Raises:
        InfrastructureError: the device has no memory left to measure with.
    """
    try:
        bandwidth = _bandwidth(device)
        rates = tuple((dtype, _flop_per_s(device, dtype)) for dtype in _COMPUTED if dtype in dtypes)
    except torch.OutOfMemoryError as error:
        raise InfrastructureError(f"{device.name}: no memory left to measure the device's limits: {error}") from error
    device.trim()
    return Limits(bandwidth_bytes_per_s=bandwidth, flop_per_s=rates)


def _fastest_s(device: Device, call: Callable[[], object]) -> float:
    call()
    times: list[float] = []
    while len(times) < _REPEATS or sum(times) < _FOR_S:
        device.synchronize()
        began = time.perf_counter()
        call()
        device.synchronize()
        times.append(time.perf_counter() - began)
    return min(times)


def _bandwidth(device: Device) -> float:
    nbytes = max(_CACHES * device.machine().cache_bytes, _LEAST_BYTES) // 4096 * 4096
    source = torch.ones(nbytes // 4, dtype=torch.float32, device=device.torch_device)
    target = torch.empty_like(source)
    copying = 2 * nbytes / _fastest_s(device, lambda: target.copy_(source))
    summing = nbytes / _fastest_s(device, source.sum)
    return max(copying, summing)


def _flop_per_s(device: Device, dtype: str) -> float:
    size = _SMALLEST
    while True:
        a, b = (torch.randn(size, size, device=device.torch_device).to(getattr(torch, dtype)) for _ in range(2))
        out = torch.empty_like(a)
        taken = _fastest_s(device, lambda a=a, b=b, out=out: torch.mm(a, b, out=out))  # type: ignore[misc]
        if taken >= _LEAST_S or size >= _LARGEST:
            return 2.0 * size**3 / taken
        size *= 2

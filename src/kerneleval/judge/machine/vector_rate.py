"""What the vector units of a device can do: chains of multiply-adds, by Triton on a GPU, by C++ on the host.

Every chain ends at the fixed point of ``value / 2 + 1``, whatever it began with: what was timed was computed.
"""

from __future__ import annotations

import ctypes
import functools
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch

from kerneleval.devices import Device
from kerneleval.devices.cpu import threads
from kerneleval.records import InfrastructureError

_FACTOR, _ADDEND, _FIXED_POINT = 0.5, 1.0, 2.0
_BLOCK, _UNROLL, _WARPS = 1024, 16, 4
_PROGRAMS = 16
"""Programs a multiprocessor, of 128 or 256 threads: as many as fit at once, or more."""


class NotAvailable(Exception):  # noqa: N818 - an answer
    """This device cannot do that; the message says why, and what to install where that would help."""


Work = tuple[Callable[[], object], float, str]
"""A call that queues the work, how many operations it is, and what it is in words."""


def vector_work(device: Device, dtype: str, rounds: int) -> Work:
    """A call of multiply-adds in a data type on every vector unit.

    Args:
        rounds: how long the chains are; 16 times that on a GPU. From 64 on they end at their fixed point.

    Raises:
        NotAvailable: the device, or its compiler, has no such arithmetic.
        InfrastructureError: the compiler failed, or what it made computes something else.
    """
    return _on_host(dtype, rounds) if device.torch_device == "cpu" else _on_gpu(device, dtype, rounds)


def _on_host(dtype: str, rounds: int) -> Work:
    function = getattr(_library(), f"chains_{dtype}", None)
    if function is None:
        raise NotAvailable(f"this processor has no multiply-adds of {dtype} (no instruction, or the compiler has none)")
    total, numbers = ctypes.c_double(), ctypes.c_long()

    def call() -> None:
        function(
            ctypes.c_long(rounds),
            ctypes.c_int(threads()),
            ctypes.c_double(_FACTOR),
            ctypes.c_double(_ADDEND),
            ctypes.byref(total),
            ctypes.byref(numbers),
        )

    call()
    _at_fixed_point(total.value / numbers.value, dtype)
    operations = 2.0 * rounds * numbers.value
    return call, operations, f"C++ chains of multiply-adds, {threads()} threads"


@functools.cache
def _library() -> ctypes.CDLL:
    from kerneleval.languages.common.base import BuildError
    from kerneleval.languages.common.compiler import run_compiler
    from kerneleval.languages.cpp import DEFAULT_FLAGS, TIMEOUT_S, cpp_compiler

    try:
        program = cpp_compiler()
    except InfrastructureError as error:
        raise NotAvailable(str(error)) from error
    flags = [flag for flag in DEFAULT_FLAGS if flag != "-fopenmp"]
    source = Path(__file__).with_name("chains.cpp")
    with tempfile.TemporaryDirectory() as folder:
        options = ["-ffp-contract=fast", "-pthread", "-fPIC", "-shared", "-o", "chains.so"]
        try:
            run_compiler([program, *flags, *options, str(source)], Path(folder), TIMEOUT_S)
        except BuildError as error:
            raise InfrastructureError(f"{source.name} does not compile: {error}") from error
        return ctypes.CDLL(str(Path(folder) / "chains.so"))


def _on_gpu(device: Device, dtype: str, rounds: int) -> Work:
    try:
        from kerneleval.judge.machine.chains_triton import chains
    except ImportError as error:
        raise NotAvailable(f"Triton cannot be imported ({error}): pip install triton") from error
    programs = max(device.machine().units, 1) * _PROGRAMS
    kind, where = getattr(torch, dtype), device.torch_device
    try:
        start = (torch.arange(_BLOCK, device=where) % 61).to(kind)
        constants = torch.tensor([_FACTOR, _ADDEND], device=where).to(kind)
        out = torch.zeros(programs * _BLOCK, dtype=kind, device=where)

        def call() -> None:
            chains[(programs,)](start, constants, out, rounds, BLOCK=_BLOCK, UNROLL=_UNROLL, num_warps=_WARPS)

        call()
        device.synchronize()
    except torch.OutOfMemoryError:
        raise
    except Exception as error:
        raise NotAvailable(f"no multiply-adds of {dtype} by Triton: {_first_line(error)}") from error
    _at_fixed_point(float(out.float().mean()), dtype)
    operations = 2.0 * rounds * _UNROLL * programs * _BLOCK
    return call, operations, f"Triton chains of multiply-adds, {programs} programs of {_BLOCK} numbers"


def _at_fixed_point(mean: float, dtype: str) -> None:
    if abs(mean - _FIXED_POINT) > 1e-2:
        raise InfrastructureError(f"chains of multiply-adds in {dtype} came out at {mean:g}, not at {_FIXED_POINT:g}")


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}"[:200] if lines else type(error).__name__

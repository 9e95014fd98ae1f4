"""What a device is to the judge and to the worker: memory that both see, a synchronisation point, a description; and
what every device says of the machine around it.
"""

from __future__ import annotations

import functools
import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from kerneleval.devices.common.call_graph import CallGraph, NotRecordedError
from kerneleval.records import Machine
from kerneleval.records.registry import Registry

if TYPE_CHECKING:
    import torch


Sharing = Literal["mapped", "ipc", "staged"]
"""How judge and worker see the same bytes: both ``mapped`` the same host memory; the worker opened the judge's device
memory by an ``ipc`` handle; or inputs and outputs are ``staged`` in host memory and copied to and from the device."""


@dataclass(frozen=True, kw_only=True)
class Capabilities:
    """What a device can do, so that no caller has to try."""

    fp64: bool = True
    """Whether it computes in fp64. Where it does not, the oracle runs on the host."""
    fp16: bool = True
    """Whether it computes in float16, if only by conversion."""
    bf16: bool = True
    """Whether it computes in bfloat16, if only by conversion."""
    fp8: bool = False
    """Whether matrix units take fp8 in PyTorch's usual encodings (``e4m3fn``, ``e5m2``)."""
    tf32: bool = False
    """Whether matrix units take fp32 rounded to TF32."""
    int8_matrix: bool = False
    streams: bool = False
    """As :attr:`Device.streams`."""
    graphs: bool = False
    """As :attr:`Device.graphs`."""
    events: bool = False
    """Whether its event timers are trusted as evidence; else the worker's own clock is given in their place."""
    peak_memory: bool = False
    sharing: Sharing = "mapped"
    """As :attr:`Device.sharing`."""

    def computes(self, dtype: str) -> bool:
        """Whether tensors of this dtype (a key of ``records.DTYPES``) can be made and computed with."""
        needs = {"float64": self.fp64, "complex128": self.fp64, "float16": self.fp16, "bfloat16": self.bf16}
        return needs.get(dtype, True)


@dataclass(kw_only=True)
class Arena:
    """A byte range that judge and worker both map. The judge allocates it, the worker opens it from its handle."""

    bytes: torch.Tensor
    """The whole range as uint8, shape (nbytes,), on the device."""
    handle: dict[str, Any]
    """Plain data from which the other side opens it."""
    fd: int
    """Descriptor that must travel with the handle; -1: none."""
    keep: Any = None
    """Whatever must stay alive as long as the range is in use."""
    mirror: torch.Tensor | None = None
    """On the worker's side of a staged device: the same range in the device's memory (uint8), once it is needed."""

    @property
    def nbytes(self) -> int:
        """Size of the range in bytes."""
        return int(self.bytes.numel())


class EventTimer(Protocol):
    """Device-side timer of the worker: what it says is evidence, never the verdict's time."""

    def start(self) -> None:
        """Mark the beginning on the current stream."""

    def stop(self) -> None:
        """Mark the end on the current stream."""

    def elapsed_ns(self) -> float:
        """Nanoseconds between the marks; waits for the end mark."""


@runtime_checkable
class Device(Protocol):
    """One kind of hardware. A new one is one file with a class under ``@register``."""

    name: str
    """Kind, as on the command line: ``cpu``, ``cuda``."""
    torch_device: str
    """The name under which PyTorch knows it."""
    judge_device: str
    """The name of the device on which the judge draws inputs, keeps images, runs the oracle and compares: this one, or
    ``cpu`` where memory is staged, which is also where fp64 is for devices that have none."""
    sharing: Sharing
    on_hardware: bool
    """Whether this file was ever run on such hardware; else what it gives is marked so."""
    spin_s: float
    """How long judge and worker keep a processor busy waiting for each other before they sleep; 0 where the
    processors are the device."""

    pauses: bool
    """Whether stopping a worker's processes stops its work: then they are stopped while inputs are revealed and
    destroyed. A kernel on an accelerator runs on; there both take microseconds, which are measured and reported."""
    streams: bool
    """Whether work may be queued beside the current stream, so that it must be seen to be joined with it."""
    graphs: bool
    """Whether calls can be recorded and launched without the host, as :meth:`call_graph` does."""
    slow_wakes: bool
    """Whether waking a worker costs a large part of a millisecond, in which short windows would drown."""

    def available(self) -> str:
        """Empty when usable here, else why not and what would make it usable."""

    def machine(self) -> Machine:
        """Description of this machine's device."""

    def hardware(self) -> str:
        """Which piece of hardware of this host it is: judges that measure on the same one share one device lock."""

    def capabilities(self) -> Capabilities:
        """What it can do. Called only where it is available."""

    def memory_budget_bytes(self) -> int:
        """How much device memory the judge plans with: all that is free now, less a reserve."""

    def case_budget(self) -> tuple[int, int]:
        """(bytes, floating-point operations) that one sampled case may take here."""

    def largest_case_bytes(self) -> int:
        """Arguments and outputs of the largest case that can be judged: fp64 copies and windows need room too."""

    def trim(self) -> None:
        """Give back memory held in reserve where less than half is free: workers need memory too."""

    def peak_memory_bytes(self) -> int | None:
        """The most device memory of this process's tensors since :meth:`reset_peak_memory`; None: it is not counted."""

    def reset_peak_memory(self) -> None:
        """Begin to count anew; nothing where it cannot be counted."""

    def allocate(self, nbytes: int) -> Arena:
        """A new shared range (judge side). Raises InfrastructureError when the device is out of memory."""

    def open(self, handle: Mapping[str, Any], fd: int) -> Arena:
        """Map a range that the judge allocated (worker side)."""

    def release(self, arena: Arena) -> None:
        """Give a range back (either side)."""

    def own_storage(self, arena: Arena, offset: int, nbytes: int) -> torch.Tensor:
        """uint8 tensor over a part of the range that has a storage of just that extent."""

    def warm_up(self) -> None:
        """Create the device context (worker side), so that the first window does not pay for it."""

    def synchronize(self) -> None:
        """Wait for everything that this process queued, on every stream."""

    def answer_ns(self) -> int:
        """How long the device takes to do next to nothing for this process (judge side): longer while it is at work for
        another one. 0 where that cannot be told.
        """

    def delay(self) -> None:
        """Keep the current stream busy for a few milliseconds, so that what is queued meanwhile has to wait."""

    def settle(self, since_ns: int = 0) -> None:
        """Called by the judge before it starts its clock: let its own helper threads go to sleep. ``since_ns``: since
        when this process has used one thread only (``perf_counter_ns``); 0: wait in full.
        """

    def call_graph(self) -> CallGraph:
        """What calls can be recorded in (worker side). Raises NotRecordedError where they cannot."""

    def timer(self) -> EventTimer:
        """A device timer, or the worker's own clock where the device has none worth trusting."""

    def conditions(self) -> dict[str, Any]:
        """Clocks, temperature, throttling, other work as far as the device has them; plain data, units in the names.

        Usual ones: ``energy_mj`` (see :meth:`energy_mj`), ``power_mw``, ``power_limit_mw``, ``temperature_c``,
        ``temperature_memory_c``, ``clock_sm_mhz``, ``clock_memory_mhz``, ``performance_state`` (0 is the highest),
        ``throttled`` (reasons), ``compute_processes`` and, of a host, ``load_1min``.
        """

    def energy_mj(self) -> float | None:
        """What the device has used since some fixed moment (millijoules, never less than before), from which the energy
        of a call follows (``judge/timing/energy.py``); None: it has no counter. Called every few milliseconds.
        """

    def unsteady(self, first: Mapping[str, Any], last: Mapping[str, Any]) -> str:
        """What speaks against a measurement made between two readings of :meth:`conditions`; empty: nothing."""


class SynchronisedClock(EventTimer):
    """The worker's own clock around work that has ended: for devices without events worth trusting."""

    def __init__(self, synchronize: Callable[[], None]) -> None:
        self._synchronize = synchronize
        self._started = self._stopped = 0

    def start(self) -> None:
        """What was queued before has ended."""
        self._synchronize()
        self._started = time.perf_counter_ns()

    def stop(self) -> None:
        """What was queued since has ended."""
        self._synchronize()
        self._stopped = time.perf_counter_ns()

    def elapsed_ns(self) -> float:
        return float(self._stopped - self._started)


class Uncounted:
    """What a device answers that counts neither memory nor energy, and on which nothing is asynchronous."""

    def trim(self) -> None:
        """Nothing: freed memory goes back by itself."""

    def peak_memory_bytes(self) -> int | None:
        """None: nothing counts the most that was held."""
        return None

    def reset_peak_memory(self) -> None:
        """Nothing."""

    def answer_ns(self) -> int:
        """0: it is not asked."""
        return 0

    def delay(self) -> None:
        """Nothing: what is queued is done in order."""

    def settle(self, since_ns: int = 0) -> None:
        """Nothing: what is revealed is there by the time this is called."""

    graphs = False

    def call_graph(self) -> CallGraph:
        """There is none."""
        raise NotRecordedError("this device records no calls")

    def energy_mj(self) -> float | None:
        """None: PyTorch has no counter."""
        return None

    def unsteady(self, first: Mapping[str, Any], last: Mapping[str, Any]) -> str:
        """Empty: there is no reading to go by."""
        return ""


def contiguous_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Row-major strides, in elements."""
    strides = [1]
    for size in reversed(shape[1:]):
        strides.append(strides[-1] * max(size, 1))
    return tuple(reversed(strides)) if shape else ()


def typed_view(
    raw: torch.Tensor, dtype: torch.dtype, shape: Sequence[int], strides: Sequence[int], offset: int
) -> torch.Tensor:
    """A tensor of its own (no view: ``_base`` is None) over the storage of ``raw`` (uint8), which holds the elements
    from its own start on. Strides and ``offset`` are in elements of ``dtype``.
    """
    import torch

    out = torch.empty(0, dtype=dtype, device=raw.device)
    out.set_(raw.untyped_storage(), raw.storage_offset() // out.element_size() + offset, tuple(shape), tuple(strides))
    return out


@functools.cache
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


@functools.cache
def triton_version() -> str:
    """The installed version of Triton; empty: there is none."""
    from importlib import metadata

    try:
        return metadata.version("triton")
    except metadata.PackageNotFoundError:
        return ""


DEVICES: Registry[Device] = Registry(
    "device",
    "kerneleval.devices",
    problem=lambda plugin: "" if isinstance(plugin, Device) else "it lacks members of the protocol Device",
    module_is_name=True,
)
register, find, names = DEVICES.register, DEVICES.find, DEVICES.names

_BY_DEFAULT = ("cuda", "rocm", "xpu", "metal")
"""The first of these that is available is the default; else the CPU."""


def default() -> Device:
    """The GPU where there is one (CUDA, ROCm, XPU, Metal, in this order), else the CPU."""
    return next((device for name in _BY_DEFAULT if not (device := find(name)).available()), find("cpu"))

"""What GPUs have in common that PyTorch drives through a namespace of the same form: ``torch.cuda`` (CUDA and HIP) and
``torch.xpu``; and what CUDA and HIP have in common beyond that: IPC handles of dedicated allocations.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kerneleval.devices.common.base import Arena, Capabilities, EventTimer, Sharing, Uncounted, cpu_name, triton_version
from kerneleval.records import InfrastructureError, Machine

if TYPE_CHECKING:
    import torch

_RESERVE_BYTES = 4 << 30
_IPC_LAZY_PEER_ACCESS = 1
_CLOCK_DRIFT = 0.03
_DELAY_CYCLES = 6_000_000
"""3 ms at 2 GHz: longer than the host takes to queue a call."""


def budget(room_bytes: int) -> int:
    """A quarter of that room, less a reserve for contexts; 256 MiB at least and 16 GiB at most."""
    return min(max((room_bytes - _RESERVE_BYTES) // 4, 256 << 20), 16 << 30)


def read_conditions(gpu: Any, functions: Mapping[str, str], package: str) -> dict[str, Any]:
    """What functions of a namespace of PyTorch (figure with its unit -> function) say of the device now; under
    ``package``, through which PyTorch reads it and which may be missing or not allowed to, why one says nothing.
    """
    found: dict[str, Any] = {}
    for name, function in functions.items():
        read = getattr(gpu, function, None)
        if read is None:
            found[package] = f"this PyTorch has no {function}"
            continue
        try:
            found[name] = float(read())
        except (ImportError, RuntimeError, OSError) as error:
            found[package] = f"not available: {error}".splitlines()[0][:200]
    return found


class TorchGpu(Uncounted):
    """A GPU through a namespace of PyTorch that has ``mem_get_info``, ``Event`` and ``synchronize``."""

    name: str
    torch_device: str
    sharing: Sharing
    namespace: str
    """``cuda`` or ``xpu``: where PyTorch has its functions."""
    spin_s = 0.05
    pauses = False
    streams = True
    slow_wakes = False

    def _namespace(self) -> Any:
        """``torch.cuda`` or ``torch.xpu``."""
        import torch

        return getattr(torch, self.namespace)

    def hardware(self) -> str:
        """The first visible GPU, by the identifier that the driver gives it; by its name where it gives none."""
        properties = self._namespace().get_device_properties(0)
        return f"{self.torch_device} {getattr(properties, 'uuid', '') or properties.name}"

    def _described(self, properties: Any, *, arch: str, cache_bytes: int, units: int, driver: str) -> Machine:
        import torch

        return Machine(
            device=self.name,
            name=properties.name,
            arch=arch,
            memory_bytes=properties.total_memory,
            cache_bytes=cache_bytes,
            units=units,
            driver=driver,
            torch=str(torch.__version__),  # else of a class of PyTorch's own
            triton=triton_version(),
            host=cpu_name(),
        )

    def _capable(self, **further: bool) -> Capabilities:
        """What all of them can do, and further fields of :class:`Capabilities`."""
        return Capabilities(streams=True, events=True, peak_memory=True, sharing=self.sharing, **further)

    def memory_budget_bytes(self) -> int:
        """A quarter of the device memory that is free or held in reserve here, less a reserve for contexts; at most
        16 GiB.
        """
        gpu = self._namespace()
        return budget(gpu.mem_get_info()[0] + gpu.memory_reserved() - gpu.memory_allocated())

    def case_budget(self) -> tuple[int, int]:
        """At most 1 GiB and 0.5 TFLOP a call (about 10 ms of fp32 on a data-centre GPU).

        It follows from the whole device memory, not from what is free: all candidates of a run are to meet one plan.
        """
        return min(1 << 30, budget(self._namespace().mem_get_info()[1]) // 8), 500_000_000_000

    def largest_case_bytes(self) -> int:
        """An eighth of the device memory."""
        gpu = self._namespace()
        gpu.empty_cache()
        return int(gpu.mem_get_info()[1]) // 8

    def trim(self) -> None:
        """See :meth:`Device.trim`: PyTorch keeps what was freed, 60 GiB after the fp64 convolutions of one operator."""
        gpu = self._namespace()
        free, total = gpu.mem_get_info()
        if free < total // 2:
            gpu.empty_cache()

    def peak_memory_bytes(self) -> int | None:
        """What PyTorch's allocator counted; the library's and the driver's own memory is not in it. None: a candidate
        put an allocator of its own in its place, which counts nothing.
        """
        try:
            return int(self._namespace().max_memory_allocated())
        except RuntimeError:
            return None

    def reset_peak_memory(self) -> None:
        with contextlib.suppress(RuntimeError):
            self._namespace().reset_peak_memory_stats()

    def warm_up(self) -> None:
        """Create the context and load the first kernels."""
        import torch

        torch.zeros(8, device=self.torch_device).add_(1)
        self.synchronize()

    def synchronize(self) -> None:
        self._namespace().synchronize()

    def settle(self, since_ns: int = 0) -> None:
        """The reveal is a device copy: it must have ended before the clock starts."""
        self.synchronize()

    def unsteady(self, first: Mapping[str, Any], last: Mapping[str, Any]) -> str:
        """Whether its clock (``clock_sm_mhz``) moved by more than 3 %."""
        before, after = float(first.get("clock_sm_mhz", 0.0)), float(last.get("clock_sm_mhz", 0.0))
        if before and after and abs(after / before - 1) > _CLOCK_DRIFT:
            return f"the GPU's clock went from {before:g} to {after:g} MHz"
        return ""

    def timer(self) -> EventTimer:
        return _Events(self._namespace().Event)


class _Events:
    def __init__(self, event: Any) -> None:
        self._start, self._stop = event(enable_timing=True), event(enable_timing=True)

    def start(self) -> None:
        self._start.record()

    def stop(self) -> None:
        self._stop.record()

    def elapsed_ns(self) -> float:
        self._stop.synchronize()
        return float(self._start.elapsed_time(self._stop)) * 1e6


class _IpcHandle(ctypes.Structure):
    _fields_ = [("data", ctypes.c_byte * 64)]


class _ArrayInterface:
    """The least that ``torch.as_tensor`` needs to wrap device memory that it did not allocate."""

    def __init__(self, address: int, nbytes: int) -> None:
        self.__cuda_array_interface__ = {"shape": (nbytes,), "typestr": "|u1", "data": (address, False), "version": 3}


@dataclass(frozen=True, kw_only=True)
class MemoryCalls:
    """Names of a runtime's functions; those of CUDA and HIP take the same arguments."""

    vendor: str
    """For messages."""
    allocate: str
    free: str
    share: str
    """Fills in the IPC handle (64 bytes) of an allocation."""
    open: str
    close: str
    out_of_memory: int
    """What ``allocate`` returns where the device is full."""


class IpcGpu(TorchGpu):
    """A GPU under ``torch.cuda``, whose shared memory is a dedicated allocation of the runtime that the worker opens
    through its IPC handle.
    """

    torch_device = "cuda"
    judge_device = "cuda"
    namespace = "cuda"
    sharing: Sharing = "ipc"
    calls: MemoryCalls

    def _runtime(self) -> Any:
        """The library that has :attr:`calls`. Raises InfrastructureError where it does not load."""
        raise NotImplementedError

    def _reason(self, status: int) -> str:
        """The runtime's words for an error."""
        raise NotImplementedError

    def _arch(self) -> str:
        """Architecture of the current GPU, as compilers call it."""
        raise NotImplementedError

    def _driver_version(self) -> str:
        """Version of the driver, or of the runtime."""
        raise NotImplementedError

    def machine(self) -> Machine:
        import torch

        properties = torch.cuda.get_device_properties(0)
        cache_bytes, units = int(getattr(properties, "L2_cache_size", 0)), properties.multi_processor_count
        arch, driver = self._arch(), self._driver_version()
        return self._described(properties, arch=arch, cache_bytes=cache_bytes, units=units, driver=driver)

    def _check(self, function: str, *arguments: Any) -> None:
        status = getattr(self._runtime(), function)(*arguments)
        if status:
            reason = self._reason(status)
            raise InfrastructureError(f"{function} failed with {self.calls.vendor} error {status}: {reason}")

    def allocate(self, nbytes: int) -> Arena:
        gpu = self._namespace()
        gpu.current_stream().synchronize()  # makes the primary context current in this thread
        pointer = ctypes.c_uint64()
        wanted = ctypes.byref(pointer), ctypes.c_size_t(max(nbytes, 512))
        status = getattr(self._runtime(), self.calls.allocate)(*wanted)
        if status == self.calls.out_of_memory:
            gpu.empty_cache()
        if status:
            self._check(self.calls.allocate, *wanted)
        handle = _IpcHandle()
        self._check(self.calls.share, ctypes.byref(handle), pointer)
        plain = {"nbytes": nbytes, "ipc": ctypes.string_at(ctypes.byref(handle), 64).hex()}
        return self._wrap(int(pointer.value), nbytes, plain, owned=True)

    def open(self, handle: Mapping[str, Any], fd: int) -> Arena:
        self._namespace().current_stream().synchronize()
        raw = _IpcHandle()
        ctypes.memmove(ctypes.byref(raw), bytes.fromhex(handle["ipc"]), 64)
        pointer = ctypes.c_uint64()
        self._check(self.calls.open, ctypes.byref(pointer), raw, ctypes.c_uint(_IPC_LAZY_PEER_ACCESS))
        return self._wrap(int(pointer.value), int(handle["nbytes"]), dict(handle), owned=False)

    def _wrap(self, address: int, nbytes: int, handle: dict[str, Any], *, owned: bool) -> Arena:
        tensor = self._tensor(address, nbytes)
        return Arena(bytes=tensor, handle=handle, fd=-1, keep={"address": address, "owned": owned})

    def _tensor(self, address: int, nbytes: int) -> torch.Tensor:
        """uint8 tensor over memory of the device."""
        import torch

        return torch.as_tensor(_ArrayInterface(address, nbytes), device=self.torch_device)

    def release(self, arena: Arena) -> None:
        address, owned = arena.keep["address"], arena.keep["owned"]
        if address:
            arena.keep["address"] = 0
            self.synchronize()
            self._check(self.calls.free if owned else self.calls.close, ctypes.c_uint64(address))

    def own_storage(self, arena: Arena, offset: int, nbytes: int) -> torch.Tensor:
        """uint8 tensor over a part of the allocation, with a storage of just that extent."""
        import torch

        if nbytes == 0:
            return torch.empty(0, dtype=torch.uint8, device=self.torch_device)
        return self._tensor(arena.keep["address"] + offset, nbytes)

    def delay(self) -> None:
        """A kernel that waits for about 3 ms."""
        self._namespace()._sleep(_DELAY_CYCLES)

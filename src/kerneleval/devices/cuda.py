"""NVIDIA GPUs: shared memory is a dedicated driver allocation that the worker opens through its IPC handle."""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kerneleval.devices.base import Arena, EventTimer
from kerneleval.devices.cpu import _cpu_name, _triton_version
from kerneleval.records import InfrastructureError, Machine

if TYPE_CHECKING:
    import torch

__all__ = ["DEVICE"]

_IPC_LAZY_PEER_ACCESS = 1
_RESERVE_BYTES = 4 << 30
_CLOCK_DRIFT = 0.03
_OUT_OF_MEMORY = 2
_DELAY_CYCLES = 6_000_000
"""3 ms at 2 GHz: longer than the host takes to queue a call."""
_INSUFFICIENT_SIZE = 7
_MEMORY_TEMPERATURE = 82
"""``NVML_FI_DEV_MEMORY_TEMP``."""
_THROTTLE_REASONS = {
    0x002: "application_clocks",
    0x004: "power_cap",
    0x008: "hardware_slowdown",
    0x010: "sync_boost",
    0x020: "software_thermal",
    0x040: "hardware_thermal",
    0x080: "power_brake",
}
"""NVML's ``nvmlClocksThrottleReason`` bits; idleness and display settings are left out."""
_SLOWDOWNS = ("hardware_slowdown", "software_thermal", "hardware_thermal", "power_brake")


class _IpcHandle(ctypes.Structure):
    _fields_ = [("data", ctypes.c_byte * 64)]


class _ArrayInterface:
    """The least that ``torch.as_tensor`` needs to wrap device memory that it did not allocate."""

    def __init__(self, address: int, nbytes: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (nbytes,),
            "typestr": "|u1",
            "data": (address, False),
            "version": 3,
        }


class Cuda:
    """An NVIDIA GPU through PyTorch and the driver API."""

    name = "cuda"
    torch_device = "cuda"
    spin_s = 0.05
    pauses = False
    streams = True
    least_window_ns = 0.0

    def available(self) -> str:
        """Empty where PyTorch sees a CUDA device and the driver loads."""
        import torch

        if torch.version.cuda is None:
            return f"this PyTorch ({torch.__version__}) is built without CUDA; install a CUDA build of torch"
        if not torch.cuda.is_available():
            return "PyTorch has CUDA but sees no NVIDIA GPU; check nvidia-smi and CUDA_VISIBLE_DEVICES"
        return ""

    def machine(self) -> Machine:
        """Description of the current GPU."""
        import torch

        properties = torch.cuda.get_device_properties(0)
        return Machine(
            device="cuda",
            name=properties.name,
            arch=f"sm_{properties.major}{properties.minor}",
            memory_bytes=properties.total_memory,
            cache_bytes=int(getattr(properties, "L2_cache_size", 0)),
            units=properties.multi_processor_count,
            driver=_nvml_text("nvmlSystemGetDriverVersion") or f"cuda {torch.version.cuda}",
            torch=torch.__version__,
            triton=_triton_version(),
            host=_cpu_name(),
        )

    def memory_budget_bytes(self) -> int:
        """A quarter of the device memory that is free or held in reserve here, less a reserve for contexts; at most
        16 GiB.
        """
        import torch

        free = torch.cuda.mem_get_info()[0] + torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
        return _budget(free)

    def case_budget(self) -> tuple[int, int]:
        """At most 1 GiB and 0.5 TFLOP a call (about 10 ms of fp32 on a data-centre GPU).

        It follows from the whole device memory, not from what is free: all candidates of a run are to meet one plan.
        """
        import torch

        return min(1 << 30, _budget(torch.cuda.mem_get_info()[1]) // 8), 500_000_000_000

    def largest_case_bytes(self) -> int:
        """An eighth of the device memory."""
        import torch

        torch.cuda.empty_cache()
        return int(torch.cuda.mem_get_info()[1]) // 8

    def trim(self) -> None:
        """See :meth:`Device.trim`: PyTorch keeps what was freed, 60 GiB after the fp64 convolutions of one operator."""
        import torch

        free, total = torch.cuda.mem_get_info()
        if free < total // 2:
            torch.cuda.empty_cache()

    def allocate(self, nbytes: int) -> Arena:
        """A dedicated allocation with its IPC handle."""
        import torch

        torch.cuda.current_stream().synchronize()  # makes the primary context current in this thread
        pointer = ctypes.c_uint64()
        wanted = ctypes.byref(pointer), ctypes.c_size_t(max(nbytes, 512))
        status = _driver().cuMemAlloc_v2(*wanted)
        if status == _OUT_OF_MEMORY:
            torch.cuda.empty_cache()
        if status:
            _check("cuMemAlloc_v2", *wanted)
        handle = _IpcHandle()
        _check("cuIpcGetMemHandle", ctypes.byref(handle), pointer)
        plain = {"nbytes": nbytes, "ipc": ctypes.string_at(ctypes.byref(handle), 64).hex()}
        return self._wrap(int(pointer.value), nbytes, plain, owned=True)

    def open(self, handle: Mapping[str, Any], fd: int) -> Arena:
        """Open the judge's allocation through its IPC handle."""
        import torch

        torch.cuda.current_stream().synchronize()
        raw = _IpcHandle()
        ctypes.memmove(ctypes.byref(raw), bytes.fromhex(handle["ipc"]), 64)
        pointer = ctypes.c_uint64()
        _check("cuIpcOpenMemHandle_v2", ctypes.byref(pointer), raw, ctypes.c_uint(_IPC_LAZY_PEER_ACCESS))
        return self._wrap(int(pointer.value), int(handle["nbytes"]), dict(handle), owned=False)

    def _wrap(self, address: int, nbytes: int, handle: dict[str, Any], *, owned: bool) -> Arena:
        import torch

        tensor = torch.as_tensor(_ArrayInterface(address, nbytes), device="cuda")
        return Arena(bytes=tensor, handle=handle, fd=-1, keep={"address": address, "owned": owned})

    def release(self, arena: Arena) -> None:
        """Free or unmap the allocation."""
        address, owned = arena.keep["address"], arena.keep["owned"]
        if address:
            arena.keep["address"] = 0
            self.synchronize()
            _check("cuMemFree_v2" if owned else "cuIpcCloseMemHandle", ctypes.c_uint64(address))

    def own_storage(self, arena: Arena, offset: int, nbytes: int) -> torch.Tensor:
        """uint8 tensor over a part of the allocation, with a storage of just that extent."""
        import torch

        if nbytes == 0:
            return torch.empty(0, dtype=torch.uint8, device="cuda")
        return torch.as_tensor(_ArrayInterface(arena.keep["address"] + offset, nbytes), device="cuda")

    def warm_up(self) -> None:
        """Create the context and load the first kernels."""
        import torch

        torch.zeros(8, device="cuda").add_(1)
        torch.cuda.synchronize()

    def synchronize(self) -> None:
        """Wait for the whole device context of this process."""
        import torch

        torch.cuda.synchronize()

    def delay(self) -> None:
        """A kernel that waits for about 3 ms."""
        import torch

        torch.cuda._sleep(_DELAY_CYCLES)

    def settle(self) -> None:
        """The reveal is a device copy: it must have ended before the clock starts."""
        self.synchronize()

    def timer(self) -> EventTimer:
        """A pair of CUDA events."""
        return _Events()

    def conditions(self) -> dict[str, Any]:
        """Clocks (MHz), temperatures (C), power (mW), energy (mJ since the driver was loaded), performance state,
        reasons of throttling and processes as NVML tells them.
        """
        return _nvml_conditions()

    def unsteady(self, first: Mapping[str, Any], last: Mapping[str, Any]) -> str:
        """The hardware slowed itself down, or its clock moved by more than 3 %."""
        slowed = [name for name in _SLOWDOWNS if name in (*first.get("throttled", ()), *last.get("throttled", ()))]
        if slowed:
            return f"the GPU slowed itself down ({', '.join(slowed)})"
        before, after = float(first.get("clock_sm_mhz", 0.0)), float(last.get("clock_sm_mhz", 0.0))
        if before and after and abs(after / before - 1) > _CLOCK_DRIFT:
            return f"the GPU's clock went from {before:g} to {after:g} MHz"
        return ""


class _Events:
    def __init__(self) -> None:
        import torch

        self._start = torch.cuda.Event(enable_timing=True)
        self._stop = torch.cuda.Event(enable_timing=True)

    def start(self) -> None:
        self._start.record()

    def stop(self) -> None:
        self._stop.record()

    def elapsed_ns(self) -> float:
        self._stop.synchronize()
        return float(self._start.elapsed_time(self._stop)) * 1e6


@functools.cache
def _driver() -> ctypes.CDLL:
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise InfrastructureError(f"the CUDA driver library does not load: {error}") from error


def _budget(room_bytes: int) -> int:
    return min(max((room_bytes - _RESERVE_BYTES) // 4, 256 << 20), 16 << 30)


def _check(function: str, *arguments: Any) -> None:
    status = getattr(_driver(), function)(*arguments)
    if status:
        text = ctypes.c_char_p()
        _driver().cuGetErrorString(status, ctypes.byref(text))
        reason = (text.value or b"unknown").decode()
        raise InfrastructureError(f"{function} failed with CUDA error {status}: {reason}")


@functools.cache
def _nvml() -> ctypes.CDLL | None:
    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return None
    return library if library.nvmlInit_v2() == 0 else None


def _nvml_text(function: str) -> str:
    library = _nvml()
    buffer = ctypes.create_string_buffer(96)
    if library is None or getattr(library, function)(buffer, 96):
        return ""
    return buffer.value.decode()


def _nvml_conditions() -> dict[str, Any]:
    library = _nvml()
    if library is None:
        return {"nvml": "not available"}
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
    device = ctypes.c_void_p()
    index = int(visible) if visible.isdigit() else 0
    if library.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(index), ctypes.byref(device)):
        return {"nvml": f"device {index} not found"}
    found: dict[str, Any] = {}

    def read(name: str, function: str, *arguments: Any, kind: Any = ctypes.c_uint) -> None:
        value, call = kind(), getattr(library, function, None)  # old drivers lack some
        if call is not None and call(device, *arguments, ctypes.byref(value)) == 0:
            found[name] = int(value.value)

    read("clock_sm_mhz", "nvmlDeviceGetClockInfo", ctypes.c_uint(1))
    read("clock_memory_mhz", "nvmlDeviceGetClockInfo", ctypes.c_uint(2))
    read("temperature_c", "nvmlDeviceGetTemperature", ctypes.c_uint(0))
    read("power_mw", "nvmlDeviceGetPowerUsage")
    read("power_limit_mw", "nvmlDeviceGetEnforcedPowerLimit")
    read("energy_mj", "nvmlDeviceGetTotalEnergyConsumption", kind=ctypes.c_ulonglong)
    read("performance_state", "nvmlDeviceGetPerformanceState")
    if (memory_c := _memory_temperature_c(library, device)) is not None:
        found["temperature_memory_c"] = memory_c
    read("throttle_reasons", "nvmlDeviceGetCurrentClocksThrottleReasons", kind=ctypes.c_ulonglong)
    mask = found.pop("throttle_reasons", 0)
    found["throttled"] = [name for bit, name in _THROTTLE_REASONS.items() if mask & bit]
    count = ctypes.c_uint(0)  # asked with no room, NVML says how many there are
    if library.nvmlDeviceGetComputeRunningProcesses_v3(device, ctypes.byref(count), None) in (0, _INSUFFICIENT_SIZE):
        found["compute_processes"] = int(count.value)
    return found


class _FieldValue(ctypes.Structure):
    """``nvmlFieldValue_t``."""

    _fields_ = [
        ("field", ctypes.c_uint),
        ("scope", ctypes.c_uint),
        ("timestamp", ctypes.c_longlong),
        ("latency_us", ctypes.c_longlong),
        ("kind", ctypes.c_int),
        ("status", ctypes.c_int),
        ("value", ctypes.c_ulonglong),
    ]


def _memory_temperature_c(library: Any, device: Any) -> int | None:
    """That of the device's memory; None where there is no sensor: then the status says so, or the value is 0."""
    call = getattr(library, "nvmlDeviceGetFieldValues", None)
    asked = _FieldValue(field=_MEMORY_TEMPERATURE)
    if call is None or call(device, ctypes.c_int(1), ctypes.byref(asked)) or asked.status:
        return None
    return int(asked.value & 0xFFFFFFFF) or None


DEVICE = Cuda()

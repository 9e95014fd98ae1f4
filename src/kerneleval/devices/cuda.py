"""NVIDIA GPUs: shared memory is a dedicated driver allocation that the worker opens through its IPC handle."""

from __future__ import annotations

import ctypes
import functools
import os
import time
import warnings
from collections.abc import Mapping
from typing import Any

from kerneleval.devices.common.base import Capabilities, register
from kerneleval.devices.common.call_graph import CallGraph
from kerneleval.devices.common.torch_gpu import IpcGpu, MemoryCalls
from kerneleval.languages.binaries.nvidia import cuda_driver

_driver = functools.cache(cuda_driver)
"""The driver's library, loaded once for all calls of this file."""

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

# PyTorch's thread for gradients says so once where its first operator is a product, and sets the context itself
warnings.filterwarnings("ignore", "Attempting to run cuBLAS, but there was no current CUDA context", UserWarning)


@register
class Cuda(IpcGpu):
    """An NVIDIA GPU through PyTorch and the driver API."""

    name = "cuda"
    on_hardware = True
    graphs = True
    calls = MemoryCalls(
        vendor="CUDA",
        allocate="cuMemAlloc_v2",
        free="cuMemFree_v2",
        share="cuIpcGetMemHandle",
        open="cuIpcOpenMemHandle_v2",
        close="cuIpcCloseMemHandle",
        out_of_memory=2,
    )

    def available(self) -> str:
        import torch

        if torch.version.hip is not None:  # it answers under torch.cuda too
            return f"this PyTorch ({torch.__version__}) is built for ROCm: its device is called rocm"
        if torch.version.cuda is None:
            return f"this PyTorch ({torch.__version__}) is built without CUDA; install a CUDA build of torch"
        if not torch.cuda.is_available():
            return "PyTorch has CUDA but sees no NVIDIA GPU; check nvidia-smi and CUDA_VISIBLE_DEVICES"
        return ""

    def capabilities(self) -> Capabilities:
        """By compute capability: CUDA C++ Programming Guide, "Feature Support per Compute Capability"."""
        import torch

        major, minor = torch.cuda.get_device_capability(0)
        return self._capable(
            bf16=torch.cuda.is_bf16_supported(),
            fp8=(major, minor) >= (8, 9),
            tf32=major >= 8,
            int8_matrix=(major, minor) >= (7, 2),
            graphs=self.graphs,
        )

    def _arch(self) -> str:
        import torch

        major, minor = torch.cuda.get_device_capability(0)
        return f"sm_{major}{minor}"

    def _driver_version(self) -> str:
        import torch

        library, buffer = _nvml(), ctypes.create_string_buffer(96)
        if library is None or library.nvmlSystemGetDriverVersion(buffer, 96) or not buffer.value:
            return f"cuda {torch.version.cuda}"
        return buffer.value.decode()

    def _runtime(self) -> Any:
        return _driver()

    def _reason(self, status: int) -> str:
        text = ctypes.c_char_p()
        _driver().cuGetErrorString(status, ctypes.byref(text))
        return (text.value or b"unknown").decode()

    def energy_mj(self) -> float | None:
        """NVML's, since the driver was loaded; from Volta on."""
        opened = _nvml_device()
        if isinstance(opened, str):
            return None
        value = ctypes.c_ulonglong()
        call = getattr(opened[0], "nvmlDeviceGetTotalEnergyConsumption", None)  # old drivers lack it
        return float(value.value) if call is not None and call(opened[1], ctypes.byref(value)) == 0 else None

    def call_graph(self) -> CallGraph:
        return CallGraph(self._check)

    def answer_ns(self) -> int:
        began = time.perf_counter_ns()
        self.warm_up()
        return time.perf_counter_ns() - began

    def conditions(self) -> dict[str, Any]:
        """Clocks (MHz), temperatures (C), power (mW), energy (mJ since the driver was loaded), performance state,
        reasons of throttling and processes as NVML reports them.
        """
        return _nvml_conditions()

    def unsteady(self, first: Mapping[str, Any], last: Mapping[str, Any]) -> str:
        """The hardware slowed itself down, or its clock moved by more than 3 %."""
        slowed = [name for name in _SLOWDOWNS if name in (*first.get("throttled", ()), *last.get("throttled", ()))]
        if slowed:
            return f"the GPU slowed itself down ({', '.join(slowed)})"
        return super().unsteady(first, last)


@functools.cache
def _nvml() -> ctypes.CDLL | None:
    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return None
    return library if library.nvmlInit_v2() == 0 else None


def _nvml_device() -> tuple[Any, Any] | str:
    """NVML and its handle of the first visible device, or why there is none."""
    library = _nvml()
    if library is None:
        return "not available"
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0].strip()
    device = ctypes.c_void_p()
    if visible.startswith("GPU-"):
        if library.nvmlDeviceGetHandleByUUID(ctypes.c_char_p(visible.encode()), ctypes.byref(device)):
            return f"device {visible} not found"
        return library, device
    if visible and not visible.isdigit():  # a part of a GPU, whose counters are those of the whole
        return f"there is no reading for {visible}"
    index = int(visible) if visible.isdigit() else 0
    if library.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(index), ctypes.byref(device)):
        return f"device {index} not found"
    return library, device


def _nvml_conditions() -> dict[str, Any]:
    opened = _nvml_device()
    if isinstance(opened, str):
        return {"nvml": opened}
    library, device = opened
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
    count = ctypes.c_uint(0)  # given no room, NVML says how many there are
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

"""Intel GPUs through PyTorch's XPU backend: memory is staged, for PyTorch shares none of it between processes.

Not run on hardware: see ``docs/hardware.md``.
"""

from __future__ import annotations

from typing import Any

from kerneleval.devices.common.base import Capabilities, register
from kerneleval.devices.common.staged import Staged
from kerneleval.devices.common.torch_gpu import TorchGpu, read_conditions
from kerneleval.records import Machine

_DELAY_BYTES, _DELAY_PASSES = 256 << 20, 16
"""8 GiB read and written: 3 ms at 2.7 TB/s, more on smaller GPUs."""


@register
class Xpu(Staged, TorchGpu):
    """An Intel GPU."""

    name = "xpu"
    torch_device = "xpu"
    namespace = "xpu"
    on_hardware = False

    def available(self) -> str:
        import torch

        if getattr(torch.version, "xpu", None) is None:
            return f"this PyTorch ({torch.__version__}) is built without XPU; install an XPU build of torch"
        if not torch.xpu.is_available():
            return "PyTorch has XPU but sees no Intel GPU; check the driver and ZE_AFFINITY_MASK"
        return ""

    def machine(self) -> Machine:
        import torch

        properties = torch.xpu.get_device_properties(0)
        architecture = int(getattr(properties, "architecture", 0))  # since PyTorch 2.6
        return self._described(
            properties,
            arch=f"xe_{architecture:x}" if architecture else "xe",
            cache_bytes=int(getattr(properties, "last_level_cache_size", 0)),  # since PyTorch 2.10
            units=properties.max_compute_units,
            driver=str(properties.driver_version),
        )

    def capabilities(self) -> Capabilities:
        """What the driver says of the GPU: integrated ones have no fp64."""
        import torch

        properties = torch.xpu.get_device_properties(0)
        matrix = bool(getattr(properties, "has_subgroup_matrix_multiply_accumulate", False))
        tf32 = "has_subgroup_matrix_multiply_accumulate_tensor_float32"
        return self._capable(
            fp64=bool(properties.has_fp64),
            fp16=bool(properties.has_fp16),
            tf32=bool(getattr(properties, tf32, False)),
            int8_matrix=matrix,
        )

    def memory_budget_bytes(self) -> int:
        """As of other GPUs, at most what the host has room for."""
        return min(TorchGpu.memory_budget_bytes(self), self.host_budget_bytes())

    def delay(self) -> None:
        """Passes over memory: PyTorch has no waiting kernel here."""
        import torch

        busy = torch.empty(_DELAY_BYTES, dtype=torch.uint8, device=self.torch_device)
        for _ in range(_DELAY_PASSES):
            busy.bitwise_not_()

    def conditions(self) -> dict[str, Any]:
        """Clock (MHz) and temperature (C) as PyTorch reads them through pyzes, where that is installed."""
        return read_conditions(
            self._namespace(), {"clock_sm_mhz": "clock_rate", "temperature_c": "temperature"}, "pyzes"
        )

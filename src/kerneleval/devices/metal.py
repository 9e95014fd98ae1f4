"""Apple GPUs through PyTorch's MPS backend: memory is staged, the clock is the worker's own, nothing counts memory.

Its events have been reported unreliable, so none is used. Not run on hardware: see ``docs/hardware.md``.
"""

from __future__ import annotations

import os
import platform
from typing import Any

from kerneleval.devices.common.base import Capabilities, EventTimer, SynchronisedClock, Uncounted, cpu_name, register
from kerneleval.devices.common.staged import Staged
from kerneleval.devices.common.torch_gpu import budget
from kerneleval.records import Machine

_CACHE_BYTES = 96 << 20
"""The largest system-level cache of them (M1 Ultra): macOS does not report it."""


@register
class Metal(Staged, Uncounted):
    """An Apple GPU."""

    name = "metal"
    torch_device = "mps"
    on_hardware = False
    spin_s = 0.05
    pauses = False
    streams = False
    slow_wakes = False

    def available(self) -> str:
        import torch

        if not torch.backends.mps.is_built():
            return (
                f"this PyTorch ({torch.__version__}) is built without MPS; install PyTorch for macOS on Apple silicon"
            )
        if not torch.backends.mps.is_available():
            return "PyTorch has MPS but sees no GPU: it needs macOS 14 or newer on Apple silicon"
        return ""

    def machine(self) -> Machine:
        import torch

        # since PyTorch 2.9
        name_of, cores_of = (getattr(torch.backends.mps, name, None) for name in ("get_name", "get_core_count"))
        name = str(name_of()) if name_of is not None else cpu_name()
        return Machine(
            device=self.name,
            name=name,
            arch=name.lower().replace(" ", "_"),
            memory_bytes=int(torch.mps.recommended_max_memory()),
            cache_bytes=_CACHE_BYTES,
            units=int(cores_of()) if cores_of is not None else 0,
            driver=f"macOS {platform.mac_ver()[0]}",
            torch=str(torch.__version__),  # else of a class of PyTorch's own
            host=cpu_name(),
        )

    def hardware(self) -> str:
        """A Mac's one GPU."""
        return "metal"

    def capabilities(self) -> Capabilities:
        """No fp64: Metal has none. bfloat16 since macOS 14."""
        import torch

        bf16 = bool(torch.backends.mps.is_macos_or_newer(14, 0))
        return Capabilities(fp64=False, bf16=bf16, sharing=self.sharing)

    def memory_budget_bytes(self) -> int:
        """A quarter of what Metal recommends and is not taken, at most what the host has room for: it is one memory."""
        import torch

        free = torch.mps.recommended_max_memory() - torch.mps.driver_allocated_memory()
        return min(budget(free), self.host_budget_bytes())

    def trim(self) -> None:
        import torch

        if 2 * torch.mps.driver_allocated_memory() > torch.mps.recommended_max_memory():
            torch.mps.empty_cache()

    def warm_up(self) -> None:
        """Create the device's queue and load the first kernels."""
        import torch

        torch.zeros(8, device=self.torch_device).add_(1)
        self.synchronize()

    def synchronize(self) -> None:
        import torch

        torch.mps.synchronize()

    def timer(self) -> EventTimer:
        return SynchronisedClock(self.synchronize)

    def conditions(self) -> dict[str, Any]:
        """Load average of the host: macOS gives clocks and heat to the superuser alone."""
        return {"load_1min": os.getloadavg()[0]}

"""AMD GPUs through PyTorch's HIP build, which answers under ``torch.cuda``: shared memory is a dedicated allocation of
the HIP runtime that the worker opens through its IPC handle. Not run on hardware: see ``docs/hardware.md``.
"""

from __future__ import annotations

from typing import Any

from kerneleval.devices.common.base import Capabilities, register
from kerneleval.devices.common.torch_gpu import IpcGpu, MemoryCalls, read_conditions
from kerneleval.languages.binaries.amd import hip_runtime as _hip

# AMD's instruction set guides: MFMA of CDNA (gfx908 to gfx950), WMMA of RDNA 3 and 4 (gfx11, gfx12). gfx942's fp8 is of
# the other encoding (FNUZ), and its successors have no TF32 (XF32) any more.
_MATRIX_INT8 = ("gfx908", "gfx90a", "gfx94", "gfx95", "gfx11", "gfx12")
_MATRIX_FP8 = ("gfx95", "gfx12")
_MATRIX_TF32 = ("gfx94",)


@register
class Rocm(IpcGpu):
    """An AMD GPU through PyTorch and the HIP runtime."""

    name = "rocm"
    on_hardware = False
    calls = MemoryCalls(
        vendor="HIP",
        allocate="hipMalloc",
        free="hipFree",
        share="hipIpcGetMemHandle",
        open="hipIpcOpenMemHandle",
        close="hipIpcCloseMemHandle",
        out_of_memory=2,
    )

    def available(self) -> str:
        import torch

        if torch.version.hip is None:
            return f"this PyTorch ({torch.__version__}) is built without ROCm; install a ROCm build of torch"
        if not torch.cuda.is_available():
            return "PyTorch has ROCm but sees no AMD GPU; check rocminfo, HIP_VISIBLE_DEVICES and access to /dev/kfd"
        return ""

    def capabilities(self) -> Capabilities:
        arch = self._arch()
        return self._capable(
            fp8=arch.startswith(_MATRIX_FP8),
            tf32=arch.startswith(_MATRIX_TF32),
            int8_matrix=arch.startswith(_MATRIX_INT8),
        )

    def _arch(self) -> str:
        """``gfx942`` of ``gfx942:sramecc+:xnack-``: code for the bare name runs under every setting."""
        import torch

        return str(torch.cuda.get_device_properties(0).gcnArchName).partition(":")[0]

    def _driver_version(self) -> str:
        import torch

        return f"hip {torch.version.hip}"

    def _runtime(self) -> Any:
        return _hip()

    def _reason(self, status: int) -> str:
        return (_hip().hipGetErrorString(status) or b"unknown").decode()

    def conditions(self) -> dict[str, Any]:
        """Clock (MHz), temperature (C) and power (mW) as PyTorch reads them through amdsmi, where that is installed."""
        read = {"clock_sm_mhz": "clock_rate", "temperature_c": "temperature", "power_w": "power_draw"}
        found = read_conditions(self._namespace(), read, "amdsmi")
        if "power_w" in found:  # amdsmi gives watts, and PyTorch passes them on, although its page says otherwise
            found["power_mw"] = 1e3 * found.pop("power_w")
        return found

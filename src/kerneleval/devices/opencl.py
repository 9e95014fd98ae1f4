"""An OpenCL device that is the host's processor under another runtime, such as PoCL.

PyTorch has no OpenCL backend: tensors are in the host's memory and are shared as on the CPU, the judge computes there,
and the baseline is PyTorch on the host, which is what a user without such a backend runs instead. Kernels of candidates
run on the OpenCL device. Only devices of the type CPU are taken (``languages/common/opencl_runtime.py``).
"""

from __future__ import annotations

import dataclasses

from kerneleval.devices.common.base import register
from kerneleval.devices.cpu import Cpu
from kerneleval.languages.common import opencl_runtime
from kerneleval.records import Machine


@register
class Opencl(Cpu):
    """The OpenCL device that ``KERNELEVAL_OPENCL`` names, else the first of the type CPU.

    The timer is the worker's own clock, as on the CPU: a call ends when the queue is empty, and the calls of a window
    follow one another, so profiling events would leave out only what belongs to the call.
    """

    name = "opencl"

    def available(self) -> str:
        """Empty where pyopencl is installed and a platform has such a device."""
        return opencl_runtime.unusable()

    def machine(self) -> Machine:
        """The host's memory and caches, with the OpenCL device's name, architecture, version and compute units."""
        at, host = opencl_runtime.described(), super().machine()
        units = min(at.units, host.units)  # workers keep PoCL to as many threads as PyTorch has
        return dataclasses.replace(host, device=self.name, name=at.name, arch=at.arch, units=units, driver=at.driver)

    def warm_up(self) -> None:
        """Open the device, then start PyTorch's threads: those of PoCL inherit the processors that this thread has, and
        PyTorch's OpenMP binds it to one.
        """
        opencl_runtime.opened()
        super().warm_up()

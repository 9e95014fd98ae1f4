"""Sharing by staging, for devices whose memory no other process can open: judge and worker map host memory, and the
worker has a mirror of it on the device, filled in the window (``worker/staging.py``).

The judge then works on the host: it draws, keeps its images, runs the oracle and compares there, in fp64 even where the
device has none. The native reference alone runs on the device, whose rounding it is to show
(``judge/oracle/reference.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kerneleval.devices.common.base import Arena, Sharing, meminfo_bytes
from kerneleval.devices.cpu import Cpu

if TYPE_CHECKING:
    import torch

_HOST = Cpu()

_CASE_BYTES, _CASE_FLOPS = 64 << 20, 10_000_000_000
"""What the oracle computes on the host within a second or so: fp64 on a few cores."""

_WINDOW_BYTES = 1 << 30


class Staged:
    """The sharing part of a device; the rest is the device's own."""

    torch_device: str
    judge_device = "cpu"
    sharing: Sharing = "staged"

    def allocate(self, nbytes: int) -> Arena:
        return _HOST.allocate(nbytes)

    def open(self, handle: Mapping[str, Any], fd: int) -> Arena:
        """Map it; the mirror is made when it is first needed."""
        return _HOST.open(handle, fd)

    def release(self, arena: Arena) -> None:
        arena.mirror = None
        _HOST.release(arena)

    def own_storage(self, arena: Arena, offset: int, nbytes: int) -> torch.Tensor:
        """uint8 tensor over a part of the mirror. Its storage is the whole mirror: tensors over parts of memory
        cannot be had otherwise, and a copy for each part would cost more than one for all.
        """
        import torch

        if arena.mirror is None:
            arena.mirror = torch.zeros(arena.nbytes, dtype=torch.uint8, device=self.torch_device)
        return arena.mirror[offset : offset + nbytes]

    def case_budget(self) -> tuple[int, int]:
        """64 MiB and 10 GFLOP: the oracle runs on the host."""
        return _CASE_BYTES, _CASE_FLOPS

    def host_budget_bytes(self) -> int:
        """What the host has room for: a sixteenth of what is free now, at most 1 GiB."""
        return min(meminfo_bytes("MemAvailable") // 16, _WINDOW_BYTES)

    def largest_case_bytes(self) -> int:
        """A twelfth of the host's free memory."""
        return _HOST.largest_case_bytes()

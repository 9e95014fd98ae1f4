"""Inputs on their way to a device whose memory the judge cannot map, and back to where it can look at them.

The judge reveals inputs in host memory; the window's first act is to copy them to the mirror on the device, outside of
the device's timer and inside of the judge's clock, for candidate and baseline alike. When everything is computed the
mirror is destroyed before the worker says so: work that is put off finds nothing there. What it held then is kept
aside, for the judge to see whether the candidate wrote to its inputs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kerneleval.devices import Arena, Device

__all__ = ["Staging"]


class Staging:
    """Copies between the two. Made before the candidate is loaded: what it copies with is bound here."""

    def __init__(self, device: Device) -> None:
        import torch

        self._synchronize: Callable[[], None] = device.synchronize
        self._copy: Callable[[Any, Any], Any] = torch.Tensor.copy_
        self._clone: Callable[[Any], Any] = torch.Tensor.clone
        self._zero: Callable[[Any], Any] = torch.Tensor.zero_
        self._part: Callable[..., Any] = torch.narrow
        self._kept: Any = None

    def stage(self, arena: Arena, start: int, stop: int) -> None:
        """Copy these bytes of the range to its mirror; nothing where it has none."""
        if arena.mirror is not None and stop > start:
            part = stop - start
            self._copy(self._part(arena.mirror, 0, start, part), self._part(arena.bytes, 0, start, part))
            self._synchronize()

    def retire(self, arena: Arena, stop: int) -> None:
        """Destroy the mirror's first bytes; what they were can be given back."""
        if arena.mirror is not None and stop:
            part = self._part(arena.mirror, 0, 0, stop)
            self._kept = self._clone(part)
            self._zero(part)
            self._synchronize()

    def give_back(self, arena: Arena) -> None:
        """Copy what was retired last to the range itself, in host memory."""
        if self._kept is not None:
            self._copy(self._part(arena.bytes, 0, 0, self._kept.numel()), self._kept)
            self._kept = None
            self._synchronize()

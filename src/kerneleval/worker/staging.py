"""Inputs on their way to where a call finds them: to a device whose memory the judge cannot map, or behind the stream.

:class:`Staging`: the judge reveals inputs in host memory; the window's first act is to copy them to the mirror on the
device, outside of the device's timer and inside of the judge's clock, for candidate and baseline alike. When everything
is computed the mirror is destroyed before the worker says so: work that is put off finds nothing there. What it held
then is kept aside, for the judge to see whether the candidate wrote to its inputs.

:class:`InOrder`: a window in which nothing but the current stream's order says when inputs are ready and outputs are
read. Ordinary windows reveal inputs before the call and wait for the whole device before outputs are collected. A
candidate that works on another stream is right there, and its time counts. A program that uses the kernel does neither.
So here the stream is kept busy first; behind that the inputs are copied to where the call finds them (until then there
is NaN), and the outputs are copied away right behind the call. Work that does not wait for the current stream reads
NaN; work for which the current stream does not wait has not been done when the outputs are read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from kerneleval.devices import Arena, Device


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

    def stage(self, arena: Arena, stop: int) -> None:
        """Copy the first bytes of the range to its mirror; nothing where it has none."""
        if arena.mirror is not None and stop:
            self._copy(self._part(arena.mirror, 0, 0, stop), self._part(arena.bytes, 0, 0, stop))
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


_POISON = 0xFF
"""Every byte of an input before it is there: NaN in all floating-point formats, -1 in integers."""


@dataclass(frozen=True, kw_only=True)
class Moved:
    """A call whose tensors are in memory of their own."""

    call: Any
    """The call, over ``private``."""
    private: Sequence[Any]
    """uint8 tensors, poisoned."""
    revealed: Sequence[Any]
    """uint8 tensors of the same sizes that hold the inputs."""


class InOrder:
    """Runs calls so. Made before the candidate is loaded: what it copies with is bound here."""

    def __init__(self, device: Device) -> None:
        import torch

        self._device = device
        self._copy: Callable[[Any, Any], Any] = torch.Tensor.copy_
        self._clone: Callable[[Any], Any] = torch.Tensor.clone
        self._detach: Callable[[Any], Any] = torch.Tensor.detach
        self._full = torch.full

    def private(self, nbytes: int) -> Any:
        """Poisoned memory."""
        import torch

        return self._full((nbytes,), _POISON, dtype=torch.uint8, device=self._device.torch_device)

    def run(self, moved: Sequence[Moved], run: Callable[[Any], Any], flat: Callable[[Any], list[Any]]) -> list[Any]:
        """Copies of the outputs of each call, taken in the order of the current stream."""
        self._device.synchronize()  # the poison is there
        kept = []
        for one in moved:
            self._device.delay()
            for target, source in zip(one.private, one.revealed, strict=True):
                self._copy(target, source)
            kept.append([self._taken(output) for output in flat(run(one.call))])
        return kept

    def _taken(self, output: Any) -> Any:
        import torch

        return self._clone(self._detach(output)) if type(output) in (torch.Tensor, torch.nn.Parameter) else output

"""Records of what must come out of a call: the oracle's outputs, the native ones, and the bounds.

``reference.py`` makes expectations, ``comparison.py`` compares outputs with them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch

from kerneleval.judge.oracle.tolerances import ELEMENT, POOLED
from kerneleval.records import Law

__all__ = [
    "Bounds",
    "Expectation",
    "Expected",
    "Kind",
    "Scales",
    "as_real",
    "distance",
    "is_eight_bit",
    "opened",
    "steps",
    "tiles",
]

Kind = Literal["float", "exact", "index", "count", "random"]

_TILE = {"cpu": 1 << 16}
_TILE_DEVICE = 1 << 25


@dataclass(frozen=True, kw_only=True)
class Scales:
    """Sizes of the oracle and of the native error, each as rms over the elements that are finite in both."""

    rms: float
    """Oracle."""
    native_rms: float
    """Native minus oracle."""
    native_max: float
    """Largest native error."""
    floor_rms: float
    """Floor (``tolerances.Floor``)."""
    floor_max: float
    """Largest floor."""
    bulk: float
    """Mean over the elements of min(1, native error / (ELEMENT * floor))."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Bounds:
    """How far a floating output may be from the oracle. All tensors and figures but ``gain`` are multiplied by it."""

    gain: float
    """Power of two that brings the oracle's largest magnitude near 2^10, so that fp32 holds every square."""
    shape: tuple[int, int]
    """(rows, columns) as which the output is seen: rows have scales of their own."""
    local: torch.Tensor
    """fp32 (rows, columns): ELEMENT times the floor at each element."""
    slack: torch.Tensor
    """fp32 (rows, 1): what an element may be off beyond ``local``, by the scale of its row."""
    relative: float
    """The part of the floor that follows the element's own magnitude."""
    rms: float
    """Bound on the rms error."""
    bulk: float
    """Bound on the mean of min(1, error / local); 1: no bound."""
    variation: float
    """Bound on the rms error by the distance of the nearest trivial answer; infinite where none is distinguishable."""
    nearest: str
    """That trivial answer: ``zero``, ``mean``, ``row_mean``, ``column_mean``, ``copy of argument i``; or empty."""
    special: bool
    """Whether oracle or native hold infinities, NaN or numbers at the end of the range: compared class by class."""
    limit: float
    """Magnitude at which rounding to the output's dtype may overflow."""
    scales: Scales
    """What the bounds follow from."""
    typical: float
    """rms of the oracle over this and the further draws of a small output: its own rms may be near zero by chance."""
    independent: int
    """Elements that are no repetitions of others."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Expected:
    """One output of the call."""

    kind: Kind
    """``float``: within ``bounds``; ``exact``: equal to the oracle; ``index``: selects equal elements; ``count``:
    integers of a floating computation, equal to the oracle but where the native reference is not either; also numbers
    of eight bits, by their places among all that there are; ``random``: drawn by ``law``."""
    oracle: torch.Tensor
    """fp64; fp32 for half types, whose roundoff is 2^13 times fp32's; the native dtype for integers."""
    native: torch.Tensor
    """What the reference gives in the case's dtype."""
    bounds: Bounds | None = None
    """For ``float`` outputs with elements."""
    source: torch.Tensor | None = None
    """``index``: the tensor that the indices select from."""
    dim: int = -1
    """``index``: the dim of ``source`` that is selected along."""
    distinct: bool = False
    """``index``: no element is selected twice along it."""
    allowed: int = 0
    """``count``: elements that may differ."""
    law: Law | None = None
    """``random``: what its numbers are drawn by."""
    plain: torch.Tensor | None = None
    """``float`` outputs of an operator that quantises: what comes out without it, as ``oracle`` is held."""
    contract: tuple[float, float, float] | None = None
    """What its outputs must keep to beside ``plain`` (``Tolerance.contract``); None: not even the oracle's do."""
    far: float = math.inf
    """``count``: bound on their rms distance from the oracle, where native itself gets more than a few otherwise (a
    fixed-point number has rounding errors too)."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Expectation:
    """What must come out of one call. Holds no graph."""

    outputs: tuple[Expected, ...]
    """One for each output: of the operator, or the gradients in the order of the differentiable arguments."""
    args: tuple[Any, ...]
    """The arguments, for diagnoses."""

    @property
    def native(self) -> tuple[torch.Tensor, ...]:
        """Outputs of the reference in the case's dtype."""
        return tuple(expected.native for expected in self.outputs)

    @property
    def oracle(self) -> tuple[torch.Tensor, ...]:
        """Outputs of the fp64 oracle (held in fp32 for half types)."""
        return tuple(expected.oracle for expected in self.outputs)

    @property
    def drawn(self) -> bool:
        """Whether outputs are drawn: those of the baseline are other ones."""
        return any(expected.law is not None for expected in self.outputs)

    @property
    def timed_relative_rms(self) -> float:
        """Bound on rms(candidate - native) / rms(native) on other inputs of the same case, over all outputs.

        Both may be off by their bound in opposite directions; a quarter is added because other inputs have other
        scales. rms(native) is to be taken no smaller than :attr:`timed_scales`.
        """
        if self.drawn:
            return math.inf
        found = [1.25 * (b.rms + b.scales.native_rms) / b.typical for b in self._scaled()]
        return max(found, default=0.0)

    @property
    def timed_worst(self) -> float:
        """Bound on max |candidate - native| / rms(native), alike; doubled, because extremes scatter more."""
        if self.drawn:
            return math.inf
        found = []
        for b in self._scaled():
            slack = float(b.slack.max())
            found.append(2 * (ELEMENT * b.scales.floor_max + slack + b.scales.native_max) / b.typical)
        return max(found, default=0.0)

    @property
    def timed_scales(self) -> tuple[float, ...]:
        """Least rms of each output by which an error in a timed window is divided; 0 for outputs with many elements,
        which have a scale of their own, and for those that are no numbers.
        """
        bounds = [e.bounds if e.native.numel() < POOLED else None for e in self.outputs]
        return tuple(0.0 if b is None else b.typical / b.gain for b in bounds)

    def _scaled(self) -> list[Bounds]:
        return [e.bounds for e in self.outputs if e.bounds is not None and e.bounds.typical > 0]


def opened(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor itself; floating numbers of eight bits as fp32, because PyTorch does no arithmetic on them."""
    return tensor.float() if is_eight_bit(tensor) else tensor


def is_eight_bit(tensor: torch.Tensor) -> bool:
    """Whether it holds floating numbers of eight bits."""
    return tensor.is_floating_point() and tensor.itemsize == 1


def steps(tensor: torch.Tensor) -> torch.Tensor:
    """Floating numbers of eight bits by their places among all that there are, zero at 0: neighbours differ by one.
    Anything else as it is.
    """
    if not is_eight_bit(tensor):
        return tensor
    places = tensor.contiguous().view(torch.uint8).to(torch.int16)
    return torch.where(places < 128, places, 128 - places)


def as_real(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, opened; a complex one as real and imaginary parts in a further last dim."""
    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else opened(tensor)


def tiles(shape: tuple[int, int], device: torch.device) -> Iterator[tuple[slice, slice]]:
    """Slices of rows, or of the columns of a single row, small enough for a core's cache or a GPU's temporaries."""
    size = _TILE.get(device.type, _TILE_DEVICE)
    rows, columns = shape
    if rows == 1:
        for start in range(0, columns, size):
            yield slice(0, 1), slice(start, min(start + size, columns))
        return
    step = max(1, size // max(columns, 1))
    for start in range(0, rows, step):
        yield slice(start, min(start + step, rows)), slice(0, columns)


def distance(values: torch.Tensor, oracle: torch.Tensor | None, gain: float) -> torch.Tensor:
    """|values - oracle| * gain in fp32, the difference taken in the oracle's type; without an oracle |values| * gain.

    In-place steps: on a CPU, fresh memory costs more than the arithmetic.
    """
    scaled = values * gain if oracle is None else values.to(oracle.dtype, copy=True).sub_(oracle).mul_(gain)
    return scaled.float().abs_()

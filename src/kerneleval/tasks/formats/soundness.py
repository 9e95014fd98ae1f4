"""Whether a problem settles what is right: its native outputs near fp64, and outputs that depend on the inputs.

It runs nothing: the sweep (``sweep.py``) and the judge (``judge/oracle/reference.py``) give it what came out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

AGREE = 1e-3
"""Largest difference of an fp32 output from fp64, relative to the largest value: levels 1 and 2 of KernelBench have
4.5e-5 at most."""

_NARROW_STEPS = 8
"""The same in half types and TF32, in steps of the type: a chain of operators rounds after each one."""

_PART, _OFF, _FLOOR = 0.25, 0.5, 1 / 16
"""Or this share of the elements is off by half of itself, and by more than a sixteenth of the first limit: where one
large element hides what the others are."""

_FAR_LIMIT = 1 / 128

DEPENDS = 1e-4
"""Change of the outputs from input to input, relative to the largest value, below which a size is no good one."""

_LEAST = 1e-6
"""The same below which a candidate in fp32 could not be told from a constant; in half types one step of the type."""

_PIECE = 1 << 24
"""Elements looked at together."""


@dataclass(frozen=True, kw_only=True)
class Astray:
    """A floating output of the reference that is no rounding of the fp64 one."""

    output: int
    """Its position."""
    apart: float
    """Largest difference, relative to the largest value of the fp64 output."""
    limit: float
    """What is allowed of that."""

    def __str__(self) -> str:
        return (
            f"output {self.output} of the reference differs from the same module in fp64 by {self.apart:.2g} of its "
            f"largest value, and {self.limit:.2g} is allowed. Rounding decides what comes out, as in sines of "
            "huge arguments, so nothing says what is right"
        )


def limit_of(tensors: Sequence[object], inside: torch.dtype | None = None, *, tf32: bool = False) -> float:
    """How far native outputs may be from fp64, relative to the largest value: by the coarsest floating type among the
    tensors (arguments, weights, outputs) and the half type used inside (``ModuleProblem.inside``).
    """
    step = max(_coarsest(tensors, inside), torch.finfo(torch.float16).eps if tf32 else 0.0)
    return max(AGREE, _NARROW_STEPS * step if step > AGREE / 2 else 0.0)


def astray(native: Sequence[torch.Tensor], exact: Sequence[torch.Tensor], limit: float) -> Astray | None:
    """The first floating output that is further from fp64 than the limit, where both are finite; None: none is."""
    for index, (own, wide) in enumerate(zip(native, exact, strict=True)):
        if not own.is_floating_point() or own.shape != wide.shape:
            continue
        largest = apart = torch.zeros((), dtype=torch.float64, device=own.device)
        for a, b in _pieces(own, wide):
            largest, apart = torch.maximum(largest, b.abs().max()), torch.maximum(apart, (a - b).abs().max())
        off, floor = 0, _FLOOR * limit * largest
        if bool(apart > floor):
            off = sum(int(((a - b).abs() > (_OFF * b.abs()).clamp_min(floor)).sum()) for a, b in _pieces(own, wide))
        if bool(apart > limit * largest) or off > _PART * own.numel():
            return Astray(output=index, apart=float(apart / largest), limit=limit)
    return None


def allowed(limit: float, distribution: str) -> float:
    """The limit on inputs of a distribution: of scores about 65,536, as large queries and keys make, few digits are
    left behind the point.
    """
    return max(limit, _FAR_LIMIT) if distribution == "large_scale" else limit


def least_change(tensors: Sequence[object], inside: torch.dtype | None = None) -> float:
    """Change of an output, relative to the largest value, below which a constant passes: by the coarsest type."""
    step = _coarsest(tensors, inside)
    return max(_LEAST, step if step > AGREE / 2 else 0.0)


def depends(one: torch.Tensor, other: torch.Tensor, least: float = DEPENDS) -> bool:
    """Whether two outputs, of other inputs, differ by more than ``least`` of the largest value."""
    if one.shape != other.shape:
        return True
    if not one.numel() or not one.is_floating_point():
        return not torch.equal(one, other)
    if not torch.equal(opened(one).isfinite(), opened(other).isfinite()):
        return True
    largest = apart = 0.0
    for a, b in _pieces(one, other):
        largest, apart = max(largest, float(a.abs().max())), max(apart, float((a - b).abs().max()))
    return apart > least * largest


def opened(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor itself; floating numbers of eight bits as fp32, because PyTorch does no arithmetic on them."""
    return tensor.float() if is_eight_bit(tensor) else tensor


def is_eight_bit(value: object) -> bool:
    """Whether it is a tensor of floating numbers of eight bits."""
    return isinstance(value, torch.Tensor) and value.is_floating_point() and value.itemsize == 1


def _coarsest(tensors: Sequence[object], inside: torch.dtype | None) -> float:
    """The largest step at 1 of the tensors' floating types and of the one inside; 0: there is none."""
    floats = {t.dtype for t in tensors if isinstance(t, torch.Tensor) and t.is_floating_point()}
    return max((torch.finfo(dtype).eps for dtype in (*floats, inside) if dtype is not None), default=0.0)


def _pieces(one: torch.Tensor, other: torch.Tensor) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """The elements that are finite in both, in fp64, part by part, for outputs may fill half of the memory."""
    for a, b in zip(opened(one).reshape(-1).split(_PIECE), opened(other).reshape(-1).split(_PIECE), strict=True):
        finite = a.isfinite() & b.isfinite()
        if a.numel() and bool(finite.all()):  # picking elements takes ten times as long
            yield a.double(), b.double()
        elif bool(finite.any()):
            yield a[finite].double(), b[finite].double()

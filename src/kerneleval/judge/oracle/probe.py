"""Inputs moved by a small part of themselves, up or down: what the oracle measures conditioning with.

Moved inputs stay where the operator is defined. A probability just below 1 would be moved beyond it: on a CPU the
reference raises then, and on a GPU an assert in its kernel ends every context of the process. What would leave the
range is moved the other way, by as much.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import torch

from kerneleval.judge.oracle.expectation import PROBE, as_real
from kerneleval.records import Argument, TensorSpec

Range = tuple[Any, Any]
"""The least and the largest number, as numbers or tensors of one element."""

DOMAINS: dict[str, Range] = {"uniform": (0.0, 1.0), "symmetric": (-1.0, 1.0), "above_one": (1.0, math.inf)}
"""Where the operators are defined that draw such values (``TensorSpec.values``), but for 0, which nothing crosses."""

_PRIME = 65521
"""Length of the pattern of signs: prime, so that it meets the rows of no tensor in step."""

AGAIN = 1000
"""What a second movement adds to the numbers of the tensors."""

_OTHER_SIZES = (1.0, 1.45, 1.15, 1.3)
"""Multiples of PROBE by which the tensors move the second time: where one product of two numbers decides, both may have
moved by the same the first time, one up and one down."""

_PIECE = 1 << 24
"""Elements that are looked at together."""


def probed(tensor: torch.Tensor, number: int, size: float = 0.0, within: Range | None = None) -> torch.Tensor:
    """Every element moved by PROBE of itself or a little more (or that times ``size``), up or down, in fp32 or the
    tensor's own wider type; none out of the range ``within``.
    """
    narrow = tensor.is_floating_point() and tensor.itemsize <= 2
    moved = (tensor.float() if narrow else tensor).contiguous()
    flat = as_real(moved).reshape(-1)
    if flat.numel() == 0:
        return moved
    size = size or (_OTHER_SIZES[number % len(_OTHER_SIZES)] if number >= AGAIN else 1.0)
    factors = _factors(str(tensor.device), flat.dtype, size)[-7919 * (number + 1) % _PRIME :][:_PRIME]
    whole = flat.numel() // _PRIME * _PRIME
    out = torch.empty_like(flat)
    if whole:
        torch.mul(flat[:whole].view(-1, _PRIME), factors, out=out[:whole].view(-1, _PRIME))
    torch.mul(flat[whole:], factors[: flat.numel() - whole], out=out[whole:])
    if within is not None:
        _turn_back(flat, out, within)
    shaped = out.view(as_real(moved).shape)
    return torch.view_as_complex(shaped) if tensor.is_complex() else shaped


def domains(specs: Sequence[Argument], args: Sequence[Any]) -> list[Range | None]:
    """Where each argument of floating or complex numbers may lie, in order; None: anywhere."""
    return [
        DOMAINS.get(spec.values)
        for spec, arg in zip(specs, args, strict=True)
        if isinstance(spec, TensorSpec) and (arg.is_floating_point() or arg.is_complex())
    ]


def own_range(tensor: torch.Tensor) -> Range | None:
    """The range of a tensor's own numbers, for of a problem file's no other is known; of equal ones in [-1, 1] that.
    Nothing waits for a device here. None: it has no elements.
    """
    if not tensor.numel():
        return None
    low, high = as_real(tensor).aminmax()
    equal, one = low == high, torch.ones_like(high)
    return torch.where(equal, -one, low), torch.where(equal, one, high)


def _turn_back(given: torch.Tensor, moved: torch.Tensor, within: Range) -> None:
    """Move what has left the range the other way instead, in ``moved`` itself; what was outside stays as it is."""
    low, high = within
    for x, y in zip(given.split(_PIECE), moved.split(_PIECE), strict=True):
        left = ((y > high) & (x <= high)) | ((y < low) & (x >= low))
        torch.where(left, x + (x - y), y, out=y)


@functools.lru_cache(maxsize=32)
def _factors(device: str, dtype: torch.dtype, size: float) -> torch.Tensor:
    """1 + size * PROBE or 1 - size * PROBE at random, twice in a row: the pattern from any place on is a part of
    it. Fixed and public: it decides nothing but a bound.
    """
    generator = torch.Generator(device=device).manual_seed(20240229)
    signs = torch.randint(0, 2, (_PRIME,), generator=generator, device=device).to(dtype)
    return (1 + (2 * signs - 1) * (size * PROBE)).repeat(2)

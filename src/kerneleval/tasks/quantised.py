"""Steps of operators that quantise: scales, integers of eight and four bits, numbers of eight bits.

All are computed in fp32, or in fp64 for the oracle, whatever the type of the data: quantising in a half type moves one
number in a hundred to another step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from kerneleval.records import Relation

Tensor = torch.Tensor

FP8 = torch.float8_e4m3fn
FP8_MOST = 448.0
"""Largest number of e4m3fn."""
INT8_MOST = 127.0
"""Largest quantised magnitude: symmetric, -128 is left out."""


def wide(x: Tensor) -> Tensor:
    """fp64 as it is, anything else in fp32."""
    return x if x.dtype == torch.float64 else x.float()


def scale_of(x: Tensor, dims: int | tuple[int, ...], most: float = INT8_MOST) -> Tensor:
    """Max |x| over ``dims`` (kept as 1) divided by the largest quantised number; 1 where all are zero."""
    largest = x.abs().amax(dims, keepdim=True)
    return torch.where(largest > 0, largest / most, 1.0)


def int8(x: Tensor, scale: Tensor) -> Tensor:
    """round(x / scale), ties to even, within [-127, 127]: whole numbers, held as floating ones."""
    return torch.round(x / scale).clamp(-INT8_MOST, INT8_MOST)


def fp8(x: Tensor, scale: Tensor) -> Tensor:
    """X / scale rounded to e4m3fn, beyond its largest number to that; held in the type of x."""
    return (x / scale).clamp(-FP8_MOST, FP8_MOST).to(FP8).to(x.dtype)


def grouped_uint4(w: Tensor, group: int) -> Tensor:
    """Weights (N, K) through four bits, in groups of K of its own scale and zero point, and back.

    scale = (max - min) / 15, zero = round(-min / scale), q = clamp(round(w / scale) + zero, 0, 15), where min and max
    include zero.
    """
    parts = w.unflatten(-1, (-1, group))
    low, high = parts.amin(-1, keepdim=True).clamp_max(0), parts.amax(-1, keepdim=True).clamp_min(0)
    scale = torch.where(high > low, (high - low) / 15, 1.0)
    zero = torch.round(-low / scale)
    q = (torch.round(parts / scale) + zero).clamp(0, 15)
    return ((q - zero) * scale).flatten(-2)


def product(a: Tensor, b: Tensor) -> Tensor:
    """A @ b for whole numbers within [-127, 127], by the GPU's integer units where PyTorch has a call for it."""
    fits = a.ndim == b.ndim == 2 and all(size >= 32 and size % 16 == 0 for size in (*a.shape, b.shape[1]))
    if a.is_cuda and fits and a.dtype == torch.float32:
        return torch._int_mm(a.to(torch.int8), b.to(torch.int8)).float()
    return a @ b


def bytewise(relation: Relation) -> Relation:
    """The same relation, for which numbers of e4m3fn are moved as their bytes: not every CUDA build selects any."""

    def as_bytes(values: Sequence[Any]) -> list[Any]:
        return [v.view(torch.uint8) if _is_fp8(v) else v for v in values]

    def back(values: Sequence[Any], like: Sequence[Any]) -> list[Any]:
        return [v.view(FP8) if _is_fp8(other) else v for v, other in zip(values, like, strict=True)]

    return replace(
        relation,
        transform=lambda args, generator: back(relation.transform(as_bytes(args), generator), args),
        expect=lambda outs, args, generator: back(relation.expect(as_bytes(outs), as_bytes(args), generator), outs),
    )


def _is_fp8(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype == FP8

"""What a problem's inputs promise beyond shape and dtype, found by looking at samples of them.

A problem file draws inputs by code of its own; nothing declares that a matrix is symmetric or that a vector holds
labels. Code that changes such inputs must keep what the problem's candidates may rely on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

_SAMPLE = 4096
_FEW_VALUES = 16
_ROWS = 64
_SPARSE = 0.25

_ROOM = 8
"""Storage that a strided input may span, in multiples of its elements; what is spread wider is given contiguous."""
_START = 64
"""Elements: a storage offset is kept modulo this, which keeps its alignment."""

Samples = dict[int, torch.Tensor]
"""Position of a floating argument -> some of its elements."""

Place = tuple[int, tuple[int, ...], int]
"""(elements of storage, strides, storage offset), in elements."""


@dataclass(frozen=True, kw_only=True)
class InputTraits:
    """Positions of arguments with a trait; but for ``placed``, of floating ones."""

    frozen: frozenset[int]
    """They come out the same under every seed."""
    labels: frozenset[int]
    """They take 16 different values at most: labels, signs, masks."""
    structured: frozenset[int]
    """Their elements depend on one another: symmetric, a quarter or more of zeros (triangular, sparse), or rows that
    sum to 1. Exchanging single elements breaks that; scaling the whole tensor keeps the first two."""
    placed: Mapping[int, Place]
    """Where the elements of those lie that are not row-major from the start of their storage: transposes, slices."""

    @classmethod
    def of(cls, args: Sequence[Any], other: Mapping[int, torch.Tensor]) -> InputTraits:
        """The traits of arguments, given samples of what another seed draws."""
        mine = sample(args)
        return cls(
            frozen=frozenset(i for i, values in mine.items() if i in other and torch.equal(values, other[i])),
            labels=frozenset(i for i, values in mine.items() if values.numel() > _FEW_VALUES >= len(values.unique())),
            structured=frozenset(i for i, values in mine.items() if _structured(args[i], values)),
            placed={i: place for i, arg in enumerate(args) if (place := _place(arg)) is not None},
        )


def is_float(value: Any) -> bool:
    """Whether it is a tensor of a floating type."""
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def sample(args: Sequence[Any]) -> Samples:
    """Up to 8191 evenly spaced elements of every floating tensor, the first included; empty tensors have none."""
    found = {}
    for index, value in enumerate(args):
        if is_float(value) and value.numel():
            flat = value.reshape(-1)
            # An even step would meet one half of a checkerboard, or one column of a power-of-two matrix, alone.
            found[index] = flat[:: max(1, flat.numel() // _SAMPLE) | 1].clone()
    return found


def _place(value: Any) -> Place | None:
    """Where a tensor's elements lie; None: row-major, no two apart (expanded), or too far from one another."""
    if not isinstance(value, torch.Tensor) or not value.numel():
        return None
    offset, strides = int(value.storage_offset()) % _START, tuple(map(int, value.stride()))
    if value.is_contiguous() and not offset:
        return None
    extent = 1
    for stride, size in sorted(zip(strides, value.shape, strict=True)):
        if size > 1 and stride < extent:
            return None
        extent += (size - 1) * stride
    return (offset + extent, strides, offset) if extent <= _ROOM * value.numel() else None


def _structured(tensor: torch.Tensor, values: torch.Tensor) -> bool:
    if float((values == 0).float().mean()) >= _SPARSE:
        return True
    if tensor.dim() < 2 or min(tensor.shape[-2:]) < 2:
        return False
    matrix = tensor.reshape(-1, *tensor.shape[-2:])[0]
    rows = matrix[:_ROWS].double()
    if matrix.shape[0] == matrix.shape[1] and torch.equal(rows, matrix[:, :_ROWS].double().T):
        return True
    return bool(((rows.sum(-1) - 1).abs() < 1e-4).all())

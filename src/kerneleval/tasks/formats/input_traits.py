"""What a problem's inputs promise beyond shape and dtype, found by looking at samples of them.

A problem file draws inputs by code of its own; nothing declares that a matrix is symmetric or that a vector holds
labels. Whoever changes such inputs must keep what the problem's candidates may rely on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

__all__ = ["InputTraits", "Samples", "is_float", "sample"]

_SAMPLE = 4096
_FEW_VALUES = 16
_ROWS = 64
_SPARSE = 0.25

Samples = dict[int, torch.Tensor]
"""Position of a floating argument -> some of its elements."""


@dataclass(frozen=True, kw_only=True)
class InputTraits:
    """Positions of floating arguments with a trait."""

    frozen: frozenset[int]
    """They come out the same under every seed."""
    labels: frozenset[int]
    """They take 16 different values at most: labels, signs, masks."""
    structured: frozenset[int]
    """Their elements depend on one another: symmetric, a quarter or more of zeros (triangular, sparse), or rows that
    sum to 1. Exchanging single elements breaks that; scaling the whole tensor keeps the first two."""

    @classmethod
    def of(cls, args: Sequence[Any], other: Mapping[int, torch.Tensor]) -> InputTraits:
        """The traits of arguments, given samples of what another seed draws."""
        mine = sample(args)
        return cls(
            frozen=frozenset(i for i, values in mine.items() if i in other and torch.equal(values, other[i])),
            labels=frozenset(i for i, values in mine.items() if values.numel() > _FEW_VALUES >= len(values.unique())),
            structured=frozenset(i for i, values in mine.items() if _structured(args[i], values)),
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

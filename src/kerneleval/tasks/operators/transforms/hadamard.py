"""Walsh-Hadamard transforms of the last dim, whose size is a power of two, in natural (Sylvester's) order.

The matrix: H[0] = 1, and H of twice the size is ((H, H), (H, -H)); H[i, j] = (-1) ** (how many bits i and j share).
"""

from __future__ import annotations

from typing import Any

import torch

from kerneleval.records import Task
from kerneleval.tasks.define import data, fixed, flags, operator, size, weight
from kerneleval.tasks.operators.reduction.scan import wide
from kerneleval.tasks.relations import additivity, homogeneity, permutation, resampling

Tensor = torch.Tensor


def _transformed(x: Tensor) -> Any:
    """Sums and differences, in fp32 at least."""
    length, found = x.shape[-1], wide(x)
    step = 1
    while step < length:
        first, second = found.unflatten(-1, (length // (2 * step), 2, step)).unbind(-2)
        found = torch.stack((first + second, first - second), -2).flatten(-3)
        step *= 2
    return found


def _walsh_hadamard(x: Tensor) -> Any:
    return _transformed(x).to(x.dtype, copy=True)


def _hadacore_transform(x: Tensor) -> Any:
    return (_transformed(x) * float(x.shape[-1]) ** -0.5).to(x.dtype)


def _randomized_hadamard(x: Tensor, negative: Tensor) -> Any:
    return (_transformed(torch.where(negative, -x, x)) * float(x.shape[-1]) ** -0.5).to(x.dtype)


def _hadamard_2d(x: Tensor) -> Any:
    both = _transformed(_transformed(x).mT).mT
    return (both * float(x.shape[-2] * x.shape[-1]) ** -0.5).to(x.dtype, memory_format=torch.contiguous_format)


def _hadamard_linear(x: Tensor, weight: Tensor) -> Any:
    return (_transformed(x) * float(x.shape[-1]) ** -0.5).to(x.dtype) @ weight.t()


_ROWS = (size("M"), fixed("P", high=12))
"""Rows of 2^P."""


def _sums(name: str, summary: str, reference: Any, *args: Any, **more: Any) -> Task:
    """A transform over rows; ``more`` as ``define.operator`` takes it."""
    settings: dict[str, Any] = {
        "dims": _ROWS,
        "derive": {"N": "2 ** P"},
        "out": ("M N",),
        "flops": "M * N * (P + 1)",
        "reduction": "N",
        "relations": (
            resampling("row_resampling", {0: 0}, {0: 0}),
            additivity(0),
            homogeneity({0: -2.0}, {0: -2.0}),
        ),
        **more,
    }
    return operator(
        name,
        "reduction",
        summary,
        args=args,
        reference=reference,
        empty=True,
        group="LinearAlgebra",
        complexity=2,
        **{"where": "P > 0", **settings},
    )


TASKS = (
    _sums(
        "walsh_hadamard_transform",
        "out[m] = H x[m], not scaled",
        _walsh_hadamard,
        data("x", "M N"),
        source="model",
    ),
    _sums(
        "hadacore_transform",
        "out[m] = H x[m] / sqrt(N)",
        _hadacore_transform,
        data("x", "M N"),
        source="vllm",
    ),
    _sums(
        "randomized_hadamard_transform",
        "out[m] = H y / sqrt(N), y = x[m] with the sign of the elements with negative[n] turned",
        _randomized_hadamard,
        data("x", "M N"),
        flags("negative", "N"),
        source="model",
        level=2,
    ),
    _sums(
        "hadamard_transform_2d",
        "out[b] = H x[b] H / sqrt(M N)",
        _hadamard_2d,
        data("x", "B M N"),
        dims=(size("B", high=1024), fixed("Q", high=6), fixed("P", high=6)),
        derive={"M": "2 ** Q", "N": "2 ** P"},
        out=("B M N",),
        flops="B * M * N * (P + Q + 1)",
        reduction="M * N",
        where="P * Q > 0",
        relations=(
            resampling("batch_resampling", {0: 0}, {0: 0}),
            additivity(0),
        ),
        source="model",
        level=2,
    ),
    _sums(
        "hadamard_linear",
        "out[m] = weight (H x[m] / sqrt(K))",
        _hadamard_linear,
        data("x", "M K"),
        weight("weight", "N K", fan_in="K"),
        dims=(size("M", high=4096), size("N", high=4096), fixed("P", low=2, high=10)),
        derive={"K": "2 ** P"},
        flops="M * K * (P + 1) + 2 * M * N * K",
        reduction="K",
        normwise=True,
        nonfinite=False,
        relations=(
            resampling("row_resampling", {0: 0}, {0: 0}),
            permutation("column_permutation", {1: 0}, {0: 1}),
            homogeneity({0: 2.0, 1: -0.5}, {0: -1.0}),
        ),
        source="vllm",
        level=2,
    ),
)

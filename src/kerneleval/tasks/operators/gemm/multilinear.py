"""Products of more than two factors, of every element with every other, and over several dims at once."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the usual name

from kerneleval.tasks.define import bias, data, plain, weight
from kerneleval.tasks.operators.gemm.gemm import free, product
from kerneleval.tasks.relations import homogeneity, permutation, resampling

Tensor = torch.Tensor
_BILINEAR = homogeneity({0: 2.0, 1: -0.5}, {0: -1.0})
_BATCH = resampling("batch_resampling", {0: 0}, {0: 0})
_BATCHES = resampling("batch_resampling", {0: 0, 1: 0}, {0: 0})


def _tensordot(a: Tensor, b: Tensor) -> Any:
    return torch.tensordot(a, b, dims=2)


def _gram(x: Tensor) -> Tensor:
    return torch.matmul(x, x.mT)


def _khatri_rao(a: Tensor, b: Tensor) -> Tensor:
    return (a[:, None] * b).flatten(0, 1)


def _quadratic_form(x: Tensor, a: Tensor, y: Tensor) -> Any:
    return torch.einsum("bi,ij,bj->b", x, a, y)


def _multi_dot(a: Tensor, b: Tensor, c: Tensor) -> Any:
    return torch.linalg.multi_dot([a, b, c])


TASKS = (
    product(
        "outer",
        "out[m, n] = x[m] * y[n]",
        torch.outer,
        "M N",
        (data("x", "M"), data("y", "N")),
        "M N",
        "",
        relations=(_BATCH, _BILINEAR),
        complexity=1,
        normwise=False,
    ),
    product(
        "kron",
        "out[m * P + p, n * Q + q] = a[m, n] * b[p, q]",
        torch.kron,
        free("M N P Q", high=512),
        (data("a", "M N"), data("b", "P Q")),
        "rows columns",
        "",
        relations=(_BILINEAR,),
        derive={"rows": "M * P", "columns": "N * Q"},
        complexity=1,
        normwise=False,
        empty=False,
    ),
    product(
        "khatri_rao",
        "out[m * P + p, n] = a[m, n] * b[p, n]",
        _khatri_rao,
        free("M P N", high=1024),
        (data("a", "M N"), data("b", "P N")),
        "rows N",
        "",
        relations=(permutation("column_permutation", {0: 1, 1: 1}, {0: 1}), _BILINEAR),
        derive={"rows": "M * P"},
        complexity=1,
        normwise=False,
    ),
    product(
        "tensordot",
        "out[m, n] = sum_{k, l} a[m, k, l] * b[k, l, n]",
        _tensordot,
        free("M K L N", high=1024),
        (data("a", "M K L"), data("b", "K L N", fan_in="K L")),
        "M N",
        "K L",
        relations=(_BATCH, permutation("contraction_order", {0: 2, 1: 1}, {}), _BILINEAR),
    ),
    product(
        "bilinear",
        "out[m, o] = bias[o] + sum_{i, j} x[m, i] * weight[o, i, j] * y[m, j]",
        F.bilinear,
        free("M I J O", high=1024),
        (data("x", "M I"), data("y", "M J"), weight("weight", "O I J", fan_in="I J"), bias("O")),
        "M O",
        "I J",
        relations=(_BATCHES, homogeneity({0: 2.0, 1: 2.0, 3: 4.0}, {0: 4.0})),
        each=1,
        gathered="max(M, O * max(I, J))",
    ),
    product(
        "quadratic_form",
        "out[m] = sum_{i, j} x[m, i] * a[i, j] * y[m, j]",
        _quadratic_form,
        free("M I J", high=4096),
        (data("x", "M I"), data("a", "I J", fan_in="I"), data("y", "M J", fan_in="J", large_half=4.0)),
        "M",
        "I J",
        relations=(
            resampling("row_resampling", {0: 0, 2: 0}, {0: 0}),
            homogeneity({0: 2.0, 1: -0.5, 2: 2.0}, {0: -2.0}),
        ),
    ),
    product(
        "gram",
        "out[m, n] = sum_k x[m, k] * x[n, k]",
        _gram,
        "M K",
        (data("x", "M K", fan_in="K"),),
        "M M",
        "K",
        relations=(permutation("contraction_order", {0: 1}, {}), homogeneity({0: -2.0}, {0: 4.0})),
        gathered="2 * M",
    ),
    product(
        "multi_dot",
        "out = a @ b @ c, in the order that takes fewer operations",
        _multi_dot,
        free("M K L N", high=4096),
        (data("a", "M K"), data("b", "K L", fan_in="K"), data("c", "L N", fan_in="L", large_half=4.0)),
        "M N",
        "K L",
        relations=(
            _BATCH,
            permutation("column_permutation", {2: 1}, {0: 1}),
            homogeneity({0: 2.0, 1: -0.5, 2: 2.0}, {0: -2.0}),
        ),
        flops="2 * min(M * L * (K + N), K * N * (L + M))",
        reduction="K + L",
    ),
    product(
        "matrix_power",
        "out = a @ a @ ... @ a, n times",
        torch.matrix_power,
        free("B N", high=2048),
        (data("a", "B N N", fan_in="N", large_half=4.0), plain("n", 3, among=(2, 4, 5))),
        "B N N",
        "N",
        relations=(_BATCH, homogeneity({0: -2.0}, {0: -8.0})),
        flops="4 * B * N ** 3",
        reduction="2 * N",
        group="LinearAlgebra",
    ),
)

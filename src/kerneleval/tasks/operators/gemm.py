"""Matrix products. Second operands are scaled by (terms summed) ** -0.5, so that outputs stay near unit scale."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 - the usual name

from kerneleval.tasks.define import bias, data, fixed, operator, size, weight
from kerneleval.tasks.relations import additivity, homogeneity, permutation, resampling

TASKS = (
    operator(
        "matmul",
        "gemm",
        "out[m, n] = sum_k a[m, k] * b[k, n]",
        dims=(size("M"), size("N"), size("K")),
        args=(data("a", "M K"), data("b", "K N", fan_in="K")),
        out=("M N",),
        reference=torch.matmul,
        nonfinite=False,  # Strassen's product spreads a NaN, and rounding errors
        flops=lambda d: 2 * d.M * d.N * d.K,
        reduction=lambda d: d.K,
        normwise=True,
        empty=True,
        relations=(
            permutation("row_permutation", {0: 0}, {0: 0}),
            permutation("column_permutation", {1: 1}, {0: 1}),
            permutation("contraction_order", {0: 1, 1: 0}, {}),
            resampling("row_resampling", {0: 0}, {0: 0}),
            additivity(0),
            homogeneity({0: 2.0, 1: -0.5}, {0: -1.0}),
        ),
    ),
    operator(
        "batched_matmul",
        "gemm",
        "out[b, m, n] = sum_k a[b, m, k] * b[b, k, n]",
        dims=(fixed("B", high=16), size("M"), size("N"), size("K")),
        args=(data("a", "B M K"), data("b", "B K N", fan_in="K")),
        out=("B M N",),
        reference=torch.bmm,
        nonfinite=False,
        flops=lambda d: 2 * d.B * d.M * d.N * d.K,
        reduction=lambda d: d.K,
        normwise=True,
        empty=True,
        relations=(
            permutation("batch_permutation", {0: 0, 1: 0}, {0: 0}),
            resampling("batch_resampling", {0: 0, 1: 0}, {0: 0}),
            permutation("row_permutation", {0: 1}, {0: 1}),
            permutation("column_permutation", {1: 2}, {0: 2}),
            permutation("contraction_order", {0: 2, 1: 1}, {}),
            homogeneity({0: 2.0, 1: -0.5}, {0: -1.0}),
        ),
    ),
    operator(
        "linear",
        "gemm",
        "out[m, n] = sum_k x[m, k] * weight[n, k] + bias[n]",
        dims=(size("M"), size("N"), size("K")),
        args=(data("x", "M K"), weight("weight", "N K", fan_in="K"), bias("N")),
        out=("M N",),
        reference=F.linear,
        nonfinite=False,
        flops=lambda d: 2 * d.M * d.N * d.K + d.M * d.N,
        reduction=lambda d: d.K,
        normwise=True,
        empty=True,
        relations=(
            permutation("row_permutation", {0: 0}, {0: 0}),
            permutation("feature_permutation", {1: 0, 2: 0}, {0: 1}),
            permutation("contraction_order", {0: 1, 1: 1}, {}),
            resampling("row_resampling", {0: 0}, {0: 0}),
            additivity(0, constant=2),
            homogeneity({0: 2.0, 2: 2.0}, {0: 2.0}),
        ),
    ),
    operator(
        "matvec",
        "gemm",
        "out[m] = sum_n a[m, n] * x[n]",
        dims=(size("M"), size("N")),
        args=(data("a", "M N"), data("x", "N", fan_in="N")),
        out=("M",),
        reference=torch.mv,
        flops=lambda d: 2 * d.M * d.N,
        reduction=lambda d: d.N,
        empty=True,
        relations=(
            permutation("row_permutation", {0: 0}, {0: 0}),
            permutation("contraction_order", {0: 1, 1: 0}, {}),
            resampling("row_resampling", {0: 0}, {0: 0}),
            additivity(0),
            homogeneity({0: 2.0, 1: -0.5}, {0: -1.0}),
        ),
    ),
)

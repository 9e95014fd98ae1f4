"""BLAS of matrices (level 3), as cuBLAS has it. Of symmetric matrices the lower triangle alone is read.

``flops`` of triangular and symmetric products count the elements that are zero or come twice, as dense libraries do.
"""

from __future__ import annotations

from typing import Any

import torch

from kerneleval.tasks.define import data, plain
from kerneleval.tasks.operators.gemm.blas import BLAS, MAIN, REAL
from kerneleval.tasks.operators.gemm.blas_level2 import UNBOUNDED, UNIT_TRIANGLE, symmetric
from kerneleval.tasks.operators.gemm.gemm import free, product
from kerneleval.tasks.relations import homogeneity, permutation, resampling

Tensor = torch.Tensor
_SCALARS = (plain("alpha", -1.25), plain("beta", 0.75))
_REAL: Any = {**BLAS, "dtypes": REAL}
_COLUMNS = permutation("column_permutation", {1: 1, 2: 1}, {0: 1})
_LINEAR = homogeneity({1: 2.0, 2: 2.0}, {0: 2.0})
_SCALED = homogeneity({0: 2.0, 1: -0.5}, {0: -1.0})
_SOLVED = homogeneity({1: -2.0}, {0: -2.0})


def _gemm(a: Tensor, b: Tensor, c: Tensor, alpha: float, beta: float) -> Tensor:
    return torch.addmm(c, a, b, beta=beta, alpha=alpha)


def _gemm_transposed(a: Tensor, b: Tensor, c: Tensor, alpha: float, beta: float) -> Tensor:
    return torch.addmm(c, a.mT, b.mT, beta=beta, alpha=alpha)


def _gemm_batched(a: Tensor, b: Tensor, c: Tensor, alpha: float, beta: float) -> Tensor:
    return torch.baddbmm(c, a, b, beta=beta, alpha=alpha)


def _symm(a: Tensor, b: Tensor, c: Tensor, alpha: float, beta: float) -> Tensor:
    return torch.addmm(c, symmetric(a), b, beta=beta, alpha=alpha)


def _symm_right(a: Tensor, b: Tensor, c: Tensor, alpha: float, beta: float) -> Tensor:
    return torch.addmm(c, b, symmetric(a), beta=beta, alpha=alpha)


def _lower(new: Tensor, c: Tensor) -> Tensor:
    """The lower triangle of the one, the rest of the other."""
    return torch.tril(new) + torch.triu(c, 1)


def _syrk(a: Tensor, c: Tensor, alpha: float, beta: float) -> Tensor:
    return _lower(torch.addmm(c, a, a.mT, beta=beta, alpha=alpha), c)


def _syr2k(a: Tensor, b: Tensor, c: Tensor, alpha: float, beta: float) -> Tensor:
    return _lower(torch.addmm(torch.addmm(c, a, b.mT, beta=beta, alpha=alpha), b, a.mT, alpha=alpha), c)


def _syrkx(a: Tensor, b: Tensor, c: Tensor, alpha: float, beta: float) -> Tensor:
    return _lower(torch.addmm(c, a, b.mT, beta=beta, alpha=alpha), c)


def _trmm(a: Tensor, b: Tensor, alpha: float) -> Tensor:
    return alpha * torch.matmul(torch.tril(a), b)


def _trmm_right(a: Tensor, b: Tensor, alpha: float) -> Tensor:
    return alpha * torch.matmul(b, torch.triu(a))


def _trsm(a: Tensor, b: Tensor, alpha: float) -> Any:
    return torch.linalg.solve_triangular(a, alpha * b, upper=False, unitriangular=True)


def _trsm_right(a: Tensor, b: Tensor, alpha: float) -> Any:
    return torch.linalg.solve_triangular(a, alpha * b, upper=True, left=False, unitriangular=True)


def _geam(a: Tensor, b: Tensor, alpha: float, beta: float) -> Tensor:
    return alpha * a.mT + beta * b


def _dgmm(a: Tensor, x: Tensor) -> Tensor:
    return a * x


TASKS = (
    product(
        "gemm_alpha_beta",
        "out[m, n] = alpha * sum_k a[m, k] * b[k, n] + beta * c[m, n]",
        _gemm,
        "M N K",
        (data("a", "M K"), data("b", "K N", fan_in="K"), data("c", "M N"), *_SCALARS),
        "M N",
        "K",
        relations=(_COLUMNS, _LINEAR),
        each=3,
        dtypes=MAIN,
        **BLAS,
    ),
    product(
        "gemm_transposed",
        "out[m, n] = alpha * sum_k a[k, m] * b[n, k] + beta * c[m, n]",
        _gemm_transposed,
        "M N K",
        (data("a", "K M"), data("b", "N K", fan_in="K"), data("c", "M N"), *_SCALARS),
        "M N",
        "K",
        relations=(_LINEAR,),
        each=3,
        dtypes=MAIN,
        **BLAS,
    ),
    product(
        "gemm_strided_batched",
        "out[b, m, n] = alpha * sum_k a[b, m, k] * b[b, k, n] + beta * c[b, m, n]",
        _gemm_batched,
        "B M N K",
        (data("a", "B M K"), data("b", "B K N", fan_in="K"), data("c", "B M N"), *_SCALARS),
        "B M N",
        "K",
        relations=(permutation("column_permutation", {1: 2, 2: 2}, {0: 2}), _LINEAR),
        each=3,
        dtypes=MAIN,
        **BLAS,
    ),
    product(
        "symm",
        "out = alpha * s @ b + beta * c, s symmetric with the lower triangle of a",
        _symm,
        "M N",
        (data("a", "M M"), data("b", "M N", fan_in="M"), data("c", "M N"), *_SCALARS),
        "M N",
        "M",
        relations=(_COLUMNS, _LINEAR),
        each=3,
        **_REAL,
    ),
    product(
        "symm_right",
        "out = alpha * b @ s + beta * c, s symmetric with the lower triangle of a",
        _symm_right,
        "M N",
        (data("a", "N N"), data("b", "M N", fan_in="N"), data("c", "M N"), *_SCALARS),
        "M N",
        "N",
        relations=(resampling("row_resampling", {1: 0, 2: 0}, {0: 0}), _LINEAR),
        each=3,
        **_REAL,
    ),
    product(
        "syrk",
        "out[m, n] = alpha * sum_k a[m, k] * a[n, k] + beta * c[m, n] where n <= m, else c[m, n]",
        _syrk,
        "N K",
        (data("a", "N K", fan_in="K"), data("c", "N N"), *_SCALARS),
        "N N",
        "K",
        relations=(permutation("contraction_order", {0: 1}, {}), homogeneity({0: -2.0, 1: 4.0}, {0: 4.0})),
        each=3,
        gathered="2 * N",
        **_REAL,
    ),
    product(
        "syr2k",
        "out[m, n] = alpha * sum_k (a[m, k] * b[n, k] + b[m, k] * a[n, k]) + beta * c[m, n] where n <= m, else c[m, n]",
        _syr2k,
        "N K",
        (data("a", "N K"), data("b", "N K", fan_in="K"), data("c", "N N"), *_SCALARS),
        "N N",
        "K",
        relations=(
            permutation("contraction_order", {0: 1, 1: 1}, {}),
            homogeneity({0: -2.0, 1: -2.0, 2: 4.0}, {0: 4.0}),
        ),
        flops="N * N * (4 * K + 3)",
        reduction="2 * K",
        gathered="2 * N",
        **_REAL,
    ),
    product(
        "syrkx",
        "out[m, n] = alpha * sum_k a[m, k] * b[n, k] + beta * c[m, n] where n <= m, else c[m, n]",
        _syrkx,
        "N K",
        (data("a", "N K"), data("b", "N K", fan_in="K"), data("c", "N N"), *_SCALARS),
        "N N",
        "K",
        relations=(
            permutation("contraction_order", {0: 1, 1: 1}, {}),
            homogeneity({0: -2.0, 1: -2.0, 2: 4.0}, {0: 4.0}),
        ),
        each=3,
        **_REAL,
    ),
    product(
        "trmm",
        "out = alpha * tril(a) @ b",
        _trmm,
        "M N",
        (data("a", "M M"), data("b", "M N", fan_in="M"), _SCALARS[0]),
        "M N",
        "M",
        relations=(permutation("column_permutation", {1: 1}, {0: 1}), _SCALED),
        each=1,
        **_REAL,
    ),
    product(
        "trmm_right",
        "out = alpha * b @ triu(a)",
        _trmm_right,
        "M N",
        (data("a", "N N"), data("b", "M N", fan_in="N"), _SCALARS[0]),
        "M N",
        "N",
        relations=(resampling("row_resampling", {1: 0}, {0: 0}), _SCALED),
        each=1,
        **_REAL,
    ),
    product(
        "trsm",
        "out = x such that t @ x = alpha * b, t = a below the diagonal and 1 on it",
        _trsm,
        free("N M", high=4096),
        (data("a", "N N", **UNIT_TRIANGLE), data("b", "N M"), _SCALARS[0]),
        "N M",
        "N",
        relations=(permutation("column_permutation", {1: 1}, {0: 1}), _SOLVED),
        without=UNBOUNDED,
        **_REAL,
    ),
    product(
        "trsm_right",
        "out = x such that x @ t = alpha * b, t = a above the diagonal and 1 on it",
        _trsm_right,
        free("M N", high=4096),
        (data("a", "N N", **UNIT_TRIANGLE), data("b", "M N"), _SCALARS[0]),
        "M N",
        "N",
        relations=(resampling("row_resampling", {1: 0}, {0: 0}), _SOLVED),
        without=UNBOUNDED,
        **_REAL,
    ),
    product(
        "trsm_batched",
        "out[b] = x such that t @ x = alpha * b[b], t = a[b] below the diagonal and 1 on it",
        _trsm,
        free("B N M", high=1024),
        (data("a", "B N N", **UNIT_TRIANGLE), data("b", "B N M"), _SCALARS[0]),
        "B N M",
        "N",
        relations=(permutation("column_permutation", {1: 2}, {0: 2}), _SOLVED),
        without=UNBOUNDED,
        **_REAL,
    ),
    product(
        "geam",
        "out[m, n] = alpha * a[n, m] + beta * b[m, n]",
        _geam,
        "M N",
        (data("a", "N M"), data("b", "M N"), *_SCALARS),
        "M N",
        "",
        relations=(homogeneity({0: 2.0, 1: 2.0}, {0: 2.0}),),
        each=2,
        complexity=1,
        normwise=False,
        **_REAL,
    ),
    product(
        "dgmm",
        "out[m, n] = a[m, n] * x[n]: a @ diag(x)",
        _dgmm,
        "M N",
        (data("a", "M N"), data("x", "N")),
        "M N",
        "",
        relations=(
            resampling("row_resampling", {0: 0}, {0: 0}),
            permutation("permutation", {0: 1, 1: 0}, {0: 1}),
            _SCALED,
        ),
        complexity=1,
        normwise=False,
        **_REAL,
    ),
)

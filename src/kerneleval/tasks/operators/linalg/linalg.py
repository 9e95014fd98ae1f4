"""Linear algebra on vectors and matrices that takes no factorization: norms, traces, distances, covariances."""

from __future__ import annotations

from typing import Any

import torch

from kerneleval.tasks.define import data, plain, size
from kerneleval.tasks.operators.gemm.gemm import free, product
from kerneleval.tasks.relations import homogeneity, permutation, resampling

Tensor = torch.Tensor
_ALGEBRA: Any = {"group": "LinearAlgebra", "normwise": False, "nonfinite": "nan"}
_SIMPLE: Any = {**_ALGEBRA, "complexity": 1}
_WIDE: Any = {"dtypes": ("float32", "float64")}  # sums of squares overflow half types
_ROWS = resampling("row_resampling", {0: 0}, {0: 0})
_PAIRS = resampling("row_resampling", {0: 0, 1: 0}, {0: 0})
_BILINEAR = homogeneity({0: 2.0, 1: -0.5}, {0: -1.0})
# With fewer there is no covariance, or no number in it but 1.
_SAMPLES = (size("M", low=2), size("K", low=4))
_NORM = homogeneity({0: -2.0}, {0: 2.0})


def _trace(a: Tensor) -> Tensor:
    return torch.diagonal(a, dim1=-2, dim2=-1).sum(-1)


def _vecdot(x: Tensor, y: Tensor) -> Any:
    return torch.linalg.vecdot(x, y)


def _cross(x: Tensor, y: Tensor) -> Any:
    return torch.linalg.cross(x, y)


def _vector_norm(x: Tensor) -> Any:
    return torch.linalg.vector_norm(x, 2, -1)


def _vector_norm_p(x: Tensor, p: float) -> Any:
    return torch.linalg.vector_norm(x, p, -1)


def _by_powers(x: Tensor, p: float) -> Tensor:
    return x.abs().pow(p).sum(-1).pow(1 / p)


def _frobenius_norm(a: Tensor) -> Any:
    return torch.linalg.matrix_norm(a)


def _norm_1(a: Tensor) -> Any:
    return torch.linalg.matrix_norm(a, 1)


def _norm_inf(a: Tensor) -> Any:
    return torch.linalg.matrix_norm(a, float("inf"))


def _cdist(x: Tensor, y: Tensor) -> Tensor:
    return torch.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist")


def _cdist_l1(x: Tensor, y: Tensor) -> Tensor:
    return torch.cdist(x, y, p=1.0)


def _pdist(x: Tensor) -> Tensor:
    return torch.nn.functional.pdist(x)


def _cov(x: Tensor) -> Tensor:
    return torch.cov(x)


def _corrcoef(x: Tensor) -> Tensor:
    return torch.corrcoef(x)


def _householder_product(a: Tensor, tau: Tensor) -> Any:
    return torch.linalg.householder_product(a, tau)


def _symmetric_norm(a: Tensor, x: Tensor) -> Any:
    return torch.linalg.vector_norm(torch.matmul(torch.tril(a) + torch.tril(a, -1).mT, x[..., None]), dim=(-2, -1))


TASKS = (
    product(
        "trace",
        "out[m] = sum_n a[m, n, n]",
        _trace,
        free("M N", high=1024),
        (data("a", "M N N"),),
        "M",
        "N",
        relations=(_ROWS, homogeneity({0: -2.0}, {0: -2.0})),
        flops="M * N",
        **_SIMPLE,
    ),
    product(
        "vecdot",
        "out[m] = sum_n x[m, n] * y[m, n]",
        _vecdot,
        "M N",
        (data("x", "M N"), data("y", "M N", fan_in="N")),
        "M",
        "N",
        relations=(_PAIRS, permutation("order", {0: 1, 1: 1}, {}), _BILINEAR),
        **_SIMPLE,
    ),
    product(
        "cross",
        "out[m] = x[m] x y[m], vectors of three",
        _cross,
        "M",
        (data("x", "M three"), data("y", "M three")),
        "M three",
        "",
        relations=(_PAIRS, _BILINEAR),
        derive={"three": 3},
        flops="9 * M",
        reduction="2",
        **_SIMPLE,
    ),
    product(
        "vector_norm",
        "out[m] = sqrt(sum_n x[m, n] ** 2); the gradient is 0 where all of a row is",
        _vector_norm,
        "M N",
        (data("x", "M N"),),
        "M",
        "N",
        relations=(_ROWS, permutation("order", {0: 1}, {}), _NORM),
        **_WIDE,
        **_SIMPLE,
    ),
    product(
        "vector_norm_p",
        "out[m] = (sum_n |x[m, n]| ** p) ** (1 / p); the gradient is 0 where x is",
        _vector_norm_p,
        "M N",
        (data("x", "M N"), plain("p", 3.0)),
        "M",
        "N",
        relations=(_ROWS, permutation("order", {0: 1}, {}), _NORM),
        flops="3 * M * N",
        unfused=(_by_powers,),  # the rounded exponent counts as often as the sum's logarithm says
        **_WIDE,
        **_SIMPLE,
    ),
    product(
        "frobenius_norm",
        "out[b] = sqrt(sum_{m, n} a[b, m, n] ** 2); the gradient is 0 where all of a matrix is",
        _frobenius_norm,
        "B M N",
        (data("a", "B M N"),),
        "B",
        "M N",
        relations=(_ROWS, _NORM),
        **_WIDE,
        **_SIMPLE,
    ),
    product(
        "matrix_norm_1",
        "out[b] = max_n sum_m |a[b, m, n]|; equal maxima share the gradient, which is 0 where a is",
        _norm_1,
        "B M N",
        (data("a", "B M N"),),
        "B",
        "M N",
        relations=(_ROWS, _NORM),
        reduction="M",
        empty=False,
        **_WIDE,
        **_SIMPLE,
    ),
    product(
        "matrix_norm_inf",
        "out[b] = max_m sum_n |a[b, m, n]|; equal maxima share the gradient, which is 0 where a is",
        _norm_inf,
        "B M N",
        (data("a", "B M N"),),
        "B",
        "M N",
        relations=(_ROWS, _NORM),
        reduction="N",
        empty=False,
        **_WIDE,
        **_SIMPLE,
    ),
    product(
        "cdist",
        "out[b, m, n] = sqrt(sum_k (x[b, m, k] - y[b, n, k]) ** 2); the gradient is 0 where points are equal",
        _cdist,
        free("B M N K", high=4096),
        (data("x", "B M K", along="K"), data("y", "B N K", along="K", equals="x")),
        "B M N",
        "K",
        rows=("far_mean",),
        relations=(resampling("row_resampling", {0: 1}, {0: 1}), homogeneity({0: -2.0, 1: -2.0}, {0: 2.0})),
        flops="B * M * N * (3 * K + 1)",
        without=("constant", "zeros"),
        **_WIDE,
        **_ALGEBRA,
    ),
    product(
        "cdist_l1",
        "out[b, m, n] = sum_k |x[b, m, k] - y[b, n, k]|; the gradient is 0 where coordinates are equal",
        _cdist_l1,
        free("B M N K", high=4096),
        (data("x", "B M K", along="K"), data("y", "B N K", along="K", equals="x")),
        "B M N",
        "K",
        rows=("far_mean",),
        relations=(resampling("row_resampling", {0: 1}, {0: 1}), homogeneity({0: -2.0, 1: -2.0}, {0: 2.0})),
        flops="3 * B * M * N * K",
        without=("constant", "zeros"),
        **_WIDE,
        **_ALGEBRA,
    ),
    product(
        "pdist",
        "out[m * (2 M - m - 1) / 2 + n - m - 1] = sqrt(sum_k (x[m, k] - x[n, k]) ** 2) for m < n",
        _pdist,
        free("M K", high=2048),
        (data("x", "M K"),),
        "pairs",
        "K",
        rows=("far_mean",),
        relations=(_NORM,),
        derive={"pairs": "M * (M - 1) // 2"},
        flops="M * (M - 1) // 2 * (3 * K + 1) + 1",
        where="M > 1",
        without=("constant", "zeros"),
        empty=False,
        **_WIDE,
        **_ALGEBRA,
    ),
    product(
        "cov",
        "out[m, n] = sum_k (x[m, k] - mean(x[m])) * (x[n, k] - mean(x[n])) / (K - 1)",
        _cov,
        (*free(""), *_SAMPLES),
        (data("x", "M K"),),
        "M M",
        "K",
        rows=("far_mean",),
        relations=(permutation("order", {0: 1}, {}), homogeneity({0: -2.0}, {0: 4.0})),
        flops="2 * M * M * K + 2 * M * K",
        gathered="2 * M",
        without=("constant",),
        empty=False,
        **{**_ALGEBRA, **_WIDE, "normwise": True, "nonfinite": False},
    ),
    product(
        "corrcoef",
        "out[m, n] = c[m, n] / sqrt(c[m, m] * c[n, n]) for the covariances c of the rows of x",
        _corrcoef,
        (*free(""), *_SAMPLES),
        (data("x", "M K"),),
        "M M",
        "K",
        rows=("far_mean",),
        relations=(permutation("order", {0: 1}, {}), homogeneity({0: -2.0}, {})),
        flops="2 * M * M * K + 2 * M * K + 3 * M * M",
        gathered="2 * M",
        without=("constant", "zeros"),
        empty=False,
        **{**_ALGEBRA, **_WIDE, "normwise": True, "nonfinite": False},
    ),
    product(
        "householder_product",
        "out[b] = the first N columns of the product over n of I - tau[b, n] * v @ v.T, v = a[b, :, n] below the "
        "diagonal and 1 on it",
        _householder_product,
        free("B N M", high=256),
        (data("a", "B height N", fan_in="N N", values="symmetric"), data("tau", "B N")),
        "B height N",
        "",
        relations=(_PAIRS,),
        derive={"height": "N + M"},
        flops="B * 2 * N * N * height",
        reduction="height",
        without=("outlier", "large_scale"),
        empty=False,
        **{**_ALGEBRA, **_WIDE, "normwise": True, "nonfinite": False},
    ),
    product(
        "symmetric_matrix_vector_norm",
        "out[b] = sqrt(sum (s @ x[b]) ** 2), s symmetric with the lower triangle of a[b]",
        _symmetric_norm,
        free("B N", high=2048),
        (data("a", "B N N"), data("x", "B N", fan_in="N")),
        "B",
        "N",
        relations=(_PAIRS, homogeneity({0: -2.0, 1: 0.5}, {0: 1.0})),
        flops="B * (2 * N * N + 2 * N)",
        level=2,
        **{**_ALGEBRA, **_WIDE, "normwise": True, "nonfinite": False},
    ),
)

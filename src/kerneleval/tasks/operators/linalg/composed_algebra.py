"""Linear algebra of two or three calls: solutions by a stated factorization, and products with a step behind."""

from __future__ import annotations

from typing import Any

import torch

from kerneleval.tasks.define import data, plain, size
from kerneleval.tasks.operators.gemm.gemm import free, product
from kerneleval.tasks.operators.linalg.factorization import UNBOUNDED, factored
from kerneleval.tasks.relations import homogeneity, permutation, resampling

Tensor = torch.Tensor
_BATCHES = resampling("batch_resampling", {0: 0, 1: 0}, {0: 0})
_TRIPLES = resampling("batch_resampling", {0: 0, 1: 0, 2: 0}, {0: 0})
_SOLUTION = (_BATCHES, permutation("column_permutation", {1: 2}, {0: 2}), homogeneity({1: -2.0}, {0: -2.0}))


def _near_eye(a: Tensor) -> Tensor:
    return a + torch.eye(a.shape[-2], a.shape[-1], dtype=a.dtype, device=a.device)


def _indefinite(a: Tensor) -> Tensor:
    signs = torch.arange(a.shape[-1], dtype=a.dtype, device=a.device).remainder(2).mul(-2).add(1)
    return (a + a.mT) / 2 + torch.diag(signs)


def _symmetric_solve(a: Tensor, b: Tensor) -> Any:
    return torch.linalg.solve(_indefinite(a), b)


def _solve_and_add(a: Tensor, b: Tensor, y: Tensor, alpha: float) -> Any:
    return torch.add(torch.linalg.solve_triangular(_near_eye(a), b, upper=True), y, alpha=alpha)


def _determinant_by_qr(a: Tensor) -> Tensor:
    return torch.diagonal(torch.linalg.qr(_near_eye(a)).R, dim1=-2, dim2=-1).abs().prod(-1)


def _matvec_dot(a: Tensor, x: Tensor, y: Tensor, alpha: float, beta: float) -> Tensor:
    return (torch.baddbmm(y[..., None], a, x[..., None], beta=beta, alpha=alpha) * x[..., None]).sum((-2, -1))


def _matmul_row_dot(a: Tensor, b: Tensor, c: Tensor, alpha: float, beta: float) -> Tensor:
    rows = torch.baddbmm(c, a, b, beta=beta, alpha=alpha)
    return (rows[:, :-1] * rows[:, 1:]).sum(-1)


def _rank_k_abs_sum(a: Tensor, c: Tensor, alpha: float, beta: float) -> Tensor:
    return torch.baddbmm(c, a, a.mT, beta=beta, alpha=alpha).abs().sum(-1)


def _tensordot_rsqrt(a: Tensor, b: Tensor) -> Tensor:
    return torch.rsqrt(torch.tensordot(a, b, dims=2))


def _tril_mm_scale(a: Tensor, b: Tensor, alpha: float) -> Tensor:
    return alpha * torch.matmul(torch.tril(a), b)


_A, _B = data("a", "B N N", fan_in="N N", values="symmetric"), data("b", "B N M")
_SCALARS = (plain("alpha", -1.25), plain("beta", 0.75))
_DEFINITE, _TRIANGLE = (data("a", "B N N", fan_in="N N", values=kind) for kind in ("half_linked", "linked"))
_ADDED: Any = (_TRIANGLE, _B, data("y", "B N M"), plain("alpha", -1.25))
_COMPOSED: Any = {"group": "MatrixMultiply", "level": 2}

TASKS = (
    factored(
        "solve_symmetric",
        "out[b] = x such that (diag(1, -1, 1, ...) + (a[b] + a[b].T) / 2) @ x = b[b]",
        _symmetric_solve,
        (_DEFINITE, _B),
        "B N M",
        2,
        "B N M",
        _SOLUTION,
        level=2,
    ),
    factored(
        "solve_and_add_scaled_vector",
        "out[b] = x + alpha * y[b], (I + triu(a[b])) @ x = b[b]",
        _solve_and_add,
        _ADDED,
        "B N M",
        1,
        "B N M",
        (_TRIPLES, permutation("column_permutation", {1: 2, 2: 2}, {0: 2})),
        flops="B * N * M * (N + 2)",
        level=2,
    ),
    factored(
        "det_qr",
        "out[b] = |det(I + a[b])|, by orthogonal factors",
        _determinant_by_qr,
        (data("a", "B N N", fan_in="N four", values="symmetric"),),
        "B",
        4 / 3,
        derive={"four": 4},
        without=(*UNBOUNDED, "constant"),
        layouts=("contiguous", "transposed", "sliced", "offset"),  # equal rows add up to more than 1
    ),
    product(
        "matrix_vector_dot",
        "out[b] = sum_n (alpha * a[b] @ x[b] + beta * y[b])[n] * x[b, n]",
        _matvec_dot,
        "B N",
        (data("a", "B N N", fan_in="N"), data("x", "B N", fan_in="N"), data("y", "B N"), *_SCALARS),
        "B",
        "N",
        relations=(_TRIPLES,),
        flops="B * (2 * N * N + 5 * N)",
        reduction="N * N",
        **_COMPOSED,
    ),
    product(
        "matrix_multiply_and_row_dot",
        "out[b, m] = sum_n c'[b, m, n] * c'[b, m + 1, n], c' = alpha * a @ b + beta * c, of M + 1 rows",
        _matmul_row_dot,
        "B M N K",
        (
            data("a", "B rows K", large_half=8.0, large_half_backward=4.0),
            data("b", "B K N", fan_in="K N", large_half=8.0, large_half_backward=4.0),
            data("c", "B rows N", fan_in="N", large_half=8.0, large_half_backward=4.0),
            *_SCALARS,
        ),
        "B M",
        "N K",
        relations=(_TRIPLES,),
        derive={"rows": "M + 1"},
        flops="B * (rows * N * (2 * K + 3) + 2 * M * N)",
        **_COMPOSED,
    ),
    product(
        "symmetric_mm_and_abs_sum",
        "out[b, m] = sum_n |alpha * a[b] @ a[b].T + beta * c[b]|[m, n]",
        _rank_k_abs_sum,
        "B M K",
        (data("a", "B M K", fan_in="K"), data("c", "B M M"), *_SCALARS),
        "B M",
        "M K",
        relations=(_BATCHES,),
        flops="B * M * M * (2 * K + 5)",
        **_COMPOSED,
    ),
    product(
        "tensordot_rsqrt",
        "out[m, n] = (sum_{k, l} a[m, k, l] * b[k, l, n]) ** -0.5, a, b > 0",
        _tensordot_rsqrt,
        (*free("M N"), *(size("K", high=256),)),
        (data("a", "M K four", values="positive"), data("b", "K four N", fan_in="K", values="positive")),
        "M N",
        "K four",
        # of more terms the rounding of tf32 inputs is averaged away
        derive={"four": 4},
        each=2,
        **_COMPOSED,
    ),
    product(
        "tril_mm_and_scale",
        "out = alpha * tril(a) @ b",
        _tril_mm_scale,
        "B N M",
        (data("a", "B N N"), data("b", "B N M", fan_in="N"), _SCALARS[0]),
        "B N M",
        "N",
        relations=(_BATCHES, homogeneity({0: 2.0, 1: -0.5}, {0: -1.0})),
        each=1,
        **_COMPOSED,
    ),
)

"""BLAS of batches of complex matrices, and the conjugate of complex numbers."""

from __future__ import annotations

from typing import Any

import torch

from kerneleval.tasks.define import data, plain
from kerneleval.tasks.operators.gemm.blas import BLAS
from kerneleval.tasks.operators.gemm.blas_level2 import UNBOUNDED, UNIT_TRIANGLE
from kerneleval.tasks.operators.gemm.gemm import free, product
from kerneleval.tasks.operators.movement.movement import moved
from kerneleval.tasks.relations import resampling

Tensor = torch.Tensor
_COMPLEX: Any = {**BLAS, "dtypes": ("complex64", "complex128")}
_SCALARS = (plain("alpha", -1.25), plain("beta", 0.75))
_TRIPLES = resampling("batch_resampling", {0: 0, 1: 0, 2: 0}, {0: 0})
_PAIRS = resampling("batch_resampling", {0: 0, 1: 0}, {0: 0})


def _gemm(a: Tensor, b: Tensor, c: Tensor, alpha: float, beta: float) -> Tensor:
    return torch.baddbmm(c, a, b, beta=beta, alpha=alpha)


def _gemv(a: Tensor, x: Tensor, y: Tensor, alpha: float, beta: float) -> Tensor:
    return torch.baddbmm(y[..., None], a, x[..., None], beta=beta, alpha=alpha)[..., 0]


def _trsm(a: Tensor, b: Tensor, alpha: float) -> Any:
    return torch.linalg.solve_triangular(a, alpha * b, upper=False, unitriangular=True)


TASKS = (
    product(
        "gemm_strided_batched_complex",
        "out[b] = alpha * a[b] @ b[b] + beta * c[b]",
        _gemm,
        "B M N K",
        (data("a", "B M K"), data("b", "B K N", fan_in="K"), data("c", "B M N"), *_SCALARS),
        "B M N",
        "K",
        relations=(_TRIPLES,),
        each=3,
        **_COMPLEX,
    ),
    product(
        "gemv_batched_complex",
        "out[b] = alpha * a[b] @ x[b] + beta * y[b]",
        _gemv,
        "B M N",
        (data("a", "B M N"), data("x", "B N", fan_in="N"), data("y", "B M"), *_SCALARS),
        "B M",
        "N",
        relations=(_TRIPLES,),
        each=3,
        **_COMPLEX,
    ),
    product(
        "trsm_batched_complex",
        "out[b] = x such that t @ x = alpha * b[b], t = a[b] below the diagonal and 1 on it",
        _trsm,
        free("B N M", high=1024),
        (data("a", "B N N", **UNIT_TRIANGLE), data("b", "B N M"), _SCALARS[0]),
        "B N M",
        "N",
        relations=(_PAIRS,),
        without=UNBOUNDED,
        **_COMPLEX,
    ),
    moved(
        "conj",
        "out = conj(x), as a copy",
        torch.conj_physical,
        "M N",
        "M N",
        dtypes=_COMPLEX["dtypes"],
        batch=True,
    ),
)

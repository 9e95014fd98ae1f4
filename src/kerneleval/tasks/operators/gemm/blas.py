"""BLAS on vectors (level 1), as cuBLAS has it; levels 2 and 3 and complex numbers are in modules of their own.

Increments and leading dims are what the judge's strided layouts are. Indices count from 0.
"""

from __future__ import annotations

from typing import Any

import torch

from kerneleval.tasks.define import MOST_NAMED, data, plain, size
from kerneleval.tasks.operators.gemm.gemm import product
from kerneleval.tasks.operators.movement.movement import copied
from kerneleval.tasks.relations import homogeneity, permutation

Tensor = torch.Tensor
BLAS: Any = {"source": "cublas", "group": "LinearAlgebra"}
REAL: tuple[str, ...] = ("float32", "float64")
MAIN: tuple[str, ...] = ("float32", "float64", "float16")
"""Types of the routines that cuBLAS has for half types too."""
VECTORS: Any = {**BLAS, "complexity": 1, "normwise": False, "nonfinite": "nan"}
_LONG = (size("N", long=MOST_NAMED),)
_X, _PAIR = (data("x", "N"),), (data("x", "N"), data("y", "N"))
_ORDER = permutation("order", {0: 0}, {})
_PLACES = permutation("permutation", {0: 0}, {0: 0})
_PAIRS = permutation("permutation", {0: 0, 1: 0}, {0: 0, 1: 0})
_LINEAR = homogeneity({0: 2.0}, {0: 2.0})
_BOTH = homogeneity({0: 2.0, 1: 2.0}, {0: 2.0, 1: 2.0})


def _scal(x: Tensor, alpha: float) -> Tensor:
    return alpha * x


def _swap(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return copied(y), copied(x)


def _axpy(x: Tensor, y: Tensor, alpha: float) -> Tensor:
    return torch.add(y, x, alpha=alpha)


def _asum(x: Tensor) -> Any:
    return torch.linalg.vector_norm(x, 1)


def _nrm2(x: Tensor) -> Any:
    return torch.linalg.vector_norm(x)


def _iamax(x: Tensor) -> Tensor:
    return torch.argmax(torch.abs(x))


def _iamin(x: Tensor) -> Tensor:
    return torch.argmin(torch.abs(x))


def _rot(x: Tensor, y: Tensor, c: float, s: float) -> tuple[Tensor, Tensor]:
    return c * x + s * y, c * y - s * x


def _rotm(x: Tensor, y: Tensor, h11: float, h12: float, h21: float, h22: float) -> tuple[Tensor, Tensor]:
    return h11 * x + h12 * y, h21 * x + h22 * y


TASKS = (
    product(
        "scal",
        "out[n] = alpha * x[n]",
        _scal,
        "N",
        (*_X, plain("alpha", 1.75)),
        "N",
        "",
        relations=(_PLACES, _LINEAR),
        dtypes=MAIN,
        **VECTORS,
    ),
    product(
        "vector_axpy",
        "out[n] = alpha * x[n] + y[n]",
        _axpy,
        "N",
        (*_PAIR, plain("alpha", -1.25)),
        "N",
        "",
        relations=(permutation("permutation", {0: 0, 1: 0}, {0: 0}), homogeneity({0: 2.0, 1: 2.0}, {0: 2.0})),
        each=1,
        dtypes=MAIN,
        **VECTORS,
    ),
    product(
        "vector_copy",
        "out[n] = x[n]",
        copied,
        "N",
        _X,
        "N",
        "",
        relations=(_PLACES, _LINEAR),
        exact=True,
        dtypes=REAL,
        **VECTORS,
    ),
    product(
        "swap",
        "out0[n] = y[n], out1[n] = x[n]",
        _swap,
        "N",
        _PAIR,
        "N, N",
        "",
        relations=(_PAIRS, _BOTH),
        exact=True,
        dtypes=REAL,
        **VECTORS,
    ),
    product(
        "asum",
        "out = sum_n |x[n]|; the gradient is 0 where x is",
        _asum,
        "N",
        _X,
        "",
        "N",
        relations=(_ORDER, homogeneity({0: -2.0}, {0: 2.0})),
        dtypes=REAL,
        **VECTORS,
    ),
    product(
        "nrm2",
        "out = sqrt(sum_n x[n] ** 2); the gradient is 0 where all of x is",
        _nrm2,
        "N",
        _X,
        "",
        "N",
        relations=(_ORDER, homogeneity({0: -2.0}, {0: 2.0})),
        dtypes=REAL,
        **VECTORS,
    ),
    product(
        "iamax",
        "out = an n for which |x[n]| is largest",
        _iamax,
        _LONG,
        _X,
        ": int64",
        "",
        relations=(homogeneity({0: -2.0}, {}),),
        flops="2 * N",
        index_output=True,
        empty=False,
        rows=("ordered",),
        extreme="rows",
        no_backward="the output is an index",
        dtypes=REAL,
        **VECTORS,
    ),
    product(
        "iamin",
        "out = an n for which |x[n]| is smallest",
        _iamin,
        _LONG,
        _X,
        ": int64",
        "",
        relations=(homogeneity({0: -2.0}, {}),),
        flops="2 * N",
        index_output=True,
        empty=False,
        rows=("ordered",),
        extreme="rows",
        no_backward="the output is an index",
        dtypes=REAL,
        **VECTORS,
    ),
    product(
        "rot",
        "out0[n] = c * x[n] + s * y[n], out1[n] = c * y[n] - s * x[n]",
        _rot,
        "N",
        (*_PAIR, plain("c", 0.8), plain("s", 0.6)),
        "N, N",
        "",
        relations=(_PAIRS, _BOTH),
        each=2,
        dtypes=REAL,
        **VECTORS,
    ),
    product(
        "rotm",
        "out0[n] = h11 * x[n] + h12 * y[n], out1[n] = h21 * x[n] + h22 * y[n]",
        _rotm,
        "N",
        (*_PAIR, plain("h11", 1.25), plain("h12", -0.5), plain("h21", 0.75), plain("h22", 0.875)),
        "N, N",
        "",
        relations=(_PAIRS, _BOTH),
        each=2,
        dtypes=REAL,
        **VECTORS,
    ),
)

"""BLAS of complex numbers. A multiply-add of complex numbers counts as two operations.

Gradients are PyTorch's: of a real loss, ``d loss / d re + i * d loss / d im``. Of symmetric and Hermitian matrices the
lower triangle alone is read; the diagonal of a Hermitian one counts as real.
"""

from __future__ import annotations

from typing import Any

import torch

from kerneleval.tasks.define import data, plain
from kerneleval.tasks.operators.gemm.blas import BLAS
from kerneleval.tasks.operators.gemm.gemm import product
from kerneleval.tasks.operators.movement.movement import copied

Tensor = torch.Tensor
_COMPLEX: Any = {**BLAS, "dtypes": ("complex64", "complex128")}
_VECTORS: Any = {**_COMPLEX, "complexity": 1, "normwise": False}
_SCALARS = (plain("alpha", -1.25), plain("beta", 0.75))
_PAIR = (data("x", "N"), data("y", "N"))
_DOT = (data("x", "N"), data("y", "N", fan_in="N"))


def _axpy(x: Tensor, y: Tensor, alpha: float) -> Tensor:
    return torch.add(y, x, alpha=alpha)


def _scal(alpha: Tensor, x: Tensor) -> Tensor:
    return alpha * x


def _swap(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return copied(y), copied(x)


def _gemv(a: Tensor, x: Tensor, y: Tensor, alpha: float, beta: float) -> Tensor:
    return torch.addmv(y, a, x, beta=beta, alpha=alpha)


def _gemv_adjoint(a: Tensor, x: Tensor, y: Tensor, alpha: float, beta: float) -> Tensor:
    return torch.addmv(y, a.mH, x, beta=beta, alpha=alpha)


def _geru(a: Tensor, x: Tensor, y: Tensor, alpha: float) -> Tensor:
    return torch.addr(a, x, y, alpha=alpha)


def _gerc(a: Tensor, x: Tensor, y: Tensor, alpha: float) -> Tensor:
    return torch.addr(a, x, y.conj(), alpha=alpha)


def _symmetric(a: Tensor) -> Tensor:
    return torch.tril(a) + torch.tril(a, -1).mT


def _hermitian(a: Tensor) -> Tensor:
    below = torch.tril(a, -1)
    return below + below.mH + torch.diag_embed(torch.diagonal(a, dim1=-2, dim2=-1).real)


def _symv(a: Tensor, x: Tensor, y: Tensor, alpha: float, beta: float) -> Tensor:
    return torch.addmv(y, _symmetric(a), x, beta=beta, alpha=alpha)


def _hemv(a: Tensor, x: Tensor, y: Tensor, alpha: float, beta: float) -> Tensor:
    return torch.addmv(y, _hermitian(a), x, beta=beta, alpha=alpha)


def _gemm(a: Tensor, b: Tensor, c: Tensor, alpha: float, beta: float) -> Tensor:
    return torch.addmm(c, a, b, beta=beta, alpha=alpha)


def _gemm_adjoint(a: Tensor, b: Tensor, c: Tensor, alpha: float, beta: float) -> Tensor:
    return torch.addmm(c, a.mH, b, beta=beta, alpha=alpha)


def _symm(a: Tensor, b: Tensor, c: Tensor, alpha: float, beta: float) -> Tensor:
    return torch.addmm(c, _symmetric(a), b, beta=beta, alpha=alpha)


def _hemm(a: Tensor, b: Tensor, c: Tensor, alpha: float, beta: float) -> Tensor:
    return torch.addmm(c, _hermitian(a), b, beta=beta, alpha=alpha)


def _syrk(a: Tensor, c: Tensor, alpha: float, beta: float) -> Tensor:
    return torch.tril(torch.addmm(c, a, a.mT, beta=beta, alpha=alpha)) + torch.triu(c, 1)


def _herk(a: Tensor, c: Tensor, alpha: float, beta: float) -> Tensor:
    return torch.tril(torch.addmm(c, a, a.mH, beta=beta, alpha=alpha)) + torch.triu(c, 1)


_MATRIX = (data("a", "M N"), data("x", "N", fan_in="N"), data("y", "M"), *_SCALARS)
_SQUARE = (data("a", "N N"), data("x", "N", fan_in="N"), data("y", "N"), *_SCALARS)
_RANK_ONE = (data("a", "M N"), data("x", "M"), data("y", "N"), _SCALARS[0])
_THREE = (data("a", "M K"), data("b", "K N", fan_in="K"), data("c", "M N"), *_SCALARS)
_SIDE = (data("a", "M M"), data("b", "M N", fan_in="M"), data("c", "M N"), *_SCALARS)
_RANK_K = (data("a", "N K", fan_in="K"), data("c", "N N"), *_SCALARS)

TASKS = (
    product("copy_complex", "out[n] = x[n]", copied, "N", _PAIR[:1], "N", "", exact=True, **_VECTORS),
    product("swap_complex", "out0[n] = y[n], out1[n] = x[n]", _swap, "N", _PAIR, "N, N", "", exact=True, **_VECTORS),
    product(
        "scal_complex", "out[n] = alpha * x[n]", _scal, "N", (data("alpha", ""), data("x", "N")), "N", "", **_VECTORS
    ),
    product(
        "axpy_complex",
        "out[n] = alpha * x[n] + y[n], alpha real",
        _axpy,
        "N",
        (*_PAIR, _SCALARS[0]),
        "N",
        "",
        each=1,
        **_VECTORS,
    ),
    product("dotu", "out = sum_n x[n] * y[n]", torch.dot, "N", _DOT, "", "N", **_VECTORS),
    product("dotc", "out = sum_n conj(x[n]) * y[n]", torch.vdot, "N", _DOT, "", "N", **_VECTORS),
    product(
        "geru", "out[m, n] = a[m, n] + alpha * x[m] * y[n]", _geru, "M N", _RANK_ONE, "M N", "", each=2, **_VECTORS
    ),
    product(
        "gerc",
        "out[m, n] = a[m, n] + alpha * x[m] * conj(y[n])",
        _gerc,
        "M N",
        _RANK_ONE,
        "M N",
        "",
        each=2,
        **_VECTORS,
    ),
    product("gemv_complex", "out = alpha * a @ x + beta * y", _gemv, "M N", _MATRIX, "M", "N", each=3, **_COMPLEX),
    product(
        "gemv_adjoint",
        "out = alpha * conj(a).T @ x + beta * y",
        _gemv_adjoint,
        "M N",
        (data("a", "M N"), data("x", "M", fan_in="M"), data("y", "N"), *_SCALARS),
        "N",
        "M",
        each=3,
        **_COMPLEX,
    ),
    product(
        "symv_complex",
        "out = alpha * s @ x + beta * y, s symmetric with the lower triangle of a",
        _symv,
        "N",
        _SQUARE,
        "N",
        "N",
        each=3,
        **_COMPLEX,
    ),
    product(
        "hemv",
        "out = alpha * h @ x + beta * y, h Hermitian with the lower triangle of a",
        _hemv,
        "N",
        _SQUARE,
        "N",
        "N",
        each=3,
        **_COMPLEX,
    ),
    product("gemm_complex", "out = alpha * a @ b + beta * c", _gemm, "M N K", _THREE, "M N", "K", each=3, **_COMPLEX),
    product(
        "gemm_adjoint",
        "out = alpha * conj(a).T @ b + beta * c",
        _gemm_adjoint,
        "M N K",
        (data("a", "K M"), *_THREE[1:]),
        "M N",
        "K",
        each=3,
        **_COMPLEX,
    ),
    product(
        "symm_complex",
        "out = alpha * s @ b + beta * c, s symmetric with the lower triangle of a",
        _symm,
        "M N",
        _SIDE,
        "M N",
        "M",
        each=3,
        **_COMPLEX,
    ),
    product(
        "hemm",
        "out = alpha * h @ b + beta * c, h Hermitian with the lower triangle of a",
        _hemm,
        "M N",
        _SIDE,
        "M N",
        "M",
        each=3,
        **_COMPLEX,
    ),
    product(
        "syrk_complex",
        "out = alpha * a @ a.T + beta * c in the lower triangle, c above it",
        _syrk,
        "N K",
        _RANK_K,
        "N N",
        "K",
        each=3,
        gathered="2 * N",
        **_COMPLEX,
    ),
    product(
        "herk",
        "out = alpha * a @ conj(a).T + beta * c in the lower triangle, c above it",
        _herk,
        "N K",
        _RANK_K,
        "N N",
        "K",
        each=3,
        gathered="2 * N",
        **_COMPLEX,
    ),
)

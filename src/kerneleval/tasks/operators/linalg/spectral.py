"""Eigenvectors and singular vectors of matrices, and functions of matrices by them.

Vectors are defined where eigenvalues lie apart, and up to their sign: the tasks that give them work on
``m = diag(1, 2, ...) + a``, the elements of a below 1/4 in size, and have a positive diagonal. Functions of matrices
need no such gaps; half of theirs are multiples of such matrices near the identity.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from kerneleval.records import Task
from kerneleval.tasks.define import data, plain
from kerneleval.tasks.operators.linalg.factorization import UNBOUNDED, factored

Tensor = torch.Tensor


def _spectral(*args: Any, high: int = 256, **more: Any) -> Task:
    """A task whose vectors or gradients are off by roundings over gaps; in fp64 the oracle itself is."""
    task = factored(*args, **more)
    dims = tuple(replace(dim, high=high) if dim.name == "N" else dim for dim in task.dims)
    return replace(task, dims=dims, dtypes=("float32",))


def _near_eye(a: Tensor) -> Tensor:
    return a + torch.eye(a.shape[-2], a.shape[-1], dtype=a.dtype, device=a.device)


def _apart(a: Tensor) -> Tensor:
    steps = torch.arange(1, a.shape[-1] + 1, dtype=a.dtype, device=a.device)
    return a + torch.eye(a.shape[-2], a.shape[-1], dtype=a.dtype, device=a.device) * steps


def _symmetric(a: Tensor) -> Tensor:
    return _apart((a + a.mT) / 2)


def _signs(vectors: Tensor) -> Tensor:
    """What makes the diagonal positive."""
    signs = torch.where(torch.diagonal(vectors, dim1=-2, dim2=-1) < 0, -1.0, 1.0)
    return signs.to(vectors.dtype)[..., None, :]


def _eigh(a: Tensor) -> tuple[Tensor, Tensor]:
    values, vectors = torch.linalg.eigh(_symmetric(a))
    return values, vectors * _signs(vectors)


def _eig(a: Tensor) -> tuple[Tensor, Tensor]:
    values, vectors = torch.linalg.eig(_apart(a))
    order = values.real.argsort(-1)
    found = torch.gather(vectors.real, -1, order[..., None, :].expand(vectors.shape))
    return torch.gather(values.real, -1, order), found * _signs(found)


def _svd(a: Tensor) -> tuple[Tensor, ...]:
    u, s, v = torch.linalg.svd(_apart(a), full_matrices=False)
    u, s, v = u.flip(-1), s.flip(-1), v.mT.flip(-1)
    return u * _signs(v), s, v * _signs(v)


def _decomposed(m: Tensor) -> tuple[Tensor, ...]:
    u, s, v = torch.linalg.svd(m, full_matrices=False)
    return u, s, v


def _of_columns_reversed(m: Tensor) -> tuple[Tensor, ...]:
    u, s, v = _decomposed(m.flip(-1))
    return u, s, v.flip(-1)


def _of_transpose(m: Tensor) -> tuple[Tensor, ...]:
    u, s, v = _decomposed(m.mT)
    return v.mT, s, u.mT


def _low_rank(a: Tensor, k: int, svd: Any = _decomposed) -> Any:
    large = torch.arange(a.shape[-1], device=a.device) < k
    m = a + 2 * torch.eye(a.shape[-2], a.shape[-1], dtype=a.dtype, device=a.device) * large
    u, s, v = svd(m)
    return (u[..., :k] * s[..., None, :k]) @ v[..., :k, :]


def _reconstructed(a: Tensor) -> Any:
    u, s, v = _decomposed(_near_eye(a))
    return (u * s[..., None, :]) @ v


def _polar(a: Tensor, svd: Any = _decomposed) -> Any:
    u, _, v = svd(_near_eye(a))
    return u @ v


def _shrunk(a: Tensor, threshold: float) -> Any:
    u, s, v = _decomposed(_near_eye(a))
    return (u * (s - threshold).clamp_min(0)[..., None, :]) @ v


def _of_spectrum(function: Callable[..., Tensor], triangle: str = "L", turned: tuple[int, ...] = ()) -> Any:
    """The matrix that has the eigenvectors of I + (a + a.T) / 2, and this of its eigenvalues; by one triangle, and of
    the matrix reversed along these dims.
    """

    def by_eigenvectors(a: Tensor, *plains: float) -> Any:
        values, vectors = torch.linalg.eigh(_near_eye((a + a.mT) / 2).flip(turned), UPLO=triangle)
        return ((vectors * function(values, *plains)[..., None, :]) @ vectors.mT).flip(turned)

    return by_eigenvectors


def _other_spectra(function: Callable[..., Tensor]) -> dict[str, Any]:
    """Gradients divide by what is between eigenvalues: what rounding leaves there is another by each decomposition."""
    forms = (_of_spectrum(function, turned=(-2, -1)), _of_spectrum(function, "U"))
    return {**_SPREAD, "unfused": forms, "in_type": False}


def _other_vectors(function: Callable[..., Any]) -> dict[str, Any]:
    """The same of singular values."""
    forms = tuple(functools.partial(function, svd=svd) for svd in (_of_columns_reversed, _of_transpose))
    return {**_SPREAD, "unfused": forms, "in_type": False}


def _square_root(a: Tensor, steps: int) -> Any:
    """Newton's iteration in the form of Denman, Beavers and Schulz, which takes products alone."""
    m = _near_eye((a + a.mT) / 2)
    size = torch.linalg.matrix_norm(m, keepdim=True)
    y, z = m / size, _near_eye(torch.zeros_like(m))
    eye = 3 * z
    for _ in range(steps):
        t = (eye - z @ y) / 2
        y, z = y @ t, t @ z
    return y * size.sqrt()


def _logdet(a: Tensor) -> Any:
    return torch.logdet(_near_eye((a + a.mT) / 2))


_A = data("a", "B N N", fan_in="sixteen", values="turned")
_TALL = data("a", "B height N", fan_in="sixteen", values="turned")
_APART: Any = {
    "derive": {"sixteen": 16, "height": "N + M"},
    "without": (*UNBOUNDED, "constant"),
    "layouts": ("contiguous", "transposed", "sliced", "offset"),  # equal rows add up to more than the gap
}
_VECTORS: Any = {**_APART, "factor": 16.0}  # stable algorithms are off by the norm over the gap, N roundings
_WIDE = data("a", "B N N", fan_in="N four", values="resized")
_WIDE_TALL = data("a", "B height N", fan_in="N four", values="symmetric")
_SPREAD: Any = {
    **_APART,
    "derive": {"four": 4, "height": "N + M"},
    "forward_only": ("zeros", "small_scale"),  # PyTorch's gradients divide by what is between eigenvalues
}
_RANK: Any = (_WIDE_TALL, plain("k", formula="(N + 1) // 2", among=(1, "N // 3 + 1")))
_LEVEL: Any = (_WIDE_TALL, plain("threshold", 0.4))
_POWER: Any = (_WIDE, plain("power", 1.7))
_STEPS: Any = (_WIDE, plain("steps", 6, among=(2, 4, 5)))

TASKS = (
    _spectral(
        "eigh",
        "out0[b] rising, out1[b] @ diag(out0[b]) @ out1[b].T = diag(1, 2, ...) + (a[b] + a[b].T) / 2, out1 orthogonal "
        "with a positive diagonal",
        _eigh,
        (_A,),
        "B N, B N N",
        9,
        **_VECTORS,
    ),
    _spectral(
        "eig",
        "(diag(1, 2, ...) + a[b]) @ out1[b] = out1[b] @ diag(out0[b]), out0 rising, the columns of out1 of length 1, "
        "its diagonal positive",
        _eig,
        (_A,),
        "B N, B N N",
        25,
        high=64,  # of larger ones LAPACK is off by more than tf32 inputs are
        **_VECTORS,
    ),
    _spectral(
        "svd",
        "out0[b] @ diag(out1[b]) @ out2[b].T = diag(1, 2, ...) + a[b], of N + M rows, out1 rising, out0 and out2 with "
        "orthogonal columns, out2 with a positive diagonal",
        _svd,
        (_TALL,),
        "B height N, B N, B N N",
        14,
        "B N M",
        **_VECTORS,
    ),
    _spectral(
        "low_rank_svd",
        "out[b] = the matrix of rank k nearest to diag(2, ... 2, 0, ... 0) + a[b], of N + M rows, k numbers of them 2",
        _low_rank,
        _RANK,
        "B height N",
        16,
        "B N M",
        level=2,
        **_other_vectors(_low_rank),
    ),
    _spectral(
        "svd_reconstruct",
        "out[b] = u @ diag(s) @ v.T of the singular value decomposition of I + a[b], of N + M rows",
        _reconstructed,
        (_WIDE_TALL,),
        "B height N",
        16,
        "B N M",
        level=2,
        **_SPREAD,
        no_backward="it is the upstream gradient",
    ),
    _spectral(
        "polar",
        "out[b] = the matrix of orthogonal columns nearest to I + a[b], of N + M rows: u @ v.T of its singular vectors",
        _polar,
        (_WIDE_TALL,),
        "B height N",
        16,
        "B N M",
        **_other_vectors(_polar),
    ),
    _spectral(
        "singular_value_shrinkage",
        "out[b] = u @ diag(max(s - threshold, 0)) @ v.T of the singular value decomposition of I + a[b], of N + M rows",
        _shrunk,
        _LEVEL,
        "B height N",
        16,
        "B N M",
        level=2,
        **_SPREAD,
    ),
    _spectral(
        "matrix_power_eig",
        "out[b] = (I + (a[b] + a[b].T) / 2) ** power",
        _of_spectrum(torch.pow),
        _POWER,
        "B N N",
        13,
        **_other_spectra(torch.pow),
    ),
    _spectral(
        "matrix_log",
        "out[b] = log(I + (a[b] + a[b].T) / 2), of the matrix",
        _of_spectrum(torch.log),
        (_WIDE,),
        "B N N",
        13,
        **_other_spectra(torch.log),
    ),
    _spectral(
        "inverse_square_root",
        "out[b] = (I + (a[b] + a[b].T) / 2) ** -0.5",
        _of_spectrum(torch.rsqrt),
        (_WIDE,),
        "B N N",
        13,
        **_other_spectra(torch.rsqrt),
    ),
    factored(
        "square_root_newton_schulz",
        "out[b] = sqrt(n) * y after steps times t = (3 I - z @ y) / 2, y = y @ t, z = t @ z, from y = m / n and z = I, "
        "m = I + (a[b] + a[b].T) / 2, n its Frobenius norm",
        _square_root,
        _STEPS,
        "B N N",
        36,
        **_SPREAD,
    ),
    factored("logdet", "out[b] = log det(I + (a[b] + a[b].T) / 2)", _logdet, (_WIDE,), "B", 2 / 3, **_SPREAD),
)

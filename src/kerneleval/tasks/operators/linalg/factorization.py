"""Factorizations of matrices, and what follows from them: solutions, inverses, determinants, spectra.

Most work on ``m = I + a``, the elements of a in (-1 / N, 1 / N): no row and no column of a sums to 1, so that m is
well-conditioned (and I + (a + a.T) / 2 positive definite), and pivoting has nothing to exchange. Other data than such
would not be: it is left out. Triangles, and what is solved by them, may be linked: next to the diagonal, elements are
larger than the others, and conditions below 40. Two columns of ``qr`` and ``pinv`` may nearly be a third. Where PyTorch
is good at any regular matrix (determinant, inverse, solutions, pseudoinverse), rows are exchanged, have either sign,
and columns differ in length.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from kerneleval.records import Arg, Relation, Task
from kerneleval.tasks.define import data, operator, size
from kerneleval.tasks.relations import homogeneity, permutation, resampling

Tensor = torch.Tensor
UNBOUNDED = ("outlier", "large_scale")
_TERMS = 15
"""Terms of a matrix's series that leave nothing out in fp64 where its norm is below a half."""
_SMALL: Any = {"fan_in": "N N", "values": "symmetric"}
_A, _B = data("a", "B N N", **_SMALL), data("b", "B N M")
_TRIANGLE, _DEFINITE = (data("a", "B N N", fan_in="N N", values=kind) for kind in ("linked", "half_linked"))
_LEANING = data("a", "B height N", fan_in="N N", values="leaning")
_FAINT = data("a", "B height N", fan_in="height", values="faint")
_SKEW = data("a", "B N N", fan_in="N N", values="skew")
_ANY, _ANY_TALL = (data("a", shape, fan_in="N N", values="off_eye") for shape in ("B N N", "B height N"))
_STABLE = 8.0
"""Of matrices with columns that nearly agree, stable algorithms are off by multiples of one another: elimination of
columns in turn (Gram and Schmidt, modified) by four times as much as LAPACK, unstable ones by far more."""
_HEIGHT: Any = {"derive": {"height": "N + M"}}
_SOLUTION = (
    resampling("batch_resampling", {0: 0, 1: 0}, {0: 0}),
    permutation("column_permutation", {1: 2}, {0: 2}),
    homogeneity({1: -2.0}, {0: -2.0}),
)
_NO_EQUAL_ROWS = ("contiguous", "transposed", "sliced", "offset")
_SIMPLE = ("constant", "zeros", "outlier", "small_scale", "large_scale")


def factored(
    name: str,
    summary: str,
    reference: Callable[..., Any],
    args: tuple[Arg, ...],
    out: str,
    cubes: float,
    dims: str = "B N",
    relations: tuple[Relation, ...] = (),
    **more: Any,
) -> Task:
    """A task on a batch of matrices.

    Args:
        name: unique slug.
        summary: one line with the formula.
        reference: the operator in plain PyTorch.
        args: the arguments, in the order of the call.
        out: the shapes of the outputs, with commas between.
        cubes: operations for each matrix, by N ** 3 (by N ** 2 * M for each of M further columns or rows).
        dims: names of the free dims; B is the batch, which scales where an output has a number for each matrix.
        relations: metamorphic relations; empty: that the batch may be drawn anew.
        more: as ``define.operator`` takes it.
    """
    outputs = tuple(part.strip() for part in out.split(","))
    sizes = {"B": size("B", high=1024), "N": size("N", high=256), "M": size("M", high=256)}
    settings: dict[str, Any] = {"without": UNBOUNDED, "reduction": "N", **more}
    more_columns = " + M" if "M" in dims.split() else ""
    settings.setdefault("flops", f"max(1, round({cubes} * B * N ** 2 * (N{more_columns})))")
    return operator(
        name,
        "gemm",
        summary,
        dims=tuple(sizes[dim] for dim in dims.split()),
        args=args,
        out=outputs,
        reference=reference,
        relations=relations or (resampling("batch_resampling", {0: 0}, dict.fromkeys(range(len(outputs)), 0)),),
        group="LinearAlgebra",
        dtypes=("float32", "float64"),
        normwise=True,  # stable in the norm of the matrix
        nonfinite=False,
        **settings,
    )


def _near_eye(a: Tensor) -> Tensor:
    return a + torch.eye(a.shape[-2], a.shape[-1], dtype=a.dtype, device=a.device)


def _positive(a: Tensor) -> Tensor:
    return _near_eye((a + a.mT) / 2)


def _det(a: Tensor) -> Any:
    return torch.linalg.det(_near_eye(a))


def _slogdet(a: Tensor) -> Any:
    return torch.linalg.slogdet(a)[1]


def _slogdet_by_qr(a: Tensor) -> Any:
    return torch.linalg.qr(a)[1].diagonal(dim1=-2, dim2=-1).abs().log().sum(-1)


def _inv(a: Tensor) -> Any:
    return torch.linalg.inv(_near_eye(a))


def _solve(a: Tensor, b: Tensor) -> Any:
    return torch.linalg.solve(_near_eye(a), b)


def _lstsq(a: Tensor, b: Tensor) -> Any:
    return torch.linalg.lstsq(_near_eye(a), b).solution


def _pinv(a: Tensor) -> Any:
    return torch.linalg.pinv(_near_eye(a))


def _lu(a: Tensor) -> tuple[Tensor, Tensor]:
    _, lower, upper = torch.linalg.lu(_near_eye(a))
    return lower.contiguous(), upper.contiguous()


def _lu_solve(a: Tensor, b: Tensor) -> Any:
    pivots = torch.arange(1, a.shape[-1] + 1, dtype=torch.int32, device=a.device).expand(a.shape[:-1]).contiguous()
    return torch.linalg.lu_solve(_near_eye(a), pivots, b)


def _qr(a: Tensor) -> tuple[Tensor, Tensor]:
    q, r = torch.linalg.qr(_near_eye(a))
    signs = torch.where(torch.diagonal(r, dim1=-2, dim2=-1) < 0, -1.0, 1.0).to(r.dtype)
    return q * signs[..., None, :], r * signs[..., None]


def _cholesky(a: Tensor) -> Any:
    return torch.linalg.cholesky(_positive(a))


def _ldl(a: Tensor) -> tuple[Tensor, Tensor]:
    factor = torch.linalg.cholesky(_positive(a))
    diagonal = torch.diagonal(factor, dim1=-2, dim2=-1)
    return factor / diagonal[..., None, :], diagonal**2


def _factor(a: Tensor) -> Tensor:
    return _near_eye(torch.tril(a))


def _cholesky_solve(a: Tensor, b: Tensor) -> Tensor:
    return torch.cholesky_solve(b, _factor(a))


def _cholesky_inverse(a: Tensor) -> Tensor:
    return torch.cholesky_inverse(_factor(a))


def _solve_positive(a: Tensor, b: Tensor) -> Tensor:
    return torch.cholesky_solve(b, torch.linalg.cholesky(_positive(a)))


def _solve_triangular(a: Tensor, b: Tensor) -> Any:
    return torch.linalg.solve_triangular(_near_eye(a), b, upper=True)


def _matrix_exp(a: Tensor) -> Any:
    return torch.linalg.matrix_exp(a)


def _scaled_series(a: Tensor) -> Tensor:
    """The exponential by a series of what is halved until it is small, and squared as often."""
    halvings = max(0, int(torch.frexp(a.detach().abs().sum(-1).amax()).exponent) + 1)
    eye = torch.eye(a.shape[-1], dtype=a.dtype, device=a.device).expand(a.shape)
    small, out = a * 2.0**-halvings, eye
    for count in range(_TERMS, 0, -1):
        out = eye + small @ out / count
    for _ in range(halvings):
        out = out @ out
    return out


def _eigvalsh(a: Tensor) -> Any:
    return torch.linalg.eigvalsh(a + a.mT)


def _nuclear_norm(a: Tensor) -> Any:
    return torch.linalg.matrix_norm(a, "nuc")


def _spectral_norm(a: Tensor) -> Any:
    return torch.linalg.matrix_norm(a, 2)


TASKS = (
    factored("det", "out[b] = det(I + a[b]), whose rows may be in any order", _det, (_ANY,), "B", 2 / 3),
    factored(
        "slogdet",
        "out[b] = log |det(a[b])|",
        _slogdet,
        (data("a", "B N N", fan_in="N"),),
        "B",
        2 / 3,
        without=("constant", "zeros", "outlier"),  # which may be singular
        layouts=_NO_EQUAL_ROWS,
        unfused=(_slogdet_by_qr,),  # the error of a nearly singular matrix's gradient is another by each algorithm
    ),
    factored("inv", "out[b] = (I + a[b]) ** -1, the rows of I + a[b] in any order", _inv, (_ANY,), "B N N", 2),
    factored(
        "solve",
        "out[b] = x such that (I + a[b]) @ x = b[b], the rows of I + a[b] in any order",
        _solve,
        (_ANY, _B),
        "B N M",
        2,
        "B N M",
        _SOLUTION,
    ),
    factored(
        "lu_solve",
        "out[b] = x such that l @ u @ x = b[b], l = a[b] below the diagonal and 1 on it, u = I + a[b] from it on",
        _lu_solve,
        (_TRIANGLE, _B),
        "B N M",
        2,
        "B N M",
        _SOLUTION,
        flops="2 * B * N ** 2 * M",
    ),
    factored(
        "solve_positive",
        "out[b] = x such that (I + (a[b] + a[b].T) / 2) @ x = b[b], by Cholesky factors",
        _solve_positive,
        (_DEFINITE, _B),
        "B N M",
        2,
        "B N M",
        _SOLUTION,
    ),
    factored(
        "solve_triangular",
        "out[b] = x such that (I + triu(a[b])) @ x = b[b]",
        _solve_triangular,
        (_TRIANGLE, _B),
        "B N M",
        1,
        "B N M",
        _SOLUTION,
        flops="B * N ** 2 * M",
    ),
    factored(
        "cholesky_solve",
        "out[b] = x such that l @ l.T @ x = b[b], l = I + tril(a[b])",
        _cholesky_solve,
        (_TRIANGLE, _B),
        "B N M",
        2,
        "B N M",
        _SOLUTION,
        flops="2 * B * N ** 2 * M",
    ),
    factored(
        "lstsq",
        "out[b] = the x for which (I + a[b]) @ x, of N + M rows in any order, is nearest to b[b]",
        _lstsq,
        (_ANY_TALL, data("b", "B height M")),
        "B N M",
        4,
        "B N M",
        _SOLUTION,
        **_HEIGHT,
    ),
    factored(
        "pinv",
        "out[b] = the pseudoinverse of I + a[b], of N + M rows and N columns",
        _pinv,
        (_LEANING,),
        "B N height",
        8,
        "B N M",
        **_HEIGHT,
        factor=_STABLE,
    ),
    factored(
        "lu", "out0[b] @ out1[b] = I + a[b], lower with ones on the diagonal, upper", _lu, (_A,), "B N N, B N N", 2 / 3
    ),
    factored(
        "qr",
        "out0[b] @ out1[b] = I + a[b], of N + M rows: orthogonal columns, upper with a positive diagonal",
        _qr,
        (_LEANING,),
        "B height N, B N N",
        4,
        "B N M",
        **_HEIGHT,
        factor=_STABLE,
    ),
    factored("cholesky", "out[b] @ out[b].T = I + (a[b] + a[b].T) / 2, out lower", _cholesky, (_A,), "B N N", 1 / 3),
    factored(
        "ldl",
        "out0[b] @ diag(out1[b]) @ out0[b].T = I + (a[b] + a[b].T) / 2, out0 lower with ones on the diagonal",
        _ldl,
        (_A,),
        "B N N, B N",
        1 / 3,
    ),
    factored(
        "cholesky_inverse",
        "out[b] = (l @ l.T) ** -1, l = I + tril(a[b])",
        _cholesky_inverse,
        (_TRIANGLE,),
        "B N N",
        2 / 3,
    ),
    factored(
        "matrix_exp",
        "out[b] = sum_k a[b] ** k / k!",
        _matrix_exp,
        (_SKEW,),
        "B N N",
        20,
        # each squaring doubles errors, and PyTorch's gradient squares a matrix that holds the upstream gradient too
        unfused=(_scaled_series,),
    ),
    factored(
        "svdvals",
        "out[b] = singular values of a[b], of N + M rows, falling",
        torch.linalg.svdvals,
        (_FAINT,),
        "B N",
        4,
        "B N M",
        without=(),
        forward_only=_SIMPLE,
        layouts=_NO_EQUAL_ROWS,
        **_HEIGHT,
    ),
    factored(
        "eigvalsh",
        "out[b] = eigenvalues of a[b] + a[b].T, rising",
        _eigvalsh,
        (data("a", "B N N", fan_in="N"),),
        "B N",
        4 / 3,
        without=(),
        forward_only=_SIMPLE,
        layouts=_NO_EQUAL_ROWS,
    ),
    factored(
        "nuclear_norm",
        "out[b] = the sum of the singular values of a[b], of N + M rows",
        _nuclear_norm,
        (_FAINT,),
        "B",
        4,
        "B N M",
        without=(),
        forward_only=_SIMPLE,
        layouts=_NO_EQUAL_ROWS,
        **_HEIGHT,
    ),
    factored(
        "spectral_norm",
        "out[b] = the largest singular value of a[b], of N + M rows",
        _spectral_norm,
        (data("a", "B height N", fan_in="height"),),
        "B",
        4,
        "B N M",
        without=(),
        forward_only=("zeros",),
        **_HEIGHT,
    ),
)

"""BLAS of matrices and vectors (level 2), as cuBLAS has it.

Of symmetric matrices the lower triangle alone is read. Bands stand row by row: row d of the band holds the diagonal d
below the main one, ``band[d, n] = a[n + d, n]``; what lies beyond the matrix is not read.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the usual name

from kerneleval.records import Arg
from kerneleval.tasks.define import data, fixed, plain
from kerneleval.tasks.operators.gemm.blas import BLAS, MAIN, REAL
from kerneleval.tasks.operators.gemm.gemm import free, product
from kerneleval.tasks.relations import homogeneity, resampling

Tensor = torch.Tensor
_SCALARS = (plain("alpha", -1.25), plain("beta", 0.75))
_VECTORS = (data("x", "N", fan_in="N"), data("y", "N"))
_MATRIX = data("a", "N N")
_SQUARE: Any = {**BLAS, "dtypes": REAL, "complexity": 2, "normwise": False, "nonfinite": False}
_TIMES_X = homogeneity({0: -2.0, 1: -0.5}, {0: 1.0})
_LINEAR = homogeneity({1: 2.0, 2: 2.0}, {0: 2.0})
# In [-1 / N, 1 / N], or next to the diagonal: solutions are well-conditioned.
UNIT_TRIANGLE: Any = {"fan_in": "N N", "values": "linked"}
UNBOUNDED = ("outlier", "large_scale")


def symmetric(a: Tensor) -> Tensor:
    """The matrix of which the lower triangle is given."""
    return torch.tril(a) + torch.tril(a, -1).mT


def _gemv(a: Tensor, x: Tensor, y: Tensor, alpha: float, beta: float) -> Tensor:
    return torch.addmv(y, a, x, beta=beta, alpha=alpha)


def _gemv_transposed(a: Tensor, x: Tensor, y: Tensor, alpha: float, beta: float) -> Tensor:
    return torch.addmv(y, a.mT, x, beta=beta, alpha=alpha)


def _gemv_batched(a: Tensor, x: Tensor, y: Tensor, alpha: float, beta: float) -> Tensor:
    return torch.baddbmm(y[..., None], a, x[..., None], beta=beta, alpha=alpha).squeeze(-1)


def _ger(a: Tensor, x: Tensor, y: Tensor, alpha: float) -> Tensor:
    return torch.addr(a, x, y, alpha=alpha)


def _symv(a: Tensor, x: Tensor, y: Tensor, alpha: float, beta: float) -> Tensor:
    return torch.addmv(y, symmetric(a), x, beta=beta, alpha=alpha)


def _spmv(packed: Tensor, x: Tensor, y: Tensor, alpha: float, beta: float) -> Tensor:
    rows, columns = torch.tril_indices(x.numel(), x.numel(), device=x.device)
    return _symv(packed.new_zeros(x.numel(), x.numel()).index_put((rows, columns), packed), x, y, alpha, beta)


def _syr(a: Tensor, x: Tensor, alpha: float) -> Tensor:
    return a + alpha * torch.tril(torch.outer(x, x))


def _syr2(a: Tensor, x: Tensor, y: Tensor, alpha: float) -> Tensor:
    return a + alpha * torch.tril(torch.outer(x, y) + torch.outer(y, x))


def _trmv(a: Tensor, x: Tensor) -> Tensor:
    return torch.mv(torch.tril(a), x)


def _trsv(a: Tensor, b: Tensor) -> Any:
    return torch.linalg.solve_triangular(a, b[:, None], upper=False, unitriangular=True).squeeze(-1)


def _below(row: Tensor, x: Tensor, d: int) -> Tensor:
    """What the diagonal d below the main one adds to a product with x."""
    return F.pad(row[: x.numel() - d] * x[: x.numel() - d], (d, 0))


def _above(row: Tensor, x: Tensor, d: int) -> Tensor:
    """What the diagonal d above the main one adds; ``row[n] = a[n, n + d]``."""
    return F.pad(row[: x.numel() - d] * x[d:], (0, d))


def _tbmv(band: Tensor, x: Tensor) -> Tensor:
    return torch.stack([_below(row, x, d) for d, row in enumerate(band)]).sum(0)


def _sbmv(band: Tensor, x: Tensor, y: Tensor, alpha: float, beta: float) -> Tensor:
    upper = [_above(row, x, d) for d, row in enumerate(band) if d]
    return beta * y + alpha * torch.stack([_below(row, x, d) for d, row in enumerate(band)] + upper).sum(0)


def _gbmv(lower: Tensor, upper: Tensor, x: Tensor, y: Tensor, alpha: float, beta: float) -> Tensor:
    above = [_above(row, x, d + 1) for d, row in enumerate(upper)]
    return beta * y + alpha * torch.stack([_below(row, x, d) for d, row in enumerate(lower)] + above).sum(0)


def _band(name: str, rows: str) -> Arg:
    return data(name, f"{rows} N")


_BAND_DIMS = (*free("N"), fixed("W", high=8))
_BANDED: Any = {
    **_SQUARE,
    "derive": {"rows": "W + 1", "terms": "2 * W + 1"},
    "where": "N > W",
    "empty": False,
}
_NARROW = (data("x", "N", fan_in="terms"), data("y", "N"))

TASKS = (
    product(
        "gemv",
        "out[m] = alpha * sum_n a[m, n] * x[n] + beta * y[m]",
        _gemv,
        "M N",
        (data("a", "M N"), data("x", "N", fan_in="N"), data("y", "M"), *_SCALARS),
        "M",
        "N",
        relations=(resampling("row_resampling", {0: 0, 2: 0}, {0: 0}), _LINEAR),
        each=3,
        dtypes=MAIN,
        **BLAS,
    ),
    product(
        "gemv_transposed",
        "out[n] = alpha * sum_m a[m, n] * x[m] + beta * y[n]",
        _gemv_transposed,
        "M N",
        (data("a", "M N"), data("x", "M", fan_in="M"), data("y", "N"), *_SCALARS),
        "N",
        "M",
        relations=(_LINEAR,),
        each=3,
        dtypes=MAIN,
        **BLAS,
    ),
    product(
        "gemv_batched",
        "out[b, m] = alpha * sum_n a[b, m, n] * x[b, n] + beta * y[b, m]",
        _gemv_batched,
        "B M N",
        (data("a", "B M N"), data("x", "B N", fan_in="N"), data("y", "B M"), *_SCALARS),
        "B M",
        "N",
        relations=(_LINEAR,),
        each=3,
        dtypes=MAIN,
        **BLAS,
    ),
    product(
        "ger",
        "out[m, n] = a[m, n] + alpha * x[m] * y[n]",
        _ger,
        "M N",
        (data("a", "M N"), data("x", "M"), data("y", "N"), _SCALARS[0]),
        "M N",
        "",
        relations=(resampling("row_resampling", {0: 0, 1: 0}, {0: 0}), homogeneity({0: 2.0, 2: 2.0}, {0: 2.0})),
        each=2,
        **{**_SQUARE, "complexity": 1},
    ),
    product(
        "symv",
        "out = alpha * s @ x + beta * y, s symmetric with the lower triangle of a",
        _symv,
        "N",
        (_MATRIX, *_VECTORS, *_SCALARS),
        "N",
        "N",
        relations=(_LINEAR,),
        each=3,
        **_SQUARE,
    ),
    product(
        "spmv",
        "out = alpha * s @ x + beta * y, s symmetric, its lower triangle packed row by row",
        _spmv,
        "N",
        (data("packed", "length"), *_VECTORS, *_SCALARS),
        "N",
        "N",
        relations=(_LINEAR,),
        each=3,
        derive={"length": "N * (N + 1) // 2"},
        **_SQUARE,
    ),
    product(
        "syr",
        "out[m, n] = a[m, n] + alpha * x[m] * x[n] where n <= m, else a[m, n]",
        _syr,
        "N",
        (_MATRIX, data("x", "N"), _SCALARS[0]),
        "N N",
        "",
        relations=(homogeneity({0: 4.0, 1: -2.0}, {0: 4.0}),),
        each=2,
        **_SQUARE,
    ),
    product(
        "syr2",
        "out[m, n] = a[m, n] + alpha * (x[m] * y[n] + y[m] * x[n]) where n <= m, else a[m, n]",
        _syr2,
        "N",
        (_MATRIX, data("x", "N"), data("y", "N"), _SCALARS[0]),
        "N N",
        "",
        relations=(homogeneity({0: 4.0, 1: 2.0, 2: 2.0}, {0: 4.0}),),
        each=4,
        **_SQUARE,
    ),
    product(
        "trmv",
        "out = tril(a) @ x",
        _trmv,
        "N",
        (_MATRIX, data("x", "N", fan_in="N")),
        "N",
        "N",
        relations=(_TIMES_X,),
        **_SQUARE,
    ),
    product(
        "trsv",
        "out = x such that t @ x = b, t = a below the diagonal and 1 on it",
        _trsv,
        free("N", high=4096),
        (data("a", "N N", **UNIT_TRIANGLE), data("b", "N")),
        "N",
        "N",
        relations=(homogeneity({1: -2.0}, {0: -2.0}),),
        without=UNBOUNDED,
        **_SQUARE,
    ),
    product(
        "tbmv",
        "out[m] = sum_d band[d, m - d] * x[m - d]: a lower triangle of W diagonals below the main one times x",
        _tbmv,
        _BAND_DIMS,
        (_band("band", "rows"), data("x", "N", fan_in="rows")),
        "N",
        "rows",
        relations=(_TIMES_X,),
        **_BANDED,
    ),
    product(
        "sbmv",
        "out = alpha * s @ x + beta * y, s symmetric, its W diagonals below the main one and that in band",
        _sbmv,
        _BAND_DIMS,
        (_band("band", "rows"), *_NARROW, *_SCALARS),
        "N",
        "terms",
        relations=(_LINEAR,),
        each=3,
        **_BANDED,
    ),
    product(
        "gbmv",
        "out = alpha * a @ x + beta * y, the main diagonal and W below it in lower, upper[d, n] = a[n, n + d + 1]",
        _gbmv,
        _BAND_DIMS,
        (_band("lower", "rows"), _band("upper", "W"), *_NARROW, *_SCALARS),
        "N",
        "terms",
        relations=(homogeneity({2: 2.0, 3: 2.0}, {0: 2.0}),),
        each=3,
        **_BANDED,
    ),
)

"""Matrix products. Second operands are scaled by (terms summed) ** -0.5, so that outputs stay near unit scale.

``flops`` of triangular and symmetric products count the elements that are zero or come twice, as dense libraries do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the usual name

from kerneleval.records import Arg, Dim, Plain, Task, product_text
from kerneleval.tasks.define import bias, data, fixed, operator, plain, size, weight
from kerneleval.tasks.relations import additivity, homogeneity, permutation, resampling

Tensor = torch.Tensor
_SCALARS = (plain("beta", 0.75), plain("alpha", -1.25))
_BILINEAR = homogeneity({0: 2.0, 1: -0.5}, {0: -1.0})
_BATCH = resampling("batch_resampling", {0: 0}, {0: 0})
_ROWS = resampling("row_resampling", {0: 2}, {0: 2})
_BATCHES = resampling("batch_resampling", {0: 0, 1: 0}, {0: 0})


def free(names: str, batch: int = 16, high: int = 8192) -> tuple[Dim, ...]:
    """Dims of these names up to ``high``; ``B``, ``G`` and ``H`` are batches, up to ``batch``."""
    return tuple(fixed(n, high=batch) if n in "BGH" else size(n, high=high) for n in names.split())


def product(
    name: str,
    summary: str,
    reference: Callable[..., Any],
    dims: str | tuple[Dim, ...],
    args: tuple[Arg | Plain, ...],
    out: str,
    terms: str,
    each: int = 0,
    **more: Any,
) -> Task:
    """A task that sums products.

    Args:
        name: unique slug.
        summary: one line with the formula.
        reference: the operator in plain PyTorch.
        dims: the free dims, or their names as ``free`` takes them.
        args: the arguments, in the order of the call.
        out: the shapes of the outputs, with commas between.
        terms: names of the dims summed over; empty: none, every output is one product.
        each: operations for an output element beside its sum.
        more: as ``define.operator`` takes it.
    """
    # no infinities and NaN: Strassen's product spreads a NaN, and rounding errors
    settings: dict[str, Any] = {"category": "gemm", "normwise": True, "nonfinite": False, "empty": True, **more}
    outputs = tuple(part.strip() for part in out.split(","))
    elements = [text.partition(":")[0] for text in outputs]
    each_output = (f"2 * {product_text(terms)}" if terms else "1") + (f" + {each}" if each else "")
    settings.setdefault("flops", " + ".join(f"{product_text(o)} * ({each_output})" for o in elements))
    settings.setdefault("reduction", f"max(1, {product_text(terms)})")
    return operator(
        name,
        summary=summary,
        dims=free(dims) if isinstance(dims, str) else dims,
        args=args,
        out=outputs,
        reference=reference,
        **settings,
    )


def _addmm(c: Tensor, a: Tensor, b: Tensor, beta: float, alpha: float) -> Tensor:
    return torch.addmm(c, a, b, beta=beta, alpha=alpha)


def _baddbmm(c: Tensor, a: Tensor, b: Tensor, beta: float, alpha: float) -> Tensor:
    return torch.baddbmm(c, a, b, beta=beta, alpha=alpha)


def _addbmm(c: Tensor, a: Tensor, b: Tensor, beta: float, alpha: float) -> Tensor:
    return torch.addbmm(c, a, b, beta=beta, alpha=alpha)


def _addmv(y: Tensor, a: Tensor, x: Tensor, beta: float, alpha: float) -> Tensor:
    return torch.addmv(y, a, x, beta=beta, alpha=alpha)


def _addr(c: Tensor, x: Tensor, y: Tensor, beta: float, alpha: float) -> Tensor:
    return torch.addr(c, x, y, beta=beta, alpha=alpha)


def _transposed_a(a: Tensor, b: Tensor) -> Tensor:
    return torch.matmul(a.mT, b)


def _transposed_b(a: Tensor, b: Tensor) -> Tensor:
    return torch.matmul(a, b.mT)


def _transposed_both(a: Tensor, b: Tensor) -> Tensor:
    return torch.matmul(a.mT, b.mT)


def _lower_triangular(a: Tensor, b: Tensor) -> Tensor:
    return torch.tril(torch.matmul(torch.tril(a), torch.tril(b)))


def _upper_triangular(a: Tensor, b: Tensor) -> Tensor:
    return torch.triu(torch.matmul(torch.triu(a), torch.triu(b)))


def _symmetric(a: Tensor, b: Tensor) -> Tensor:
    return torch.matmul(a + a.mT, b)


def _diagonal_times(a: Tensor, b: Tensor) -> Tensor:
    return a[:, None] * b


def _vecmat(x: Tensor, a: Tensor) -> Tensor:
    return torch.matmul(x, a)


def _grouped_linear(x: Tensor, weight: Tensor) -> Tensor:
    return torch.einsum("mgk,gkn->mgn", x, weight)


TASKS = (
    product(
        "matmul",
        "out[m, n] = sum_k a[m, k] * b[k, n]",
        torch.matmul,
        "M N K",
        (data("a", "M K"), data("b", "K N", fan_in="K")),
        "M N",
        "K",
        relations=(
            permutation("row_permutation", {0: 0}, {0: 0}),
            permutation("column_permutation", {1: 1}, {0: 1}),
            permutation("contraction_order", {0: 1, 1: 0}, {}),
            resampling("row_resampling", {0: 0}, {0: 0}),
            additivity(0),
            _BILINEAR,
        ),
    ),
    product(
        "batched_matmul",
        "out[b, m, n] = sum_k a[b, m, k] * b[b, k, n]",
        torch.bmm,
        "B M N K",
        (data("a", "B M K"), data("b", "B K N", fan_in="K")),
        "B M N",
        "K",
        relations=(
            permutation("batch_permutation", {0: 0, 1: 0}, {0: 0}),
            _BATCHES,
            permutation("row_permutation", {0: 1}, {0: 1}),
            permutation("column_permutation", {1: 2}, {0: 2}),
            permutation("contraction_order", {0: 2, 1: 1}, {}),
            _BILINEAR,
        ),
    ),
    product(
        "linear",
        "out[m, n] = sum_k x[m, k] * weight[n, k] + bias[n]",
        F.linear,
        "M N K",
        (data("x", "M K"), weight("weight", "N K", fan_in="K"), bias("N")),
        "M N",
        "K",
        relations=(
            permutation("row_permutation", {0: 0}, {0: 0}),
            permutation("feature_permutation", {1: 0, 2: 0}, {0: 1}),
            permutation("contraction_order", {0: 1, 1: 1}, {}),
            resampling("row_resampling", {0: 0}, {0: 0}),
            additivity(0, constant=2),
            homogeneity({0: 2.0, 2: 2.0}, {0: 2.0}),
        ),
        each=1,
    ),
    product(
        "matvec",
        "out[m] = sum_n a[m, n] * x[n]",
        torch.mv,
        "M N",
        (data("a", "M N"), data("x", "N", fan_in="N")),
        "M",
        "N",
        relations=(
            permutation("row_permutation", {0: 0}, {0: 0}),
            permutation("contraction_order", {0: 1, 1: 0}, {}),
            resampling("row_resampling", {0: 0}, {0: 0}),
            additivity(0),
            _BILINEAR,
        ),
        normwise=False,
        nonfinite="nan",
    ),
    product(
        "linear_no_bias",
        "out[m, n] = sum_k x[m, k] * weight[n, k]",
        F.linear,
        "M N K",
        (data("x", "M K"), weight("weight", "N K", fan_in="K")),
        "M N",
        "K",
        relations=(_BATCH, additivity(0), homogeneity({0: -2.0}, {0: -2.0})),
    ),
    product(
        "addmm",
        "out[m, n] = beta * c[m, n] + alpha * sum_k a[m, k] * b[k, n]",
        _addmm,
        "M N K",
        (data("c", "M N"), data("a", "M K"), data("b", "K N", fan_in="K"), *_SCALARS),
        "M N",
        "K",
        relations=(_BATCHES, homogeneity({0: 2.0, 1: 2.0}, {0: 2.0})),
        each=3,
    ),
    product(
        "baddbmm",
        "out[b, m, n] = beta * c[b, m, n] + alpha * sum_k a[b, m, k] * b[b, k, n]",
        _baddbmm,
        "B M N K",
        (data("c", "B M N"), data("a", "B M K"), data("b", "B K N", fan_in="K"), *_SCALARS),
        "B M N",
        "K",
        relations=(
            resampling("batch_resampling", {0: 0, 1: 0, 2: 0}, {0: 0}),
            permutation("contraction_order", {1: 2, 2: 1}, {}),
            homogeneity({0: 2.0, 1: 2.0}, {0: 2.0}),
        ),
        each=3,
    ),
    product(
        "addbmm",
        "out[m, n] = beta * c[m, n] + alpha * sum_{b, k} a[b, m, k] * b[b, k, n]",
        _addbmm,
        "B M N K",
        (data("c", "M N"), data("a", "B M K"), data("b", "B K N", fan_in="B K"), *_SCALARS),
        "M N",
        "B K",
        relations=(permutation("batch_order", {1: 0, 2: 0}, {}), homogeneity({0: 2.0, 1: 2.0}, {0: 2.0})),
        each=3,
    ),
    product(
        "addmv",
        "out[m] = beta * y[m] + alpha * sum_n a[m, n] * x[n]",
        _addmv,
        "M N",
        (data("y", "M"), data("a", "M N"), data("x", "N", fan_in="N"), *_SCALARS),
        "M",
        "N",
        relations=(_BATCHES, homogeneity({0: 2.0, 1: 2.0}, {0: 2.0})),
        each=3,
    ),
    product(
        "addr",
        "out[m, n] = beta * c[m, n] + alpha * x[m] * y[n]",
        _addr,
        "M N",
        (data("c", "M N"), data("x", "M"), data("y", "N"), *_SCALARS),
        "M N",
        "",
        relations=(_BATCHES, homogeneity({0: 2.0, 1: 2.0}, {0: 2.0})),
        each=3,
    ),
    product(
        "matmul_transposed_a",
        "out[m, n] = sum_k a[k, m] * b[k, n]",
        _transposed_a,
        "M N K",
        (data("a", "K M"), data("b", "K N", fan_in="K")),
        "M N",
        "K",
        relations=(permutation("contraction_order", {0: 0, 1: 0}, {}), _BILINEAR),
    ),
    product(
        "matmul_transposed_b",
        "out[m, n] = sum_k a[m, k] * b[n, k]",
        _transposed_b,
        "M N K",
        (data("a", "M K"), data("b", "N K", fan_in="K")),
        "M N",
        "K",
        relations=(_BATCH, additivity(0), _BILINEAR),
    ),
    product(
        "matmul_transposed_both",
        "out[m, n] = sum_k a[k, m] * b[n, k]",
        _transposed_both,
        "M N K",
        (data("a", "K M"), data("b", "N K", fan_in="K")),
        "M N",
        "K",
        relations=(permutation("contraction_order", {0: 0, 1: 1}, {}), _BILINEAR),
    ),
    product(
        "batched_matmul_transposed_b",
        "out[b, m, n] = sum_k a[b, m, k] * b[b, n, k]",
        _transposed_b,
        "B M N K",
        (data("a", "B M K"), data("b", "B N K", fan_in="K")),
        "B M N",
        "K",
        relations=(_BATCHES, _BILINEAR),
    ),
    product(
        "matmul_3d",
        "out[b, m, n] = sum_k a[b, m, k] * b[k, n]",
        torch.matmul,
        "B M N K",
        (data("a", "B M K"), data("b", "K N", fan_in="K")),
        "B M N",
        "K",
        relations=(_BATCH, additivity(0), _BILINEAR),
        gathered="B * M",
    ),
    product(
        "matmul_4d",
        "out[b, h, m, n] = sum_k a[b, h, m, k] * b[k, n]",
        torch.matmul,
        free("B H M N K", batch=8),
        (data("a", "B H M K"), data("b", "K N", fan_in="K")),
        "B H M N",
        "K",
        relations=(_ROWS, additivity(0), _BILINEAR),
        gathered="B * H * M",
    ),
    product(
        "matmul_broadcast",
        "out[b, h, m, n] = sum_k a[b, h, m, k] * b[h, k, n]",
        torch.matmul,
        free("B H M N K", batch=8),
        (data("a", "B H M K"), data("b", "H K N", fan_in="K")),
        "B H M N",
        "K",
        relations=(_ROWS, additivity(0), _BILINEAR),
        gathered="B * M",
    ),
    product(
        "matmul_diagonal",
        "out[m, n] = a[m] * b[m, n]: diag(a) @ b",
        _diagonal_times,
        "M N",
        (data("a", "M"), data("b", "M N")),
        "M N",
        "",
        relations=(_BATCHES, _BILINEAR),
        complexity=1,
        normwise=False,
    ),
    product(
        "matmul_symmetric",
        "out = (a + a.T) @ b",
        _symmetric,
        "M N",
        (data("a", "M M"), data("b", "M N", fan_in="M")),
        "M N",
        "M",
        relations=(permutation("column_permutation", {1: 1}, {0: 1}), _BILINEAR),
        flops="2 * M * M * N + M * M",
        reduction="2 * M",
    ),
    product(
        "matmul_lower_triangular",
        "out = tril(a) @ tril(b): out[m, n] = sum_{n <= k <= m} a[m, k] * b[k, n], 0 where n > m",
        _lower_triangular,
        free("N", high=4096),
        (data("a", "N N"), data("b", "N N", fan_in="N")),
        "N N",
        "N",
        relations=(_BILINEAR,),
    ),
    product(
        "matmul_upper_triangular",
        "out = triu(a) @ triu(b): out[m, n] = sum_{m <= k <= n} a[m, k] * b[k, n], 0 where n < m",
        _upper_triangular,
        free("N", high=4096),
        (data("a", "N N"), data("b", "N N", fan_in="N")),
        "N N",
        "N",
        relations=(_BILINEAR,),
    ),
    product(
        "vecmat",
        "out[n] = sum_k x[k] * a[k, n]",
        _vecmat,
        "N K",
        (data("x", "K"), data("a", "K N", fan_in="K")),
        "N",
        "K",
        relations=(permutation("column_permutation", {1: 1}, {0: 0}), _BILINEAR),
    ),
    product(
        "dot",
        "out = sum_n x[n] * y[n]",
        torch.dot,
        "N",
        (data("x", "N"), data("y", "N", fan_in="N")),
        "",
        "N",
        relations=(permutation("order", {0: 0, 1: 0}, {}), _BILINEAR),
        complexity=1,
    ),
    product(
        "grouped_linear",
        "out[m, g, n] = sum_k x[m, g, k] * weight[g, k, n]",
        _grouped_linear,
        "M G K N",
        (data("x", "M G K"), weight("weight", "G K N", fan_in="K")),
        "M G N",
        "K",
        relations=(_BATCH, permutation("group_permutation", {0: 1, 1: 0}, {0: 1}), additivity(0)),
        source="model",
    ),
)

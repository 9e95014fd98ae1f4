"""Distances and similarities: of rows that lie at the same place, (M, N) -> (M,), and of all pairs of rows.

Where a direction is left, a row has at least four elements: with one or two, gradients cancel to rounding noise.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the usual name

from kerneleval.records import Arg, Plain, Relation, Task
from kerneleval.tasks.define import COUNTED_ROWS, ROWS, data, operator, plain, size, whole
from kerneleval.tasks.operators.reduction.scan import wide
from kerneleval.tasks.relations import homogeneity, mapping, permutation, resampling

Tensor = torch.Tensor


def _pairwise_distance(x: Tensor, y: Tensor, p: float, eps: float) -> Tensor:
    return F.pairwise_distance(x, y, p, eps)


def _squared_distance(x: Tensor, y: Tensor) -> Tensor:
    return (x - y).square().sum(-1)


def _chebyshev_distance(x: Tensor, y: Tensor) -> Tensor:
    return (x - y).abs().amax(-1)


def _canberra_distance(x: Tensor, y: Tensor) -> Tensor:
    return ((x - y).abs() / (x.abs() + y.abs() + 1e-6)).sum(-1)


def _canberra_widened(x: Tensor, y: Tensor) -> Tensor:
    return ((wide(x) - wide(y)).abs() / (wide(x).abs() + wide(y).abs() + 1e-6)).sum(-1).to(x.dtype)


def _hamming_distance(x: Tensor, y: Tensor) -> Tensor:
    return (x != y).sum(-1)


def cosine_by_clamps(x: Tensor, y: Tensor) -> Tensor:
    """``F.cosine_similarity`` as its formula has it: where a norm is held at epsilon, it has no gradient."""
    one, other = (F.normalize(a.to(torch.promote_types(a.dtype, torch.float32)), eps=1e-8) for a in (x, y))
    return (one * other).sum(-1).to(x.dtype)


def _normalized_similarity(x: Tensor, y: Tensor) -> Tensor:
    return F.cosine_similarity(F.normalize(x), F.normalize(y))


def _normalized_distance(x: Tensor, y: Tensor, eps: float) -> Tensor:
    return F.pairwise_distance(F.normalize(x), F.normalize(y), eps=eps)


def _normalize_l1(x: Tensor) -> Tensor:
    return F.normalize(x, 1.0)


def _normalize_max(x: Tensor) -> Tensor:
    return F.normalize(x, float("inf"))


def _cosine_matrix(x: Tensor, y: Tensor) -> Tensor:
    return F.normalize(x) @ F.normalize(y).T


def _contrastive_logits(x: Tensor, y: Tensor, temperature: float) -> Tensor:
    return F.normalize(x) @ F.normalize(y).T / temperature


def _info_nce(x: Tensor, y: Tensor, temperature: float) -> Tensor:
    targets = torch.arange(x.shape[0], device=x.device)
    return F.cross_entropy(_contrastive_logits(x, y, temperature), targets, reduction="none")


def _cdist_normalized(x: Tensor, y: Tensor) -> Tensor:
    return torch.cdist(F.normalize(x), F.normalize(y), compute_mode="donot_use_mm_for_euclid_dist")


def _squared_distances(x: Tensor, y: Tensor) -> Tensor:
    return x.square().sum(-1)[:, None] + y.square().sum(-1) - 2 * x @ y.T


def _gaussian_kernel(x: Tensor, y: Tensor, gamma: float) -> Tensor:
    return torch.exp(-gamma * torch.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist").square())


_X, _Y = data("x", "M N", along="N"), data("y", "M N", along="N")
_LEAST = 4
_ROWS: Any = {"group": "LinearAlgebra"}
_SHORT: Any = {"dims": (size("M"), size("N", high=1024))}  # longer sums of like terms hide errors of narrow inputs
_SCALED = homogeneity({0: 4.0}, {0: 1.0})


def _symmetric(x: Tensor, y: Tensor, *rest: Any) -> tuple[Any, ...]:
    return (y, x, *rest)


_SYMMETRY = mapping("symmetry", _symmetric, lambda outs, _: outs)


def _between(
    name: str,
    summary: str,
    reference: Any,
    each: int,
    *plains: Plain,
    over: tuple[Arg, ...] = (_X, _Y),
    out: str = "M",
    relations: tuple[Relation, ...] = (_SYMMETRY,),
    least: int = 1,
    **more: Any,
) -> Task:
    """A task that takes rows at the same place.

    Args:
        name: unique slug.
        summary: one line with the formula.
        reference: the operator in plain PyTorch.
        each: operations for an element.
        plains: plain arguments, which come last.
        over: the tensor arguments.
        out: shape of the output.
        relations: metamorphic relations beside those of rows.
        least: elements of the shortest row.
        more: as ``define.operator`` takes it.
    """
    rows = dict.fromkeys(range(len(over)), 0)
    return operator(
        name,
        "normalization" if out == "M N" else "reduction",
        summary,
        out=(out,),
        args=(*over, *plains),
        reference=reference,
        flops=f"{each} * M * N",
        where=f"{least} <= N",
        empty=True,
        relations=(
            permutation("row_permutation", rows, {0: 0}),
            resampling("row_resampling", rows, {0: 0}),
            permutation("order_within_rows", dict.fromkeys(range(len(over)), 1), {0: 1} if out == "M N" else {}),
            *relations,
        ),
        **{"dims": ROWS, "reduction": "N", "folded": "M", **_ROWS, **more},
    )


def _across(name: str, summary: str, reference: Any, flops: Any, *plains: Plain, out: str = "M N", **more: Any) -> Task:
    """A task on all pairs of rows of ``x`` (M, K) and ``y`` (N, K)."""
    settings: dict[str, Any] = {
        "dims": (size("M", high=4096), size("N", high=4096), size("K", low=_LEAST, high=4096)),
        "args": (data("x", "M K", along="K"), data("y", "N K", along="K")),
        "relations": (
            resampling("row_resampling", {0: 0}, {0: 0}),
            resampling("other_row_resampling", {1: 0}, {0: 1}),
            permutation("contraction_order", {0: 1, 1: 1}, {}),
        ),
        "reduction": "K",
        "level": 2,
        "source": "model",
        "nonfinite": False,  # as matmul
        "normwise": True,
        **more,
    }
    return operator(
        name,
        "gemm",
        summary,
        out=(out,),
        reference=reference,
        flops=flops,
        group="LinearAlgebra",
        **{**settings, "args": (*settings["args"], *plains)},
    )


TASKS = (
    _between(
        "pairwise_distance",
        "out[m] = (sum_n |x[m, n] - y[m, n] + eps| ** p) ** (1 / p)",
        _pairwise_distance,
        4,
        plain("p", 2.0),
        plain("eps", 1e-6),
        rows=("far_mean",),
        relations=(),
    ),
    _between(
        "pairwise_distance_l1",
        "out[m] = (sum_n |x[m, n] - y[m, n] + eps| ** p) ** (1 / p), p = 1",
        _pairwise_distance,
        4,
        plain("p", 1.0),
        plain("eps", 1e-6),
        rows=("far_mean",),
        relations=(),
    ),
    _between("squared_distance", "out[m] = sum_n (x[m, n] - y[m, n]) ** 2", _squared_distance, 3, rows=("far_mean",)),
    _between(
        "chebyshev_distance",
        "out[m] = max_n |x[m, n] - y[m, n]|",
        _chebyshev_distance,
        3,
        reduction="1",
        no_backward="its gradient jumps where a rounding error picks another extreme",
    ),
    _between(
        "canberra_distance",
        "out[m] = sum_n |x[m, n] - y[m, n]| / (|x[m, n]| + |y[m, n]| + 1e-6)",
        _canberra_distance,
        7,
        kinks="free",
        unfused=(_canberra_widened,),  # of numbers of either sign autograd's two terms cancel, each time otherwise
        **_SHORT,
    ),
    _between(
        "hamming_distance",
        "out[m] = the number of n for which x[m, n] and y[m, n] are different whole numbers",
        _hamming_distance,
        2,
        over=(whole("x", "M N", 0, 4, wide=64), whole("y", "M N", 0, 4, wide=64)),
        rows=("full",),
        dims=COUNTED_ROWS,
        out="M: int64",
        dtypes=("int32", "int64", "int8"),
        exact=True,
        no_backward="counts have no gradient",
    ),
    _between(
        "cosine_similarity",
        "out[m] = x[m] . y[m] / (max(|x[m]|, 1e-8) * max(|y[m]|, 1e-8))",
        F.cosine_similarity,
        6,
        folded="",
        least=_LEAST,
        relations=(_SYMMETRY, _SCALED),
        epsilon=1e-8,
        unfused=(cosine_by_clamps,),  # PyTorch has the norm's gradient where it is held at epsilon
        in_type=False,
    ),
    _between(
        "normalized_cosine_similarity",
        "out[m] = cosine_similarity(u[m], v[m]), u[m] = x[m] / max(|x[m]|, 1e-12), v[m] = y[m] / max(|y[m]|, 1e-12)",
        _normalized_similarity,
        12,
        folded="",
        least=_LEAST,
        level=2,
        relations=(_SYMMETRY, _SCALED),
        epsilon=1e-12,
    ),
    _between(
        "normalize_pairwise_distance",
        "out[m] = |u[m] - v[m] + eps|, u[m] = x[m] / max(|x[m]|, 1e-12), v[m] = y[m] / max(|y[m]|, 1e-12)",
        _normalized_distance,
        10,
        plain("eps", 1e-6),
        folded="",
        least=_LEAST,
        level=2,
        relations=(_SCALED,),
        **_SHORT,
        epsilon=1e-12,
        rows=("far_mean",),
    ),
    *(
        _between(
            name,
            f"out[m] = x[m] / max({norm}, 1e-12)",
            reference,
            3,
            over=(_X,),
            out="M N",
            folded="",
            least=_LEAST,
            group="Normalization",
            epsilon=1e-12,
            relations=(_SCALED,),
            **more,
        )
        for name, norm, reference, more in (
            ("normalize", "sqrt(sum_n x[m, n] ** 2)", F.normalize, {}),
            ("normalize_l1", "sum_n |x[m, n]|", _normalize_l1, {"kinks": "free"}),
            ("normalize_max", "max_n |x[m, n]|", _normalize_max, {"reduction": "1", "kinks": "free"}),
        )
    ),
    _across(
        "cosine_similarity_matrix",
        "out[m, n] = x[m] . y[n] / (max(|x[m]|, 1e-12) * max(|y[n]|, 1e-12))",
        _cosine_matrix,
        "2 * M * N * K + 3 * (M + N) * K",
        epsilon=1e-12,
    ),
    _across(
        "contrastive_logits",
        "out[m, n] = x[m] . y[n] / (max(|x[m]|, 1e-12) * max(|y[n]|, 1e-12) * temperature)",
        _contrastive_logits,
        "2 * M * N * K + 3 * (M + N) * K + M * N",
        plain("temperature", 0.0625),
        epsilon=1e-12,
    ),
    _across(
        "info_nce_loss",
        "out[m] = log(sum_n exp(s[m, n])) - s[m, m] for s = contrastive_logits(x, y, temperature), both of M rows",
        _info_nce,
        "2 * M * M * K + 6 * M * K + 5 * M * M",
        plain("temperature", 0.125),
        dims=(size("M", low=2, high=4096), size("K", low=_LEAST, high=4096)),
        args=(data("x", "M K"), data("y", "M K")),
        out="M",
        reduction="max(M, K)",
        relations=(
            permutation("pair_permutation", {0: 0, 1: 0}, {0: 0}),
            permutation("contraction_order", {0: 1, 1: 1}, {}),
        ),
        epsilon=1e-12,
    ),
    _across(
        "pairwise_distance_normalize",
        "out[m, n] = |u[m] - v[n]|, u[m] = x[m] / max(|x[m]|, 1e-12), v[n] = y[n] / max(|y[n]|, 1e-12)",
        _cdist_normalized,
        "3 * M * N * K + 3 * (M + N) * K",
        dtypes=("float32", "float64"),
        without=("constant", "zeros"),
        epsilon=1e-12,
    ),
    _across(
        "squared_distances",
        "out[m, n] = |x[m]| ** 2 + |y[n]| ** 2 - 2 * x[m] . y[n]",
        _squared_distances,
        "2 * M * N * K + 2 * (M + N) * K + 3 * M * N",
        rows=("far_mean",),
    ),
    _across(
        "gaussian_kernel",
        "out[m, n] = exp(-gamma * |x[m] - y[n]| ** 2)",
        _gaussian_kernel,
        "3 * M * N * K + 3 * M * N",
        plain("gamma", formula="0.25 / K"),
        rows=("far_mean",),
        dtypes=("float32", "float64"),
        without=("large_scale", "outlier"),
    ),
)

"""Sorts and what follows from an order, along the last dim unless stated: (M, N) -> (M, N), (M, K) or (M,).

NaN counts as larger than any number. Where equal elements make a difference, they keep their order.
"""

from __future__ import annotations

from typing import Any

import torch

from kerneleval.records import Task
from kerneleval.tasks.define import LONG_ROWS, ROWS, data, fixed, operator, plain, whole
from kerneleval.tasks.relations import homogeneity, permutation, resampling

Tensor = torch.Tensor


def _sort(x: Tensor) -> Tensor:
    return torch.sort(x, dim=-1).values


def _sort_descending(x: Tensor) -> Tensor:
    return torch.sort(x, dim=-1, descending=True).values


def _sort_stable(x: Tensor) -> Tensor:
    return torch.sort(x, dim=-1, stable=True).values


def _argsort(x: Tensor) -> Tensor:
    return torch.argsort(x, dim=-1, stable=True)


def _argsort_descending(x: Tensor) -> Tensor:
    return torch.argsort(x, dim=-1, descending=True, stable=True)


def _sort_by_key(keys: Tensor, x: Tensor) -> Tensor:
    return torch.gather(x, -1, torch.argsort(keys, dim=-1, stable=True))


def _ranks(x: Tensor) -> Tensor:
    return torch.argsort(torch.argsort(x, dim=-1, stable=True), dim=-1)


def _topk(x: Tensor, k: int) -> Tensor:
    return torch.topk(x, k).values


def _topk_smallest(x: Tensor, k: int) -> Tensor:
    return torch.topk(x, k, largest=False).values


def _kthvalue(x: Tensor, k: int) -> Tensor:
    return torch.kthvalue(x, k).values


def _median(x: Tensor) -> Tensor:
    return torch.median(x, -1).values


def _nanmedian(x: Tensor) -> Tensor:
    return torch.nanmedian(x, -1).values


def _count_below(x: Tensor, y: Tensor) -> Tensor:
    return torch.searchsorted(torch.sort(x).values.contiguous(), y.contiguous())


def _isin(x: Tensor, among: Tensor) -> Tensor:
    return torch.isin(x, among)


def _ordered(name: str, summary: str, reference: Any, out: str, *plains: Any, **more: Any) -> Task:
    """A task over the rows of ``x``; ``more`` as ``define.operator`` takes it."""
    settings: dict[str, Any] = {
        "dims": ROWS,
        "args": (data("x", "M N"),),
        "relations": (resampling("row_resampling", {0: 0}, {0: 0}), permutation("order_within_rows", {0: 1}, {})),
        "nonfinite": True,
        "nan_signs": False,
        "rows": ("ordered",),
        "extreme": "rows",
        "folded": "M",
        **more,
    }
    return operator(
        name,
        "reduction",
        summary,
        out=(out,),
        reference=reference,
        flops="M * N * ceil(log2(max(N, 2)))",
        exact=True,
        empty=True,
        group="Index",
        complexity=2,
        **{**settings, "args": (*settings["args"], *plains)},
    )


_ROWS_ALONE: Any = {"relations": (resampling("row_resampling", {0: 0}, {0: 0}),)}
_INDEX: Any = {
    "dims": LONG_ROWS,
    "no_backward": "the output is an index",
    "relations": (*_ROWS_ALONE["relations"], homogeneity({0: 2.0}, {})),
}
_TIES: Any = {"no_backward": "which of equal elements takes the gradient is not defined"}
_K = plain("k", formula="K")
_SELECTS: Any = {"nan_signs": True, **_TIES}
_FEW: Any = {"dims": (*ROWS, fixed("K", high=64)), "where": "N >= K > 0", **_TIES}

TASKS = (
    _ordered("sort", "out[m] = x[m] in ascending order, NaN last", _sort, "M N", **_TIES),
    _ordered("sort_descending", "out[m] = x[m] in descending order, NaN first", _sort_descending, "M N", **_TIES),
    _ordered(
        # Moved by a rounding of half types, inputs are in another order: it bounds no gradient there.
        "sort_stable",
        "out[m] = x[m] in ascending order, NaN last; equal ones keep their order, as gradients tell",
        _sort_stable,
        "M N",
        dtypes=("float32", "float64"),
    ),
    _ordered(
        "sort_integers",
        "out[m] = x[m] in ascending order, whole numbers",
        _sort,
        "M N",
        args=(whole("x", "M N", -100, 100, wide=64),),
        dtypes=("int32", "int64", "int8"),
        no_backward="whole numbers have no gradient",
    ),
    _ordered(
        "msort",
        "out = each column of x in ascending order; NaN last",
        torch.msort,
        "M N",
        folded="N",
        args=(data("x", "M N", along="M"),),
        relations=(resampling("column_resampling", {0: 1}, {0: 1}), permutation("order_within_columns", {0: 0}, {})),
        **_TIES,
    ),
    _ordered(
        "argsort",
        "out[m] = the order in which x[m] ascends, NaN last; equal ones keep theirs",
        _argsort,
        "M N: int64",
        **_INDEX,
    ),
    _ordered(
        "argsort_descending",
        "out[m] = the order in which x[m] descends, NaN first; equal ones keep theirs",
        _argsort_descending,
        "M N: int64",
        **_INDEX,
    ),
    _ordered(
        "ranks",
        "out[m, n] = the place of x[m, n] in the ascending order of x[m], NaN last; equal ones keep theirs",
        _ranks,
        "M N: int64",
        level=2,
        source="model",
        **_INDEX,
    ),
    _ordered(
        "sort_by_key",
        "out[m] = x[m] in the order in which keys[m] ascends, whole numbers; equal keys keep theirs",
        _sort_by_key,
        "M N",
        args=(whole("keys", "M N", 0, 64, dtype="int64", along="N", wide=64), data("x", "M N", along="N")),
        relations=(resampling("row_resampling", {0: 0, 1: 0}, {0: 0}), homogeneity({1: -2.0}, {0: -2.0})),
        level=2,
        source="model",
    ),
    _ordered(
        "topk",
        "out[m] = the k largest of x[m], the largest first; NaN is larger than any number",
        _topk,
        "M K",
        _K,
        **_FEW,
    ),
    _ordered(
        "topk_smallest",
        "out[m] = the k smallest of x[m], the smallest first; NaN is larger than any number",
        _topk_smallest,
        "M K",
        _K,
        **_FEW,
    ),
    _ordered(
        "kthvalue",
        "out[m] = the k-th smallest of x[m]; NaN is larger than any number",
        _kthvalue,
        "M",
        _K,
        **_FEW | _SELECTS,
    ),
    _ordered(
        "median",
        "out[m] = the median of x[m], the lower one of two; NaN where there is one",
        _median,
        "M",
        where="N > 0",
        **_SELECTS,
    ),
    _ordered(
        "nanmedian",
        "out[m] = the median of the numbers in x[m] that are not NaN, the lower one of two",
        _nanmedian,
        "M",
        where="N > 0",
        **_SELECTS,
    ),
    _ordered(
        "count_below",
        "out[m, k] = how many of x[m] are below y[m, k]: a sort and a binary search",
        _count_below,
        "M K: int64",
        args=(data("x", "M N", along="N", edges=(-2, 2, 0.25)), data("y", "M K", along="K", edges=(-2, 2, 0.25))),
        dims=(*LONG_ROWS, fixed("K", high=64)),
        rows=("ordered", "binned"),
        no_backward="counts have no gradient",
        nonfinite=False,
        relations=(resampling("row_resampling", {0: 0, 1: 0}, {0: 0}), permutation("order_within_rows", {0: 1}, {})),
        level=2,
    ),
    _ordered(
        "isin",
        "out[m, n] = whether x[m, n] is one of the numbers in among",
        _isin,
        "M N: bool",
        args=(
            whole("x", "M N", 0, "2 * K", along="N", wide=64),
            whole("among", "K", 0, "2 * K", along="K", wide=64),
        ),
        dims=(*ROWS, fixed("K", high=512)),
        where="K > 0",
        dtypes=("int32", "int64"),
        no_backward="the output is a flag",
        relations=(permutation("row_permutation", {0: 0}, {0: 0}), permutation("order_of_the_others", {1: 0}, {})),
    ),
)

"""Flags, counts and histograms of what a tensor holds; nothing is rounded, and nothing has a gradient."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from kerneleval.tasks.define import COUNTED_ROWS, ROWS, data, fixed, flags, operator, plain, size, whole
from kerneleval.tasks.operators.reduction.reduction import along, reduced
from kerneleval.tasks.relations import mapping, permutation, resampling

Tensor = torch.Tensor


def _any_equal(x: Tensor, value: int) -> Tensor:
    return (x == value).any(-1)


def _count_greater(x: Tensor, value: float) -> Tensor:
    return (x > value).sum(-1)


def _bucketize(x: Tensor, bounds: int) -> Tensor:
    boundaries = (torch.arange(bounds, device=x.device) - bounds // 2).to(x.dtype) / 4
    return torch.bucketize(x.contiguous(), boundaries)


def _histc(x: Tensor, bins: int, high: int) -> Tensor:
    return torch.histc(x, bins, 0, high)


def _histogram_rows(x: Tensor, bins: int) -> Tensor:
    counts = x.new_zeros((x.shape[0], bins), dtype=torch.int64)
    return counts.scatter_add_(1, x.long(), torch.ones_like(x, dtype=torch.int64))


def _reflected(x: Tensor, bins: int, high: int) -> tuple[Any, ...]:
    """The last edge is in the last bin, and goes to the first one; what lies outside stays there."""
    return torch.where(x == high, 0, high - 1 - x + (x < 0)), bins, high


_EXACT: Any = {"exact": True, "reduction": None}
_FLAG: Any = {**_EXACT, "out": ("M: bool",), "no_backward": "the output is a flag"}
_COUNT: Any = {**_EXACT, "no_backward": "counts have no gradient"}
_WHOLE: Any = {"dtypes": ("int32", "int64")}


def _flags(name: str, summary: str, function: Any) -> Any:
    """A task over flags along the middle dim."""
    return operator(
        name,
        "reduction",
        summary,
        dims=(size("M", high=1024), size("K", high=2048), size("N", high=2048)),
        args=(replace(flags("x", "M K N"), along="K"),),
        out=("M N: bool",),
        reference=along(function, 1),
        flops="M * K * N",
        empty=True,
        exact=True,
        no_backward="the output is a flag",
        relations=(
            resampling("row_resampling", {0: 0}, {0: 0}),
            permutation("column_permutation", {0: 2}, {0: 1}),
            permutation("order", {0: 1}, {}),
        ),
    )


TASKS = (
    reduced(
        "all",
        "out[m] = whether no x[m, n] is 0",
        along(torch.all, -1),
        given=whole("x", "M N", 0, "max(2, N)", wide=64),
        **_FLAG,
        **_WHOLE,
    ),
    _flags("all_middle", "out[m, n] = whether all of x[m, k, n] are True", torch.all),
    _flags("any_middle", "out[m, n] = whether any of x[m, k, n] is True", torch.any),
    reduced(
        "any_equal",
        "out[m] = whether any x[m, n] is value",
        _any_equal,
        plain("value", 1, among=(0, 2, 3)),
        given=whole("x", "M N", 0, "max(2, N)", wide=64),
        level=2,
        **_FLAG,
        **_WHOLE,
    ),
    reduced(
        "count_nonzero",
        "out[m] = how many x[m, n] are not 0; NaN counts",
        along(torch.count_nonzero, -1),
        given=whole("x", "M N", -2, 3, wide=64),
        rows=("full",),
        dims=COUNTED_ROWS,
        out=("M: int64",),
        dtypes=("float32", "float16", "int32"),
        **_COUNT,
    ),
    reduced(
        "count_greater",
        "out[m] = how many x[m, n] are above value; NaN is not",
        _count_greater,
        plain("value", 0.25),
        given=data("x", "M N", along="N", edges=(0.25, 0.25, 0)),
        rows=("binned", "full"),
        dims=COUNTED_ROWS,
        each=2,
        out=("M: int64",),
        level=2,
        **_COUNT,
    ),
    reduced(
        "sum_integers",
        "out[m] = sum_n x[m, n], whole numbers, in int64",
        along(torch.sum, -1),
        given=whole("x", "M N", -100, 100, wide=52),
        out=("M: int64",),
        dtypes=("int32", "int64", "int8"),
        **{**_COUNT, "no_backward": "whole numbers have no gradient"},
    ),
    operator(
        "bucketize",
        "reduction",
        "out[m, n] = how many of the bounds (k - bounds // 2) / 4, 0 <= k < bounds, are below x[m, n]; all for NaN",
        dims=(*ROWS, fixed("K", low=8, high=64)),
        args=(data("x", "M N", edges=("-(K // 2) / 4", "(K - 1 - K // 2) / 4", 0.25)), plain("bounds", formula="K")),
        out=("M N: int64",),
        reference=_bucketize,
        flops="M * N * ceil(log2(max(K, 1)))",
        where="K > 0",
        empty=True,
        nonfinite=True,
        group="Index",
        relations=(
            permutation("row_permutation", {0: 0}, {0: 0}),
            permutation("column_permutation", {0: 1}, {0: 1}),
        ),
        exact=True,
        rows=("ordered", "binned"),
        folded="M",
        no_backward="counts have no gradient",
    ),
    operator(
        "histc",
        "reduction",
        "out[k] = how many whole x[n] lie in part k of bins equal parts of 0 to high, the last closed; others in none",
        dims=(size("N", high=1 << 24), fixed("K", high=64)),
        args=(
            whole("x", "N", "-K", "5 * K + 1", edges=(0, "4 * K", 4)),
            plain("bins", formula="K"),
            plain("high", formula="4 * K", among=("2 * K", "8 * K")),
        ),
        out=("K",),
        reference=_histc,
        flops="3 * N",
        where="K > 0",
        dtypes=("float32", "float64"),
        empty=True,
        exact=True,
        rows=("ordered", "binned"),
        no_backward="counts have no gradient",
        relations=(
            permutation("order", {0: 0}, {}),
            mapping("reflection", _reflected, lambda outs, _: [outs[0].flip(0)]),
        ),
    ),
    operator(
        "histogram_rows",
        "reduction",
        "out[m, k] = how many x[m, n] are k",
        dims=(*COUNTED_ROWS, fixed("K", high=256)),
        args=(whole("x", "M N", 0, "K", edges=(0, "K - 1", 1)), plain("bins", formula="K")),
        out=("M K: int64",),
        reference=_histogram_rows,
        flops="M * N",
        where="K > 0",
        empty=True,
        exact=True,
        rows=("ordered", "binned", "full"),
        no_backward="counts have no gradient",
        relations=(resampling("row_resampling", {0: 0}, {0: 0}), permutation("order_within_rows", {0: 1}, {})),
        **_WHOLE,
    ),
)

"""Elements and rows put at places that other tensors name: added, replaced, reduced.

Where two go to the same place and the result would depend on which comes last, they are equal.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from kerneleval.tasks.define import ROWS, data, fixed, flags, index, plain, size
from kerneleval.tasks.operators.movement.movement import moved
from kerneleval.tasks.relations import mapping, permutation, resampling

Tensor = torch.Tensor
_aten: Any = torch.ops.aten


def _index_add(x: Tensor, index: Tensor, source: Tensor, alpha: float) -> Tensor:
    return torch.index_add(x, 0, index, source, alpha=alpha)


def _index_fill(x: Tensor, index: Tensor, value: float) -> Tensor:
    return torch.index_fill(x, 1, index, value)


def _index_put(x: Tensor, rows: Tensor, columns: Tensor, values: Tensor) -> Tensor:
    return torch.index_put(x, (rows, columns), values, accumulate=True)


def _put(x: Tensor, index: Tensor, source: Tensor) -> Tensor:
    return torch.put(x, index, source, accumulate=True)


def _scatter(x: Tensor, index: Tensor, source: Tensor) -> Tensor:
    return torch.scatter(x, 1, index, source[:, None].expand_as(index))


def _scatter_value(x: Tensor, index: Tensor, value: float) -> Tensor:
    return torch.scatter(x, 1, index, value)


def _scatter_add(x: Tensor, index: Tensor, source: Tensor) -> Tensor:
    return torch.scatter_add(x, 1, index, source)


def _scatter_amax(x: Tensor, index: Tensor, source: Tensor) -> Tensor:
    return torch.scatter_reduce(x, 1, index, source, "amax")


def _scatter_amin(x: Tensor, index: Tensor, source: Tensor) -> Tensor:
    return torch.scatter_reduce(x, 1, index, source, "amin")


def _scatter_mean(x: Tensor, index: Tensor, source: Tensor) -> Tensor:
    return torch.scatter_reduce(x, 1, index, source, "mean")


def _index_reduce_amax(x: Tensor, index: Tensor, source: Tensor) -> Tensor:
    return torch.index_reduce(x, 0, index, source, "amax")


def _index_reduce_mean(x: Tensor, index: Tensor, source: Tensor) -> Tensor:
    return torch.index_reduce(x, 0, index, source, "mean")


def _masked_scatter(x: Tensor, where: Tensor, source: Tensor) -> Tensor:
    return torch.masked_scatter(x, where, source)


def _select_scatter(x: Tensor, source: Tensor, number: int) -> Tensor:
    return torch.select_scatter(x, source, 1, number)


def _slice_scatter(x: Tensor, source: Tensor, start: int) -> Tensor:
    return torch.slice_scatter(x, source, 1, start, start + source.shape[1])


def _diagonal_scatter(x: Tensor, source: Tensor) -> Tensor:
    return torch.diagonal_scatter(x, source)


_GROUP: Any = {"group": "Index"}
_SUMS: Any = {"exact": False, "nonfinite": "nan", "each": 2, **_GROUP}
# Half types are added up in the type, so that a hundred terms at one place leave nothing but rounding.
_OFTEN = 32
_TABLE = (size("V"), size("N"), size("K"))
_INTO_ROWS = (data("x", "V N"), index("index", "K", "V", summed=True), data("source", "K N"))
_ORDER = permutation("order", {1: 0, 2: 0}, {})
_COLUMNS = permutation("column_permutation", {0: 1, 2: 1}, {0: 1})
_LARGEST: Any = {"scaling": 2.0, "extreme": "rows", **_GROUP}
_INTO_COLUMNS = (data("x", "M N"), index("index", "M K", "N", summed=True), data("source", "M K"))
_LARGEST_OF_COLUMNS = (replace(_INTO_COLUMNS[0], along="N"), *_INTO_COLUMNS[1:])
_LARGEST_OF_ROWS = (replace(_INTO_ROWS[0], along="N"), *_INTO_ROWS[1:])
_BY_ROWS: Any = {"dims": _TABLE, "where": f"V > 0 and K <= {_OFTEN} * V", "relations": (_ORDER, _COLUMNS)}
_BY_COLUMNS: Any = {
    "dims": (*ROWS, size("K")),
    "where": f"N > 0 and K <= {_OFTEN} * N",
    "relations": (permutation("order_within_rows", {1: 1, 2: 1}, {}),),
    "batch": True,
}
_FREE = (size("M"), size("N", low=4), size("K"))  # a single place would always be replaced
_REPLACED: Any = {
    "dims": _FREE,
    "where": "N >= K and N > 1",
    "relations": (permutation("order_within_rows", {1: 1}, {}),),
    "batch": True,
    **_GROUP,
}
_HITS: Any = {"reduction": "1 + -(-K // max(1, N))"}
_ROW_HITS: Any = {"reduction": "1 + -(-K // max(1, V))"}
_NUMBER: Any = {
    "dims": (size("B", high=1024), size("M", high=1024), size("N", high=1024), fixed("K")),
    "where": "M >= K > 0",
    "batch": True,
    **_GROUP,
}

TASKS = (
    moved(
        "index_add",
        "out[v] = x[v] + alpha * the sum of source[k] over all k with index[k] = v",
        _index_add,
        _INTO_ROWS,
        "V N",
        plain("alpha", 0.75),
        **_BY_ROWS,
        **_ROW_HITS,
        **_SUMS,
    ),
    moved(
        "index_fill",
        "out[m, index[k]] = value for all k, else x",
        _index_fill,
        (data("x", "M N"), index("index", "K", "N")),
        "M N",
        plain("value", -1.5),
        scaling=0,
        dims=_FREE,
        where="N >= K and N > 1",
        relations=(resampling("row_resampling", {0: 0}, {0: 0}), permutation("order", {1: 0}, {})),
        **_GROUP,
    ),
    moved(
        "index_put",
        "out[rows[k], columns[k]] += values[k] for all k, from out = x",
        _index_put,
        (
            data("x", "M N"),
            index("rows", "K", "M", summed=True),
            index("columns", "K", "N", summed=True),
            data("values", "K"),
        ),
        "M N",
        dims=(*ROWS, size("K")),
        where=f"M * N > 0 and K <= {_OFTEN} * M * N",
        reduction="1 + -(-K // max(1, M * N))",
        relations=(permutation("order", {1: 0, 2: 0, 3: 0}, {}),),
        **_SUMS,
    ),
    moved(
        "put",
        "out.flatten()[index[k]] += source[k] for all k, from out = x",
        _put,
        (data("x", "M N"), index("index", "K", "M * N", summed=True), data("source", "K")),
        "M N",
        dims=(*ROWS, size("K")),
        where=f"M * N > 0 and K <= {_OFTEN} * M * N",
        reduction="1 + -(-K // max(1, M * N))",
        relations=(_ORDER,),
        **_SUMS,
    ),
    moved(
        "scatter",
        "out[m, index[m, k]] = source[m] for all k, else x[m]",
        _scatter,
        (data("x", "M N"), index("index", "M K", "N"), data("source", "M", differentiable=False)),
        "M N",
        **_REPLACED,
    ),
    moved(
        "scatter_value",
        "out[m, index[m, k]] = value for all k, else x[m]",
        _scatter_value,
        _INTO_COLUMNS[:2],
        "M N",
        plain("value", -1.5),
        scaling=0,
        **_REPLACED,
    ),
    moved(
        "scatter_add",
        "out[m, index[m, k]] += source[m, k] for all k, from out = x",
        _scatter_add,
        _INTO_COLUMNS,
        "M N",
        **_BY_COLUMNS,
        **_HITS,
        **_SUMS,
    ),
    moved(
        "scatter_amax",
        "out[m, n] = the largest of x[m, n] and all source[m, k] with index[m, k] = n; equal ones share the gradient",
        _scatter_amax,
        _LARGEST_OF_COLUMNS,
        "M N",
        **_BY_COLUMNS,
        **_LARGEST,
    ),
    moved(
        "scatter_amin",
        "out[m, n] = the smallest of x[m, n] and all source[m, k] with index[m, k] = n; equal ones share the gradient",
        _scatter_amin,
        _LARGEST_OF_COLUMNS,
        "M N",
        **_BY_COLUMNS,
        **_LARGEST,
    ),
    moved(
        "scatter_mean",
        "out[m, n] = the mean of x[m, n] and all source[m, k] with index[m, k] = n",
        _scatter_mean,
        _INTO_COLUMNS,
        "M N",
        **_BY_COLUMNS,
        **_HITS,
        **_SUMS,
    ),
    moved(
        "index_reduce_amax",
        "out[v] = the largest of x[v] and all source[k] with index[k] = v; equal ones share the gradient",
        _index_reduce_amax,
        _LARGEST_OF_ROWS,
        "V N",
        **_BY_ROWS,
        **_LARGEST,
    ),
    moved(
        "index_reduce_mean",
        "out[v] = the mean of x[v] and all source[k] with index[k] = v",
        _index_reduce_mean,
        _INTO_ROWS,
        "V N",
        **_BY_ROWS,
        **_ROW_HITS,
        **_SUMS,
    ),
    moved(
        "masked_scatter",
        "out = the next element of source, row by row, where the flag is set, else x",
        _masked_scatter,
        (data("x", "M N"), flags("where", "M N"), data("source", "M N")),
        "M N",
        complexity=2,
        relations=(mapping("one_for_all", lambda x, w, s: (x, w | True, s), lambda outs, args: [args[2]]),),
        **_GROUP,
    ),
    moved(
        "select_scatter",
        "out[b, number] = source[b], else x[b]",
        _select_scatter,
        (data("x", "B M N"), data("source", "B N")),
        "B M N",
        plain("number", formula="K - 1"),
        **_NUMBER,
    ),
    moved(
        "slice_scatter",
        "out[b, start + k] = source[b, k], else x[b]: new keys in a cache",
        _slice_scatter,
        (data("x", "B M N"), data("source", "B K N")),
        "B M N",
        plain("start", formula="(M - K) // 2", among=(0, "M - K")),
        **_NUMBER,
    ),
    moved(
        "diagonal_scatter",
        "out[n, n] = source[n], else x",
        _diagonal_scatter,
        (data("x", "M N"), data("source", "length")),
        "M N",
        derive={"length": "min(M, N)"},
        **_GROUP,
    ),
)

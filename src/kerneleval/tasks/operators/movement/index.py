"""Elements and rows picked by their numbers: gathers, paged caches, counts."""

from __future__ import annotations

from typing import Any

import torch

from kerneleval.tasks.define import MOST_COUNTED, MOST_NAMED, ROWS, data, fixed, flags, index, mask, plain, size, whole
from kerneleval.tasks.operators.movement.movement import copied, moved
from kerneleval.tasks.relations import permutation, resampling

Tensor = torch.Tensor
_aten: Any = torch.ops.aten


def _index_select(x: Tensor, index: Tensor) -> Tensor:
    return torch.index_select(x, 0, index)


def _permute_cols(x: Tensor, order: Tensor) -> Tensor:
    return x[:, order]


def _gather(x: Tensor, index: Tensor) -> Tensor:
    return torch.gather(x, 1, index)


def _take_along_dim(x: Tensor, index: Tensor) -> Tensor:
    return torch.take_along_dim(x, index, 1)


def _batched_index_select(x: Tensor, index: Tensor) -> Tensor:
    return torch.take_along_dim(x, index[:, :, None], 1)


def _pairs(x: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    return x[rows, columns]


def _outer_index(x: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    return x[rows[:, None], columns]


def _select(x: Tensor, number: int) -> Tensor:
    return copied(x.select(1, number))


def _gather_rows_masked(x: Tensor, index: Tensor, mask: Tensor) -> Tensor:
    return torch.where(mask[:, None], x[index], 0)


def _expand_where(condition: Tensor, x: Tensor, y: Tensor) -> Tensor:
    return torch.where(condition, x, y)


def _select_backward(grad: Tensor, rows: int, number: int) -> Any:
    return _aten.select_backward(grad, (grad.shape[0], rows, grad.shape[1]), 1, number)


def _gather_cache(cache: Tensor, table: Tensor) -> Tensor:
    return cache[table].flatten(1, 2)


def _copy_blocks(keys: Tensor, values: Tensor, source: Tensor) -> tuple[Tensor, Tensor]:
    return keys[source], values[source]


def _bincount(x: Tensor, bins: int) -> Tensor:
    return torch.bincount(x, minlength=bins)


def _bincount_weighted(x: Tensor, weights: Tensor, bins: int) -> Tensor:
    return torch.bincount(x, weights, bins).to(weights.dtype)  # of nothing PyTorch's counts are int64


def _sequence_of(position: Tensor, lengths: Tensor) -> Tensor:
    return torch.searchsorted(lengths.cumsum(0), position.contiguous(), right=True)


# Half types are added up in the type, so picks of one and the same row by the hundred leave nothing but rounding.
_OFTEN = 32
_TABLE = (size("V", low=4, long=MOST_NAMED), size("N"), size("K"))
_PICKS: Any = {"group": "Index", "reduction": "1"}  # gradients add up where a row is picked twice
_ROW: Any = {"dims": _TABLE, "where": f"V > 0 and K <= {_OFTEN} * V", **_PICKS}
_ROWS_OF_X = (data("x", "V N"), index("index", "K", "V"))
_PICKED = (resampling("picks_resampling", {1: 0}, {0: 0}), permutation("column_permutation", {0: 1}, {0: 1}))
_PER_ROW = (data("x", "M N"), index("index", "M K", "N"))
_COUNT: Any = {"dims": (size("N"), size("K")), "group": "Index", "where": "K > 0"}
_BLOCKS = (size("V", high=1024), fixed("S", low=4, high=32), size("D", high=512))
_GRADIENT = "it is a gradient itself"


TASKS = (
    moved("index_select", "out[k] = x[index[k]]", _index_select, _ROWS_OF_X, "K N", relations=_PICKED, **_ROW),
    moved(
        "shuffle_rows",
        "out[k] = x[source[k]]: tokens in the order of their experts, each as often as it has some",
        _index_select,
        (data("x", "M N"), index("source", "rows", "M")),
        "rows N",
        dims=(*ROWS, fixed("T")),
        derive={"rows": "M * T"},
        where="M > 0",
        relations=_PICKED,
        source="vllm",
        **_PICKS,
    ),
    moved(
        "permute_cols",
        "out[m, k] = x[m, order[k]]",
        _permute_cols,
        (data("x", "M N"), index("order", "N", "N")),
        "M N",
        relations=(resampling("row_resampling", {0: 0}, {0: 0}), permutation("order_permutation", {1: 0}, {0: 1})),
        source="vllm",
        **_PICKS,
    ),
    moved(
        "gather",
        "out[m, k] = x[m, index[m, k]]",
        _gather,
        _PER_ROW,
        "M K",
        dims=(size("M"), size("N", low=2), size("K")),
        where=f"N > 0 and K <= {_OFTEN} * N",
        batch=True,
        **_PICKS,
    ),
    moved(
        "take_along_dim",
        "out[m, k] = x[m, index[0, k]]",
        _take_along_dim,
        (data("x", "M N"), index("index", "one K", "N")),
        "M K",
        dims=(size("M"), size("N", low=2), size("K")),
        derive={"one": 1},
        where=f"N > 0 and K <= {_OFTEN} * N",
        relations=(resampling("row_resampling", {0: 0}, {0: 0}), permutation("order_permutation", {1: 1}, {0: 1})),
        **_PICKS,
    ),
    moved(
        "batched_index_select",
        "out[b, k] = x[b, index[b, k]]",
        _batched_index_select,
        (data("x", "B V N"), index("index", "B K", "V")),
        "B K N",
        dims=(fixed("B", low=2), size("V", low=8, high=4096), size("N", high=1024), size("K", high=4096)),
        where=f"V > 0 and K <= {_OFTEN} * V",
        batch=True,
        **_PICKS,
    ),
    moved(
        "advanced_index",
        "out[k] = x[rows[k], columns[k]]",
        _pairs,
        (data("x", "M N"), index("rows", "K", "M"), index("columns", "K", "N")),
        "K",
        dims=(size("M", low=4), size("N", low=4), size("K")),
        where=f"M * N > 0 and K <= {_OFTEN} * M * N",
        relations=(permutation("picks_permutation", {1: 0, 2: 0}, {0: 0}),),
        **_PICKS,
    ),
    moved(
        "outer_index",
        "out[k, l] = x[rows[k], columns[l]]",
        _outer_index,
        (data("x", "M N"), index("rows", "K", "M"), index("columns", "L", "N")),
        "K L",
        dims=(size("M", low=4), size("N", low=4), size("K", high=2048), size("L", high=2048)),
        where=f"M * N > 0 and K * L <= {_OFTEN} * M * N",
        relations=(permutation("rows_permutation", {1: 0}, {0: 0}), permutation("columns_permutation", {2: 0}, {0: 1})),
        **_PICKS,
    ),
    moved(
        "take",
        "out[k] = x.flatten()[index[k]]",
        torch.take,
        (data("x", "M N"), index("index", "K", "M * N")),
        "K",
        dims=(size("M", low=4), size("N", low=4), size("K")),
        where=f"M * N > 0 and K <= {_OFTEN} * M * N",
        relations=(permutation("picks_permutation", {1: 0}, {0: 0}),),
        **_PICKS,
    ),
    moved(
        "select",
        "out[b, n] = x[b, number, n]",
        _select,
        "B M N",
        "B N",
        plain("number", formula="K - 1"),
        dims=(size("B", high=1024), size("M", high=1024), size("N", high=1024), fixed("K")),
        where="M >= K > 0",
        batch=True,
        group="Index",
    ),
    moved(
        "select_backward",
        "out[b, number, n] = grad[b, n], 0 elsewhere",
        _select_backward,
        (data("grad", "B N"),),
        "B M N",
        plain("rows", formula="M"),
        plain("number", formula="K - 1"),
        dims=(size("B", high=1024), size("M", high=1024), size("N", high=1024), fixed("K")),
        where="M >= K > 0",
        batch=True,
        group="Index",
        no_backward=_GRADIENT,
    ),
    moved(
        "gather_rows_masked",
        "out[k] = x[index[k]] where mask[k], else 0",
        _gather_rows_masked,
        (*_ROWS_OF_X, mask("mask", "K")),
        "K N",
        relations=(permutation("picks_permutation", {1: 0, 2: 0}, {0: 0}),),
        source="model",
        level=2,
        **_ROW,
    ),
    moved(
        "expand_where",
        "out[m, n] = x[m, n] where condition[m, 0], else y[0, n]",
        _expand_where,
        (flags("condition", "M one"), data("x", "M N"), data("y", "one N")),
        "M N",
        derive={"one": 1},
        relations=(permutation("row_permutation", {0: 0, 1: 0}, {0: 0}),),
        **_PICKS,
    ),
    moved(
        "gather_cache",
        "out[b, t * S + s] = cache[table[b, t], s]: the pages of each sequence, one after another",
        _gather_cache,
        (data("cache", "V S D"), index("table", "B T", "V")),
        "B tokens D",
        dims=(*_BLOCKS, fixed("B", low=2), size("T", high=256)),
        derive={"tokens": "T * S"},
        where="V > 0",
        relations=(resampling("batch_resampling", {1: 0}, {0: 0}),),
        source="vllm",
        no_backward="caches have no gradient",
        group="Index",
    ),
    moved(
        "copy_blocks",
        "out0[k] = keys[source[k]], out1[k] = values[source[k]]",
        _copy_blocks,
        (data("keys", "V S D"), data("values", "V S D"), index("source", "K", "V")),
        "K S D, K S D",
        dims=(*_BLOCKS, size("K", high=1024)),
        where="V > 0",
        relations=(resampling("picks_resampling", {2: 0}, {0: 0, 1: 0}),),
        source="vllm",
        no_backward="caches have no gradient",
        group="Index",
    ),
    moved(
        "bincount",
        "out[k] = how many n there are with x[n] = k",
        _bincount,
        (whole("x", "N", 0, "K", edges=(0, "K - 1", 1)),),
        "K: int64",
        plain("bins", formula="K"),
        rows=("ordered", "binned", "full"),
        dtypes=("int64", "int32"),
        no_backward="counts have no gradient",
        relations=(permutation("order", {0: 0}, {}),),
        **{**_COUNT, "dims": (size("N", high=MOST_COUNTED), size("K"))},
    ),
    moved(
        "bincount_weighted",
        "out[k] = the sum of weights[n] over all n with x[n] = k",
        _bincount_weighted,
        (index("x", "N", "K"), data("weights", "N", nonfinite="nan")),
        "K",
        plain("bins", formula="K"),
        each=2,
        dtypes=("float32",),
        reduction="1 + N // max(K, 1)",
        exact=False,
        no_backward="PyTorch has none",
        relations=(permutation("order", {0: 0, 1: 0}, {}),),
        **_COUNT,
    ),
    moved(
        "sequence_of_position",
        "out[k] = the sequence in which position[k] is, where these have the given lengths and follow one another; "
        "the number of sequences where it is behind all",
        _sequence_of,
        (whole("position", "K", 0, "8 * N"), whole("lengths", "N", 0, 16)),
        "K: int64",
        dims=(size("N"), size("K")),
        each=16,
        dtypes=("int64", "int32"),
        no_backward="the output is an index",
        relations=(permutation("position_permutation", {0: 0}, {0: 0}),),
        source="model",
        level=2,
        group="Index",
    ),
)

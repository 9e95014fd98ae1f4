"""Rows of a table by their numbers, as such, added up, and backwards."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the usual name

from kerneleval.tasks.define import MOST_NAMED, data, fixed, index, plain, size, whole
from kerneleval.tasks.operators.movement.movement import moved
from kerneleval.tasks.relations import homogeneity, permutation, resampling

Tensor = torch.Tensor
_aten: Any = torch.ops.aten


def _embedding_padding_idx(index: Tensor, weight: Tensor, padding_idx: int) -> Tensor:
    return F.embedding(index, weight, padding_idx)


def _embedding_bag_sum(index: Tensor, weight: Tensor) -> Tensor:
    return F.embedding_bag(index, weight, mode="sum")


def _embedding_bag_mean(index: Tensor, weight: Tensor) -> Tensor:
    return F.embedding_bag(index, weight, mode="mean")


def _embedding_bag_max(index: Tensor, weight: Tensor) -> Tensor:
    return F.embedding_bag(index, weight, mode="max")


def _embedding_bag_weighted(index: Tensor, weight: Tensor, sample_weight: Tensor) -> Tensor:
    return F.embedding_bag(index, weight, mode="sum", per_sample_weights=sample_weight)


def _token_and_position(index: Tensor, tokens: Tensor, positions: Tensor) -> Tensor:
    return F.embedding(index, tokens) + positions


def _embedding_backward(grad: Tensor, index: Tensor, rows: int) -> Any:
    # on CUDA (PyTorch 2.11) it reads beyond a gradient that lies otherwise
    return _aten.embedding_dense_backward(grad.contiguous(), index.contiguous(), rows, -1, False)


def _one_hot(index: Tensor, classes: int) -> Tensor:
    return F.one_hot(index, classes)


# Half types are added up in the type, so picks of one and the same row by the hundred leave nothing but rounding.
_OFTEN = 32
# Gradients of rows of no elements end in an illegal memory access on CUDA (PyTorch 2.11), so D is never 0.
_TABLE = (size("V", low=4, long=MOST_NAMED), size("N"), size("K"))
_BAGS = (size("V", low=8, long=MOST_NAMED), size("D", high=2048), size("B"), fixed("L", high=32))
_PICKS: Any = {"group": "Index", "reduction": "1"}  # gradients add up where a row is picked twice
_WORDS = (index("index", "B L", "V"), data("weight", "V D"))
_WORD: Any = {
    "where": f"V * D > 0 and B * L <= {_OFTEN} * V",
    "relations": (resampling("picks_resampling", {0: 0}, {0: 0}),),
    **_PICKS,
}
_BAG: Any = {
    **_WORD,
    "dims": _BAGS,
    "where": f"V * D * L > 0 and B * L <= {_OFTEN} * V",
    "relations": (*_WORD["relations"], permutation("order_within_bags", {0: 1}, {})),
    "nonfinite": "nan",
}
_NO_BFLOAT16: Any = {"backward_dtypes": ("float32", "float16")}  # PyTorch has no such gradient on CUDA
_WEIGHTED = (
    resampling("bag_resampling", {0: 0, 2: 0}, {0: 0}),
    permutation("order_within_bags", {0: 1, 2: 1}, {}),
    homogeneity({1: -2.0, 2: 0.5}, {0: -1.0}),
)
_GRADIENT = "it is a gradient itself"


TASKS = (
    moved(
        "embedding",
        "out[b, l] = weight[index[b, l]]",
        F.embedding,
        _WORDS,
        "B L D",
        dims=(size("V", low=4, long=MOST_NAMED), size("D", high=2048), fixed("B"), size("L", high=4096)),
        **_WORD,
    ),
    moved(
        "embedding_padding_idx",
        "out[b, l] = weight[index[b, l]]; the row padding_idx of the gradient is 0",
        _embedding_padding_idx,
        _WORDS,
        "B L D",
        plain("padding_idx", formula="V // 3", among=(0, 1, "V - 1")),
        dims=(size("V", low=4, long=MOST_NAMED), size("D", high=2048), fixed("B"), size("L", high=4096)),
        **_WORD,
    ),
    moved(
        "token_and_position_embedding",
        "out[b, l] = tokens[index[b, l]] + positions[l]",
        _token_and_position,
        (index("index", "B L", "V"), data("tokens", "V D"), data("positions", "L D")),
        "B L D",
        dims=(size("V", low=4, long=MOST_NAMED), size("D", high=2048), fixed("B"), size("L", high=4096)),
        gathered="B",
        exact=False,
        level=2,
        source="model",
        **_WORD,
    ),
    moved(
        "embedding_backward",
        "out[v] = the sum of grad[k] over all k with index[k] = v",
        _embedding_backward,
        (data("grad", "K N", nonfinite="nan"), index("index", "K", "V", summed=True)),
        "V N",
        plain("rows", formula="V"),
        dims=_TABLE,
        where=f"V * N > 0 and K <= {_OFTEN} * V",
        each=2,
        reduction="1 + K // max(V, 1)",
        exact=False,
        group="Index",
        no_backward=_GRADIENT,
        relations=(permutation("picks_permutation", {0: 0, 1: 0}, {}),),
    ),
    moved(
        "embedding_bag",
        "out[b] = sum_l weight[index[b, l]]",
        _embedding_bag_sum,
        _WORDS,
        "B D",
        exact=False,
        **{**_BAG, "reduction": "L"},
    ),
    moved(
        "embedding_bag_mean",
        "out[b] = mean_l weight[index[b, l]]",
        _embedding_bag_mean,
        _WORDS,
        "B D",
        exact=False,
        **{**_BAG, "reduction": "L"},
    ),
    moved(
        "embedding_bag_max",
        "out[b, d] = max_l weight[index[b, l], d]; the first of equal ones takes the gradient",
        _embedding_bag_max,
        (_WORDS[0], data("weight", "V D", along="V")),
        "B D",
        scaling=2.0,
        **{**_BAG, "nonfinite": "infinite"},  # PyTorch drops a NaN or keeps it, as its place in the bag says
        **_NO_BFLOAT16,
    ),
    moved(
        "embedding_bag_weighted",
        "out[b] = sum_l sample_weight[b, l] * weight[index[b, l]]",
        _embedding_bag_weighted,
        (*_WORDS, data("sample_weight", "B L")),
        "B D",
        exact=False,
        scaling=0,
        **{**_BAG, "reduction": "L", "relations": _WEIGHTED},
        **_NO_BFLOAT16,
    ),
    moved(
        "one_hot",
        "out[m, n] = whether index[m] = n, as 0 or 1",
        _one_hot,
        (whole("index", "M", 0, "N", ids=True),),
        "M N: int64",
        plain("classes", formula="N"),
        where="N > 0",
        batch=True,
        dtypes=("int64",),
        group="Index",
        no_backward="whole numbers have no gradient",
    ),
)

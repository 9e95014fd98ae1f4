"""Mixtures of experts: tokens moved to their experts, multiplied with their weights, brought back and added up."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the usual name

from kerneleval.records import Task
from kerneleval.tasks.define import data, fixed, index, operator, plain, size, weight
from kerneleval.tasks.operators.gemm.gemm import free, product
from kerneleval.tasks.relations import additivity, homogeneity, permutation, resampling

Tensor = torch.Tensor


def _moe_sum(x: Tensor) -> Tensor:
    return x.sum(1)


def _moe_permute(x: Tensor, ids: Tensor, experts: int) -> tuple[Tensor, Tensor, Tensor]:
    flat = ids.flatten()
    order = torch.argsort(flat, stable=True)
    ends = torch.bincount(flat, minlength=experts).cumsum(0)
    places = torch.empty_like(order)
    places[order] = torch.arange(len(order), device=order.device)
    return x[order // ids.shape[1]], places.view(ids.shape), F.pad(ends, (1, 0))


def _moe_unpermute(x: Tensor, weights: Tensor, places: Tensor) -> Tensor:
    return torch.bmm(weights[:, None], x[places]).squeeze(1)


def _moe_finalize_routing(
    x: Tensor, skip: Tensor, bias: Tensor, weights: Tensor, places: Tensor, ids: Tensor
) -> Tensor:
    return skip + torch.bmm(weights[:, None], x[places] + bias[ids]).squeeze(1)


def _moe_scatter_add(x: Tensor, weights: Tensor, token: Tensor, tokens: int) -> Tensor:
    return x.new_zeros(tokens, x.shape[1]).index_add(0, token, x * weights[:, None])


def _by_experts(x: Tensor, ids: Tensor, weight: Tensor) -> Tensor:
    """Each row times the matrix of its expert: expert by expert, as eager models do."""
    out = x.new_zeros(*x.shape[:-1], weight.shape[-1])
    for number in range(len(weight)):
        rows = torch.nonzero(ids == number, as_tuple=True)[0]
        out = out.index_add(0, rows, x[rows] @ weight[number])
    return out


def _moe_grouped_gemm(x: Tensor, ids: Tensor, weight: Tensor) -> Tensor:
    return _by_experts(x, ids, weight)


def _moe_grouped_gemm_bias(x: Tensor, ids: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return _by_experts(x, ids, weight) + bias[ids]


def _moe_grouped_gemm_sorted(x: Tensor, cuts: Tensor, weight: Tensor) -> Tensor:
    ids = torch.searchsorted(cuts.sort().values, torch.arange(len(x), device=x.device), right=True)
    return _by_experts(x, ids, weight)


def _moe_grouped_gemm_weighted(x: Tensor, ids: Tensor, weight: Tensor, scale: Tensor) -> Tensor:
    return _by_experts(x, ids, weight) * scale[:, None]


def _batched_experts_masked(x: Tensor, tokens: Tensor, weight: Tensor) -> Tensor:
    used = torch.arange(x.shape[1], device=x.device) < tokens[:, None]
    return torch.bmm(x, weight) * used[..., None]


def _lora(x: Tensor, ids: Tensor, down: Tensor, up: Tensor) -> Tensor:
    return _by_experts(_by_experts(x, ids, down), ids, up)


def _fused_moe(x: Tensor, ids: Tensor, weights: Tensor, w1: Tensor, w2: Tensor) -> Tensor:
    out = torch.zeros_like(x)
    for number in range(len(w1)):
        rows, choice = torch.nonzero(ids == number, as_tuple=True)
        gate, up = (x[rows] @ w1[number]).chunk(2, -1)
        out = out.index_add(0, rows, (F.silu(gate) * up) @ w2[number] * weights[rows, choice, None])
    return out


_IDS = index("ids", "T", "E")
_EXPERTS = (fixed("E", low=2, high=16),)
_WEIGHT = weight("weight", "E D N", fan_in="D")
_TOKENS = permutation("token_permutation", {0: 0, 1: 0}, {0: 0})
_ROWS = resampling("token_resampling", {0: 0, 1: 0}, {0: 0})
_BILINEAR = homogeneity({0: 2.0, 2: -0.5}, {0: -1.0})
_WIDTHS = free("T D N", high=2048)
# with a product of both halves and weights of 8, no more stays within float16
_FEWER: Any = {"large_half": 2.0, "large_half_backward": 1.0}
_EXPERT: Any = {"where": "E > 0", "source": "vllm", "level": 2}
_MOVED: Any = {
    "dims": (size("T", high=4096), size("D", high=2048), fixed("K", low=2)),
    "where": "T * K > 0",
    "empty": True,
    "complexity": 1,
    "level": 2,
    "source": "vllm",
}
_BACK: Any = {
    **_MOVED,
    "derive": {"rows": "T * K"},
    "reduction": "K",
    # a row of x may be brought back several times, to several tokens
    "gathered": "T * K",
}
_PLACES = index("places", "T K", "T * K")


def _product(name: str, summary: str, reference: Any, args: tuple[Any, ...], **more: Any) -> Task:
    """A task of one product for each token; ``more`` as ``gemm.product`` takes it."""
    settings: dict[str, Any] = {"dims": (*_WIDTHS, *_EXPERTS), **_EXPERT, "relations": (_TOKENS, _ROWS), **more}
    return product(name, summary, reference, args=args, out="T N", terms="D", **settings)


TASKS = (
    operator(
        "moe_sum",
        "reduction",
        "out[t] = sum_k x[t, k]",
        args=(data("x", "T K D"),),
        out=("T D",),
        reference=_moe_sum,
        flops="T * K * D",
        reduction="K",
        relations=(
            resampling("token_resampling", {0: 0}, {0: 0}),
            permutation("order_of_experts", {0: 1}, {}),
            additivity(0),
        ),
        **{**_MOVED, "level": 1},
    ),
    operator(
        "moe_permute",
        "elementwise",
        "out0 = the rows x[t], once for each of the entries ids[t, k], in the order of their experts; out1[t, k] = the "
        "place of the entry; out2 = where each expert's rows start, and the end",
        args=(data("x", "T D"), index("ids", "T K", "E"), plain("experts", formula="E")),
        out=("rows D", "T K: int64", "ends: int64"),
        reference=_moe_permute,
        flops="T * K * (D + 4)",
        reduction="1",
        gathered="K",
        exact=True,
        nonfinite=True,
        group="Index",
        derive={"rows": "T * K", "ends": "E + 1"},
        relations=(permutation("feature_permutation", {0: 1}, {0: 1}), homogeneity({0: -2.0}, {0: -2.0})),
        **{**_MOVED, "dims": (*_MOVED["dims"], fixed("E", low=2, high=64)), "where": "T * K * E > 0"},
    ),
    operator(
        "moe_unpermute",
        "fused",
        "out[t] = sum_k weights[t, k] * x[places[t, k]]",
        args=(data("x", "rows D"), data("weights", "T K"), _PLACES),
        out=("T D",),
        reference=_moe_unpermute,
        flops="2 * T * K * D",
        relations=(
            resampling("token_resampling", {1: 0, 2: 0}, {0: 0}),
            permutation("order_of_experts", {1: 1, 2: 1}, {}),
            homogeneity({0: -2.0, 1: 0.5}, {0: -1.0}),
        ),
        **_BACK,
    ),
    operator(
        "moe_finalize_routing",
        "fused",
        "out[t] = skip[t] + sum_k weights[t, k] * (x[places[t, k]] + bias[ids[t, k]])",
        args=(
            data("x", "rows D"),
            data("skip", "T D"),
            weight("bias", "E D"),
            data("weights", "T K"),
            _PLACES,
            index("ids", "T K", "E"),
        ),
        out=("T D",),
        reference=_moe_finalize_routing,
        flops="T * D * (3 * K + 1)",
        relations=(
            resampling("token_resampling", {1: 0, 3: 0, 4: 0, 5: 0}, {0: 0}),
            permutation("order_of_experts", {3: 1, 4: 1, 5: 1}, {}),
        ),
        **{**_BACK, "dims": (*_BACK["dims"], fixed("E", low=2, high=64)), "where": "T * K * E > 0"},
    ),
    operator(
        "moe_scatter_add",
        "fused",
        "out[t] = the sum of weights[r] * x[r] over all r with token[r] = t",
        args=(
            data("x", "rows D"),
            data("weights", "rows"),
            index("token", "rows", "T", summed=True),
            plain("tokens", formula="T"),
        ),
        out=("T D",),
        reference=_moe_scatter_add,
        flops="2 * T * K * D",
        relations=(
            permutation("row_permutation", {0: 0, 1: 0, 2: 0}, {}),
            homogeneity({0: -2.0, 1: 0.5}, {0: -1.0}),
        ),
        **{**_BACK, "gathered": "D"},
    ),
    _product(
        "moe_grouped_gemm",
        "out[t] = x[t] @ weight[ids[t]]",
        _moe_grouped_gemm,
        (data("x", "T D"), _IDS, _WEIGHT),
    ),
    _product(
        "moe_grouped_gemm_bias",
        "out[t] = x[t] @ weight[ids[t]] + bias[ids[t]]",
        _moe_grouped_gemm_bias,
        (data("x", "T D"), _IDS, _WEIGHT, weight("bias", "E N")),
        each=1,
    ),
    _product(
        "moe_grouped_gemm_weighted",
        "out[t] = scale[t] * (x[t] @ weight[ids[t]])",
        _moe_grouped_gemm_weighted,
        (data("x", "T D"), _IDS, _WEIGHT, data("scale", "T")),
        each=1,
        relations=(permutation("token_permutation", {0: 0, 1: 0, 3: 0}, {0: 0}),),
    ),
    _product(
        "moe_grouped_gemm_sorted",
        "out[t] = x[t] @ weight[e] for the rows t of expert e, which end at the sorted cuts; the last expert has the "
        "rest",
        _moe_grouped_gemm_sorted,
        (data("x", "T D"), index("cuts", "others", "T + 1", lengths=True), _WEIGHT),
        derive={"others": "E - 1"},
        relations=(permutation("order_of_cuts", {1: 0}, {}), permutation("columns", {2: 2}, {0: 1})),
    ),
    product(
        "batched_experts_masked",
        "out[e, t] = x[e, t] @ weight[e] for t < tokens[e], else 0",
        _batched_experts_masked,
        (*_WIDTHS, *_EXPERTS),
        (data("x", "E T D"), index("tokens", "E", "T + 1"), _WEIGHT),
        "E T N",
        "D",
        **{
            **_EXPERT,
            "relations": (permutation("expert_permutation", {0: 0, 1: 0, 2: 0}, {0: 0}), _BILINEAR),
        },
    ),
    _product(
        "lora_shrink_expand",
        "out[t] = (x[t] @ down[ids[t]]) @ up[ids[t]], the adapter of each token",
        _lora,
        (data("x", "T D"), _IDS, weight("down", "E D R", fan_in="D"), weight("up", "E R N", fan_in="R")),
        dims=(*_WIDTHS, *_EXPERTS, fixed("R", low=4, high=64, multiple_of=4)),
        where="E * R > 0",
        flops="2 * T * R * (D + N)",
        reduction="D + R",
    ),
    product(
        "fused_moe",
        "out[t] = sum_k weights[t, k] * (silu(g) * u) @ w2[e], (g, u) = the halves of x[t] @ w1[e], e = ids[t, k]",
        _fused_moe,
        (*_WIDTHS, *_EXPERTS, fixed("K", low=2, high=4)),
        (
            data("x", "T D", **_FEWER),
            index("ids", "T K", "E"),
            data("weights", "T K", **_FEWER),
            weight("w1", "E D both", fan_in="D"),
            weight("w2", "E N D", fan_in="N"),
        ),
        "T D",
        "D",
        relations=(
            permutation("token_permutation", {0: 0, 1: 0, 2: 0}, {0: 0}),
            permutation("order_of_experts", {1: 1, 2: 1}, {}),
            homogeneity({2: -2.0}, {0: -2.0}),
        ),
        derive={"both": "2 * N"},
        **{
            **_EXPERT,
            "where": "E * K > 0",
            "flops": "T * K * (6 * D * N + 5 * N + 2 * D)",
            "reduction": "D + N * K",
            "category": "fused",
            "complexity": 4,
            "level": 3,
        },
    ),
)

"""Mixtures of experts, who goes where: gates that choose experts for tokens, and tokens in the order of their experts.

Of experts with equal scores the first one is chosen, and chosen ones stand in the order of their scores. Scores and
weights are computed in fp32 at least.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the usual name

from kerneleval.records import Arg, Plain, Task
from kerneleval.tasks.define import FAR_BELOW, data, fixed, index, operator, plain, size, whole
from kerneleval.tasks.operators.reduction.scan import wide
from kerneleval.tasks.relations import permutation, resampling

Tensor = torch.Tensor


def _chosen(scores: Tensor, k: int) -> Tensor:
    """The places of the k largest of each row, the first of equal ones."""
    return torch.argsort(scores.detach(), dim=-1, descending=True, stable=True)[..., :k].contiguous()


def _shares(weights: Tensor) -> Tensor:
    return weights / weights.sum(-1, keepdim=True)


def _topk_softmax(gating: Tensor, k: int) -> tuple[Tensor, Tensor]:
    ids = _chosen(gating, k)
    return torch.softmax(wide(gating), -1).gather(-1, ids).to(gating.dtype), ids


def _topk_softmax_renormalized(gating: Tensor, k: int) -> tuple[Tensor, Tensor]:
    ids = _chosen(gating, k)
    return torch.softmax(wide(gating).gather(-1, ids), -1).to(gating.dtype), ids


def _topk_sigmoid(gating: Tensor, k: int) -> tuple[Tensor, Tensor]:
    ids = _chosen(gating, k)
    return torch.sigmoid(wide(gating).gather(-1, ids)).to(gating.dtype), ids


def _topk_sigmoid_renormalized(gating: Tensor, bias: Tensor, k: int, scale: float) -> tuple[Tensor, Tensor]:
    scores = torch.sigmoid(wide(gating))
    ids = _chosen(scores + wide(bias), k)
    return (scale * _shares(scores.gather(-1, ids))).to(gating.dtype), ids


def _of_groups(scores: Tensor, worth: Tensor, kept: int) -> Tensor:
    """The scores (T, G, E), those of all groups but the worthiest at minus infinity, in a row."""
    groups = _chosen(worth, kept)
    open_ = torch.zeros_like(worth, dtype=torch.bool).scatter(-1, groups, True)
    return scores.masked_fill(~open_[..., None], float("-inf")).flatten(1)


def _grouped_topk(gating: Tensor, groups: int, kept: int, k: int) -> tuple[Tensor, Tensor]:
    apart = gating.unflatten(-1, (groups, gating.shape[-1] // groups))
    ids = _chosen(_of_groups(apart, apart.amax(-1), kept), k)
    return _shares(torch.softmax(wide(gating), -1).gather(-1, ids)).to(gating.dtype), ids


def _biased_grouped_topk(
    gating: Tensor, bias: Tensor, groups: int, kept: int, k: int, scale: float
) -> tuple[Tensor, Tensor]:
    scores = torch.sigmoid(wide(gating))
    apart = (scores + wide(bias)).unflatten(-1, (groups, gating.shape[-1] // groups))
    ids = _chosen(_of_groups(apart, apart.topk(2).values.sum(-1), kept), k)
    return (scale * _shares(scores.gather(-1, ids))).to(gating.dtype), ids


def _expert_choice(gating: Tensor, capacity: int) -> tuple[Tensor, Tensor]:
    scores = torch.softmax(wide(gating), -1).t()
    ids = _chosen(scores, capacity)
    return scores.gather(-1, ids).to(gating.dtype), ids


def _expert_positions(ids: Tensor, experts: int) -> Tensor:
    flat = ids.flatten()
    place = torch.empty_like(flat)
    order = torch.argsort(flat, stable=True)
    counts = torch.bincount(flat, minlength=experts)
    starts = counts.cumsum(0) - counts
    place[order] = torch.arange(flat.numel(), device=ids.device, dtype=ids.dtype) - starts[flat[order]].to(ids.dtype)
    return place.view(ids.shape)


def _aligned(experts: Tensor, count: int, block: int, longest: int, nobody: int) -> tuple[Tensor, Tensor, Tensor]:
    """(numbers of the entries in the order of their experts, each expert's filled up to whole blocks with ``nobody``;
    the expert of each block; length in use). Entries of expert ``count`` are left out. Of ``longest`` entries, what
    nothing uses is ``nobody`` too, and the experts of blocks that nothing uses are -1.
    """
    counts = torch.bincount(experts, minlength=count + 1)
    blocks = -(-counts[:count] // block)
    ends = blocks.cumsum(0)
    order = torch.argsort(experts, stable=True)
    whose = experts[order]
    first = F.pad(block * ends, (1, 0))[:-1] - (counts.cumsum(0) - counts)[:count]
    known = whose < count
    places = torch.arange(len(order), device=order.device)[known] + first[whose[known]]
    entries = torch.full((longest,), nobody, device=experts.device).index_copy(0, places, order[known])
    number = torch.arange(-(-longest // block), device=experts.device)
    owner = torch.searchsorted(ends, number, right=True)
    return entries, owner.masked_fill(owner == count, -1), block * ends[-1:]


def _moe_align_block_size(ids: Tensor, experts: int, block: int) -> tuple[Tensor, Tensor, Tensor]:
    longest = ids.numel() + experts * (block - 1)
    return _aligned(ids.flatten().long(), experts, block, longest, ids.numel())


def _batched_moe_align_block_size(tokens: Tensor, most: int, block: int) -> tuple[Tensor, Tensor, Tensor]:
    experts, whole_blocks = len(tokens), block * -(-most // block)
    slots = torch.arange(experts * most, device=tokens.device)
    owner = torch.where(slots % most < tokens[slots // most], slots // most, experts)
    return _aligned(owner, experts, block, experts * whole_blocks, experts * most)


def _moe_lora_align_block_size(
    ids: Tensor, adapter: Tensor, adapters: int, experts: int, block: int
) -> tuple[Tensor, ...]:
    longest = ids.numel() + experts * (block - 1)
    found = []
    for number in range(adapters):
        own = torch.where(adapter[:, None] == number, ids, experts).flatten().long()
        found.append(_aligned(own, experts, block, longest, ids.numel()))
    return tuple(torch.stack(parts) for parts in zip(*found, strict=True))


def _load_balancing_loss(gating: Tensor, ids: Tensor) -> Tensor:
    experts = gating.shape[-1]
    part = torch.bincount(ids.flatten(), minlength=experts) / ids.shape[0]
    return (experts * part * torch.softmax(wide(gating), -1).mean(0)).sum().to(gating.dtype)


def _router_z_loss(gating: Tensor) -> Tensor:
    return torch.logsumexp(wide(gating), -1).square().mean().to(gating.dtype)


_EXPERTS = (size("T"), size("E", low=8, high=512))
_GATING = data("gating", "T E", common=FAR_BELOW)
_K, _BLOCK = plain("k", formula="K"), plain("block", formula="S")
_BLOCKS = fixed("S", low=8, high=128, multiple_of=8)
_SHAPES: Any = {
    "longest": "T * K + E * (S - 1)",
    "blocks": "-(-longest // S)",
    "one": 1,
}
_ALIGNED = ("longest: int64", "blocks: int64", "one: int64")
_BIAS = data("bias", "experts", differentiable=False)
_FACTOR = plain("scale", 2.5)


# Some kernels choose by the scores and others by what these are made from. So two of these are equal or far enough
# apart, and none so large that all but one score are 0 or 1 in fp32.
_STEP = 2.0**-10
_OF_SCORES = ("large_scale", "outlier")

_SATURATED = 100.0
"""``Arg.reset`` of gates that a sigmoid is taken of: exp overflows in fp32 there, and those of one row are equal."""


def _gate(
    name: str,
    summary: str,
    reference: Any,
    each: int,
    *further: Arg | Plain,
    along: str = "experts",
    common: float = 0.0,
    **more: Any,
) -> Task:
    """A task that gives weights and numbers of the K chosen of E experts; ``along``: the dim of which they are chosen,
    ``common`` as ``Arg`` has it, 0 where a sigmoid is taken; ``more`` as ``define.operator`` takes it.
    """
    settings: dict[str, Any] = {
        "dims": (*_EXPERTS, fixed("K")),
        "derive": {"experts": "E"},
        "out": ("T K", "T K: int64"),
        "flops": f"T * E * ({each} + K)",
        "where": "E >= K > 0",
        "relations": (resampling("token_resampling", {0: 0}, {0: 0, 1: 0}),),
        "without": _OF_SCORES,
        **more,
    }
    reset = 0.0 if common else _SATURATED
    return operator(
        name,
        "reduction",
        summary,
        args=(data("gating", "T experts", along=along, step=_STEP, common=common, reset=reset), *further),
        rows=("ordered",),
        reference=reference,
        reduction="experts",
        nonfinite=False,
        empty=True,
        group="Fusion",
        complexity=2,
        level=2,
        source="vllm",
        **settings,
    )


def _ordering(name: str, summary: str, reference: Any, args: tuple[Any, ...], *out: str, **more: Any) -> Task:
    """A task on the numbers of experts; ``more`` as ``define.operator`` takes it."""
    settings: dict[str, Any] = {
        "dims": (size("T"), size("E", low=2, high=512), fixed("K"), _BLOCKS),
        "derive": _SHAPES,
        "where": "T * E * K * S > 0",
        "flops": "4 * T * K + 2 * E",
        "level": 2,
        "source": "vllm",
        **more,
    }
    return operator(
        name,
        "reduction",
        summary,
        args=args,
        out=out,
        reference=reference,
        exact=True,
        dtypes=("int64", "int32"),
        no_backward="numbers of tokens and experts have no gradient",
        group="Index",
        complexity=2,
        **settings,
    )


_SEVERAL: Any = {"dims": (*_EXPERTS, fixed("K", low=2))}  # the share of a single one is 1
_LOSS: Any = {"complexity": 2, "level": 2, "source": "model"}
_GROUPED: Any = {
    "dims": (size("T"), size("E", low=4, high=64), fixed("G", low=2), fixed("K", low=2), fixed("C", high=4)),
    "derive": {"experts": "G * E"},
    "where": "G >= C and E * C >= K and (K * C > 0) and (E > 1)",
    "flops": "T * experts * (6 + K)",
}
_GROUPS = (plain("groups", formula="G"), plain("kept", formula="C"))

TASKS = (
    _gate(
        "topk_softmax",
        "out0 = the k largest of softmax(gating[t]), the largest first, out1 = their experts; the first of equal ones",
        _topk_softmax,
        5,
        _K,
        common=FAR_BELOW,
    ),
    _gate(
        "topk_softmax_renormalized",
        "out0 = softmax of the k largest of gating[t], the largest first, out1 = their experts; the first of equal "
        "ones",
        _topk_softmax_renormalized,
        1,
        _K,
        common=FAR_BELOW,
        **_SEVERAL,
    ),
    _gate(
        "topk_sigmoid",
        "out0 = sigmoid of the k largest of gating[t], the largest first, out1 = their experts; the first of equal "
        "ones",
        _topk_sigmoid,
        1,
        _K,
    ),
    _gate(
        "topk_sigmoid_renormalized",
        "out1 = the experts of the k largest of s + bias, s = sigmoid(gating[t]), the largest first; out0 = scale * "
        "s[out1] / sum of these",
        _topk_sigmoid_renormalized,
        6,
        _BIAS,
        _K,
        _FACTOR,
        **_SEVERAL,
    ),
    _gate(
        "grouped_topk",
        "out1 = the experts of the k largest of gating[t] in the kept groups, whose largest are the largest; out0 = "
        "s[out1] / sum of these, s = softmax(gating[t])",
        _grouped_topk,
        6,
        *_GROUPS,
        _K,
        common=FAR_BELOW,
        **_GROUPED,
    ),
    _gate(
        "biased_grouped_topk",
        "out1 = the experts of the k largest of s + bias in the kept groups, whose two largest have the largest sums; "
        "out0 = scale * s[out1] / sum of these, s = sigmoid(gating[t])",
        _biased_grouped_topk,
        7,
        _BIAS,
        *_GROUPS,
        _K,
        _FACTOR,
        **_GROUPED,
    ),
    _gate(
        "expert_choice",
        "out0[e] = the largest of s[:, e], the largest first, s = softmax(gating, dim 1), out1[e] = their tokens; the "
        "first of equal ones",
        _expert_choice,
        5,
        plain("capacity", formula="K"),
        along="T",
        out=("E K", "E K: int64"),
        where="T >= K > 0 and E > 1",
        without=(*_OF_SCORES, "small_scale"),  # all are 1 / E, but for the sums of their rows
        relations=(permutation("expert_permutation", {0: 1}, {0: 0, 1: 0}),),
    ),
    operator(
        "moe_load_balancing_loss",
        "reduction",
        "out = E * sum_e f[e] * mean_t softmax(gating[t])[e], f[e] = how often ids has e, divided by T",
        dims=(*_EXPERTS, fixed("K")),
        args=(_GATING, index("ids", "T K", "E")),
        out=("",),
        reference=_load_balancing_loss,
        flops="6 * T * E + T * K",
        reduction="T * E",
        where="T * E * K > 0",
        relations=(permutation("token_permutation", {0: 0, 1: 0}, {}),),
        group="Loss",
        **_LOSS,
    ),
    operator(
        "router_z_loss",
        "reduction",
        "out = mean_t logsumexp(gating[t])^2",
        dims=_EXPERTS,
        args=(_GATING,),
        out=("",),
        reference=_router_z_loss,
        flops="3 * T * E + 3 * T",
        reduction="T * E",
        where="T * E > 0",
        relations=(permutation("token_permutation", {0: 0}, {}), permutation("expert_permutation", {0: 1}, {})),
        group="Loss",
        **_LOSS,
    ),
    _ordering(
        "expert_positions",
        "out[t, k] = how many entries before it, row by row, have the same expert ids[t, k]: its place in the expert's "
        "buffer",
        _expert_positions,
        (whole("ids", "T K", 0, "E", ids=True), plain("experts", formula="E")),
        "T K",
        dims=(size("T"), size("E", low=2, high=512), fixed("K")),
        where="T * E * K > 0",
        source="model",
    ),
    _ordering(
        "moe_align_block_size",
        "out0 = the entries t * K + k of ids in the order of their experts, each expert's filled up to whole blocks "
        "with T * K; out1 = the expert of each block, -1 at the end; out2 = length in use",
        _moe_align_block_size,
        (whole("ids", "T K", 0, "E", ids=True), plain("experts", formula="E"), _BLOCK),
        *_ALIGNED,
    ),
    _ordering(
        "batched_moe_align_block_size",
        "out0 = the entries e * most + i, i < tokens[e], each expert's filled up to whole blocks with E * most; out1 = "
        "the expert of each block, -1 at the end; out2 = length in use",
        _batched_moe_align_block_size,
        (whole("tokens", "E", 0, "T + 1"), plain("most", formula="T"), _BLOCK),
        *_ALIGNED,
        dims=(size("T", high=1024), size("E", low=2, high=512), _BLOCKS),
        derive={**_SHAPES, "longest": "E * S * -(-T // S)"},
        where="T * E * S > 0",
        flops="T * E + 2 * E",
    ),
    _ordering(
        "moe_lora_align_block_size",
        "out[a] = moe_align_block_size of the tokens with adapter[t] = a alone, of each output; -1 is no adapter",
        _moe_lora_align_block_size,
        (
            whole("ids", "T K", 0, "E", ids=True),
            whole("adapter", "T", -1, "A", ids=True),
            plain("adapters", formula="A"),
            plain("experts", formula="E"),
            _BLOCK,
        ),
        "A longest: int64",
        "A blocks: int64",
        "A one: int64",
        dims=(size("T"), size("E", low=2, high=512), fixed("K"), _BLOCKS, fixed("A", low=2)),
        where="T * E * K * S * A > 0",
        flops="A * (4 * T * K + 2 * E)",
    ),
)

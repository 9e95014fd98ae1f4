"""Attention with other scores or over fewer keys: (B, H, L, D) queries, (B, H, S, D) keys and values, unless stated.

Lowest sizes, what is left out, and why, are those of ``attention``. Every query sees a key.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the usual name

from kerneleval.records import LAYOUTS, Plain, Task
from kerneleval.tasks.define import data, fixed, index, mask, operator, plain, size
from kerneleval.tasks.operators.attention.attention import OF_QUERIES, SCORES_NEAR, SINKS_BELOW
from kerneleval.tasks.operators.movement.movement import copied, moved
from kerneleval.tasks.operators.reduction.scan import wide
from kerneleval.tasks.relations import homogeneity, permutation, resampling

__all__ = ["TASKS", "Attend", "at_once", "separately", "separately_late"]

Tensor = torch.Tensor
Attend = Callable[[Tensor, Tensor, Tensor, float, Tensor], Tensor]
"""(queries (B, heads, L, D), keys and values (B, G, S, D), scale, bias or which keys are seen) -> (B, heads, L, D)."""


def at_once(q: Tensor, k: Tensor, v: Tensor, scale: float, bias: Tensor) -> Tensor:
    """PyTorch's fused attention, on queries that are aligned."""
    return F.scaled_dot_product_attention(copied(q), k, v, attn_mask=bias, scale=scale, enable_gqa=True)


def _scores(q: Tensor, k: Tensor, scale: float, bias: Tensor) -> Tensor:
    scores = q @ _spread(k, q).transpose(-2, -1) * scale
    return scores.masked_fill(~bias, float("-inf")) if bias.dtype == torch.bool else scores + bias


def _spread(x: Tensor, q: Tensor) -> Tensor:
    """Keys or values once for each head of the queries."""
    return x if x.shape[1] == q.shape[1] else x.repeat_interleave(q.shape[1] // x.shape[1], 1)


def separately(q: Tensor, k: Tensor, v: Tensor, scale: float, bias: Tensor) -> Tensor:
    """The same as calls of their own: scores and weights in the type, the softmax between in fp32."""
    return torch.softmax(wide(_scores(q, k, scale, bias)), -1).to(q.dtype) @ _spread(v, q)


def separately_late(q: Tensor, k: Tensor, v: Tensor, scale: float, bias: Tensor) -> Tensor:
    """The same, normalised after the second product."""
    scores = wide(_scores(q, k, scale, bias))
    weights = torch.exp(scores - scores.detach().amax(-1, keepdim=True))
    return (weights.to(q.dtype) @ _spread(v, q) / weights.sum(-1, keepdim=True)).to(q.dtype)


def _places(q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    """(L, 1) and (S,)."""
    return torch.arange(q.shape[-2], device=q.device)[:, None], torch.arange(k.shape[-2], device=q.device)


def _sliding_window_attention(
    q: Tensor, k: Tensor, v: Tensor, window: int, scale: float, attend: Attend = at_once
) -> Tensor:
    i, j = _places(q, k)
    return attend(q, k, v, scale, (j <= i) & (j > i - window))


def _chunked_attention(q: Tensor, k: Tensor, v: Tensor, chunk: int, scale: float, attend: Attend = at_once) -> Tensor:
    i, j = _places(q, k)
    return attend(q, k, v, scale, (j <= i) & (j // chunk == i // chunk))


def _prefix_attention(q: Tensor, k: Tensor, v: Tensor, prefix: int, scale: float, attend: Attend = at_once) -> Tensor:
    i, j = _places(q, k)
    return attend(q, k, v, scale, (j <= i) | (j < prefix))


def _biased_attention(q: Tensor, k: Tensor, v: Tensor, bias: Tensor, scale: float, attend: Attend = at_once) -> Tensor:
    return attend(q, k, v, scale, copied(bias)[None])


def _alibi_attention(q: Tensor, k: Tensor, v: Tensor, slopes: Tensor, scale: float, attend: Attend = at_once) -> Tensor:
    i, j = _places(q, k)
    bias = slopes[:, None, None] * (j - i)
    return attend(q, k, v, scale, bias.masked_fill(j > i, float("-inf"))[None])


def _alibi_by_columns(
    q: Tensor, k: Tensor, v: Tensor, slopes: Tensor, scale: float, attend: Attend = at_once
) -> Tensor:
    """The same but for a number that all scores of a row share, as BLOOM has it: larger scores have fewer digits."""
    i, j = _places(q, k)
    bias = (slopes[:, None, None] * j).expand(-1, len(i), -1)
    return attend(q, k, v, scale, bias.masked_fill(j > i, float("-inf"))[None])


def _packed_attention(q: Tensor, k: Tensor, v: Tensor, cuts: Tensor, scale: float, attend: Attend = at_once) -> Tensor:
    i, j = _places(q.transpose(0, 1), k.transpose(0, 1))
    segment = torch.searchsorted(cuts.sort().values, j, right=True)
    queries, keys, values = (copied(x.transpose(0, 1))[None] for x in (q, k, v))
    found = attend(queries, keys, values, scale, (j <= i) & (segment == segment[:, None]))
    return copied(found[0].transpose(0, 1))


def _block_sparse_attention(
    q: Tensor, k: Tensor, v: Tensor, blocks: Tensor, scale: float, attend: Attend = at_once
) -> Tensor:
    rows, columns = q.shape[-2] // blocks.shape[-2], k.shape[-2] // blocks.shape[-1]
    seen = blocks.repeat_interleave(rows, -2).repeat_interleave(columns, -1)
    return attend(q, k, v, scale, seen[None])


def _as_it_is(scores: Tensor) -> Tensor:
    """Scores stay in the type, as code that knows nothing of fused kernels leaves them."""
    return scores


def _softcap_attention(
    q: Tensor, k: Tensor, v: Tensor, cap: float, scale: float, within: Callable[[Tensor], Tensor] = wide
) -> Tensor:
    scores = cap * torch.tanh(within(q @ k.transpose(-2, -1)) * (scale / cap))
    return torch.softmax(wide(scores), -1).to(q.dtype) @ v


def _attention_sinks(
    q: Tensor, k: Tensor, v: Tensor, sinks: Tensor, scale: float, within: Callable[[Tensor], Tensor] = wide
) -> Tensor:
    scores = within(q @ k.transpose(-2, -1)) * scale
    extra = within(sinks)[:, None, None].expand(*scores.shape[:-1], 1)
    return torch.softmax(wide(torch.cat((scores, extra), -1)), -1)[..., :-1].to(q.dtype) @ v


def _attention_with_lse(
    q: Tensor, k: Tensor, v: Tensor, scale: float, within: Callable[[Tensor], Tensor] = wide
) -> tuple[Tensor, Tensor]:
    scores = wide(within(q @ k.transpose(-2, -1)) * scale)
    return torch.softmax(scores, -1).to(q.dtype) @ v, torch.logsumexp(scores, -1).to(q.dtype)


def _sigmoid_attention(
    q: Tensor, k: Tensor, v: Tensor, bias: float, scale: float, within: Callable[[Tensor], Tensor] = wide
) -> Tensor:
    return torch.sigmoid(within(q @ k.transpose(-2, -1)) * scale + bias).to(q.dtype) @ v


def _cosine_attention(
    q: Tensor, k: Tensor, v: Tensor, scale: float, within: Callable[[Tensor], Tensor] = wide
) -> Tensor:
    q, k = F.normalize(q, dim=-1, eps=1e-6), F.normalize(k, dim=-1, eps=1e-6)
    return torch.softmax(wide(within(q @ k.transpose(-2, -1)) * scale), -1).to(q.dtype) @ v


def _differential_attention(
    q: Tensor, k: Tensor, v: Tensor, part: float, scale: float, within: Callable[[Tensor], Tensor] = wide
) -> Tensor:
    scores = within(torch.einsum("bhpld,bhpsd->bhpls", q, k)) * scale
    one, other = torch.softmax(wide(scores), -1).unbind(2)
    return (one - part * other).to(q.dtype) @ v


def _vertical_slash_blocks(vertical: Tensor, slash: Tensor, blocks: int, width: int) -> Tensor:
    row = torch.arange(blocks, device=slash.device)[:, None]
    found = torch.zeros(len(slash), blocks, blocks + 1, dtype=torch.bool, device=slash.device)
    found.scatter_(2, (vertical // width)[:, None].expand(-1, blocks, -1), True)
    for edge in (0, width - 1):  # the keys of a block of queries lie in two blocks, or in one
        column = torch.div(row * width + edge - slash[:, None], width, rounding_mode="floor")
        found.scatter_(2, column.masked_fill(column < 0, blocks), True)
    return found[..., :-1].tril()


_LEAST, _MOST = 4, 2**26
_FEW = (fixed("P", low=2), fixed("Q", low=2))
_SCALE = plain("scale", formula="D ** (-0.5)")
_QKV = (data("q", "B H L D", **OF_QUERIES), data("k", "B H S D", common=SCORES_NEAR, apart="S"),
        data("v", "B H S D"))  # fmt: skip
_SAME = (data("q", "B H L D", **OF_QUERIES), data("k", "B H L D", common=SCORES_NEAR, apart="L"),
         data("v", "B H L D"))  # fmt: skip
_NEAR = (_QKV[0], data("k", "B H S D", common=SCORES_NEAR), _QKV[2])
"""Without far scores: keys that are equal along D are all alike once they are normalised, or where scores saturate."""
_BATCH = (fixed("B", high=4), fixed("H", low=2, high=16))
_WIDTH = fixed("D", low=16, high=128, multiple_of=16)
_BOTH: Any = {"dims": (*_BATCH, size("L"), size("S", low=_LEAST), _WIDTH)}
_CAUSAL: Any = {"dims": (*_BATCH, size("L", low=_LEAST), size("D", low=4, high=128)), "derive": {"S": "L"}}
_ALIGNED = tuple(layout for layout in LAYOUTS if layout not in ("sliced", "offset"))  # as in ``attention``
_BATCHES = (
    permutation("batch_permutation", {0: 0, 1: 0, 2: 0}, {0: 0}),
    resampling("batch_resampling", {0: 0, 1: 0, 2: 0}, {0: 0}),
    homogeneity({2: -2.0}, {0: -2.0}),
)
_HEADS = permutation("head_permutation", {0: 1, 1: 1, 2: 1}, {0: 1})
_HEADS_ALL = permutation("head_permutation", {0: 1, 1: 1, 2: 1, 3: 0}, {0: 1})
_KEYS = permutation("key_order", {1: 2, 2: 2}, {})
_QUERIES = permutation("query_permutation", {0: 2}, {0: 2})


def _attention(
    name: str,
    summary: str,
    reference: Callable[..., Any],
    *args: Any,
    over: tuple[Any, ...] = _QKV,
    fused: bool = False,
    wider: tuple[Callable[..., Any], ...] = (),
    each: int = 5,
    scale: Plain = _SCALE,
    **more: Any,
) -> Task:
    """A task over all scores; ``more`` as ``define.operator`` takes it.

    ``fused``: the reference calls PyTorch's fused attention. Other references keep the scores ``within`` fp32.
    ``wider``: its usual forms in fp32 and fp64, where they are not those of half types.
    """
    settings: dict[str, Any] = {
        **(_CAUSAL if over[0].shape == over[1].shape else _BOTH),
        "out": ("B H L D",),
        "flops": f"B * H * L * S * (4 * D + {each})",
        "where": f"S >= {_LEAST} and B * H * L * D > 0 and (B * H * L * S <= {_MOST})",
        "without": ("constant", "large_scale", "small_scale"),
        "forward_only": ("outlier",),
        "source": "model",
        "level": 2,
        "reduction": "S + D",
        "relations": _BATCHES,
        **more,
    }
    extra: Any = {"unfused": (functools.partial(reference, within=_as_it_is),)}
    if fused:
        ways = (separately_late, separately)
        forms = (*wider, reference)  # of several forms fp32 asks the first two, half types the last two
        extra = {"unfused": tuple(functools.partial(f, attend=a) for f in forms for a in ways), "layouts": _ALIGNED}
    return operator(
        name,
        "attention",
        summary,
        args=(*over, *args, scale),
        reference=reference,
        nonfinite=False,
        **extra,
        **settings,
    )


TASKS = (
    _attention(
        "sliding_window_attention",
        "out = softmax(q k^T * scale) v, where query i sees the keys i - window < j <= i",
        _sliding_window_attention,
        plain("window", formula="2 + L // 3", among=("L // 2 + 3", "L", "2 * L")),
        over=_SAME,
        fused=True,
        relations=(*_BATCHES, _HEADS),
    ),
    _attention(
        "chunked_attention",
        "out = softmax(q k^T * scale) v, where query i sees the keys j <= i of its chunk, j // chunk = i // chunk",
        _chunked_attention,
        plain("chunk", formula="2 + L // 3", among=("L // 2 + 3", "max(1, L)", "max(1, 2 * L)")),
        over=_SAME,
        fused=True,
        relations=(*_BATCHES, _HEADS),
    ),
    _attention(
        "prefix_attention",
        "out = softmax(q k^T * scale) v, where query i sees the keys j <= i and all j < prefix",
        _prefix_attention,
        plain("prefix", formula="1 + L // 3", among=(0, "L // 2 + 3", "L")),
        over=_SAME,
        fused=True,
        relations=(*_BATCHES, _HEADS),
    ),
    _attention(
        "biased_attention",
        "out = softmax(q k^T * scale + bias[h]) v",
        _biased_attention,
        data("bias", "H L S", nonfinite="masked"),
        fused=True,
        relations=(*_BATCHES, _HEADS_ALL),
    ),
    _attention(
        "alibi_attention",
        "out = softmax(q k^T * scale + slopes[h] * (j - i)) v, where query i sees the keys j <= i",
        _alibi_attention,
        data("slopes", "H", values="uniform", differentiable=False, fan_in="steps"),
        derive={"S": "L", "steps": "16 ** 2"},  # slopes up to 1 / 16: with steeper ones keys far away have no weight
        over=(_SAME[0], data("k", "B H L D", common=SCORES_NEAR), _SAME[2]),  # a slope brings keys near one another
        fused=True,
        wider=(_alibi_by_columns,),
        relations=(*_BATCHES, _HEADS_ALL),
    ),
    _attention(
        "block_sparse_attention",
        "out = softmax(q k^T * scale) v, where queries see the keys of the blocks that blocks[h] allows them; each row "
        "of blocks has one at least",
        _block_sparse_attention,
        mask("blocks", "H P N"),
        fused=True,
        relations=(*_BATCHES, _HEADS_ALL),
        dims=(*_BATCH, size("P", high=512), size("N", high=512), fixed("T", low=4, high=64, multiple_of=4), _WIDTH),
        derive={"L": "P * T", "S": "N * T"},
    ),
    _attention(
        "softcap_attention",
        "out = softmax(cap * tanh(q k^T * scale / cap)) v",
        _softcap_attention,
        plain("cap", 5.0),
        each=8,
        relations=(*_BATCHES, _HEADS, _KEYS, _QUERIES),
    ),
    _attention(
        "sink_attention",
        "out = softmax(q k^T * scale, sinks[h]) v, where the sink's weight, a further score, is left out",
        _attention_sinks,
        data("sinks", "H", common=SINKS_BELOW),
        gathered="B * L",
        dims=(*_BATCH, size("L"), fixed("S", low=_LEAST, high=16), _WIDTH),  # among many keys one score hardly shows
        relations=(*_BATCHES, _HEADS_ALL, _KEYS, _QUERIES),
    ),
    _attention(
        "attention_with_lse",
        "out0 = softmax(s) v, out1 = log sum exp(s), s = q k^T * scale",
        _attention_with_lse,
        out=("B H L D", "B H L"),
        relations=(resampling("batch_resampling", {0: 0, 1: 0, 2: 0}, {0: 0, 1: 0}), _BATCHES[2], _KEYS),
    ),
    _attention(
        "sigmoid_attention",
        "out = sigmoid(q k^T * scale + bias) v",
        _sigmoid_attention,
        plain("bias", formula="-log(max(S, 1))"),
        over=_NEAR,
        relations=(*_BATCHES, _HEADS, _KEYS, _QUERIES),
    ),
    _attention(
        "cosine_attention",
        "out = softmax(q k^T * scale) v, with each query and key divided by its norm, 1e-6 at least",
        _cosine_attention,
        over=_NEAR,
        each=8,
        epsilon=1e-6,
        without=("constant", "large_scale"),
        scale=plain("scale", 12.0),
        relations=(*_BATCHES, _HEADS, _KEYS, _QUERIES),
    ),
    _attention(
        "differential_attention",
        "out = (softmax(q0 k0^T * scale) - part * softmax(q1 k1^T * scale)) v, where q and k are two of each head",
        _differential_attention,
        plain("part", 0.625),
        over=(
            data("q", "B H two L D", **OF_QUERIES),
            data("k", "B H two S D", common=SCORES_NEAR, apart="S"),
            _NEAR[2],
        ),
        each=12,
        flops="B * H * L * S * (6 * D + 12)",
        derive={"two": 2},
        relations=(*_BATCHES, _HEADS),
    ),
    _attention(
        "packed_attention",
        "out = softmax(q k^T * scale) v over (T, H, D), where token i sees the tokens j <= i of its sequence; the "
        "first one starts at 0, the others at the sorted cuts",
        _packed_attention,
        index("cuts", "others", "L + 1", lengths=True),
        over=(
            data("q", "L H D", **OF_QUERIES),
            data("k", "L H D", common=SCORES_NEAR, apart="L"),
            data("v", "L H D"),
        ),
        fused=True,
        dims=(*_BATCH[1:], size("L", low=16), _WIDTH, fixed("C", low=2, high=4)),
        derive={"others": "C - 1"},
        out=("L H D",),
        flops="H * L * L * (4 * D + 5)",
        where=f"L >= {_LEAST} and H * D * C > 0 and (H * L * L <= {_MOST})",
        reduction="L + D",
        relations=(permutation("head_permutation", {0: 1, 1: 1, 2: 1}, {0: 1}), _BATCHES[2]),
    ),
    moved(
        "vertical_slash_blocks",
        "out[h, i, j] = whether queries of block i see a key of block j <= i: one of vertical[h], or one that lies "
        "slash[h, k] before the query",
        _vertical_slash_blocks,
        (index("vertical", "H P", "N * W"), index("slash", "H Q", "N * W")),
        "H N N: bool",
        plain("blocks", formula="N"),
        plain("width", formula="W"),
        dims=(fixed("H", low=2, high=16), size("N", high=512), fixed("W", low=4, high=64), _FEW[0], _FEW[1]),
        where="H * N * W * P * Q > 0",
        relations=(resampling("head_resampling", {0: 0, 1: 0}, {0: 0}), permutation("order", {0: 1}, {})),
        dtypes=("int64",),
        no_backward="the output is a flag",
        source="vllm",
        group="Index",
        level=2,
    ),
)

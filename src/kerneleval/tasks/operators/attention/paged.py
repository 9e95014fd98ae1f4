"""Attention over caches whose pages lie anywhere: one query a sequence (decoding) or several (prefilling).

Sequence b has the pages table[b], of which the first lengths[b] slots are keys, four at least. A page may stand in the
tables of several sequences, as shared prefixes do. What the partitioned kernels of vLLM (v2) give is the same formula,
over longer contexts. Large inputs are left out, because the softmax then selects one key by differences below the
rounding of the scores; NaN as in ``attention``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the usual name

from kerneleval.records import Task
from kerneleval.tasks.define import data, fixed, index, operator, plain, size
from kerneleval.tasks.operators.attention.attention import OF_QUERIES, SCORES_NEAR, SINKS_BELOW
from kerneleval.tasks.operators.attention.kv_cache import sequences
from kerneleval.tasks.operators.attention.variants import Attend, at_once, separately, separately_late
from kerneleval.tasks.relations import homogeneity, permutation, resampling

Tensor = torch.Tensor


def _pages(cache: Tensor, table: Tensor) -> Tensor:
    """The slots of each sequence (B, heads, slots, features) from (pages, slots, heads, features)."""
    return cache[table].flatten(1, 2).transpose(1, 2)


def _seen(table: Tensor, size: int, lengths: Tensor) -> Tensor:
    """(B, 1, 1, slots): those in use."""
    slots = torch.arange(table.shape[1] * size, device=table.device)
    return (slots < lengths[:, None])[:, None, None]


def _paged_gqa(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    table: Tensor,
    lengths: Tensor,
    scale: float,
    attend: Attend = at_once,
) -> Tensor:
    seen = _seen(table, keys.shape[1], lengths)
    return attend(query[:, :, None], _pages(keys, table), _pages(values, table), scale, seen).squeeze(2)


def _sliding_window(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    table: Tensor,
    lengths: Tensor,
    window: int,
    scale: float,
    attend: Attend = at_once,
) -> Tensor:
    seen = _seen(table, keys.shape[1], lengths) & ~_seen(table, keys.shape[1], lengths - window)
    return attend(query[:, :, None], _pages(keys, table), _pages(values, table), scale, seen).squeeze(2)


def _together(keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """(pages, slots, heads, features) each, of keys in eights of features and of values with the slots last."""
    return keys.permute(0, 3, 1, 2, 4).flatten(3), values.permute(0, 3, 1, 2)


def _v1(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    table: Tensor,
    lengths: Tensor,
    scale: float,
    attend: Attend = at_once,
) -> Tensor:
    return _paged_gqa(query, *_together(keys, values), table, lengths, scale, attend)


def _v2(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    table: Tensor,
    lengths: Tensor,
    slopes: Tensor,
    scale: float,
    attend: Attend = at_once,
) -> Tensor:
    tensors = query, keys, values, table, lengths, slopes
    return _with_biases(tensors, lengths - 1, scale, attend)


def _v2_by_columns(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    table: Tensor,
    lengths: Tensor,
    slopes: Tensor,
    scale: float,
    attend: Attend = at_once,
) -> Tensor:
    """The same with biases that begin at the first key, as in ``_alibi_by_columns``."""
    tensors = query, keys, values, table, lengths, slopes
    return _with_biases(tensors, torch.zeros_like(lengths), scale, attend)


def _with_biases(tensors: tuple[Tensor, ...], unbiased: Tensor, scale: float, attend: Attend) -> Tensor:
    """``unbiased``: the key of each sequence whose bias is 0."""
    query, keys, values, table, lengths, slopes = tensors
    keys, values = _together(keys, values)
    seen = _seen(table, keys.shape[1], lengths)
    behind = torch.arange(seen.shape[-1], device=seen.device) - unbiased[:, None]
    bias = (slopes[:, None, None] * behind[:, None, None]).masked_fill(~seen, float("-inf"))
    return attend(query[:, :, None], _pages(keys, table), _pages(values, table), scale, bias).squeeze(2)


def _prefill(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    table: Tensor,
    lengths: Tensor,
    cuts: Tensor,
    scale: float,
    attend: Attend = at_once,
) -> Tensor:
    sequence, position = sequences(cuts, query.shape[0])
    padded = query.new_zeros(len(table), *query.shape).index_put((sequence, position), query)
    slots = torch.arange(table.shape[1] * keys.shape[1], device=table.device)
    last = lengths[:, None] + torch.arange(query.shape[0], device=table.device)
    seen = (slots <= last[..., None])[:, None]
    outs = attend(padded.transpose(1, 2), _pages(keys, table), _pages(values, table), scale, seen)
    return outs.transpose(1, 2)[sequence, position]


def _mla_decode(
    query: Tensor,
    cache: Tensor,
    table: Tensor,
    lengths: Tensor,
    rank: int,
    scale: float,
    attend: Attend = at_once,
) -> Tensor:
    slots = _pages(cache[:, :, None], table)
    seen = _seen(table, cache.shape[1], lengths)
    return attend(query[:, :, None], slots, slots[..., :rank], scale, seen).squeeze(2)


def _cascade(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    shared: Tensor,
    table: Tensor,
    lengths: Tensor,
    scale: float,
    attend: Attend = at_once,
) -> Tensor:
    every = torch.cat((shared.expand(len(table), -1), table), 1)
    return _paged_gqa(query, keys, values, every, lengths + len(shared) * keys.shape[1], scale, attend)


def _sinks(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    table: Tensor,
    lengths: Tensor,
    sinks: Tensor,
    scale: float,
    attend: Attend = at_once,
) -> Tensor:
    """The sink is one more key, in front, whose value is zero and whose score is given."""
    k, v = (F.pad(_pages(cache, table), (0, 0, 1, 0)) for cache in (keys, values))
    seen = F.pad(_seen(table, keys.shape[1], lengths), (1, 0), value=True)
    bias = torch.zeros_like(seen, dtype=query.dtype).masked_fill(~seen, float("-inf")).repeat(1, len(sinks), 1, 1)
    bias[..., 0] = sinks[:, None]
    return attend(query[:, :, None], k, v, scale, bias).squeeze(2)


_SHAPES: Any = {"D": "8 * W", "heads": "G * R", "lanes": 8}
_SLOTS = 2**24
"""Most scores of one case."""


_QUERY = data("query", "B heads D", **OF_QUERIES)
_PLAIN = (data("keys", "V S G D", common=SCORES_NEAR, apart="V S"), data("values", "V S G D"))
_NEAR = (data("keys", "V S G D", common=SCORES_NEAR), _PLAIN[1])  # beside a sink far scores have all weight, or none
_APART = (data("keys", "V G W S lanes", common=SCORES_NEAR, apart="V S"), data("values", "V G D S"))
_TABLE = index("table", "B N", "V")
_LENGTHS = index("lengths", "B", "N * S + 1", low=4, lengths=True)
_SCALE = plain("scale", formula="D ** (-0.5)")
_WINDOW = plain("window", formula="4 + N * S // 3", among=(2, "S + 1", "N * S", "2 * N * S"))
_BATCH = (size("B", high=256), fixed("G", high=4), fixed("R", high=8), fixed("W", low=2, high=16))
_CACHE = (size("V", low=2, high=2048), fixed("S", low=4, high=32, multiple_of=4))


def _relations(tensors: int) -> tuple[Any, ...]:
    """Sequences may be drawn anew; outputs are linear in the values."""
    own = {0: 0, **dict.fromkeys(range(3, tensors), 0)}
    return (resampling("sequence_resampling", own, {0: 0}), homogeneity({2: -2.0}, {0: -2.0}))


def _paged(
    name: str,
    summary: str,
    reference: Callable[..., Tensor],
    args: tuple[Any, ...],
    *,
    wider: tuple[Callable[..., Tensor], ...] = (),
    **more: Any,
) -> Task:
    """A task of attention over pages; ``more`` as ``define.operator`` takes it, ``wider`` as ``variants.py`` has it."""
    settings: dict[str, Any] = {
        "dims": (*_BATCH, *_CACHE, size("N", high=256)),
        "derive": _SHAPES,
        "out": ("B heads D",),
        "flops": "B * heads * N * S * (4 * D + 5)",
        "reduction": "N * S + D",
        "where": f"B * heads * W * V * N * S > 0 and B * heads * N * S <= {_SLOTS}",
        "relations": _relations(5),
        **more,
    }
    return operator(
        name,
        "attention",
        summary,
        args=args,
        reference=reference,
        # of several forms fp32 asks the first two, half types the last two
        unfused=tuple(
            functools.partial(f, attend=a) for f in (*wider, reference) for a in (separately_late, separately)
        ),
        without=("large_scale",),
        nonfinite=False,
        no_backward="caches have no gradient",
        source="vllm",
        level=2,
        complexity=4,
        **settings,
    )


TASKS = (
    _paged(
        "paged_attention_v1",
        "out[b] = softmax(query[b] k^T * scale) v over the pages of b, whose keys are in eights of features, (V, G, "
        "D / 8, S, 8), and values (V, G, D, S); R query heads in a row share each of the G heads",
        _v1,
        (_QUERY, *_APART, _TABLE, _LENGTHS, _SCALE),
    ),
    _paged(
        "paged_attention_v2",
        "out[b] = softmax(query[b] k^T * scale + slopes * (j - last j)) v over the pages of b, as for v1: long "
        "contexts, with linear biases",
        _v2,
        # a slope brings keys near one another
        (
            _QUERY,
            replace(_APART[0], apart=""),
            _APART[1],
            _TABLE,
            _LENGTHS,
            data("slopes", "heads", values="uniform", fan_in="steps"),
            _SCALE,
        ),
        derive={**_SHAPES, "steps": "16 ** 2"},  # slopes up to 1 / 16, as of alibi_attention
        dims=(fixed("B", high=4), *_BATCH[1:], *_CACHE, size("N", high=1024)),
        wider=(_v2_by_columns,),
    ),
    _paged(
        "paged_attention_gqa",
        "out[b] = softmax(query[b] k^T * scale) v over the pages of b, (slots, G, D) each; R query heads in a row "
        "share each of the G heads",
        _paged_gqa,
        (_QUERY, *_PLAIN, _TABLE, _LENGTHS, _SCALE),
    ),
    _paged(
        "paged_attention_sliding_window",
        "out[b] = softmax(query[b] k^T * scale) v over the last keys of b alone, no more than window",
        _sliding_window,
        (_QUERY, *_PLAIN, _TABLE, _LENGTHS, _WINDOW, _SCALE),
    ),
    _paged(
        "paged_attention_sinks",
        "out[b] = softmax(query[b] k^T * scale, sinks[h]) v, where the sink's weight, a further score, is left out",
        _sinks,
        (_QUERY, *_NEAR, _TABLE, _LENGTHS, data("sinks", "heads", values="above_one", common=SINKS_BELOW), _SCALE),
        # among many keys, and in a single head, one score hardly shows
        dims=(
            *_BATCH[:2],
            fixed("R", low=4),
            _BATCH[3],
            _CACHE[0],
            fixed("S", low=4, high=16, multiple_of=4),
            fixed("N", high=4),
        ),
    ),
    _paged(
        "cascade_attention",
        "out[b] = softmax(query[b] k^T * scale) v over the pages named in shared, all of whose slots are in use, and "
        "then those of b",
        _cascade,
        (_QUERY, *_PLAIN, index("shared", "P", "V"), _TABLE, _LENGTHS, _SCALE),
        dims=(*_BATCH, *_CACHE, size("N", high=256), fixed("P", low=2, high=16)),
        flops="B * heads * (N + P) * S * (4 * D + 5)",
        reduction="(N + P) * S + D",
        relations=(resampling("sequence_resampling", {0: 0, 4: 0, 5: 0}, {0: 0}), homogeneity({2: -2.0}, {0: -2.0})),
    ),
    _paged(
        "paged_prefill_attention",
        "out[t] = softmax(query[t] k^T * scale) v over the keys j <= lengths[b] + p of its sequence b, where it is "
        "number p; the first sequence starts at token 0, the others at the sorted cuts",
        _prefill,
        (
            data("query", "T heads D", **OF_QUERIES),
            *_PLAIN,
            _TABLE,
            index("lengths", "B", "N * S - T + 1", lengths=True),
            index("cuts", "others", "T + 1", lengths=True),
            _SCALE,
        ),
        dims=(size("T", low=8, high=1024), fixed("B", low=2, high=4), *_BATCH[1:], *_CACHE),
        derive={**_SHAPES, "N": "-(-2 * T // S)", "others": "B - 1"},
        out=("T heads D",),
        flops="B * T * heads * N * S * (4 * D + 5)",
        where=f"T * B * heads * W * V * S > 0 and B * T * heads * N * S <= {_SLOTS}",
        relations=(homogeneity({2: -2.0}, {0: -2.0}),),
    ),
    _paged(
        "mla_decode",
        "out[b] = softmax(query[b] c^T * scale) c[:, :rank] over the slots c of b's pages: latent features, then "
        "turned ones, the same for all heads",
        _mla_decode,
        (
            data("query", "B heads D", **OF_QUERIES),
            data("cache", "V S D", common=SCORES_NEAR, apart="V S"),
            _TABLE,
            _LENGTHS,
            plain("rank", formula="8 * (W - W // 4 - 1)"),
            _SCALE,
        ),
        dims=(
            size("B", high=256),
            fixed("R", low=2, high=16),
            fixed("W", low=2, high=64),
            *_CACHE,
            size("N", high=256),
        ),
        derive={**_SHAPES, "heads": "R", "rank": "8 * (W - W // 4 - 1)"},
        out=("B heads rank",),
        where=(f"B * R * V * N * S > 0 and W > 1 and (B * N * S * D <= {_SLOTS} // 4) and (B * R * N * S <= {_SLOTS})"),
        relations=(
            resampling("sequence_resampling", {0: 0, 2: 0, 3: 0}, {0: 0}),
            permutation("head_permutation", {0: 1}, {0: 1}),
        ),
    ),
)

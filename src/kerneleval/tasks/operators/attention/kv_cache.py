"""Caches of keys and values in pages: written, copied, read; and what is read of them put together.

What vLLM writes in place is returned: the whole cache, with what is new in it. A page may be read for several sequences
(a shared prefix), but no two tokens are written to one slot: of T tokens, token t goes to slot[t] * T + t.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the usual name

from kerneleval.tasks.define import FAR_BELOW, data, fixed, index, operator, plain, size, whole
from kerneleval.tasks.operators.movement.movement import moved
from kerneleval.tasks.operators.reduction.scan import wide
from kerneleval.tasks.relations import homogeneity, mapping, permutation, resampling

__all__ = ["TASKS", "sequences"]

Tensor = torch.Tensor


def _stored(slot: Tensor) -> tuple[Tensor, Tensor]:
    """(which tokens are stored, their slots): those below 0 are padding."""
    token = torch.arange(len(slot), device=slot.device)
    (stored,) = torch.nonzero(slot >= 0, as_tuple=True)
    return stored, slot[stored] * len(slot) + token[stored]


def _written(cache: Tensor, slot: Tensor, rows: Tensor) -> Tensor:
    """A copy of the cache (pages, slots of a page, ...), with the rows in it."""
    stored, places = _stored(slot)
    return cache.flatten(0, 1).index_copy(0, places, rows[stored]).view(cache.shape)


def _reshape_and_cache_flash(
    key: Tensor, value: Tensor, key_cache: Tensor, value_cache: Tensor, slot: Tensor
) -> tuple[Tensor, Tensor]:
    return _written(key_cache, slot, key), _written(value_cache, slot, value)


def _reshape_and_cache(
    key: Tensor, value: Tensor, key_cache: Tensor, value_cache: Tensor, slot: Tensor
) -> tuple[Tensor, Tensor]:
    stored, places = _stored(slot)
    size, lanes = key_cache.shape[-2:]
    page, place = places // size, places % size
    keys, values = (c.clone(memory_format=torch.contiguous_format) for c in (key_cache, value_cache))
    keys[page, :, :, place] = key[stored].unflatten(-1, (key.shape[-1] // lanes, lanes))
    values[page, :, :, place] = value[stored]
    return keys, values


def _concat_and_cache_mla(latent: Tensor, rotated: Tensor, cache: Tensor, slot: Tensor) -> Tensor:
    return _written(cache, slot, torch.cat((latent, rotated), -1))


def _copy_blocks_mla(cache: Tensor, source: Tensor, target: Tensor) -> Tensor:
    _, places = _stored(target)
    return cache.index_copy(0, cache.shape[0] // 2 + places, cache[source])


def _swap_blocks(blocks: Tensor, cache: Tensor, source: Tensor, target: Tensor) -> Tensor:
    return cache.index_copy(0, _stored(target)[1], blocks[source])


def _cache_append(cache: Tensor, new: Tensor, length: Tensor) -> Tensor:
    everyone = torch.arange(cache.shape[0], device=cache.device)
    return cache.index_put((everyone, length), new)


def _cache_append_ring(cache: Tensor, new: Tensor, length: Tensor) -> Tensor:
    return _cache_append(cache, new, length % cache.shape[1])


def sequences(cuts: Tensor, tokens: int) -> tuple[Tensor, Tensor]:
    """(sequence, position in it) of each token, where the first sequence starts at 0 and the others at the sorted cuts.
    Of sequences that start together, the last one has the tokens.
    """
    starts = F.pad(cuts.sort().values, (1, 0))
    token = torch.arange(tokens, device=cuts.device)
    sequence = torch.searchsorted(starts, token, right=True) - 1
    return sequence, token - starts[sequence]


def _cp_gather_cache(cache: Tensor, table: Tensor, cuts: Tensor, tokens: int) -> Tensor:
    sequence, position = sequences(cuts, tokens)
    size = cache.shape[1]
    return cache[table[sequence, position // size], position % size]


def _gather_cache_from(cache: Tensor, table: Tensor, cuts: Tensor, starts: Tensor, tokens: int) -> Tensor:
    sequence, position = sequences(cuts, tokens)
    size = cache.shape[1]
    return cache[table[sequence, starts[sequence] + position // size], position % size]


def _slot_mapping(sequence: Tensor, position: Tensor, table: Tensor, page: int) -> Tensor:
    return table[sequence, position // page] * page + position % page


def _cumulative_lengths(lengths: Tensor) -> Tensor:
    return F.pad(lengths.cumsum(0), (1, 0))


def _pack_sequences(x: Tensor, cuts: Tensor, count: int, value: float) -> Tensor:
    where = sequences(cuts, x.shape[0])
    return x.new_full((count, *x.shape), value).index_put(where, x)


def _unpack_sequences(x: Tensor, cuts: Tensor) -> Tensor:
    return x[sequences(cuts, x.shape[1])]


def _merge_attn_states(first: Tensor, first_lse: Tensor, other: Tensor, other_lse: Tensor) -> tuple[Tensor, Tensor]:
    part = torch.sigmoid(first_lse - other_lse).t()[..., None]
    return torch.lerp(other, first, part.to(first.dtype)), torch.logaddexp(first_lse, other_lse)


def _merge_split_states(outs: Tensor, lse: Tensor) -> tuple[Tensor, Tensor]:
    weights = torch.softmax(lse, 0)[..., None]
    return (outs * weights).sum(0), torch.logsumexp(lse, 0)


def _merged_by_sums(outs: Tensor, lse: Tensor) -> tuple[Tensor, Tensor]:
    """In fp32 at least, as the formula has it: one quotient of two sums."""
    most = torch.nan_to_num(wide(lse).amax(0).detach(), posinf=0.0, neginf=0.0)
    weights = torch.exp(wide(lse) - most)
    total = weights.sum(0)
    merged = (wide(outs) * weights[..., None]).sum(0) / total[..., None]
    return merged.to(outs.dtype), (most + torch.log(total)).to(lse.dtype)


def _two_merged(first: Tensor, first_lse: Tensor, other: Tensor, other_lse: Tensor) -> tuple[Tensor, Tensor]:
    merged, lse = _merged_by_sums(torch.stack((first, other)), torch.stack((first_lse.mT, other_lse.mT)))
    return merged, lse.mT


_PAGES = (size("V", high=1024), fixed("S", low=4, high=32))
_HEADS = (fixed("G"), fixed("W", low=2, high=16))
_WIDE: Any = {"slots": "V * S", "D": "8 * W"}
_CACHE: Any = {"source": "vllm", "no_backward": "caches have no gradient", "group": "Index"}


_ROOM = "V * S // max(1, T)"
"""Slots for a token."""

_FEW = fixed("K", low=2, high=64)
_TOKENS = size("T", low=8, high=4096)
_SLOT = index("slot", "T", _ROOM, low=f"-max(1, {_ROOM} // 4)")  # a fifth to a half are padding
_WRITE: Any = {**_CACHE, "where": "V * S >= T and V * S * G * W > 0"}
_LATENT = (_TOKENS, *_PAGES, size("R", high=512), fixed("P", low=4, high=64))
_CUTS = index("cuts", "others", "T + 1", lengths=True)
_PACKED: Any = {
    "dims": (size("T", high=2048), size("D", high=1024), fixed("B", low=2)),
    "derive": {"others": "B - 1"},
    "where": "T > 0 and B > 0",
    "relations": (permutation("feature_permutation", {0: 1}, {0: 1}),),
    "source": "vllm",
    "group": "Index",
}
_READ: Any = {
    **_CACHE,
    "dims": (size("V", high=1024), fixed("S", low=4, high=32), size("D", high=512), fixed("B", low=2), size("T")),
    "where": "V * S * B > 0",
}
_MERGED: Any = {"group": "Fusion", "complexity": 2, "level": 2, "source": "vllm"}

TASKS = (
    moved(
        "reshape_and_cache_flash",
        "out0, out1 = the caches (pages, slots, heads, features) with key[t], value[t] in slot number slot[t] * T + t; "
        "those with slot[t] < 0 are left out",
        _reshape_and_cache_flash,
        (data("key", "T G D"), data("value", "T G D"), data("keys", "V S G D"), data("values", "V S G D"), _SLOT),
        "V S G D, V S G D",
        dims=(_TOKENS, *_PAGES, *_HEADS),
        derive=_WIDE,
        relations=(permutation("head_permutation", {0: 1, 1: 1, 2: 2, 3: 2}, {0: 2, 1: 2}),),
        **_WRITE,
    ),
    moved(
        "reshape_and_cache",
        "out0, out1 = the caches with key[t], value[t] in slot number slot[t] * T + t, whose features are apart: "
        "eights of keys, single values; those with slot[t] < 0 are left out",
        _reshape_and_cache,
        (data("key", "T G D"), data("value", "T G D"), data("keys", "V G W S lanes"), data("values", "V G D S"), _SLOT),
        "V G W S lanes, V G D S",
        dims=(_TOKENS, *_PAGES, *_HEADS),
        derive={**_WIDE, "lanes": 8},
        relations=(permutation("head_permutation", {0: 1, 1: 1, 2: 1, 3: 1}, {0: 1, 1: 1}),),
        **_WRITE,
    ),
    moved(
        "concat_and_cache_mla",
        "out = the cache with latent[t] and rotated[t], joined, in slot number slot[t] * T + t; those with slot[t] < 0 "
        "are left out",
        _concat_and_cache_mla,
        (data("latent", "T R"), data("rotated", "T P"), data("cache", "V S width"), _SLOT),
        "V S width",
        dims=_LATENT,
        derive={"width": "R + P"},
        **{**_WRITE, "where": "V * S >= T and V * S * R * P > 0"},
    ),
    moved(
        "copy_blocks_mla",
        "out = the cache with page source[k], of its first half, in page V // 2 + target[k] * K + k as well",
        _copy_blocks_mla,
        (
            data("cache", "V S D"),
            index("source", "K", "V // 2"),
            index("target", "K", "V // 2 // max(1, K)"),
        ),
        "V S D",
        dims=(size("V", low=4, high=2048), fixed("S", low=4, high=32), size("D", high=512), _FEW),
        where="V // 2 >= K and V > 1",
        **_CACHE,
    ),
    moved(
        "swap_blocks",
        "out = the cache with blocks[source[k]] in page target[k] * K + k",
        _swap_blocks,
        (
            data("blocks", "U S D"),
            data("cache", "V S D"),
            index("source", "K", "U"),
            index("target", "K", "V // max(1, K)"),
        ),
        "V S D",
        dims=(*_READ["dims"][:3], size("U", high=1024), _FEW),
        where="V >= 2 * K and U > 0",
        **_CACHE,
    ),
    moved(
        "cache_append",
        "out[b] = cache[b] with new[b] at length[b]",
        _cache_append,
        (data("cache", "B L G D"), data("new", "B G D"), index("length", "B", "L")),
        "B L G D",
        dims=(size("B", high=256), size("L", low=2, high=2048), *_HEADS),
        derive={"D": _WIDE["D"]},
        where="L > 1",
        batch=True,
        **{**_CACHE, "source": "model"},
    ),
    moved(
        "cache_append_ring",
        "out[b] = cache[b] with new[b] at length[b] mod L: of a window of L tokens, the oldest one is replaced",
        _cache_append_ring,
        (data("cache", "B L G D"), data("new", "B G D"), index("length", "B", 2**20)),
        "B L G D",
        dims=(size("B", high=256), size("L", low=2, high=2048), *_HEADS),
        derive={"D": _WIDE["D"]},
        where="L > 1",
        batch=True,
        **{**_CACHE, "source": "model"},
    ),
    moved(
        "cp_gather_cache",
        "out[t] = cache[table[b, p // S], p mod S], p the place of token t in its sequence b; the first one starts at "
        "0, the others at the sorted cuts",
        _cp_gather_cache,
        (data("cache", "V S D"), index("table", "B pages", "V"), _CUTS),
        "T D",
        plain("tokens", formula="T"),
        derive={"others": "B - 1", "pages": "-(-T // S)"},
        relations=(
            permutation("feature_permutation", {0: 2}, {0: 1}),
            mapping("order_of_cuts", lambda c, t, cuts, n: (c, t, cuts.flip(0), n), lambda outs, _: outs),
        ),
        **_READ,
    ),
    moved(
        "gather_and_maybe_dequant_cache",
        "out[t] = cache[table[b, starts[b] + p // S], p mod S], p the place of token t in its sequence b; the first "
        "one starts at 0, the others at the sorted cuts",
        _gather_cache_from,
        (
            data("cache", "V S D"),
            index("table", "B pages", "V"),
            _CUTS,
            index("starts", "B", "pages // 2 + 1"),
        ),
        "T D",
        plain("tokens", formula="T"),
        derive={"others": "B - 1", "pages": "2 * -(-T // S)"},
        relations=(permutation("feature_permutation", {0: 2}, {0: 1}),),
        **_READ,
    ),
    moved(
        "slot_mapping",
        "out[t] = table[sequence[t], position[t] // page] * page + position[t] mod page",
        _slot_mapping,
        (
            whole("sequence", "T", 0, "B", ids=True),
            whole("position", "T", 0, "N * S"),
            whole("table", "B N", 0, 4096, wide=26),
        ),
        "T",
        plain("page", formula="S"),
        dims=(size("T"), size("B", high=1024), size("N", high=1024), fixed("S", low=4, high=32)),
        where="B * N * S > 0",
        each=5,
        relations=(permutation("token_permutation", {0: 0, 1: 0}, {0: 0}),),
        dtypes=("int64", "int32"),
        source="vllm",
        no_backward="slots are whole numbers",
        group="Index",
    ),
    moved(
        "cumulative_lengths",
        "out[0] = 0, out[b + 1] = lengths[0] + ... + lengths[b], where sequences start in a batch without padding",
        _cumulative_lengths,
        (whole("lengths", "B", 0, 4096, wide=30),),
        "more: int64",
        dims=(size("B"),),
        derive={"more": "B + 1"},
        complexity=2,
        dtypes=("int64", "int32"),
        source="vllm",
        no_backward="whole numbers have no gradient",
        group="Index",
    ),
    moved(
        "pack_sequences",
        "out[b, p] = x[t] for token t with place p in its sequence b, else value; the first one starts at 0, the "
        "others at the sorted cuts",
        _pack_sequences,
        (data("x", "T D"), _CUTS),
        "B T D",
        plain("count", formula="B"),
        plain("value", -1.5),
        scaling=0,
        **{**_PACKED, "relations": (permutation("feature_permutation", {0: 1}, {0: 2}),)},
    ),
    moved(
        "unpack_sequences",
        "out[t] = x[b, p] for token t with place p in its sequence b; the first one starts at 0, the others at the "
        "sorted cuts",
        _unpack_sequences,
        (data("x", "B T D"), _CUTS),
        "T D",
        **{**_PACKED, "relations": (permutation("feature_permutation", {0: 2}, {0: 1}),)},
    ),
    operator(
        "merge_attn_states",
        "attention",
        "out0 = (first e^a + other e^b) / (e^a + e^b), out1 = log(e^a + e^b), a and b the two logarithms [h, t] of "
        "the sums of attention over two parts of the keys",
        dims=(size("T"), fixed("H", low=2, high=16), size("D", low=4, high=512)),
        args=(
            data("first", "T H D"),
            data("first_lse", "H T", nonfinite="masked_nan", common=FAR_BELOW),
            data("other", "T H D"),
            data("other_lse", "H T", nonfinite="masked_nan", common=FAR_BELOW),
        ),
        out=("T H D", "H T"),
        reference=_merge_attn_states,
        unfused=(_two_merged,),  # of large states the gradients of the shares cancel, each time otherwise
        flops="T * H * (3 * D + 8)",
        reduction="2",
        gathered="D",
        where="H * D > 0",
        empty=True,
        relations=(
            permutation("token_permutation", {0: 0, 1: 1, 2: 0, 3: 1}, {0: 0, 1: 1}),
            permutation("head_permutation", {0: 1, 1: 0, 2: 1, 3: 0}, {0: 1, 1: 0}),
            mapping("exchange", lambda x, a, y, b: (y, b, x, a), lambda outs, _: outs),
            homogeneity({0: -2.0, 2: -2.0}, {0: -2.0}),
        ),
        **_MERGED,
    ),
    operator(
        "merge_split_states",
        "attention",
        "out0 = sum_s outs[s] softmax_s(lse[s]), out1 = log sum_s exp(lse[s]): attention over P parts of the keys",
        dims=(fixed("P", low=2, high=16), size("T"), fixed("H", low=2, high=16), size("D", low=4, high=512)),
        args=(data("outs", "P T H D"), data("lse", "P T H", nonfinite="masked_nan", common=FAR_BELOW)),
        out=("T H D", "T H"),
        reference=_merge_split_states,
        unfused=(_merged_by_sums,),
        flops="P * T * H * (2 * D + 5)",
        reduction="P",
        gathered="D",
        where="P * H * D > 0",
        empty=True,
        relations=(
            resampling("token_resampling", {0: 1, 1: 1}, {0: 0, 1: 0}),
            permutation("order_of_parts", {0: 0, 1: 0}, {}),
            homogeneity({0: -2.0}, {0: -2.0}),
        ),
        **_MERGED,
    ),
)

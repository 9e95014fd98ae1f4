"""Caches of keys and values in eight bits: written with a scale, read with the scales that stand beside them."""

from __future__ import annotations

from typing import Any

import torch

from kerneleval.tasks.define import data, fixed, index, operator, plain, size, weight, whole
from kerneleval.tasks.operators.attention.kv_cache import sequences
from kerneleval.tasks.operators.movement.movement import moved
from kerneleval.tasks.quantised import FP8, FP8_MOST, wide
from kerneleval.tasks.relations import homogeneity

Tensor = torch.Tensor

_GROUP = 32


def _cp_gather_indexer_k_quant_cache(
    cache: Tensor, table: Tensor, cuts: Tensor, tokens: int, features: int
) -> tuple[Tensor, Tensor]:
    sequence, position = sequences(cuts, tokens)
    slots = cache.shape[1] // (features + 4)
    page, place = table[sequence, position // slots], position % slots
    numbers = cache[:, : slots * features].unflatten(1, (slots, features))
    scales = cache[:, slots * features :].unflatten(1, (slots, 4))
    return numbers[page, place], scales[page, place]


def _places(slot: Tensor) -> tuple[Tensor, Tensor]:
    (stored,) = torch.nonzero(slot >= 0, as_tuple=True)
    return stored, slot[stored] * len(slot) + stored


def _paged(rows: Tensor, places: Tensor, pages: int, slots: int) -> Tensor:
    """Pages of zeros (pages, slots, ...) with the rows in their places."""
    cache = rows.new_zeros(pages * slots, *rows.shape[1:]).index_copy(0, places, rows)
    return cache.view(pages, slots, *rows.shape[1:])


def _paged_fp8(rows: Tensor, places: Tensor, pages: int, slots: int) -> Tensor:
    cache = _paged(rows.clamp(-FP8_MOST, FP8_MOST), places, pages, slots)
    return cache if cache.dtype == torch.float64 else cache.to(FP8)  # the oracle is not rounded


def _reshape_and_cache_fp8(key: Tensor, slot: Tensor, scale: Tensor, pages: int, slots: int) -> Tensor:
    stored, places = _places(slot)
    return _paged_fp8(wide(key)[stored] / wide(scale), places, pages, slots)


def _indexer_k_quant_and_cache(key: Tensor, slot: Tensor, pages: int, slots: int) -> tuple[Tensor, Tensor]:
    stored, places = _places(slot)
    groups = wide(key)[stored].unflatten(-1, (-1, _GROUP))
    scale = groups.abs().amax(-1, keepdim=True).clamp_min(1e-4) / FP8_MOST
    numbers = _paged_fp8((groups / scale).flatten(-2), places, pages, slots)
    return numbers, _paged(scale.squeeze(-1), places, pages, slots)


def _gather_and_dequant_cache(cache: Tensor, table: Tensor, cuts: Tensor, scale: Tensor, tokens: int) -> Tensor:
    sequence, position = sequences(cuts, tokens)
    slots = cache.shape[1]
    rows = cache[table[sequence, position // slots], position % slots]
    return (rows.to(wide(scale).dtype) * wide(scale)).to(scale.dtype)


_CACHED: Any = {"source": "vllm", "no_backward": "caches have no gradient", "group": "Quantization"}
_READ = (fixed("S", low=4, high=32), size("D", low=4, high=512, multiple_of=4), fixed("B", low=2), size("T", low=4))
_CUTS = index("cuts", "others", "T + 1", lengths=True)
_TOKENS = (size("T", low=8, high=4096), size("V", high=1024), fixed("S", low=4, high=32))
_SLOT = index("slot", "T", "V * S // max(1, T)", low="-max(1, V * S // T // 4)")
_PAGES = (plain("pages", formula="V"), plain("slots", formula="S"))
_WRITTEN: Any = {
    "where": "V * S >= T",
    "nonfinite": False,
    **_CACHED,
}

TASKS = (
    moved(
        "cp_gather_indexer_k_quant_cache",
        "out0[t], out1[t] = the D numbers of a key and the bytes of its scale, from page table[b, p // S] (S keys, S "
        "scales), place p mod S, p that of token t in its sequence b, from the sorted cuts on",
        _cp_gather_indexer_k_quant_cache,
        (whole("cache", "V room", 0, 256), index("table", "B pages", "V"), _CUTS),
        "T D, T four",
        plain("tokens", formula="T"),
        plain("features", formula="D"),
        dims=(size("V", high=1024), *_READ),
        derive={
            "others": "B - 1",
            "pages": "-(-T // S)",
            "room": "S * (D + 4)",
            "four": 4,
        },
        where="V * S * B * D > 0",
        dtypes=("uint8",),
        **_CACHED,
    ),
    operator(
        "reshape_and_cache_fp8",
        "elementwise",
        "out = pages of zeros with key[t] / scale in e4m3fn, beyond 448 that, in slot number slot[t] * T + t; those "
        "with slot[t] < 0 are left out",
        dims=(*_TOKENS, fixed("G"), size("D")),
        args=(
            data("key", "T G D", ties="scale"),
            _SLOT,
            weight("scale", "one", values="variance", fan_in="steps"),
            *_PAGES,
        ),
        out=("V S G D: float8_e4m3fn",),
        derive={"one": 1, "steps": "112 ** 2"},
        reference=_reshape_and_cache_fp8,
        flops="3 * T * G * D",
        without=("large_scale", "small_scale"),
        dtypes=("float16", "bfloat16"),  # few of the numbers are not zero, so that steps of fp32 hardly show
        **_WRITTEN,
    ),
    operator(
        "indexer_k_quant_and_cache",
        "elementwise",
        "out0, out1 = pages of zeros with key[t] / s in e4m3fn and with s = max(1e-4, max |key|) / 448 of each "
        f"{_GROUP} of a token, in slot number slot[t] * T + t; those with slot[t] < 0 are left out",
        dims=(*_TOKENS, fixed("D", low=_GROUP, high=8 * _GROUP, multiple_of=_GROUP)),
        args=(data("key", "T D"), _SLOT, *_PAGES),
        out=("V S D: float8_e4m3fn", "V S groups: float32"),
        derive={"groups": f"D // {_GROUP}"},
        reference=_indexer_k_quant_and_cache,
        flops="3 * T * D",
        relations=(homogeneity({0: 4.0}, {1: 4.0}),),
        **_WRITTEN,
    ),
    operator(
        "gather_and_dequant_cache",
        "elementwise",
        "out[t] = scale * cache[table[b, p // S], p mod S] in int8, p the place of token t in its sequence b, from the "
        "sorted cuts on",
        dims=(size("V", high=1024), *_READ),
        args=(
            whole("cache", "V S D", -127, 128, dtype="int8"),
            index("table", "B pages", "V"),
            _CUTS,
            weight("scale", "one", values="variance", fan_in="steps"),
            plain("tokens", formula="T"),
        ),
        out=("T D",),
        derive={
            "others": "B - 1",
            "pages": "-(-T // S)",
            "one": 1,
            "steps": "32 ** 2",
        },
        reference=_gather_and_dequant_cache,
        flops="T * D",
        relations=(homogeneity({3: -2.0}, {0: -2.0}),),
        nonfinite=False,
        **_CACHED,
    ),
)

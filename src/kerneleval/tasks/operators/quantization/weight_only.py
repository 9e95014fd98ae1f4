"""Products with weights of few bits as AWQ, GPTQ, Marlin and AllSpark keep them, and what brings weights into these
forms.

Words are int32 and hold their numbers from the lowest bits up. A weight is (number - zero point) * scale, computed in
fp32 and rounded to the type of the data; scales, and zero points where there are such, belong to groups along K.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from kerneleval.records import Arg, Dim, Relation, Task
from kerneleval.tasks import packed
from kerneleval.tasks.define import data, fixed, index, nonempty, operator, plain, size
from kerneleval.tasks.quantised import wide
from kerneleval.tasks.relations import additivity, homogeneity, mapping, permutation, resampling

Tensor = torch.Tensor


def _weights(numbers: Tensor, scales: Tensor) -> Any:
    """Numbers (K, N) less their zero points, times the scales (groups, N) of equally long groups."""
    groups = numbers.unflatten(0, (scales.shape[0], -1))
    return (groups * wide(scales)[:, None]).flatten(0, 1).to(scales.dtype)


def _awq_dequantize(qweight: Tensor, scales: Tensor, qzeros: Tensor) -> Any:
    numbers = packed.unpack_evens_first(qweight, 4).unflatten(0, (scales.shape[0], -1))
    return _weights((numbers - packed.unpack_evens_first(qzeros, 4)[:, None]).flatten(0, 1), scales)


def _awq_gemm(x: Tensor, qweight: Tensor, scales: Tensor, qzeros: Tensor) -> Any:
    return x @ _awq_dequantize(qweight, scales, qzeros)


def _gptq_dequantize(qweight: Tensor, qzeros: Tensor, scales: Tensor, g_idx: Tensor, bits: int) -> Tensor:
    zeros = packed.unpack(qzeros, bits).flatten(-2) + 1
    numbers = packed.unpack_rows(qweight, bits) - zeros[g_idx]
    return (numbers * wide(scales)[g_idx]).to(scales.dtype)


def _gptq_dequantize_in_type(qweight: Tensor, qzeros: Tensor, scales: Tensor, g_idx: Tensor, bits: int) -> Tensor:
    """Scales chosen in their type: PyTorch adds up their gradients in it."""
    zeros = packed.unpack(qzeros, bits).flatten(-2) + 1
    return (packed.unpack_rows(qweight, bits) - zeros[g_idx]) * scales[g_idx]


def _gptq_gemm(x: Tensor, qweight: Tensor, qzeros: Tensor, scales: Tensor, g_idx: Tensor, bits: int) -> Tensor:
    return x @ _gptq_dequantize(qweight, qzeros, scales, g_idx, bits)


def _gptq_marlin_gemm(x: Tensor, qweight: Tensor, scales: Tensor, bits: int) -> Any:
    numbers = packed.of_marlin(qweight, bits) - (1 << bits - 1)
    return x @ _weights(numbers, packed.of_marlin_scales(scales))


def _awq_marlin_gemm(x: Tensor, qweight: Tensor, scales: Tensor, qzeros: Tensor, bits: int) -> Any:
    zeros = packed.of_marlin_scales(packed.unpack_evens_first(qzeros, bits))
    numbers = packed.of_marlin(qweight, bits).unflatten(0, (scales.shape[0], -1)) - zeros[:, None]
    return x @ _weights(numbers.flatten(0, 1), packed.of_marlin_scales(scales))


def _gptq_marlin_24_gemm(x: Tensor, qweight: Tensor, pairs: Tensor, scales: Tensor, bits: int) -> Any:
    kept = packed.of_marlin(qweight, bits, "sparse") - (1 << bits - 1)
    first, last = torch.triu_indices(4, 4, 1, device=x.device)
    places = torch.stack((first[pairs.long()], last[pairs.long()]), 1)
    quads = kept.new_zeros(len(pairs), 4, pairs.shape[1]).scatter(1, places, kept.unflatten(0, (-1, 2)))
    return x @ _weights(quads.flatten(0, 1), packed.of_marlin_scales(scales, "sparse"))


def _allspark_w8a16_gemm(x: Tensor, qweight: Tensor, scales: Tensor) -> Any:
    parts = qweight.unflatten(1, (-1, 4, 2, 2, 2, 2)).unflatten(0, (-1, 8))  # N: b, c; K: t, r; then h, o, k: 8, 1
    numbers = parts.permute(2, 6, 3, 7, 0, 4, 5, 1).flatten(4).flatten(0, 3)
    of_columns = scales.unflatten(1, (-1, 8, 4)).transpose(-1, -2).flatten(1)
    return x @ _weights(numbers.int() - 128, of_columns)


def _allspark_repack_weight(qweight: Tensor, scales: Tensor) -> tuple[Tensor, Tensor]:
    parts = qweight.unflatten(1, (-1, 2, 2, 8)).unflatten(0, (-1, 2, 4, 2))
    words = parts.permute(4, 7, 0, 2, 5, 6, 1, 3).flatten(2).flatten(0, 1)
    return words, scales.unflatten(1, (-1, 4, 8)).transpose(-1, -2).flatten(1)


def _gptq_shuffle(qweight: Tensor, perm: Tensor, bits: int) -> Tensor:
    words = packed.pack_rows(packed.unpack_rows(qweight, bits)[perm], bits)
    return words if bits == 8 else packed.pack(packed.evens_first(packed.unpack(words, bits)), bits)


def _gptq_marlin_repack(qweight: Tensor, perm: Tensor, bits: int) -> Tensor:
    return packed.marlin(packed.unpack_rows(qweight, bits)[perm], bits)


def _gptq_marlin_moe_repack(qweight: Tensor, perm: Tensor, bits: int) -> Tensor:
    return torch.stack([_gptq_marlin_repack(w, p, bits) for w, p in zip(qweight, perm, strict=True)])


def _awq_marlin_repack(qweight: Tensor, bits: int) -> Tensor:
    return packed.marlin(packed.unpack_evens_first(qweight, bits), bits)


def _awq_marlin_moe_repack(qweight: Tensor, bits: int) -> Tensor:
    return torch.stack([_awq_marlin_repack(w, bits) for w in qweight])


def _marlin_int4_fp8_preprocess(qweight: Tensor) -> Tensor:
    numbers = packed.unpack(qweight, 4)
    return packed.pack(torch.where(numbers >= 8, numbers - 8, 15 - numbers), 4)


def _marlin_int4_fp8_preprocess_awq(qweight: Tensor, qzeros: Tensor) -> Tensor:
    numbers = packed.unpack(qweight, 4)
    zeros = packed.unpack(qzeros, 4).repeat_interleave(len(qweight) // len(qzeros), 0)
    return packed.pack(torch.where(numbers >= zeros, numbers - zeros, 15 - numbers), 4)


def _packed(name: str, shape: str, dtype: str = "int32") -> Arg:
    """Random bits that follow the case's layout."""
    return Arg(name=name, shape=shape, values="bits", dtype=dtype)


def _words(name: str, shape: str, dtype: str = "int32") -> Arg:
    """Random bits beside floating data: random and contiguous in every case."""
    return replace(_packed(name, shape, dtype), role="weight")


def _whole_groups(*dims: Dim) -> str:
    """No dim but the number of rows may be 0, and all of K is in groups."""
    return f"{nonempty(dims, 'M')} and K % group == 0"


def _of_standard(dtype: str, distribution: str) -> bool:
    return distribution == "standard"


def _always(relation: Relation) -> Relation:
    """The relation, checked in integer types too."""
    return replace(relation, holds=_of_standard)


_COMPLEMENT = _always(
    mapping("complement", lambda words, *others: (~words, *others), lambda outs, _: [~out for out in outs])
)
"""Of what only moves bits."""

_DTYPES = ("float16", "bfloat16", "float32")
_BITS, _BOTH = plain("bits", formula="bits"), fixed("P", high=2)
_SHAPES: Any = {
    "bits": "4 * P",
    "group": "16 << S",
    "R": "K // group",  # groups
    "words": "N * bits // 32",
    "rows": "K * bits // 32",
    "tiles": "K // 16",
    "columns": "N * bits // 2",
    "steps": "4 ** bits // 6",  # mean square of the difference of two numbers
}
"""Numbers of four bits or eight; groups of 32, 64 or 128; sizes of packed tensors."""
_AWQ: Any = {**_SHAPES, "bits": 4}
_GPTQ: Any = {**_SHAPES, "bits": "1 << P"}
_ALLSPARK: Any = {
    "one": 1,
    "quarter": "N // 4",
    "fours": "4 * K",
    "steps": "4 ** 8 // 12",
}
_ONE_ZERO: Any = {**_SHAPES, "steps": "4 ** bits // 12"}

_M, _S = size("M", high=4096), fixed("S", high=3)
_MATRIX = (size("K", low=64, high=4096, multiple_of=64), size("N", low=16, high=4096, multiple_of=16))
_TILED = (_MATRIX[0], size("N", low=64, high=4096, multiple_of=64))

_SCALES = Arg(name="scales", shape="R N", role="weight", values="variance", fan_in="K steps")
_ZEROS = _words("qzeros", "R words")
_GROUPS = index("g_idx", "K", "R")
_PERM = index("perm", "K", "K")


def _product(name: str, summary: str, reference: Any, args: tuple[Any, ...], **more: Any) -> Task:
    """A task x (M, K) @ weights (K, N), one of ``args`` being ``scales``; ``more`` as ``define.operator`` takes it."""
    settings: dict[str, Any] = {
        "dims": (_M, *_TILED, _S, _BOTH),
        "derive": _ONE_ZERO,
        # Marlin keeps the scales of a single group in another order
        "where": f"{_whole_groups(*_TILED, _S, _BOTH)} and R > 1",
        **more,
    }
    scales = 1 + [arg.name for arg in args].index("scales")
    return operator(
        name,
        "gemm",
        summary,
        args=(data("x", "M K"), *args),
        out=("M N",),
        reference=reference,
        flops="2 * M * N * K + 2 * K * N",
        reduction="K",
        empty=True,
        normwise=True,
        nonfinite=False,
        dtypes=_DTYPES,
        group="Quantization",
        source="vllm",
        relations=(
            resampling("row_resampling", {0: 0}, {0: 0}),
            homogeneity({0: -2.0, scales: 0.5}, {0: -1.0}),
            additivity(0),
        ),
        **settings,
    )


def _dequantized(
    name: str, summary: str, reference: Any, args: tuple[Any, ...], derive: Any, *further: Dim, **more: Any
) -> Task:
    """A task that gives weights (K, N); ``more`` as ``define.operator`` takes it."""
    return operator(
        name,
        "elementwise",
        summary,
        dims=(*_MATRIX, _S, *further),
        where=_whole_groups(*_MATRIX, _S, *further),
        derive=derive,
        args=args,
        out=("K N",),
        reference=reference,
        flops="2 * K * N",
        gathered="group",
        dtypes=_DTYPES,
        group="Quantization",
        source="vllm",
        relations=(homogeneity({[arg.name for arg in args].index("scales"): -2.0}, {0: -2.0}),),
        **more,
    )


def _moved(name: str, summary: str, reference: Any, args: tuple[Any, ...], *out: str, **more: Any) -> Task:
    """A task that moves numbers within and between words; ``more`` as ``define.operator`` takes it."""
    settings: dict[str, Any] = {
        "dims": (size("K", low=16, high=4096, multiple_of=16), *_TILED[1:], _BOTH),
        "flops": "4 * K * N",
        "dtypes": ("int32",),
        "derive": _SHAPES,
        "relations": (_COMPLEMENT,),
        **more,
    }
    return operator(
        name,
        "elementwise",
        summary,
        args=args,
        out=out,
        reference=reference,
        exact=True,
        no_backward="packed weights have no gradient",
        group="Quantization",
        complexity=2,
        source="vllm",
        **settings,
    )


_EXPERTS: Any = {
    "dims": (fixed("E", low=2), size("K", low=16, high=2048, multiple_of=16), *_TILED[1:], _BOTH),
    "flops": "4 * E * K * N",
}
_WORDS: Any = {
    "dims": (size("K", low=128, high=4096, multiple_of=128), size("N", low=8, high=8192, multiple_of=8)),
    "derive": _AWQ,
    "flops": "5 * K * N",
}
_IN_AWQ = "words along N hold columns 0, 2, 4, 6, 1, 3, 5, 7 of eight"
_IN_MARLIN = "in Marlin's tiles (docs/tasks.md)"
_IN_ALLSPARK = (
    "row 16 t + 8 h + 2 r + o and column 32 b + 16 i + 8 j + c at row 8 b + c and column 64 t + 16 r + 8 i + 4 j + 2 h "
    "+ o, and scale 32 b + 8 a + c at 32 b + 4 c + a"
)

TASKS = (
    _dequantized(
        "awq_dequantize",
        f"out = (q - z) * scales of the groups along K, four bits; {_IN_AWQ}, those of z too",
        _awq_dequantize,
        (_packed("qweight", "K words"), data("scales", "R N", values="variance"), _ZEROS),
        _AWQ,
    ),
    _product(
        "awq_gemm",
        f"out = x @ ((q - z) * scales of the groups along K), four bits; {_IN_AWQ}, those of z too",
        _awq_gemm,
        (_words("qweight", "K words"), _SCALES, _ZEROS),
        dims=(_M, *_MATRIX, _S),
        where=_whole_groups(*_MATRIX, _S),
        derive=_AWQ,
    ),
    _dequantized(
        "gptq_dequantize",
        "out[k] = (q[k] - z[g] - 1) * scales[g], g = g_idx[k]; words of 2, 4 or 8 bits, of q along K, of z along N",
        _gptq_dequantize,
        (
            _packed("qweight", "rows N"),
            _ZEROS,
            data("scales", "R N", values="variance"),
            _GROUPS,
            _BITS,
        ),
        _GPTQ,
        fixed("P", high=3),
        unfused=(_gptq_dequantize_in_type,),
        in_type=False,
    ),
    _product(
        "gptq_gemm",
        "out = x @ w, w[k] = (q[k] - z[g] - 1) * scales[g], g = g_idx[k]; words of 2, 4 or 8 bits, of q along K, of z "
        "along N",
        _gptq_gemm,
        (_words("qweight", "rows N"), _ZEROS, _SCALES, _GROUPS, _BITS),
        dims=(_M, *_MATRIX, _S, fixed("P", high=3)),
        where=_whole_groups(*_MATRIX, _S, fixed("P", high=3)),
        derive=_GPTQ,
    ),
    _product(
        "gptq_marlin_gemm",
        f"out = x @ ((q - 2^(bits - 1)) * scales of the groups along K); q and scales {_IN_MARLIN}",
        _gptq_marlin_gemm,
        (_words("qweight", "tiles columns"), _SCALES, _BITS),
    ),
    _product(
        "awq_marlin_gemm",
        f"out = x @ ((q - z) * scales of the groups along K); q, scales and z {_IN_MARLIN}",
        _awq_marlin_gemm,
        (_words("qweight", "tiles columns"), _SCALES, _ZEROS, _BITS),
        derive=_SHAPES,
    ),
    _product(
        "gptq_marlin_24_gemm",
        "out = x @ (w * scales of the groups along K), w of each four rows q - 2^(bits - 1) in two, numbers pairs of "
        f"(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3), else 0; q (K / 2, N) and scales {_IN_MARLIN}",
        _gptq_marlin_24_gemm,
        (
            _words("qweight", "halves columns"),
            Arg(name="pairs", shape="quads N", role="weight", values="integers", high=6, dtype="uint8"),
            _SCALES,
            _BITS,
        ),
        derive={
            **_SHAPES,
            "halves": "K // 32",
            "quads": "K // 4",
            "steps": "4 ** bits // 24",
        },
    ),
    _product(
        "allspark_w8a16_gemm",
        f"out = x @ ((q - 128) * scales), eight bits; of q and scales, {_IN_ALLSPARK}",
        _allspark_w8a16_gemm,
        (
            _words("qweight", "quarter fours", "uint8"),
            Arg(name="scales", shape="one N", role="weight", values="variance", fan_in="K steps"),
        ),
        dims=(_M, size("K", low=16, high=4096, multiple_of=16), size("N", low=32, high=4096, multiple_of=32)),
        where="min(K, N) > 0",
        derive=_ALLSPARK,
    ),
    _moved(
        "allspark_repack_weight",
        f"out0, out1 = qweight and scales with {_IN_ALLSPARK}",
        _allspark_repack_weight,
        (_packed("qweight", "K N", "uint8"), data("scales", "one N", values="variance")),
        "quarter fours: uint8",
        "one N",
        dims=(size("K", low=16, high=4096, multiple_of=16), size("N", low=32, high=4096, multiple_of=32)),
        derive=_ALLSPARK,
        flops="K * N",
        dtypes=_DTYPES,
        nonfinite=True,
        relations=(
            mapping(
                "complement", lambda words, scales: (~words, -2 * scales), lambda outs, _: (~outs[0], -2 * outs[1])
            ),
        ),
    ),
    _moved(
        "gptq_shuffle",
        "out = the rows perm[k] of q, words of 2, 4 or 8 bits along K, as words that hold those at even places first; "
        "of 8 bits, in their order",
        _gptq_shuffle,
        (_packed("qweight", "rows N"), _PERM, _BITS),
        "rows N: int32",
        dims=(size("K", low=32, high=4096, multiple_of=32), size("N"), fixed("P", high=3)),
        derive=_GPTQ,
        relations=(_COMPLEMENT, _always(permutation("columns", {0: 1}, {0: 1}))),
    ),
    _moved(
        "gptq_marlin_repack",
        f"out = the rows perm[k] of q, words along K, {_IN_MARLIN}",
        _gptq_marlin_repack,
        (_packed("qweight", "rows N"), _PERM, _BITS),
        "tiles columns: int32",
    ),
    _moved(
        "gptq_marlin_moe_repack",
        f"out[e] = the rows perm[e, k] of q[e], words along K, {_IN_MARLIN}",
        _gptq_marlin_moe_repack,
        (_packed("qweight", "E rows N"), index("perm", "E K", "K"), _BITS),
        "E tiles columns: int32",
        **_EXPERTS,
        relations=(_COMPLEMENT, _always(permutation("order_of_experts", {0: 0, 1: 0}, {0: 0}))),
    ),
    _moved(
        "awq_marlin_repack",
        f"out = q, of which {_IN_AWQ} (0, 2, 1, 3 of four), {_IN_MARLIN}",
        _awq_marlin_repack,
        (_packed("qweight", "K words"), _BITS),
        "tiles columns: int32",
    ),
    _moved(
        "awq_marlin_moe_repack",
        f"out[e] = q[e], of which {_IN_AWQ} (0, 2, 1, 3 of four), {_IN_MARLIN}",
        _awq_marlin_moe_repack,
        (_packed("qweight", "E K words"), _BITS),
        "E tiles columns: int32",
        **_EXPERTS,
        relations=(_COMPLEMENT, _always(permutation("order_of_experts", {0: 0}, {0: 0}))),
    ),
    _moved(
        "marlin_int4_fp8_preprocess",
        "out = q - 8 where q >= 8, else 15 - q, of each four bits",
        _marlin_int4_fp8_preprocess,
        (_packed("qweight", "K words"),),
        "K words: int32",
        relations=(_always(permutation("rows", {0: 0}, {0: 0})), _always(permutation("columns", {0: 1}, {0: 1}))),
        **_WORDS,
    ),
    _moved(
        "marlin_int4_fp8_preprocess_awq",
        "out = q - z where q >= z, else 15 - q, of each four bits, z those of the word's group along K",
        _marlin_int4_fp8_preprocess_awq,
        (_packed("qweight", "K words"), _packed("qzeros", "R words")),
        "K words: int32",
        relations=(_always(permutation("columns", {0: 1, 1: 1}, {0: 1})),),
        **{**_WORDS, "dims": (*_WORDS["dims"], _S)},
    ),
)

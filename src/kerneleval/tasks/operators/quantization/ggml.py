"""Weights in the blocks of ggml's files, and their products with rows that are rounded to eight bits.

A file keeps the scales of a block beside its numbers, as halves between bytes. Here they are an argument of their own,
because random bytes are no scales: ``numbers`` has the other bytes of each block, in the order of the file, ``scales``
the halves, in the type of the data. Rows of data are rounded to Q8_1: of each 32 numbers round(x / s), s = max |x| /
127, in fp32. ggml keeps s, and the sum of the 32, as halves: that is a further formula of each product.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from kerneleval.records import Arg, Dim, Task
from kerneleval.tasks.define import data, fixed, index, operator, size
from kerneleval.tasks.packed import halves
from kerneleval.tasks.quantised import int8, scale_of, wide
from kerneleval.tasks.relations import homogeneity, resampling

Tensor = torch.Tensor

_BLOCK, _SUPER = 32, 256
"""Weights of a block, and of a superblock of the K types."""


def _signed(octets: Tensor) -> Tensor:
    return (octets.int() ^ 128) - 128


def _q4_0(numbers: Tensor, scales: Tensor) -> Tensor:
    return (halves(numbers).flatten(-2).int() - 8) * scales[..., None]


def _q4_1(numbers: Tensor, scales: Tensor) -> Tensor:
    scale, least = scales[..., None].unbind(-2)
    return halves(numbers).flatten(-2) * scale + least


def _q8_0(numbers: Tensor, scales: Tensor) -> Tensor:
    return _signed(numbers) * scales[..., None]


def _q4_k(numbers: Tensor, scales: Tensor) -> Tensor:
    low, middle, high = numbers[..., :12].unflatten(-1, (3, 4)).int().unbind(-2)
    factors = torch.cat((low & 63, (high & 15) | (low >> 6 << 4)), -1)
    offsets = torch.cat((middle & 63, (high >> 4) | (middle >> 6 << 4)), -1)
    scale, least = scales[..., None].unbind(-2)
    parts = halves(numbers[..., 12:].unflatten(-1, (4, 32))).flatten(-3, -2)
    return (parts * (scale * factors)[..., None] - (least * offsets)[..., None]).flatten(-2)


def _q6_k(numbers: Tensor, scales: Tensor) -> Any:
    low, high, factors = numbers.split((128, 64, 16), -1)
    fours = halves(low.unflatten(-1, (2, 64))).flatten(-3).int()
    twos = high.unflatten(-1, (2, 1, 32)) >> torch.arange(0, 8, 2, device=high.device)[:, None] & 3
    signed = (fours | twos.flatten(-3).int() << 4) - 32
    factor = _signed(factors)
    return (signed.unflatten(-1, (16, 16)) * (factor * scales[..., None])[..., None]).flatten(-2)


def _rows(form: Callable[[Tensor, Tensor], Tensor], numbers: Tensor, scales: Tensor) -> Tensor:
    """The weights (N, K) of blocks (N, K / 32 or K / 256, bytes), in fp32 at least."""
    return form(numbers, wide(scales)).flatten(-2)


def _ggml_dequantize_q4_0(numbers: Tensor, scales: Tensor) -> Tensor:
    return _rows(_q4_0, numbers, scales).to(scales.dtype)


def _ggml_dequantize_q4_1(numbers: Tensor, scales: Tensor) -> Tensor:
    return _rows(_q4_1, numbers, scales).to(scales.dtype)


def _ggml_dequantize_q8_0(numbers: Tensor, scales: Tensor) -> Tensor:
    return _rows(_q8_0, numbers, scales).to(scales.dtype)


def _ggml_dequantize_q4_k(numbers: Tensor, scales: Tensor) -> Tensor:
    return _rows(_q4_k, numbers, scales).to(scales.dtype)


def _ggml_dequantize_q6_k(numbers: Tensor, scales: Tensor) -> Tensor:
    return _rows(_q6_k, numbers, scales).to(scales.dtype)


def _half(x: Tensor) -> Tensor:
    return x.half().to(x.dtype)


def _rounded(x: Tensor, kept: Callable[[Tensor], Tensor]) -> Tensor:
    blocks = x.unflatten(-1, (-1, _BLOCK))
    scale = scale_of(blocks, -1)
    return (int8(blocks, scale) * kept(scale)).flatten(-2)


def _mul_mat_q4_0(numbers: Tensor, scales: Tensor, x: Tensor, kept: Callable[[Tensor], Tensor] = wide) -> Any:
    y, scale = wide(x), wide(scales)
    unsigned = _rows(_q4_0, numbers, scales) + 8 * scale.repeat_interleave(_BLOCK, -1)
    sums = kept(y.unflatten(-1, (-1, _BLOCK)).sum(-1))
    return (_rounded(y, kept) @ unsigned.t() - 8 * (sums @ scale.t())).to(x.dtype)


def _mul_mat_q8_0(numbers: Tensor, scales: Tensor, x: Tensor, kept: Callable[[Tensor], Tensor] = wide) -> Tensor:
    return (_rounded(wide(x), kept) @ _rows(_q8_0, numbers, scales).t()).to(x.dtype)


def _plain_q4_0(numbers: Tensor, scales: Tensor, x: Tensor) -> Tensor:
    return (wide(x) @ _rows(_q4_0, numbers, scales).t()).to(x.dtype)


def _plain_q8_0(numbers: Tensor, scales: Tensor, x: Tensor) -> Tensor:
    return (wide(x) @ _rows(_q8_0, numbers, scales).t()).to(x.dtype)


def _by_experts(product: Any, x: Tensor, numbers: Tensor, scales: Tensor, ids: Tensor) -> Tensor:
    out = x.new_zeros(*ids.shape, numbers.shape[1])
    for number in range(len(numbers)):
        token, choice = torch.nonzero(ids == number, as_tuple=True)
        out[token, choice] = product(numbers[number], scales[number], x[token])
    return out


def _moe_q4_0(x: Tensor, numbers: Tensor, scales: Tensor, ids: Tensor, kept: Callable[[Tensor], Tensor] = wide) -> Any:
    return _by_experts(functools.partial(_mul_mat_q4_0, kept=kept), x, numbers, scales, ids)


def _moe_q8_0(x: Tensor, numbers: Tensor, scales: Tensor, ids: Tensor, kept: Callable[[Tensor], Tensor] = wide) -> Any:
    return _by_experts(functools.partial(_mul_mat_q8_0, kept=kept), x, numbers, scales, ids)


def _moe_plain_q4_0(x: Tensor, numbers: Tensor, scales: Tensor, ids: Tensor) -> Tensor:
    return _by_experts(_plain_q4_0, x, numbers, scales, ids)


def _moe_plain_q8_0(x: Tensor, numbers: Tensor, scales: Tensor, ids: Tensor) -> Tensor:
    return _by_experts(_plain_q8_0, x, numbers, scales, ids)


_DTYPES = ("float16", "bfloat16", "float32")
_BYTES: Any = {"Q4_0": 16, "Q4_1": 16, "Q8_0": 32, "Q4_K": 140, "Q6_K": 208}
"""A block's bytes beside its scales."""
_STEPS: Any = {"Q4_0": 21, "Q4_1": 77, "Q8_0": 5461, "Q4_K": 90_000, "Q6_K": 1_860_000}
"""The mean square of its weights where scales are 1."""


def _of_form(form: str, length: int) -> dict[str, Any]:
    """Names for shapes: the K weights of a row, in blocks of that length."""
    return {
        "K": f"{length} * B",
        "octets": f"{_BYTES[form]}",
        "two": 2,
        "steps": f"{_STEPS[form]}",
    }


def _dequantized(form: str, summary: str, reference: Any, scales: str = "N B", length: int = _BLOCK) -> Task:
    """A task that gives weights (N, K) of blocks of that length."""
    return operator(
        f"ggml_dequantize_{form.lower()}",
        "elementwise",
        summary,
        dims=(size("N", high=4096), fixed("B", high=4096 // length)),
        derive=_of_form(form, length),
        args=(
            Arg(name="numbers", shape="N B octets", values="bits", dtype="uint8"),
            data("scales", scales, fan_in="steps", values="variance"),
        ),
        out=("N K",),
        reference=reference,
        flops="2 * N * K",
        gathered=f"{length}",
        dtypes=_DTYPES,
        group="Quantization",
        source="vllm",
        relations=(resampling("row_resampling", {0: 0, 1: 0}, {0: 0}), homogeneity({1: -2.0}, {0: -2.0})),
    )


def _product(name: str, form: str, reference: Any, exact: Any, rows: Dim, experts: bool = False) -> Task:
    """A task of rows of data, rounded, times the weights of a matrix or of the experts of each row."""
    before = "E " if experts else ""
    weights = (
        Arg(name="numbers", shape=f"{before}N B octets", role="weight", values="bits", dtype="uint8"),
        Arg(name="scales", shape=f"{before}N B", role="weight", values="variance", fan_in="K steps"),
    )
    x, ids = data("x", "M K"), index("ids", "M C", "E")
    own: dict[str, Any] = {
        "category": "gemm",
        "summary": f"out[m, n] = {_SUMS[form]}, of the blocks of numbers[n] and x[m], s = max |x| / 127 of each 32",
        "dims": (rows, size("N", high=4096), fixed("B", high=64)),
        "args": (*weights, x),
        "out": ("M N",),
        "flops": "2 * M * N * (K + B) + 4 * M * K",
        "relations": (resampling("row_resampling", {2: 0}, {0: 0}), homogeneity({1: 0.5, 2: -2.0}, {0: -1.0})),
    }
    of_experts: dict[str, Any] = {
        "category": "fused",
        "summary": f"out[m, c, n] = {_SUMS[form]}, of the blocks of numbers[ids[m, c], n] and x[m], s = max |x| / 127 "
        "of each 32",
        "dims": (rows, size("N", high=2048), fixed("B", high=32), fixed("E", low=2), fixed("C", high=4)),
        "args": (x, *weights, ids),
        "out": ("M C N",),
        "flops": "2 * M * C * N * (K + B) + 4 * M * K",
        "relations": (resampling("row_resampling", {0: 0, 3: 0}, {0: 0}), homogeneity({0: -2.0, 2: 0.5}, {0: -1.0})),
        "level": 2,
    }
    return operator(
        name,
        derive=_of_form(form, _BLOCK),
        without=("large_scale",) if form == "Q4_0" else (),  # a half holds no sum of 32 numbers of 2,048 each
        reference=reference,
        unfused=(functools.partial(reference, kept=_half),),
        in_type=False,
        exact_form=exact,
        unbiased=True,
        reduction="K",
        dtypes=("float16", "float32"),  # rounding to bfloat16 is more than half of this error
        nonfinite=False,
        no_backward="rounding has no gradient",
        group="Quantization",
        complexity=3,
        source="vllm",
        **(of_experts if experts else own),
    )


_SUMS = {
    "Q4_0": "sum of scale * (s * (q . round(x / s)) - 8 * sum x), q of four bits, the bytes' lower ones first,",
    "Q8_0": "sum of scale * s * (q . round(x / s)), q bytes with a sign,",
}
_NIBBLES = "lower four bits of the 16 bytes first"
_MANY, _FEW = size("M", high=4096), fixed("M", high=8)

TASKS = (
    _dequantized("Q4_0", f"out = (q - 8) * scale of blocks of 32; {_NIBBLES}", _ggml_dequantize_q4_0),
    _dequantized(
        "Q4_1", f"out = q * a + b, scales (a, b) of blocks of 32; {_NIBBLES}", _ggml_dequantize_q4_1, "N B two"
    ),
    _dequantized("Q8_0", "out = q * scale of blocks of 32 bytes with a sign", _ggml_dequantize_q8_0),
    _dequantized(
        "Q4_K",
        "out = a * f[i] * q - b * g[i], scales (a, b) of blocks of 256, i = which 32 of them; f and g of six bits in "
        "12 bytes (docs/tasks.md), then q, of each 32 the lower four bits first",
        _ggml_dequantize_q4_k,
        "N B two",
        _SUPER,
    ),
    _dequantized(
        "Q6_K",
        "out = scale * f[i] * (q - 32) of blocks of 256, i = which 16 of them, f the last 16 bytes, with a sign; lower "
        "four bits of q in the first 128, of each 64 the lower ones first, upper two in the next 64, of each 32 the "
        "lowest first",
        _ggml_dequantize_q6_k,
        length=_SUPER,
    ),
    _product("ggml_mul_mat_a8", "Q4_0", _mul_mat_q4_0, _plain_q4_0, _MANY),
    _product("ggml_mul_mat_a8_q8_0", "Q8_0", _mul_mat_q8_0, _plain_q8_0, _MANY),
    _product("ggml_mul_mat_vec_a8", "Q4_0", _mul_mat_q4_0, _plain_q4_0, _FEW),
    _product("ggml_mul_mat_vec_a8_q8_0", "Q8_0", _mul_mat_q8_0, _plain_q8_0, _FEW),
    _product("ggml_moe_a8", "Q4_0", _moe_q4_0, _moe_plain_q4_0, _MANY, experts=True),
    _product("ggml_moe_a8_vec", "Q8_0", _moe_q8_0, _moe_plain_q8_0, _FEW, experts=True),
)

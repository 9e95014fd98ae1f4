"""Operators that quantise what they are given: eight-bit weights and activations, four-bit weights.

The data is floating; the operator rounds it to few bits, with scales that it takes from the data, and computes on that.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the usual name

from kerneleval.records import Arg, Task
from kerneleval.tasks.define import bias, data, fixed, operator, plain, size, weight
from kerneleval.tasks.quantised import FP8_MOST, fp8, grouped_uint4, int8, product, scale_of, wide

Tensor = torch.Tensor

_GROUP = 32


def _matmul_w8a8(x: Tensor, w: Tensor) -> Tensor:
    a, b = wide(x), wide(w)
    rows, columns = scale_of(a, -1), scale_of(b, -2)
    return (product(int8(a, rows), int8(b, columns)) * rows * columns).to(x.dtype)


def _matmul_w8a8_per_tensor(x: Tensor, w: Tensor) -> Tensor:
    a, b = wide(x), wide(w)
    one, other = scale_of(a, (-2, -1)), scale_of(b, (-2, -1))
    return (product(int8(a, one), int8(b, other)) * (one * other)).to(x.dtype)


def _matmul_w8a8_static(x: Tensor, w: Tensor, x_scale: Tensor, w_scale: Tensor) -> Tensor:
    a, b, one, other = wide(x), wide(w), wide(x_scale), wide(w_scale)
    return (product(int8(a, one), int8(b, other)) * one * other).to(x.dtype)


def _static_plain(x: Tensor, w: Tensor, x_scale: Tensor, w_scale: Tensor) -> Tensor:
    return x @ w


def _matmul_fp8(x: Tensor, w: Tensor) -> Tensor:
    a, b = wide(x), wide(w)
    rows, columns = scale_of(a, -1, FP8_MOST), scale_of(b, -2, FP8_MOST)
    return (fp8(a, rows) @ fp8(b, columns) * rows * columns).to(x.dtype)


def _linear_w8a16(x: Tensor, w: Tensor, bias: Tensor) -> Tensor:
    wide_w = wide(w)
    scale = scale_of(wide_w, -1)
    return F.linear(wide(x), int8(wide_w, scale) * scale, wide(bias)).to(x.dtype)


def _linear_w4a16(x: Tensor, w: Tensor, bias: Tensor, group: int) -> Tensor:
    return F.linear(wide(x), grouped_uint4(wide(w), group), wide(bias)).to(x.dtype)


def _linear(x: Tensor, w: Tensor, bias: Tensor, *group: int) -> Tensor:
    return F.linear(x, w, bias)


def _conv2d_w8a8(x: Tensor, w: Tensor, bias: Tensor, stride: int, padding: int) -> Tensor:
    a, b = wide(x), wide(w)
    images, channels = scale_of(a, (1, 2, 3)), scale_of(b, (1, 2, 3))
    y = F.conv2d(int8(a, images), int8(b, channels), None, stride, padding)
    return (y * images * channels.view(1, -1, 1, 1) + wide(bias).view(1, -1, 1, 1)).to(x.dtype)


def _layer_norm_w8a8(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    a, g = wide(x), wide(weight)
    rows, whole = scale_of(a, -1), scale_of(g, -1)
    y = F.layer_norm(int8(a, rows) * rows, (x.shape[-1],), int8(g, whole) * whole, wide(bias), eps)
    return y.to(x.dtype)


def _layer_norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    return F.layer_norm(x, (x.shape[-1],), weight, bias, eps)


def _attention_w8a8(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    q, k, v = wide(query), wide(key), wide(value)
    of_q, of_k, of_v = scale_of(q, -1), scale_of(k, -1), scale_of(v, -2)
    scores = int8(q, of_q) @ int8(k, of_k).transpose(-2, -1) * of_q * of_k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    weights = torch.exp(scores - scores.amax(-1, keepdim=True))
    y = torch.round(127 * weights) @ int8(v, of_v) * of_v / (127 * weights.sum(-1, keepdim=True))
    return y.to(query.dtype)


def _pruned(shape: str, fan_in: str) -> Arg:
    """The weight ``w``, with rows and columns of zeros beside ``outlier`` data: their scales are 0."""
    return replace(weight("w", shape, fan_in=fan_in), vanishes=True)


def _quantised(name: str, summary: str, reference: Any, exact: Any, **more: Any) -> Task:
    """A task of the family; ``more`` as ``define.operator`` takes it."""
    settings: dict[str, Any] = {"category": "gemm", "complexity": 3, "source": "model", "unbiased": True, **more}
    return operator(
        name,
        settings.pop("category"),
        summary,
        reference=reference,
        exact_form=exact,
        group="Quantization",
        nonfinite=False,
        no_backward="rounding has no gradient",
        **settings,
    )


_LOOSE = (0.90, 0.10, 0.15)
"""The contract of attention and of weights of four bits."""

_SIZES = (size("M", high=4096), size("K", low=16, high=4096), size("N", high=4096))
_PRODUCT: Any = {
    "dims": _SIZES,
    "args": (data("x", "M K", extreme="floors"), _pruned("K N", "K")),
    "out": ("M N",),
    "reduction": "K",
    "flops": "2 * M * N * K + 3 * (M * K + K * N)",
}
_LINEAR: Any = {
    "dims": (size("M", high=4096), size("K", low=_GROUP, high=4096, multiple_of=_GROUP), size("N", high=4096)),
    "args": (data("x", "M K"), _pruned("N K", "K"), bias("N")),
    "out": ("M N",),
    "reduction": "K",
    "flops": "2 * M * N * K + M * N + 4 * K * N",
}
_ROUNDED = "q(a) = round(a / s), s = max |a| / 127"

TASKS = (
    _quantised(
        "matmul_w8a8",
        f"out = (q(x) @ q(w)) * s(x) * s(w) in int8, {_ROUNDED} of each row of x and each column of w",
        _matmul_w8a8,
        torch.matmul,
        **_PRODUCT,
    ),
    _quantised(
        "matmul_w8a8_per_tensor",
        f"out = (q(x) @ q(w)) * s(x) * s(w) in int8, {_ROUNDED} of all of x and all of w",
        _matmul_w8a8_per_tensor,
        torch.matmul,
        unbiased=False,  # its two scales, in half precision, are in all of it
        **_PRODUCT,
    ),
    _quantised(
        "matmul_w8a8_static",
        "out = (q(x) @ q(w)) * x_scale * w_scale in int8, q(a) = round(a / s), ties to even, within [-127, 127], "
        "scales given",
        _matmul_w8a8_static,
        _static_plain,
        **{
            **_PRODUCT,
            "dims": (size("M", low=16, high=4096), size("K", low=16, high=4096), size("N", low=16, high=4096)),
            "args": (
                data("x", "M K", ties="x_scale"),
                _PRODUCT["args"][1],
                weight("x_scale", "one", values="variance", fan_in="steps"),
                weight("w_scale", "N", values="variance", fan_in="K steps"),
            ),
            "derive": {"one": 1, "steps": "16 ** 2"},  # scales from 1 / 32: values beyond 4 alone are clipped
            "without": ("large_scale", "small_scale"),
        },
    ),
    _quantised(
        "matmul_fp8",
        "out = (q(x) @ q(w)) * s(x) * s(w), q(a) = a / s in e4m3fn, s = max |a| / 448 of each row of x and column of w",
        _matmul_fp8,
        torch.matmul,
        unbiased=False,
        **_PRODUCT,
    ),
    _quantised(
        "bmm_w8a8",
        f"out[b] = (q(x[b]) @ q(w[b])) * s(x) * s(w) in int8, {_ROUNDED} of each row of x and each column of w",
        _matmul_w8a8,
        torch.bmm,
        **{
            **_PRODUCT,
            "dims": (fixed("B", high=16), *_SIZES),
            "args": (data("x", "B M K", extreme="floors"), data("w", "B K N", fan_in="K")),
            "out": ("B M N",),
            "flops": f"B * ({_PRODUCT['flops']})",
        },
    ),
    _quantised(
        "linear_w8a16",
        f"out = x @ (q(w) * s(w))^T + bias, w in int8, {_ROUNDED} of each row of w",
        _linear_w8a16,
        _linear,
        dtypes=("float16", "float32"),  # rounding to bfloat16 is more than half of this error
        **_LINEAR,
    ),
    _quantised(
        "linear_w4a16",
        "out = x @ w'^T + bias, w' = (q - z) * s, q = clamp(round(w / s) + z, 0, 15), s = (max - min) / 15, "
        "z = round(-min / s) of each group along K, min <= 0 <= max",
        _linear_w4a16,
        _linear,
        contract=_LOOSE,
        **{
            **_LINEAR,
            "args": (data("x", "M K"), replace(_pruned("N K", "K"), one_sided=True), bias("N"), plain("group", _GROUP)),
        },
    ),
    _quantised(
        "conv2d_w8a8",
        f"out = conv(q(x), q(w)) * s(x) * s(w) + bias in int8, {_ROUNDED} of each image of x and each filter of w",
        _conv2d_w8a8,
        F.conv2d,
        category="convolution",
        dims=(
            fixed("B", high=8),
            fixed("C", low=3, high=256),
            fixed("O", high=256),
            size("H", low=7, high=128),
            size("W", low=7, high=128),
            fixed("S", high=2),
            fixed("D", high=2),
        ),
        args=(
            data("x", "B C H W"),
            _pruned("O C three three", "C three three"),
            bias("O"),
            plain("stride", formula="S"),
            plain("padding", formula="D - 1"),
        ),
        out=("B O P Q",),
        derive={
            "three": 3,
            "P": "(H + 2 * (D - 1) - 3) // S + 1",
            "Q": "(W + 2 * (D - 1) - 3) // S + 1",
        },
        reduction="9 * C",
        flops="B * O * P * Q * (18 * C + 3) + 3 * (B * C * H * W + 9 * O * C)",
    ),
    _quantised(
        "layer_norm_w8a8",
        f"out = (y - mean(y)) / sqrt(var(y) + eps) * q(w) * s(w) + bias, y = q(x) * s(x), {_ROUNDED} of each row of x "
        "and all of w",
        _layer_norm_w8a8,
        _layer_norm,
        category="normalization",
        dtypes=("float32", "float16"),  # rounding to bfloat16 is more than half of this error
        dims=(size("M"), size("N", low=16)),
        args=(data("x", "M N"), weight("weight", "N", values="ones_normal"), bias("N"), plain("eps", 1e-5)),
        out=("M N",),
        reduction="N",
        flops="12 * M * N",
        without=("constant",),
        complexity=2,
    ),
    _quantised(
        "attention_w8a8",
        "out = round(127 p) @ q(v) * s(v) / (127 sum p), p = exp(t - max t), t = q(q) @ q(k)^T * s(q) * s(k) / sqrt(D) "
        f"in int8, {_ROUNDED} of each row of q and k and each column of v",
        _attention_w8a8,
        F.scaled_dot_product_attention,
        category="attention",
        contract=_LOOSE,
        unbiased=False,
        dims=(
            fixed("B", high=4),
            fixed("H", high=8),
            size("N", high=2048),
            fixed("D", low=16, high=128, multiple_of=16),
        ),
        args=(data("query", "B H N D"), data("key", "B H N D"), data("value", "B H N D", extreme="floors")),
        out=("B H N D",),
        reduction="N",
        flops="B * H * N * (4 * N * D + 6 * N + 9 * D)",
    ),
)

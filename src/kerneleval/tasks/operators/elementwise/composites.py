"""Two or three named operators in a row that are no chains of one tensor: several outputs, indices, pairs of inputs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the usual name

from kerneleval.records import Arg
from kerneleval.tasks.define import (
    COUNTED_ROWS,
    FAR_BELOW,
    ROWS,
    bias,
    data,
    fixed,
    flags,
    index,
    operator,
    plain,
    products_below,
    size,
    weight,
    whole,
)
from kerneleval.tasks.pointwise import FLAT, pointwise
from kerneleval.tasks.relations import permutation, resampling

Tensor = torch.Tensor


def _exp_sqrt(x: Tensor) -> Tensor:
    return torch.sqrt(torch.exp(x))


def _sqrt_exp(x: Tensor) -> Tensor:
    return torch.exp(torch.sqrt(x))


def _sqrt_tanh(x: Tensor) -> Tensor:
    return torch.tanh(torch.sqrt(x))


def _log_tanh(x: Tensor) -> Tensor:
    return torch.tanh(torch.log(x))


def _log_tanh_by_sigmoid(x: Tensor) -> Tensor:
    return 1 - 2 * torch.sigmoid(-2 * torch.log(x))


def _relu_sqrt(x: Tensor) -> Tensor:
    return torch.sqrt(torch.relu(x))


def _erfc_sqrt(x: Tensor) -> tuple[Tensor, Tensor]:
    return torch.erfc(x), torch.sqrt(x)


def _rad2deg_sqrt(x: Tensor) -> tuple[Tensor, Tensor]:
    return torch.rad2deg(x), torch.sqrt(x)


def _cos_signbit(x: Tensor, frequency: float) -> tuple[Tensor, Tensor]:
    found = torch.cos(frequency * x)
    return found, torch.signbit(found)


def _signbit_and(x: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    return torch.signbit(x), torch.bitwise_and(a, b)


def _softmax_log(x: Tensor) -> Tensor:
    return torch.softmax(torch.log(x), -1)


def _tile_exp(x: Tensor, high: int, wide: int) -> Tensor:
    return torch.exp(torch.tile(x, (high, wide)))


def _gather_masked_fill(x: Tensor, index: Tensor, mask: Tensor, value: float) -> Tensor:
    return torch.gather(x, 1, index).masked_fill(mask, value)


def _index_select_eq(x: Tensor, index: Tensor, other: Tensor) -> Tensor:
    return torch.eq(torch.index_select(x, 0, index), other)


def _hstack_div(x: Tensor, y: Tensor, divisor: Tensor) -> Tensor:
    return torch.hstack((x, y)) / divisor


def _embedding_add_tanh(index: Tensor, weight: Tensor, other: Tensor) -> Tensor:
    return torch.tanh(F.embedding(index, weight) + other)


def _repeat_log_softmax(x: Tensor, repeats: int) -> Tensor:
    return torch.log_softmax(torch.repeat_interleave(x, repeats, 0), -1)


def _mv_log_softmax(a: Tensor, x: Tensor) -> Tensor:
    return torch.log_softmax(torch.mv(a, x), 0)


def _masked_mean(x: Tensor, keep: Tensor) -> Tensor:
    return x.masked_fill(~keep, 0).sum(-1) / keep.sum(-1).clamp_min(1)


def _sum_std(x: Tensor) -> Tensor:
    return x.sum(-1).std(-1)


def _distance_of_pooled(x: Tensor, y: Tensor, side: int) -> Tensor:
    return F.pairwise_distance(F.adaptive_avg_pool2d(x, side), F.adaptive_avg_pool2d(y, side))


def _pooled_similarity(x: Tensor, y: Tensor) -> Tensor:
    return F.avg_pool2d(F.cosine_similarity(x, y, dim=1)[:, None], 2)[:, 0].contiguous()


def _pixel_shuffle_conv2d(x: Tensor, weight: Tensor, bias: Tensor, factor: int) -> Tensor:
    return F.pixel_shuffle(F.conv2d(x, weight, bias, padding=1), factor)


def _batch(*args: Any, outputs: int = 1) -> tuple[Any, ...]:
    along = {i: 0 for i, a in enumerate(args) if isinstance(a, Arg) and a.shape.split()[:1] in (["M"], ["B"])}
    outs = dict.fromkeys(range(outputs), 0)
    return permutation("batch_permutation", along, outs), resampling("batch_resampling", along, outs)


_X = data("x", "M N")
_POSITIVE = data("x", "M N", values="positive")
_NONNEGATIVE = data("x", "M N", values="nonnegative")
_OVERFLOW = ("large_scale", "outlier")
_FUSED: Any = {"dims": ROWS, "level": 2, "source": "model", "group": "Fusion"}
_MATH: Any = {**_FUSED, "group": "Math", "empty": True}
_IMAGES = (data("x", "B C H W"), data("y", "B C H W"))
_IMAGE_DIMS = (fixed("B", high=8), size("C", low=4, high=1024), fixed("H", low=4, high=24), fixed("W", low=4, high=24))
_GATHERED = (_X, index("index", "M K", high="N"), flags("mask", "M K"), plain("value", -1.5))
_SELECTED = (whole("x", "M N", -3, 4), index("index", "K", high="M"), whole("other", "K N", -3, 4))
_DIVIDED = (_X, data("y", "M K"), data("divisor", "M total", values="positive"))
_EMBEDDED = (index("index", "M", high="V"), weight("weight", "V N"), data("other", "M N"))

TASKS = (
    pointwise("exp_sqrt", "out = sqrt(exp(x))", _exp_sqrt, 2, without=_OVERFLOW, level=2),
    pointwise("sqrt_exp", "out = exp(sqrt(x)), x >= 0", _sqrt_exp, 2, values="nonnegative", without=_OVERFLOW, level=2),
    pointwise("sqrt_tanh", "out = tanh(sqrt(x)), x >= 0", _sqrt_tanh, 2, values="nonnegative", level=2),
    pointwise(
        "log_tanh",
        "out = tanh(log(x)), x >= 0",
        _log_tanh,
        2,
        values="nonnegative",
        level=2,
        unfused=(_log_tanh_by_sigmoid,),  # 1 - tanh ** 2 of small numbers cancels, each time otherwise
        in_type=False,
    ),
    pointwise(
        "relu_sqrt",
        "out = sqrt(max(x, 0))",
        _relu_sqrt,
        2,
        no_backward="at 0 its gradient is infinity times 0",
        level=2,
    ),
    operator(
        "erfc_sqrt",
        "elementwise",
        "out0 = 1 - erf(x), out1 = sqrt(x), x >= 0",
        args=(_NONNEGATIVE,),
        out=("M N", "M N"),
        reference=_erfc_sqrt,
        flops="2 * M * N",
        relations=_batch(_NONNEGATIVE, outputs=2),
        **_MATH,
    ),
    operator(
        "rad2deg_sqrt",
        "elementwise",
        "out0 = x * 180 / pi, out1 = sqrt(x), x >= 0",
        args=(_NONNEGATIVE,),
        out=("M N", "M N"),
        reference=_rad2deg_sqrt,
        flops="2 * M * N",
        relations=_batch(_NONNEGATIVE, outputs=2),
        **_MATH,
    ),
    operator(
        "cos_signbit",
        "elementwise",
        "out0 = cos(frequency * x), out1 = whether out0 is negative",
        args=(_X, plain("frequency", 4.0)),
        out=("M N", "M N: bool"),
        reference=_cos_signbit,
        flops="3 * M * N",
        relations=_batch(_X, outputs=2),
        without=_OVERFLOW,
        nan_signs=False,
        **_MATH,
    ),
    operator(
        "signbit_bitwise_and",
        "elementwise",
        "out0 = the sign bit of x, out1 = a & b",
        args=(_X, *(data(name, "M N", values="bits", dtype="int32", differentiable=False) for name in "ab")),
        out=("M N: bool", "M N: int32"),
        reference=_signbit_and,
        flops="2 * M * N",
        nan_signs=False,
        no_backward=FLAT,
        exact=True,
        **_MATH,
    ),
    operator(
        "softmax_log",
        "normalization",
        "out[m] = softmax(log(x[m])) over the last dim, x > 0",
        args=(_POSITIVE,),
        out=("M N",),
        reference=_softmax_log,
        flops="6 * M * N",
        reduction="N",
        where="N > 1",
        relations=_batch(_POSITIVE),
        **_FUSED,
    ),
    operator(
        "tile_exp",
        "elementwise",
        "out[m, n] = exp(x[m % M, n % N]), high times M rows and wide times N columns",
        args=(_X, plain("high", formula="p"), plain("wide", formula="q")),
        out=("rows columns",),
        reference=_tile_exp,
        flops="rows * columns",
        gathered="p * q",
        derive={"rows": "p * M", "columns": "q * N"},
        without=_OVERFLOW,
        **{**_FUSED, "dims": (*ROWS, fixed("p", high=3), fixed("q", high=3))},
    ),
    operator(
        "gather_masked_fill",
        "elementwise",
        "out[m, k] = value where mask[m, k], else x[m, index[m, k]]",
        args=_GATHERED,
        out=("M K",),
        reference=_gather_masked_fill,
        flops="M * K",
        gathered="K",
        exact=True,
        nonfinite=True,
        relations=_batch(*_GATHERED),
        **{**_FUSED, "dims": (*ROWS, size("K"))},
    ),
    operator(
        "index_select_eq",
        "elementwise",
        "out[k, n] = whether x[index[k], n] = other[k, n], whole numbers",
        args=_SELECTED,
        out=("K N: bool",),
        reference=_index_select_eq,
        flops="K * N",
        exact=True,
        no_backward=FLAT,
        **{**_FUSED, "dims": (*ROWS, size("K"))},
    ),
    operator(
        "hstack_div",
        "elementwise",
        "out[m] = the rows x[m] and y[m] side by side / divisor[m], positive",
        args=_DIVIDED,
        out=("M total",),
        reference=_hstack_div,
        flops="M * total",
        derive={"total": "N + K"},
        relations=_batch(*_DIVIDED),
        **{**_FUSED, "dims": (*ROWS, size("K"))},
    ),
    operator(
        "embedding_add_tanh",
        "elementwise",
        "out[m, n] = tanh(weight[index[m], n] + other[m, n])",
        args=_EMBEDDED,
        out=("M N",),
        reference=_embedding_add_tanh,
        flops="2 * M * N",
        gathered="M",
        relations=_batch(*_EMBEDDED),
        **{**_FUSED, "dims": (*ROWS, size("V"))},
        backward_dtypes=("float32",),  # near 1, the rounding of the output is all that is left of a gradient
    ),
    operator(
        "repeat_interleave_log_softmax",
        "normalization",
        "out[m] = log_softmax(x[m // repeats]) over the last dim",
        args=(data("x", "M N", common=FAR_BELOW), plain("repeats", formula="K")),
        out=("rows N",),
        reference=_repeat_log_softmax,
        flops="5 * rows * N",
        reduction="N",
        gathered="K * N",
        derive={"rows": "M * K"},
        where="N > 1",
        **{**_FUSED, "dims": (*ROWS, fixed("K", low=2, high=5))},
    ),
    operator(
        "mv_log_softmax",
        "fused",
        "out = log_softmax(a @ x)",
        args=products_below(data("a", "M N"), data("x", "N", fan_in="N"), over="N"),
        out=("M",),
        reference=_mv_log_softmax,
        flops="2 * M * N + 5 * M",
        reduction="max(M, N)",
        where="M > 1",
        nonfinite=False,
        relations=(permutation("row_permutation", {0: 0}, {0: 0}),),
        complexity=3,
        **_FUSED,
    ),
    operator(
        "masked_mean",
        "reduction",
        "out[m] = the mean of the x[m, n] that keep[m, n] names, 0 of none",
        args=(_X, flags("keep", "M N")),
        out=("M",),
        reference=_masked_mean,
        flops="3 * M * N",
        reduction="N",
        rows=("full",),
        relations=_batch(_X, flags("keep", "M N")),
        **{**_FUSED, "dims": COUNTED_ROWS},
    ),
    operator(
        "sum_std",
        "reduction",
        "out[m] = the standard deviation over n of sum_k x[m, n, k], by N - 1",
        args=(data("x", "M N K", fan_in="K", along="N K"),),
        rows=("far_mean",),
        out=("M",),
        reference=_sum_std,
        flops="M * N * (K + 4)",
        reduction="N + K",
        gathered="N * K",
        without=("constant", "zeros"),
        relations=_batch(data("x", "M N K")),
        **{**_FUSED, "dims": (size("M"), size("N", low=4, high=256), fixed("K", low=2, high=8)), "complexity": 2},
    ),
    operator(
        "pairwise_distance_adaptive_avg_pool2d",
        "reduction",
        "out[b, c, h] = |p(x)[b, c, h] - p(y)[b, c, h] + 1e-6|, Euclidean norm of a row, p the mean over S x S parts",
        args=(*(replace(image, along="H W") for image in _IMAGES), plain("side", formula="S")),
        rows=("far_mean",),
        out=("B C S",),
        reference=_distance_of_pooled,
        flops="2 * B * C * (H * W + 2 * S * S)",
        reduction="H * W",
        where="H >= S and W >= S",
        without=("constant", "zeros"),
        relations=_batch(*_IMAGES),
        **{**_FUSED, "dims": (*_IMAGE_DIMS, fixed("S", low=2, high=4)), "complexity": 2},
    ),
    operator(
        "avg_pool2d_cosine_similarity",
        "reduction",
        "out[b] = avg_pool(s, 2), s[b, h, w] = sum_c x y / (|x| |y|), Euclidean norms over the channels",
        args=_IMAGES,
        out=("B half_h half_w",),
        reference=_pooled_similarity,
        flops="B * (6 * C + 4) * H * W",
        reduction="4 * C",
        derive={"half_h": "H // 2", "half_w": "W // 2"},
        without=("zeros",),
        relations=_batch(*_IMAGES),
        **{**_FUSED, "dims": _IMAGE_DIMS, "complexity": 2},
    ),
    operator(
        "pixel_shuffle_conv2d",
        "fused",
        "out = pixel_shuffle(conv2d(x, weight, bias), factor), kernel 3, padding 1",
        args=(
            data("x", "B C H W"),
            weight("weight", "O C three three", fan_in="C three three"),
            bias("O"),
            plain("factor", formula="f"),
        ),
        out=("B P high wide",),
        reference=_pixel_shuffle_conv2d,
        flops="B * O * H * W * (18 * C + 1)",
        reduction="9 * C",
        gathered="B * H * W",
        derive={
            "three": 3,
            "O": "P * f ** 2",
            "high": "H * f",
            "wide": "W * f",
        },
        normwise=True,
        nonfinite=False,
        relations=_batch(data("x", "B C H W")),
        complexity=3,
        **{**_FUSED, "dims": (*_IMAGE_DIMS, size("P", high=256), fixed("f", low=2, high=3))},
    ),
)

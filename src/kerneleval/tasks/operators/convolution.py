"""Convolutions (cross-correlations, as in PyTorch) with bias, stride and symmetric zero padding.

Batch B, kernel width K and stride S are small in every shape category; channels and lengths follow it. Plain
convolutions pad by K // 2, the transposed one by (K - 1) // 2, so that every output has at least one element.

No NaN among the inputs: right algorithms spread it. Winograd and FFT tiles hand one NaN on to every output of the tile
(cuDNN 9.19's float32 transposed convolution on an H200 gave NaN in 4 % of the outputs that have none by definition).
"""

from __future__ import annotations

from typing import Any

import torch.nn.functional as F  # noqa: N812 - the usual name

from kerneleval.tasks.define import bias, data, fixed, operator, plain, size, weight
from kerneleval.tasks.relations import additivity, permutation, resampling

_PADDING = plain("padding", lambda d: d.K // 2)
_STRIDE = plain("stride", lambda d: d.S)
_BATCH, _KERNEL, _STEP = fixed("B", high=8), fixed("K", high=5), fixed("S", high=2)
# No 5 x 5 here: cuDNN 9.19 computes its float32 weight gradient at stride 1 (without TF32) up to 1.5 % wrong, measured
# on an H200 against fp64, so that the native reference is no yardstick. Without cuDNN the error is 4e-7.
_SMALL_KERNEL = fixed("K", high=4)


def _length(name: str) -> Any:
    """Formula of a convolution's output length along a dim (PyTorch, Conv2d: Shape)."""
    return lambda d: (getattr(d, name) + 2 * (d.K // 2) - d.K) // d.S + 1


def _transposed_length(name: str) -> Any:
    """Formula of a transposed convolution's output length along a dim (PyTorch, ConvTranspose2d: Shape)."""
    return lambda d: (getattr(d, name) - 1) * d.S - 2 * ((d.K - 1) // 2) + d.K


def _inside(d: Any) -> bool:
    """Only the batch may be empty, and a stride of 2 needs a last dim of at least 3.

    PyTorch 2.13's own bfloat16 convolution on CPUs (oneDNN 3.12, AVX-512 and AMX) reads uninitialised memory, forward
    and backward, where a stride of 2 leaves a single output column: there is no native result to compare with there.
    """
    last = d.own.get("W", d.own.get("L"))
    return all(value > 0 for name, value in d.own.items() if name != "B") and (d.S == 1 or last > 2)


_BATCHES = (
    permutation("batch_permutation", {0: 0}, {0: 0}),
    resampling("batch_resampling", {0: 0}, {0: 0}),
    additivity(0, constant=2, per_channel=1),
)
_CHANNELS = (
    permutation("output_channel_permutation", {1: 0, 2: 0}, {0: 1}),
    permutation("input_channel_permutation", {0: 1, 1: 1}, {}),
)

TASKS = (
    operator(
        "conv1d",
        "convolution",
        "out[b, o, p] = bias[o] + sum_{c, k} x[b, c, p * stride + k - padding] * weight[o, c, k]",
        dims=(_BATCH, size("C"), size("O"), size("L"), _KERNEL, _STEP),
        derive={"P": _length("L")},
        args=(data("x", "B C L"), weight("weight", "O C K", fan_in="C K"), bias("O"), _STRIDE, _PADDING),
        out=("B O P",),
        reference=F.conv1d,
        flops=lambda d: d.B * d.O * d.P * (2 * d.C * d.K + 1),
        reduction=lambda d: d.C * d.K,
        gathered=lambda d: d.B * d.P,
        normwise=True,
        where=_inside,
        empty=True,
        nonfinite=False,
        relations=(*_BATCHES, *_CHANNELS),
    ),
    operator(
        "conv2d",
        "convolution",
        "out[b, o, p, q] = bias[o] + sum_{c, i, j} x[b, c, p * stride + i - padding, q * stride + j - padding] "
        "* weight[o, c, i, j]",
        dims=(_BATCH, size("C"), size("O"), size("H"), size("W"), _SMALL_KERNEL, _STEP),
        derive={"P": _length("H"), "Q": _length("W")},
        args=(data("x", "B C H W"), weight("weight", "O C K K", fan_in="C K K"), bias("O"), _STRIDE, _PADDING),
        out=("B O P Q",),
        reference=F.conv2d,
        flops=lambda d: d.B * d.O * d.P * d.Q * (2 * d.C * d.K * d.K + 1),
        reduction=lambda d: d.C * d.K * d.K,
        gathered=lambda d: d.B * d.P * d.Q,
        normwise=True,
        where=_inside,
        empty=True,
        nonfinite=False,
        relations=(*_BATCHES, *_CHANNELS),
    ),
    operator(
        "depthwise_conv2d",
        "convolution",
        "out[b, c, p, q] = bias[c] + sum_{i, j} x[b, c, p * stride + i - padding, q * stride + j - padding] "
        "* weight[c, 0, i, j]",
        dims=(_BATCH, size("C"), size("H"), size("W"), _KERNEL, _STEP),
        derive={"one": lambda d: 1, "P": _length("H"), "Q": _length("W")},
        args=(
            data("x", "B C H W"),
            weight("weight", "C one K K", fan_in="K K"),
            bias("C"),
            _STRIDE,
            _PADDING,
            plain("dilation", 1),
            plain("groups", lambda d: d.C),
        ),
        out=("B C P Q",),
        reference=F.conv2d,
        flops=lambda d: d.B * d.C * d.P * d.Q * (2 * d.K * d.K + 1),
        reduction=lambda d: d.K * d.K,
        gathered=lambda d: d.B * d.P * d.Q,
        normwise=True,
        where=_inside,
        empty=True,
        nonfinite=False,
        relations=(*_BATCHES, permutation("channel_permutation", {0: 1, 1: 0, 2: 0}, {0: 1})),
    ),
    operator(
        "conv_transpose2d",
        "convolution",
        "out[b, o, p, q] = bias[o] + sum x[b, c, h, w] * weight[c, o, i, j] over c and all "
        "h * stride + i - padding = p, w * stride + j - padding = q",
        dims=(_BATCH, size("C"), size("O"), size("H"), size("W"), _SMALL_KERNEL, _STEP),
        derive={"P": _transposed_length("H"), "Q": _transposed_length("W")},
        args=(
            data("x", "B C H W"),
            weight("weight", "C O K K", fan_in="C K K"),
            bias("O"),
            _STRIDE,
            plain("padding", lambda d: (d.K - 1) // 2),
        ),
        out=("B O P Q",),
        reference=F.conv_transpose2d,
        flops=lambda d: 2 * d.B * d.C * d.O * d.H * d.W * d.K * d.K + d.B * d.O * d.P * d.Q,
        reduction=lambda d: d.C * d.K * d.K,
        gathered=lambda d: d.B * d.H * d.W,
        normwise=True,
        where=_inside,
        empty=True,
        nonfinite=False,
        relations=(
            *_BATCHES,
            permutation("output_channel_permutation", {1: 1, 2: 0}, {0: 1}),
            permutation("input_channel_permutation", {0: 1, 1: 0}, {}),
        ),
    ),
)

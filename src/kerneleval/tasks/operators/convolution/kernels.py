"""Convolutions with kernels that are no squares and dilated, or of one channel, and dilated transposed volumes."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the usual name

from kerneleval.tasks.define import bias, data, fixed, plain, weight
from kerneleval.tasks.operators.convolution.convolution import (
    BATCHES,
    CHANNELS,
    CHANNELWISE,
    CUBE,
    DILATION,
    EDGE,
    OTHER,
    OTHER_EDGE,
    PADDING,
    STEP,
    STRIDE,
    UNIT,
    WIDE_EDGE,
    channels,
    convolution,
    length,
)
from kerneleval.tasks.relations import permutation

Tensor = torch.Tensor


def _dilated(x: Tensor, weight: Tensor, bias: Tensor, padding: int, other: int, dilation: int) -> Tensor:
    return F.conv2d(x, weight, bias, 1, (padding, other), dilation)


def _depthwise(x: Tensor, weight: Tensor, bias: Tensor, stride: int, padding: int, other: int) -> Tensor:
    return F.conv2d(x, weight, bias, stride, (padding, other), 1, x.shape[1])


def _extended(name: str) -> str:
    """Str of a dilated transposed convolution's output length along a dim."""
    return f"({name} - 1) * S - 2 * E + D * (K - 1) + 1"


_WIDE = fixed("J", high=7)
_SPREAD: Any = (PADDING, OTHER, plain("dilation", formula="D"))

TASKS = (
    convolution(
        "conv2d_dilated_asymmetric",
        "out[b, o, p, q] = bias[o] + sum_{c, i, j} x[b, c, p + i * dilation - padding, q + j * dilation - other] "
        "* weight[o, c, i, j], kernels of K x J",
        _dilated,
        (*channels("C", "O", "H", "W"), CUBE, fixed("J", high=5), DILATION, WIDE_EDGE, OTHER_EDGE),
        (data("x", "B C H W"), weight("weight", "O C K J", fan_in="C K J"), bias("O"), *_SPREAD),
        "B O P Q",
        "C K J",
        {
            "P": length("H", dilated=True, strided=False),
            "Q": length("W", "J", "F", dilated=True, strided=False),
        },
        relations=(*BATCHES, *CHANNELS),
    ),
    convolution(
        "depthwise_conv2d_asymmetric",
        "out[b, c, p, q] = bias[c] + sum_{i, j} x[b, c, p * stride + i - padding, q * stride + j - other] "
        "* weight[c, 0, i, j], kernels of K x J",
        _depthwise,
        (*channels("C", "H", "W"), CUBE, _WIDE, STEP, EDGE, OTHER_EDGE),
        (data("x", "B C H W"), weight("weight", "C one K J", fan_in="K J"), bias("C"), STRIDE, PADDING, OTHER),
        "B C P Q",
        "K J",
        {**UNIT, "P": length("H"), "Q": length("W", "J", "F")},
        relations=(*BATCHES, CHANNELWISE),
    ),
    convolution(
        "conv_transpose3d_dilated",
        "out[b, o, p, q, r] = bias[o] + sum x[b, c, t, h, w] * weight[c, o, i, j, k] over c and all "
        "t * stride + i * dilation - padding = p, h and w alike",
        F.conv_transpose3d,
        (*channels("C", "O", "T", "H", "W"), CUBE, STEP, DILATION, WIDE_EDGE),
        (
            data("x", "B C T H W"),
            weight("weight", "C O K K K", fan_in="C K K K"),
            bias("O"),
            STRIDE,
            PADDING,
            plain("output_padding", 0),
            plain("groups", 1),
            plain("dilation", formula="D"),
        ),
        "B O P Q R",
        "C K K K",
        {"P": _extended("T"), "Q": _extended("H"), "R": _extended("W")},
        relations=(
            *BATCHES,
            permutation("output_channel_permutation", {1: 1, 2: 0}, {0: 1}),
            permutation("input_channel_permutation", {0: 1, 1: 0}, {}),
        ),
        flops="2 * B * C * T * H * W * O * K ** 3 + B * O * P * Q * R",
        gathered="B * T * H * W",
    ),
)

"""Convolutions as the blocks of models have them: causal, depthwise separable, of patches."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 - the usual name

from kerneleval.tasks.define import bias, data, fixed, plain, size, weight
from kerneleval.tasks.operators.convolution.convolution import (
    BATCHES,
    CHANNELS,
    CHANNELWISE,
    DILATION,
    EDGE,
    PADDING,
    SMALL_KERNEL,
    STEP,
    STRIDE,
    UNIT,
    channels,
    convolution,
    length,
)
from kerneleval.tasks.relations import permutation

Tensor = torch.Tensor


def _separable_2d(x: Tensor, depthwise: Tensor, pointwise: Tensor, bias: Tensor, stride: int, padding: int) -> Tensor:
    return F.conv2d(F.conv2d(x, depthwise, None, stride, padding, 1, x.shape[1]), pointwise, bias)


def _causal_1d(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return F.conv1d(F.pad(x, (weight.shape[-1] - 1, 0)), weight, bias, groups=x.shape[1])


def _causal_silu_1d(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return F.silu(_causal_1d(x, weight, bias))


def _causal_dense_1d(x: Tensor, weight: Tensor, bias: Tensor, dilation: int) -> Tensor:
    return F.conv1d(F.pad(x, ((weight.shape[-1] - 1) * dilation, 0)), weight, bias, dilation=dilation)


TASKS = (
    convolution(
        "depthwise_separable_conv2d",
        "out[b, o, p, q] = bias[o] + sum_c pointwise[o, c] * sum_{i, j} x[b, c, p * stride + i - padding, "
        "q * stride + j - padding] * depthwise[c, 0, i, j]",
        _separable_2d,
        (*channels("C", "O", "H", "W"), SMALL_KERNEL, STEP, EDGE),
        (
            data("x", "B C H W"),
            weight("depthwise", "C one K K", fan_in="K K"),
            weight("pointwise", "O C one one", fan_in="C"),
            bias("O"),
            STRIDE,
            PADDING,
        ),
        "B O P Q",
        "C K K",
        {**UNIT, "P": length("H"), "Q": length("W")},
        relations=(*BATCHES[:2], permutation("channel_permutation", {0: 1, 1: 0, 2: 1}, {})),
        flops="B * P * Q * (2 * C * K * K + O * (2 * C + 1))",
        level=2,
        source="model",
    ),
    convolution(
        "causal_conv1d",
        "out[b, c, l] = bias[c] + sum_k x[b, c, l + k - (K - 1)] * weight[c, 0, k]: no output sees what comes later",
        _causal_1d,
        (*channels("C", "L"), fixed("K", low=2, high=4)),
        (data("x", "B C L"), weight("weight", "C one K", fan_in="K"), bias("C")),
        "B C L",
        "K",
        UNIT,
        relations=(*BATCHES, CHANNELWISE),
        source="model",
    ),
    convolution(
        "causal_conv1d_silu",
        "out = silu(y), y[b, c, l] = bias[c] + sum_k x[b, c, l + k - (K - 1)] * weight[c, 0, k]",
        _causal_silu_1d,
        (*channels("C", "L"), fixed("K", low=2, high=4)),
        (data("x", "B C L"), weight("weight", "C one K", fan_in="K"), bias("C")),
        "B C L",
        "K",
        UNIT,
        relations=(*BATCHES[:2], CHANNELWISE),
        flops="B * C * L * (2 * K + 5)",
        level=2,
        source="model",
    ),
    convolution(
        "causal_conv1d_dilated",
        "out[b, o, l] = bias[o] + sum_{c, k} x[b, c, l + (k - (K - 1)) * dilation] * weight[o, c, k]",
        _causal_dense_1d,
        (*channels("C", "O", "L"), fixed("K", low=2, high=4), DILATION),
        (
            data("x", "B C L"),
            weight("weight", "O C K", fan_in="C K"),
            bias("O"),
            plain("dilation", formula="D"),
        ),
        "B O L",
        "C K",
        {},
        relations=(*BATCHES, *CHANNELS),
        source="model",
    ),
    convolution(
        "patch_embedding",
        "out[b, o, p, q] = bias[o] + sum_{c, i, j} x[b, c, p * stride + i, q * stride + j] * weight[o, c, i, j], "
        "stride the kernel's width",
        F.conv2d,
        (
            fixed("C", high=4),
            *channels("O"),
            size("P", high=512),
            size("Q", low=2, high=512),
            fixed("K", low=2, high=8),
        ),
        (
            data("x", "B C height width"),
            weight("weight", "O C K K", fan_in="C K K"),
            bias("O"),
            plain("stride", formula="K"),
        ),
        "B O P Q",
        "C K K",
        {"height": "P * K", "width": "Q * K"},
        relations=(*BATCHES, *CHANNELS),
        source="model",
    ),
)

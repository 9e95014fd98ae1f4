"""Transposed convolutions: what a convolution's gradient scatters, with bias, stride and padding.

``p`` and ``q`` below are the places of an output, ``h`` and ``w`` those of an input.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the usual name

from kerneleval.records import product_text
from kerneleval.tasks.define import bias, data, fixed, plain, weight
from kerneleval.tasks.operators.convolution.convolution import (
    BATCHES,
    CUBE,
    DILATION,
    EDGE,
    GROUPS,
    KERNEL,
    OTHER,
    OTHER_EDGE,
    PADDING,
    SMALL_KERNEL,
    STEP,
    STRIDE,
    WIDE_EDGE,
    channels,
    convolution,
)
from kerneleval.tasks.relations import additivity, homogeneity, permutation

Tensor = torch.Tensor
_MORE, _STEPS = fixed("A", low=0, high=2), fixed("S", high=3)
_OUTPUT_PADDING = plain("output_padding", formula="A")
_CHANNELS = (
    permutation("output_channel_permutation", {1: 1, 2: 0}, {0: 1}),
    permutation("input_channel_permutation", {0: 1, 1: 0}, {}),
)
_GROUPED: dict[str, str | int] = {"channels": "C * G", "outputs": "O * G"}
_IMAGE: Any = {"gathered": "B * H * W"}
_ROW: Any = {"gathered": "B * L"}
_VOLUME: Any = {"gathered": "B * T * H * W"}


def _length(name: str, kernel: str = "K", edge: str = "E", dilated: bool = False, extended: bool = False) -> str:
    """Formula of a transposed convolution's output length along a dim (PyTorch, ConvTranspose2d: Shape)."""
    found = f"({name} - 1) * S - 2 * {edge} + {'D * ' if dilated else ''}({kernel} - 1) + 1"
    return f"{found} + A" if extended else found


def _no_bias_2d(x: Tensor, weight: Tensor, stride: int, padding: int) -> Tensor:
    return F.conv_transpose2d(x, weight, None, stride, padding)


def _asymmetric_2d(x: Tensor, weight: Tensor, bias: Tensor, stride: int, padding: int, other: int) -> Tensor:
    return F.conv_transpose2d(x, weight, bias, stride, (padding, other))


def _asymmetric_3d(x: Tensor, weight: Tensor, bias: Tensor, stride: int, padding: int, other: int) -> Tensor:
    return F.conv_transpose3d(x, weight, bias, stride, (padding, other, other))


def _flops(inputs: str, kernel: str, outputs: str) -> str:
    """Every input times every weight of its channel, and the bias."""
    found = f"2 * {product_text(f'{inputs} {kernel}')}"
    return f"{found} + {product_text(outputs)}" if outputs else found


TASKS = (
    convolution(
        "conv_transpose2d",
        "out[b, o, p, q] = bias[o] + sum x[b, c, h, w] * weight[c, o, i, j] over c and all "
        "h * stride + i - padding = p, w * stride + j - padding = q",
        F.conv_transpose2d,
        (*channels("C", "O", "H", "W"), SMALL_KERNEL, STEP, EDGE),
        (data("x", "B C H W"), weight("weight", "C O K K", fan_in="C K K"), bias("O"), STRIDE, PADDING),
        "B O P Q",
        "C K K",
        {"P": _length("H"), "Q": _length("W")},
        relations=(*BATCHES, *_CHANNELS),
        flops=_flops("B C H W", "O K K", "B O P Q"),
        **_IMAGE,
    ),
    convolution(
        "conv_transpose1d",
        "out[b, o, p] = bias[o] + sum x[b, c, l] * weight[c, o, k] over c and all l * stride + k - padding = p",
        F.conv_transpose1d,
        (*channels("C", "O", "L"), KERNEL, STEP, EDGE),
        (data("x", "B C L"), weight("weight", "C O K", fan_in="C K"), bias("O"), STRIDE, PADDING),
        "B O P",
        "C K",
        {"P": _length("L")},
        relations=(*BATCHES, *_CHANNELS),
        flops=_flops("B C L", "O K", "B O P"),
        **_ROW,
    ),
    convolution(
        "conv_transpose1d_dilated",
        "out[b, o, p] = bias[o] + sum x[b, c, l] * weight[c, o, k] over c and all "
        "l * stride + k * dilation - padding = p",
        F.conv_transpose1d,
        (*channels("C", "O", "L"), KERNEL, STEP, DILATION, WIDE_EDGE),
        (
            data("x", "B C L"),
            weight("weight", "C O K", fan_in="C K"),
            bias("O"),
            STRIDE,
            PADDING,
            plain("output_padding", 0),
            plain("groups", 1),
            plain("dilation", formula="D"),
        ),
        "B O P",
        "C K",
        {"P": _length("L", dilated=True)},
        relations=(*BATCHES, *_CHANNELS),
        flops=_flops("B C L", "O K", "B O P"),
        **_ROW,
    ),
    convolution(
        "conv_transpose2d_no_bias",
        "out[b, o, p, q] = sum x[b, c, h, w] * weight[c, o, i, j] over c and all "
        "h * stride + i - padding = p, w * stride + j - padding = q",
        _no_bias_2d,
        (*channels("C", "O", "H", "W"), SMALL_KERNEL, STEP, EDGE),
        (data("x", "B C H W"), weight("weight", "C O K K", fan_in="C K K"), STRIDE, PADDING),
        "B O P Q",
        "C K K",
        {"P": _length("H"), "Q": _length("W")},
        relations=(*BATCHES[:2], additivity(0), _CHANNELS[1], homogeneity({0: 2.0, 1: -0.5}, {0: -1.0})),
        flops=_flops("B C H W", "O K K", ""),
        **_IMAGE,
    ),
    convolution(
        "conv_transpose2d_asymmetric",
        "out[b, o, p, q] = bias[o] + sum x[b, c, h, w] * weight[c, o, i, j] over c and all "
        "h * stride + i - padding = p, w * stride + j - other = q, kernels of K x J",
        _asymmetric_2d,
        (*channels("C", "O", "H", "W"), CUBE, fixed("J", high=7), STEP, EDGE, OTHER_EDGE),
        (
            data("x", "B C H W"),
            weight("weight", "C O K J", fan_in="C K J"),
            bias("O"),
            STRIDE,
            PADDING,
            OTHER,
        ),
        "B O P Q",
        "C K J",
        {"P": _length("H"), "Q": _length("W", "J", "F")},
        relations=(*BATCHES, *_CHANNELS),
        flops=_flops("B C H W", "O K J", "B O P Q"),
        **_IMAGE,
    ),
    convolution(
        "conv_transpose2d_output_padding",
        "out[b, o, p, q] = bias[o] + sum x[b, c, h, w] * weight[c, o, i, j] over c and all h * stride + i - padding "
        "= p, w * stride + j - padding = q, for output_padding more p and q at the ends",
        F.conv_transpose2d,
        (*channels("C", "O", "H", "W"), SMALL_KERNEL, _STEPS, EDGE, _MORE),
        (
            data("x", "B C H W"),
            weight("weight", "C O K K", fan_in="C K K"),
            bias("O"),
            STRIDE,
            PADDING,
            _OUTPUT_PADDING,
        ),
        "B O P Q",
        "C K K",
        {"P": _length("H", extended=True), "Q": _length("W", extended=True)},
        relations=(*BATCHES, *_CHANNELS),
        flops=_flops("B C H W", "O K K", "B O P Q"),
        **_IMAGE,
    ),
    convolution(
        "conv_transpose2d_grouped_dilated",
        "out[b, g * O + o, p, q] = bias[g * O + o] + sum x[b, g * C + c, h, w] * weight[g * C + c, o, i, j] over c and "
        "all h * stride + i * dilation - padding = p, w * stride + j * dilation - padding = q",
        F.conv_transpose2d,
        (GROUPS, *channels("C", "O", "H", "W"), SMALL_KERNEL, STEP, DILATION, WIDE_EDGE),
        (
            data("x", "B channels H W"),
            weight("weight", "channels O K K", fan_in="C K K"),
            bias("outputs"),
            STRIDE,
            PADDING,
            plain("output_padding", 0),
            plain("groups", formula="G"),
            plain("dilation", formula="D"),
        ),
        "B outputs P Q",
        "C K K",
        {**_GROUPED, "P": _length("H", dilated=True), "Q": _length("W", dilated=True)},
        flops=_flops("B channels H W", "O K K", "B outputs P Q"),
        **_IMAGE,
    ),
    convolution(
        "depthwise_conv_transpose2d",
        "out[b, c, p, q] = bias[c] + sum x[b, c, h, w] * weight[c, 0, i, j] over all h * stride + i - padding = p, "
        "w * stride + j - padding = q",
        F.conv_transpose2d,
        (*channels("C", "H", "W"), SMALL_KERNEL, STEP, EDGE),
        (
            data("x", "B C H W"),
            weight("weight", "C one K K", fan_in="K K"),
            bias("C"),
            STRIDE,
            PADDING,
            plain("output_padding", 0),
            plain("groups", formula="C"),
        ),
        "B C P Q",
        "K K",
        {"one": 1, "P": _length("H"), "Q": _length("W")},
        relations=(*BATCHES, permutation("channel_permutation", {0: 1, 1: 0, 2: 0}, {0: 1})),
        flops=_flops("B C H W", "K K", "B C P Q"),
        **_IMAGE,
    ),
    convolution(
        "conv_transpose3d",
        "out[b, o, p, q, r] = bias[o] + sum x[b, c, t, h, w] * weight[c, o, i, j, k] over c and all "
        "t * stride + i - padding = p, h * stride + j - padding = q, w * stride + k - padding = r",
        F.conv_transpose3d,
        (*channels("C", "O", "T", "H", "W"), CUBE, STEP, EDGE),
        (data("x", "B C T H W"), weight("weight", "C O K K K", fan_in="C K K K"), bias("O"), STRIDE, PADDING),
        "B O P Q R",
        "C K K K",
        {"P": _length("T"), "Q": _length("H"), "R": _length("W")},
        relations=(*BATCHES, *_CHANNELS),
        flops=_flops("B C T H W", "O K K K", "B O P Q R"),
        **_VOLUME,
    ),
    convolution(
        "conv_transpose3d_asymmetric",
        "out[b, o, p, q, r] = bias[o] + sum x[b, c, t, h, w] * weight[c, o, i, j, k] over c and all t * stride + i "
        "- padding = p, h * stride + j - other = q, w * stride + k - other = r, kernels of K x J x J",
        _asymmetric_3d,
        (*channels("C", "O", "T", "H", "W"), CUBE, fixed("J", high=4), STEP, EDGE, OTHER_EDGE),
        (
            data("x", "B C T H W"),
            weight("weight", "C O K J J", fan_in="C K J J"),
            bias("O"),
            STRIDE,
            PADDING,
            OTHER,
        ),
        "B O P Q R",
        "C K J J",
        {"P": _length("T"), "Q": _length("H", "J", "F"), "R": _length("W", "J", "F")},
        relations=(*BATCHES, *_CHANNELS),
        flops=_flops("B C T H W", "O K J J", "B O P Q R"),
        **_VOLUME,
    ),
    convolution(
        "conv_transpose3d_grouped",
        "out[b, g * O + o, p, q, r] = bias[g * O + o] + sum x[b, g * C + c, t, h, w] * weight[g * C + c, o, i, j, k] "
        "over c and all t * stride + i - padding = p, h and w alike, with output_padding",
        F.conv_transpose3d,
        (GROUPS, *channels("C", "O", "T", "H", "W"), CUBE, _STEPS, EDGE, _MORE),
        (
            data("x", "B channels T H W"),
            weight("weight", "channels O K K K", fan_in="C K K K"),
            bias("outputs"),
            STRIDE,
            PADDING,
            _OUTPUT_PADDING,
            plain("groups", formula="G"),
        ),
        "B outputs P Q R",
        "C K K K",
        {
            **_GROUPED,
            "P": _length("T", extended=True),
            "Q": _length("H", extended=True),
            "R": _length("W", extended=True),
        },
        flops=_flops("B channels T H W", "O K K K", "B outputs P Q R"),
        **_VOLUME,
    ),
)

"""Convolutions (cross-correlations, as in PyTorch) with stride and symmetric zero padding.

Batch B, kernel width K, stride S, dilation and padding are small in every shape category; channels and lengths follow
it. Paddings are from none up to a kernel that has a single element inside.

No NaN among the inputs: right algorithms spread it. Winograd and FFT tiles hand one NaN on to every output of the tile
(cuDNN 9.19's float32 transposed convolution on an H200 gave NaN in 4 % of the outputs that have none by definition).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the usual name

from kerneleval.records import Arg, Dim, Plain, Task, product_text
from kerneleval.tasks.define import bias, data, fixed, nonempty, operator, plain, size, weight
from kerneleval.tasks.relations import additivity, homogeneity, permutation, resampling

Tensor = torch.Tensor
BATCH, KERNEL, STEP = fixed("B", high=8), fixed("K", high=5), fixed("S", high=2)
# No 5 x 5 here: cuDNN 9.19 computes its float32 weight gradient at stride 1 (without TF32) up to 1.5 % wrong, measured
# on an H200 against fp64, so that the native reference is no yardstick. Without cuDNN the error is 4e-7.
SMALL_KERNEL, CUBE = fixed("K", high=4), fixed("K", high=3)
GROUPS, DILATION = fixed("G", low=2, high=4), fixed("D", low=2, high=3)
STRIDE = plain("stride", formula="S")
EDGE, OTHER_EDGE, WIDE_EDGE = fixed("E", low=0, high=4), fixed("F", low=0, high=6), fixed("E", low=0, high=8)
"""How many zeros lie before and behind a dim: sizes like the kernel's width, since the outputs' follow from them."""
PADDING, OTHER = plain("padding", formula="E"), plain("other", formula="F")
UNIT: Any = {"one": 1}


def channels(*names: str) -> tuple[Dim, ...]:
    """Dims that follow the shape category."""
    return tuple(size(name) for name in names)


def length(name: str, kernel: str = "K", edge: str = "E", dilated: bool = False, strided: bool = True) -> str:
    """Formula of a convolution's output length along a dim (PyTorch, Conv2d: Shape)."""
    found = f"{name} + 2 * {edge} - {'D * ' if dilated else ''}({kernel} - 1)"
    return f"({found} - 1) // S + 1" if strided else found


def inside(dims: tuple[Dim, ...], out: str) -> str:
    """Only the batch may be empty, a kernel does not lie in the padding alone, a stride of 2 needs a last dim of at
    least 3 and leaves two columns, and volumes are no thinner than the kernel.

    PyTorch 2.13's own bfloat16 convolution on CPUs (oneDNN 3.12, AVX-512 and AMX) reads uninitialised memory, forward
    and backward, where a stride of 2 leaves a single output column, and in the weight gradients of volumes that are one
    thinner than the kernel, or that a stride of 2 leaves a single row: there is no native result to compare with there.
    """
    own = {dim.name for dim in dims}
    *rows, column = out.split()[2:]
    last, kernel = "W" if "W" in own else "L", "K" if "K" in own else "1"
    found = [nonempty(dims, "B", "E", "F", "A")]
    if "E" in own:
        found.append(f"min({', '.join([*rows, column, '1'])}) > 0")
    places = [name for name in ("T", "H", "W", "L") if name in own]
    of_first = 1 if "F" in own else len(places)
    for edge, width, along in (("E", "K", places[:of_first]), ("F", "J", places[of_first:])):
        if edge in own and "D" in own:  # or all elements of a kernel may lie beside those of the input
            shortest = f"min({', '.join(along)})" if along[1:] else along[0]
            found.append(f"{edge} <= D * ({width} - 1) and ({width} == 1 or {shortest} >= D)")
        elif edge in own:
            found.append(f"{edge} < {width}")
    if "S" in own:
        found.append(f"(S == 1 or {last} > 2 and {column} > 1)")
    if {"E", "D", "S"} <= own and rows:  # a single row of a transposed one may lie between those of the input
        found.append(f"(S == 1 or min({', '.join([*rows, column])}) > 1)")
    if "T" in own:
        found.append(f"T >= {kernel} and H >= {'J' if 'J' in own else kernel}")
        found.append(f"(S == 1 or {kernel} == 1 or min({', '.join(rows)}) > 1)")
    if "A" in own:
        found.append("A < S")
    return " and ".join(found)


BATCHES = (
    permutation("batch_permutation", {0: 0}, {0: 0}),
    resampling("batch_resampling", {0: 0}, {0: 0}),
    additivity(0, constant=2, per_channel=1),
)
CHANNELS = (
    permutation("output_channel_permutation", {1: 0, 2: 0}, {0: 1}),
    permutation("input_channel_permutation", {0: 1, 1: 1}, {}),
)
CHANNELWISE = permutation("channel_permutation", {0: 1, 1: 0, 2: 0}, {0: 1})


def convolution(
    name: str,
    summary: str,
    reference: Callable[..., Any],
    dims: tuple[Dim, ...],
    args: tuple[Arg | Plain, ...],
    out: str,
    terms: str,
    derive: Mapping[str, str | int],
    **more: Any,
) -> Task:
    """A task that convolves a batch.

    Args:
        name: unique slug.
        summary: one line with the formula.
        reference: the operator in plain PyTorch.
        dims: the free dims but the batch B.
        args: the arguments, in the order of the call.
        out: the shape of the output: batch, channels, positions.
        terms: names of the dims of the weight that are summed over.
        derive: names that are no free dims.
        more: as ``define.operator`` takes it.
    """
    biased = any(arg.name == "bias" for arg in args)

    settings: dict[str, Any] = {
        "flops": f"{product_text(out)} * (2 * {product_text(terms)} + {int(biased)})",
        "reduction": product_text(terms),
        "gathered": product_text(f"B {' '.join(out.split()[2:])}"),
        "relations": BATCHES,
        **more,
    }
    return operator(
        name,
        "convolution",
        summary,
        dims=(BATCH, *dims),
        args=args,
        out=(out,),
        derive=derive,
        reference=reference,
        normwise=True,
        where=" and ".join(filter(None, (inside((BATCH, *dims), out), settings.pop("where", "")))),
        empty=True,
        nonfinite=False,
        **settings,
    )


def _no_bias_2d(x: Tensor, weight: Tensor, stride: int, padding: int) -> Tensor:
    return F.conv2d(x, weight, None, stride, padding)


def _asymmetric_2d(x: Tensor, weight: Tensor, bias: Tensor, stride: int, padding: int, other: int) -> Tensor:
    return F.conv2d(x, weight, bias, stride, (padding, other))


def _asymmetric_3d(x: Tensor, weight: Tensor, bias: Tensor, stride: int, padding: int, other: int) -> Tensor:
    return F.conv3d(x, weight, bias, stride, (padding, other, other))


def _circular_1d(x: Tensor, weight: Tensor, bias: Tensor, padding: int) -> Tensor:
    return F.conv1d(F.pad(x, (padding, padding), mode="circular"), weight, bias)


def _reflected_2d(x: Tensor, weight: Tensor, bias: Tensor, padding: int) -> Tensor:
    return F.conv2d(F.pad(x, (padding, padding, padding, padding), mode="reflect"), weight, bias)


_GROUPED: dict[str, str] = {"channels": "C * G", "outputs": "O * G"}

TASKS = (
    convolution(
        "conv1d",
        "out[b, o, p] = bias[o] + sum_{c, k} x[b, c, p * stride + k - padding] * weight[o, c, k]",
        F.conv1d,
        (*channels("C", "O", "L"), KERNEL, STEP, EDGE),
        (data("x", "B C L"), weight("weight", "O C K", fan_in="C K"), bias("O"), STRIDE, PADDING),
        "B O P",
        "C K",
        {"P": length("L")},
        relations=(*BATCHES, *CHANNELS),
    ),
    convolution(
        "conv2d",
        "out[b, o, p, q] = bias[o] + sum_{c, i, j} x[b, c, p * stride + i - padding, q * stride + j - padding] "
        "* weight[o, c, i, j]",
        F.conv2d,
        (*channels("C", "O", "H", "W"), SMALL_KERNEL, STEP, EDGE),
        (data("x", "B C H W"), weight("weight", "O C K K", fan_in="C K K"), bias("O"), STRIDE, PADDING),
        "B O P Q",
        "C K K",
        {"P": length("H"), "Q": length("W")},
        relations=(*BATCHES, *CHANNELS),
    ),
    convolution(
        "depthwise_conv2d",
        "out[b, c, p, q] = bias[c] + sum_{i, j} x[b, c, p * stride + i - padding, q * stride + j - padding] "
        "* weight[c, 0, i, j]",
        F.conv2d,
        (*channels("C", "H", "W"), KERNEL, STEP, EDGE),
        (
            data("x", "B C H W"),
            weight("weight", "C one K K", fan_in="K K"),
            bias("C"),
            STRIDE,
            PADDING,
            plain("dilation", 1),
            plain("groups", formula="C"),
        ),
        "B C P Q",
        "K K",
        {**UNIT, "P": length("H"), "Q": length("W")},
        relations=(*BATCHES, CHANNELWISE),
    ),
    convolution(
        "conv3d",
        "out[b, o, p, q, r] = bias[o] + sum_{c, i, j, k} x[b, c, p * stride + i - padding, q * stride + j - padding, "
        "r * stride + k - padding] * weight[o, c, i, j, k]",
        F.conv3d,
        (*channels("C", "O", "T", "H", "W"), CUBE, STEP, EDGE),
        (data("x", "B C T H W"), weight("weight", "O C K K K", fan_in="C K K K"), bias("O"), STRIDE, PADDING),
        "B O P Q R",
        "C K K K",
        {"P": length("T"), "Q": length("H"), "R": length("W")},
        relations=(*BATCHES, *CHANNELS),
    ),
    convolution(
        "conv3d_asymmetric",
        "out[b, o, p, q, r] = bias[o] + sum_{c, i, j, k} x[b, c, p * stride + i - padding, q * stride + j - other, "
        "r * stride + k - other] * weight[o, c, i, j, k], kernels of K x J x J",
        _asymmetric_3d,
        (*channels("C", "O", "T", "H", "W"), CUBE, fixed("J", high=4), STEP, EDGE, OTHER_EDGE),
        (
            data("x", "B C T H W"),
            weight("weight", "O C K J J", fan_in="C K J J"),
            bias("O"),
            STRIDE,
            PADDING,
            OTHER,
        ),
        "B O P Q R",
        "C K J J",
        {"P": length("T"), "Q": length("H", "J", "F"), "R": length("W", "J", "F")},
        relations=(*BATCHES, *CHANNELS),
    ),
    convolution(
        "conv2d_no_bias",
        "out[b, o, p, q] = sum_{c, i, j} x[b, c, p * stride + i - padding, q * stride + j - padding] "
        "* weight[o, c, i, j]",
        _no_bias_2d,
        (*channels("C", "O", "H", "W"), SMALL_KERNEL, STEP, EDGE),
        (data("x", "B C H W"), weight("weight", "O C K K", fan_in="C K K"), STRIDE, PADDING),
        "B O P Q",
        "C K K",
        {"P": length("H"), "Q": length("W")},
        relations=(*BATCHES[:2], additivity(0), CHANNELS[1], homogeneity({0: 2.0, 1: -0.5}, {0: -1.0})),
    ),
    convolution(
        "conv2d_pointwise",
        "out[b, o, p, q] = bias[o] + sum_c x[b, c, p, q] * weight[o, c, 0, 0]",
        F.conv2d,
        channels("C", "O", "H", "W"),
        (data("x", "B C H W"), weight("weight", "O C one one", fan_in="C"), bias("O")),
        "B O H W",
        "C",
        UNIT,
        relations=(*BATCHES, *CHANNELS),
    ),
    convolution(
        "conv2d_asymmetric",
        "out[b, o, p, q] = bias[o] + sum_{c, i, j} x[b, c, p * stride + i - padding, q * stride + j - other] "
        "* weight[o, c, i, j], kernels of K x J",
        _asymmetric_2d,
        (*channels("C", "O", "H", "W"), CUBE, fixed("J", low=2, high=5), STEP, EDGE, OTHER_EDGE),
        (
            data("x", "B C H W"),
            weight("weight", "O C K J", fan_in="C K J"),
            bias("O"),
            STRIDE,
            PADDING,
            OTHER,
        ),
        "B O P Q",
        "C K J",
        {"P": length("H"), "Q": length("W", "J", "F")},
        relations=(*BATCHES, *CHANNELS),
    ),
    convolution(
        "conv2d_dilated",
        "out[b, o, p, q] = bias[o] + sum_{c, i, j} x[b, c, p * stride + i * dilation - padding, "
        "q * stride + j * dilation - padding] * weight[o, c, i, j]",
        F.conv2d,
        (*channels("C", "O", "H", "W"), SMALL_KERNEL, STEP, DILATION, WIDE_EDGE),
        (
            data("x", "B C H W"),
            weight("weight", "O C K K", fan_in="C K K"),
            bias("O"),
            STRIDE,
            PADDING,
            plain("dilation", formula="D"),
        ),
        "B O P Q",
        "C K K",
        {"P": length("H", dilated=True), "Q": length("W", dilated=True)},
        relations=(*BATCHES, *CHANNELS),
    ),
    convolution(
        "conv2d_grouped",
        "out[b, g * O + o, p, q] = bias[g * O + o] + sum_{c, i, j} x[b, g * C + c, p * stride + i - padding, "
        "q * stride + j - padding] * weight[g * O + o, c, i, j] for C and O channels of each of the groups g",
        F.conv2d,
        (GROUPS, *channels("C", "O", "H", "W"), SMALL_KERNEL, STEP, EDGE),
        (
            data("x", "B channels H W"),
            weight("weight", "outputs C K K", fan_in="C K K"),
            bias("outputs"),
            STRIDE,
            PADDING,
            plain("dilation", 1),
            plain("groups", formula="G"),
        ),
        "B outputs P Q",
        "C K K",
        {**_GROUPED, "P": length("H"), "Q": length("W")},
    ),
    convolution(
        "conv1d_dilated_strided",
        "out[b, o, p] = bias[o] + sum_{c, k} x[b, c, p * stride + k * dilation - padding] * weight[o, c, k]",
        F.conv1d,
        (*channels("C", "O", "L"), KERNEL, STEP, DILATION, WIDE_EDGE),
        (
            data("x", "B C L"),
            weight("weight", "O C K", fan_in="C K"),
            bias("O"),
            STRIDE,
            PADDING,
            plain("dilation", formula="D"),
        ),
        "B O P",
        "C K",
        {"P": length("L", dilated=True)},
        relations=(*BATCHES, *CHANNELS),
    ),
    convolution(
        "conv1d_grouped",
        "out[b, g * O + o, p] = bias[g * O + o] + sum_{c, k} x[b, g * C + c, p * stride + k - padding] "
        "* weight[g * O + o, c, k] for C and O channels of each of the groups g",
        F.conv1d,
        (GROUPS, *channels("C", "O", "L"), KERNEL, STEP, EDGE),
        (
            data("x", "B channels L"),
            weight("weight", "outputs C K", fan_in="C K"),
            bias("outputs"),
            STRIDE,
            PADDING,
            plain("dilation", 1),
            plain("groups", formula="G"),
        ),
        "B outputs P",
        "C K",
        {**_GROUPED, "P": length("L")},
    ),
    convolution(
        "depthwise_conv1d",
        "out[b, c, p] = bias[c] + sum_k x[b, c, p * stride + k - padding] * weight[c, 0, k]",
        F.conv1d,
        (*channels("C", "L"), KERNEL, STEP, EDGE),
        (
            data("x", "B C L"),
            weight("weight", "C one K", fan_in="K"),
            bias("C"),
            STRIDE,
            PADDING,
            plain("dilation", 1),
            plain("groups", formula="C"),
        ),
        "B C P",
        "K",
        {**UNIT, "P": length("L")},
        relations=(*BATCHES, CHANNELWISE),
    ),
    convolution(
        "conv1d_circular",
        "out[b, o, p] = bias[o] + sum_{c, k} x[b, c, (p + k - padding) mod L] * weight[o, c, k]",
        _circular_1d,
        (*channels("C", "O"), size("L", low=2), KERNEL, EDGE),
        (data("x", "B C L"), weight("weight", "O C K", fan_in="C K"), bias("O"), PADDING),
        "B O P",
        "C K",
        {"P": length("L", strided=False)},
        relations=(*BATCHES, *CHANNELS),
        where="E <= L",  # no element comes twice
    ),
    convolution(
        "conv2d_reflect",
        "out[b, o, p, q] = bias[o] + sum_{c, i, j} y[b, c, p + i, q + j] * weight[o, c, i, j], y = x padded by its "
        "mirror image about the first and the last row and column",
        _reflected_2d,
        (*channels("C", "O"), size("H", low=3), size("W", low=3), SMALL_KERNEL, EDGE),
        (data("x", "B C H W"), weight("weight", "O C K K", fan_in="C K K"), bias("O"), PADDING),
        "B O P Q",
        "C K K",
        {"P": length("H", strided=False), "Q": length("W", strided=False)},
        relations=(*BATCHES, *CHANNELS),
        where="E < min(H, W)",
    ),
)

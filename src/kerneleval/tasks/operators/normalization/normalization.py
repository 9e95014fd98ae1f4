"""Normalisations. ``eps`` is added to the variance (or mean square) before the root, as in PyTorch.

Every normalised group has at least four elements: the gradient is orthogonal to the directions that the operator
removes, so over one or two elements it cancels to rounding noise, and no judge could tell a right kernel from a wrong
one. For the same reason constant inputs are left out where the mean is subtracted: what remains is rounding noise times
eps ** -0.5.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the usual name

from kerneleval.records import Arg
from kerneleval.tasks.define import MOST_NAMED, ROWS, bias, data, fixed, gain, operator, plain, size
from kerneleval.tasks.relations import permutation, resampling, shift

_LEAST = 4
_LARGE = 1024.0
"""Large float16 numbers, whose squares float16 does not hold."""


def _layer_norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    return F.layer_norm(x, x.shape[-1:], weight, bias, eps)


def _rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    return F.rms_norm(x, x.shape[-1:], weight, eps)


def _group_norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, groups: int, eps: float) -> torch.Tensor:
    return F.group_norm(x, groups, weight, bias, eps)


def _batch_norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    return F.batch_norm(x, None, None, weight, bias, True, 0.0, eps)


def _layer_norm_plain(x: torch.Tensor, eps: float) -> torch.Tensor:
    return F.layer_norm(x, x.shape[-1:], eps=eps)


def _layer_norm_no_bias(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    return F.layer_norm(x, x.shape[-1:], weight, None, eps)


def _layer_norm_4d(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    return F.layer_norm(x, x.shape[1:], weight, bias, eps)


def _rms_norm_plain(x: torch.Tensor, eps: float) -> torch.Tensor:
    return F.rms_norm(x, x.shape[-1:], eps=eps)


def _group_norm_plain(x: torch.Tensor, groups: int, eps: float) -> torch.Tensor:
    return F.group_norm(x, groups, eps=eps)


def _instance_norm(x: torch.Tensor, eps: float) -> torch.Tensor:
    return F.instance_norm(x, eps=eps)


def _instance_norm_affine(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    return F.instance_norm(x, weight=weight, bias=bias, eps=eps)


def _batch_norm_inference(
    x: torch.Tensor,
    running_mean: torch.Tensor,
    running_var: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    eps: float,
) -> torch.Tensor:
    return F.batch_norm(x, running_mean, running_var, weight, bias, False, 0.0, eps)


_ROWS = (permutation("row_permutation", {0: 0}, {0: 0}), resampling("row_resampling", {0: 0}, {0: 0}))
_BATCH = (permutation("batch_permutation", {0: 0}, {0: 0}), resampling("batch_resampling", {0: 0}, {0: 0}))
_X = data("x", "M N", large_half=_LARGE)
_WEIGHT, _EPS, _SMALL_EPS = gain("weight", "N"), plain("eps", 1e-5), plain("eps", 1e-6)
_CENTRED: Any = {
    "reduction": "N",
    "without": ("constant",),
    "rows": ("far_mean",),
    "where": f"N >= {_LEAST}",
    "empty": True,
}
_SCALED: Any = {**_CENTRED, "without": (), "rows": ()}
_IMAGE: Any = {
    "dims": (fixed("B", high=8), size("C", high=1024), size("H", high=512), size("W", high=512)),
    "out": ("B C H W",),
    "flops": "8 * B * C * H * W",
}
_PIXELS = data("x", "B C H W", large_half=_LARGE)
_CHANNELS = (gain("weight", "C"), bias("C"))
_FEWER = data("x", "B C H W", large_half=_LARGE, large_half_backward=16.0)  # as of batch_norm
_INSTANCES: Any = {
    **_IMAGE,
    "dims": (*_IMAGE["dims"][:2], size("H", high=512, long=MOST_NAMED), _IMAGE["dims"][3]),
    "reduction": "H * W",
    "where": f"H * W >= {_LEAST} and C > 0 and (B > 0)",
    "without": ("constant",),
    "rows": ("far_mean",),
}

TASKS = (
    operator(
        "layer_norm",
        "normalization",
        "out[m] = (x[m] - mean(x[m])) / sqrt(var(x[m]) + eps) * weight + bias, biased variance over the last dim",
        dims=ROWS,
        args=(
            data("x", "M N", large_half=_LARGE),
            gain("weight", "N"),
            bias("N"),
            plain("eps", 1e-5),
        ),
        out=("M N",),
        folded="M",
        reference=_layer_norm,
        flops="8 * M * N",
        reduction="N",
        where=f"N >= {_LEAST}",
        without=("constant",),
        rows=("far_mean",),
        empty=True,
        relations=(
            *_ROWS,
            permutation("feature_permutation", {0: 1, 1: 0, 2: 0}, {0: 1}),
            shift("shift_invariance", 0, False),
        ),
    ),
    operator(
        "rms_norm",
        "normalization",
        "out[m] = x[m] / sqrt(mean(x[m] ** 2) + eps) * weight, mean over the last dim",
        dims=ROWS,
        args=(data("x", "M N", large_half=_LARGE), gain("weight", "N"), plain("eps", 1e-6)),
        out=("M N",),
        folded="M",
        reference=_rms_norm,
        flops="4 * M * N",
        reduction="N",
        where=f"N >= {_LEAST}",
        empty=True,
        relations=(*_ROWS, permutation("feature_permutation", {0: 1, 1: 0}, {0: 1})),
    ),
    operator(
        "group_norm",
        "normalization",
        "out = (x - mean) / sqrt(var + eps) * weight[c] + bias[c]; mean and biased variance over each group of C of "
        "the G * C channels and all of L",
        dims=(fixed("B", high=8), fixed("G", high=32), size("C", high=1024), size("L")),
        derive={"channels": "G * C"},
        args=(
            data("x", "B channels L", large_half=_LARGE, along="channels L"),
            gain("weight", "channels"),
            bias("channels"),
            plain("groups", formula="G"),
            plain("eps", 1e-5),
        ),
        out=("B channels L",),
        folded="L",
        reference=_group_norm,
        flops="8 * B * G * C * L",
        reduction="C * L",
        where=f"C * L >= {_LEAST} and B > 0 and (G > 0)",
        without=("constant",),
        rows=("far_mean",),
        relations=(
            permutation("batch_permutation", {0: 0}, {0: 0}),
            resampling("batch_resampling", {0: 0}, {0: 0}),
            permutation("position_permutation", {0: 2}, {0: 2}),
        ),
    ),
    operator(
        "batch_norm",
        "normalization",
        "out = (x - mean[c]) / sqrt(var[c] + eps) * weight[c] + bias[c]; training mode: mean and biased variance over "
        "B and L of this very batch, no running statistics",
        dims=(fixed("B", high=32), size("C"), size("L")),
        args=(
            # where x is strided, PyTorch sums its gradients' terms in float16, and numbers of 1024 overflow there
            data("x", "B C L", large_half=_LARGE, large_half_backward=16.0, along="B L"),
            gain("weight", "C"),
            bias("C"),
            plain("eps", 1e-5),
        ),
        out=("B C L",),
        folded="L",
        reference=_batch_norm,
        flops="8 * B * C * L",
        reduction="B * L",
        where=f"B * L >= {_LEAST} and C > 0",
        without=("constant",),
        rows=("far_mean",),
        relations=(
            permutation("batch_permutation", {0: 0}, {0: 0}),
            permutation("position_permutation", {0: 2}, {0: 2}),
            permutation("channel_permutation", {0: 1, 1: 0, 2: 0}, {0: 1}),
        ),
    ),
    operator(
        "layer_norm_plain",
        "normalization",
        "out[m] = (x[m] - mean(x[m])) / sqrt(var(x[m]) + eps), biased variance over the last dim",
        dims=ROWS,
        args=(_X, _EPS),
        out=("M N",),
        folded="M",
        reference=_layer_norm_plain,
        flops="6 * M * N",
        relations=(*_ROWS, permutation("feature_permutation", {0: 1}, {0: 1}), shift("shift_invariance", 0, False)),
        **_CENTRED,
    ),
    operator(
        "layer_norm_no_bias",
        "normalization",
        "out[m] = (x[m] - mean(x[m])) / sqrt(var(x[m]) + eps) * weight, biased variance over the last dim",
        dims=ROWS,
        args=(_X, _WEIGHT, _EPS),
        out=("M N",),
        folded="M",
        reference=_layer_norm_no_bias,
        flops="7 * M * N",
        relations=(*_ROWS, permutation("feature_permutation", {0: 1, 1: 0}, {0: 1})),
        backward_dtypes=("float32",),  # on CPUs PyTorch sums gradients of weights in half types
        **_CENTRED,
    ),
    operator(
        "layer_norm_4d",
        "normalization",
        "out[b] = (x[b] - mean(x[b])) / sqrt(var(x[b]) + eps) * weight + bias, biased variance over all of x[b]",
        args=(
            replace(_PIXELS, along="C H W"),
            gain("weight", "C H W"),
            bias("C H W"),
            _EPS,
        ),
        rows=("far_mean",),
        reference=_layer_norm_4d,
        reduction="C * H * W",
        where=f"C * H * W >= {_LEAST} and B > 0",
        without=("constant",),
        relations=(*_BATCH, permutation("channel_permutation", {0: 1, 1: 0, 2: 0}, {0: 1})),
        **_IMAGE,
    ),
    operator(
        "rms_norm_plain",
        "normalization",
        "out[m] = x[m] / sqrt(mean(x[m] ** 2) + eps), mean over the last dim",
        dims=ROWS,
        args=(_X, _SMALL_EPS),
        out=("M N",),
        folded="M",
        reference=_rms_norm_plain,
        flops="3 * M * N",
        relations=(*_ROWS, permutation("feature_permutation", {0: 1}, {0: 1})),
        **_SCALED,
    ),
    operator(
        "group_norm_plain",
        "normalization",
        "out = (x - mean) / sqrt(var + eps); mean and biased variance over each group of C of the G * C channels and "
        "all of L",
        dims=(fixed("B", high=8), fixed("G", high=32), size("C", high=1024), size("L")),
        derive={"channels": "G * C"},
        args=(data("x", "B channels L", large_half=_LARGE, along="channels L"), plain("groups", formula="G"), _EPS),
        out=("B channels L",),
        folded="L",
        reference=_group_norm_plain,
        flops="6 * B * G * C * L",
        reduction="C * L",
        where=f"C * L >= {_LEAST} and B > 0 and (G > 0)",
        without=("constant",),
        rows=("far_mean",),
        relations=(*_BATCH, permutation("position_permutation", {0: 2}, {0: 2})),
    ),
    operator(
        "instance_norm",
        "normalization",
        "out[b, c] = (x[b, c] - mean(x[b, c])) / sqrt(var(x[b, c]) + eps), biased variance",
        args=(replace(_FEWER, along="H W"), _EPS),
        folded="W",
        reference=_instance_norm,
        relations=(*_BATCH, permutation("channel_permutation", {0: 1}, {0: 1})),
        **_INSTANCES,
    ),
    operator(
        "instance_norm_affine",
        "normalization",
        "out[b, c] = (x[b, c] - mean(x[b, c])) / sqrt(var(x[b, c]) + eps) * weight[c] + bias[c], biased variance",
        args=(replace(_FEWER, along="H W"), *_CHANNELS, _EPS),
        folded="W",
        reference=_instance_norm_affine,
        gathered="B * H * W",
        relations=(*_BATCH, permutation("channel_permutation", {0: 1, 1: 0, 2: 0}, {0: 1})),
        **_INSTANCES,
    ),
    operator(
        "batch_norm_inference",
        "normalization",
        "out = (x - running_mean[c]) / sqrt(running_var[c] + eps) * weight[c] + bias[c]",
        args=(
            _FEWER,
            Arg(name="running_mean", shape="C", role="weight"),
            Arg(name="running_var", shape="C", role="weight", values="variance"),
            *_CHANNELS,
            _EPS,
        ),
        folded="W",
        reference=_batch_norm_inference,
        gathered="B * H * W",
        relations=(*_BATCH, permutation("channel_permutation", dict.fromkeys(range(1, 5), 0) | {0: 1}, {0: 1})),
        complexity=1,
        **_IMAGE,
    ),
    operator(
        "batch_norm2d",
        "normalization",
        "out = (x - mean[c]) / sqrt(var[c] + eps) * weight[c] + bias[c]; training mode: mean and biased variance over "
        "batch and positions, no running statistics",
        args=(replace(_FEWER, along="B H W"), *_CHANNELS, _EPS),
        rows=("far_mean",),
        folded="W",
        reference=_batch_norm,
        reduction="B * H * W",
        where=f"B * H * W >= {_LEAST} and C > 0",
        without=("constant",),
        relations=(
            permutation("batch_permutation", {0: 0}, {0: 0}),
            permutation("channel_permutation", {0: 1, 1: 0, 2: 0}, {0: 1}),
        ),
        **_IMAGE,
    ),
)

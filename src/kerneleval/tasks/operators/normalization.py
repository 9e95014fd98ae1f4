"""Normalisations. ``eps`` is added to the variance (or mean square) before the root, as in PyTorch.

Every normalised group has at least four elements: the gradient is orthogonal to the directions that the operator
removes, so over one or two elements it cancels to rounding noise, and no judge could tell a right kernel from a wrong
one. For the same reason constant inputs are left out where the mean is subtracted: what remains is rounding noise times
eps ** -0.5.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 - the usual name

from kerneleval.tasks.define import ROWS, bias, data, fixed, operator, plain, size, weight
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


_ROWS = (permutation("row_permutation", {0: 0}, {0: 0}), resampling("row_resampling", {0: 0}, {0: 0}))

TASKS = (
    operator(
        "layer_norm",
        "normalization",
        "out[m] = (x[m] - mean(x[m])) / sqrt(var(x[m]) + eps) * weight + bias, biased variance over the last dim",
        dims=ROWS,
        args=(
            data("x", "M N", large_half=_LARGE),
            weight("weight", "N", values="ones_normal"),
            bias("N"),
            plain("eps", 1e-5),
        ),
        out=("M N",),
        reference=_layer_norm,
        flops=lambda d: 8 * d.M * d.N,
        reduction=lambda d: d.N,
        where=lambda d: d.N >= _LEAST,
        without=("constant",),
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
        args=(data("x", "M N", large_half=_LARGE), weight("weight", "N", values="ones_normal"), plain("eps", 1e-6)),
        out=("M N",),
        reference=_rms_norm,
        flops=lambda d: 4 * d.M * d.N,
        reduction=lambda d: d.N,
        where=lambda d: d.N >= _LEAST,
        empty=True,
        relations=(*_ROWS, permutation("feature_permutation", {0: 1, 1: 0}, {0: 1})),
    ),
    operator(
        "group_norm",
        "normalization",
        "out = (x - mean) / sqrt(var + eps) * weight[c] + bias[c]; mean and biased variance over each group of C of "
        "the G * C channels and all of L",
        dims=(fixed("B", high=8), fixed("G", high=32), size("C", high=1024), size("L")),
        derive={"channels": lambda d: d.G * d.C},
        args=(
            data("x", "B channels L", large_half=_LARGE),
            weight("weight", "channels", values="ones_normal"),
            bias("channels"),
            plain("groups", lambda d: d.G),
            plain("eps", 1e-5),
        ),
        out=("B channels L",),
        reference=_group_norm,
        flops=lambda d: 8 * d.B * d.G * d.C * d.L,
        reduction=lambda d: d.C * d.L,
        where=lambda d: d.C * d.L >= _LEAST and d.B > 0 and d.G > 0,
        without=("constant",),
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
            data("x", "B C L", large_half=_LARGE, large_half_backward=16.0),
            weight("weight", "C", values="ones_normal"),
            bias("C"),
            plain("eps", 1e-5),
        ),
        out=("B C L",),
        reference=_batch_norm,
        flops=lambda d: 8 * d.B * d.C * d.L,
        reduction=lambda d: d.B * d.L,
        where=lambda d: d.B * d.L >= _LEAST and d.C > 0,
        without=("constant",),
        relations=(
            permutation("batch_permutation", {0: 0}, {0: 0}),
            permutation("position_permutation", {0: 2}, {0: 2}),
            permutation("channel_permutation", {0: 1, 1: 0, 2: 0}, {0: 1}),
        ),
    ),
)

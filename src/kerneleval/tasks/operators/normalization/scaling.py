"""Normalisations by a norm or a range, without learnt statistics, and two whose weights have a norm of their own.

Every normalised group has at least four elements, as in ``normalization``.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the usual name

from kerneleval.records import Arg, Plain, Relation, Task
from kerneleval.tasks.define import ROWS, data, fixed, operator, plain, size, weight
from kerneleval.tasks.relations import homogeneity, permutation, resampling, shift

Tensor = torch.Tensor


def _l1_normalize(x: Tensor) -> Tensor:
    return x / x.abs().mean(-1, keepdim=True)


def _l2_normalize(x: Tensor) -> Any:
    return x / x.norm(dim=-1, keepdim=True)


def _frobenius_normalize(x: Tensor) -> Any:
    return x / torch.linalg.vector_norm(x)


def _rms_norm_channels(x: Tensor, eps: float) -> Tensor:
    return x / torch.sqrt(x.square().mean(1, keepdim=True) + eps)


def _rows_at_most(x: Tensor, maxnorm: float) -> Tensor:
    return torch.renorm(x, 2, 0, maxnorm)


def _standardize(x: Tensor, eps: float) -> Tensor:
    return (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + eps)


def _min_max(x: Tensor, eps: float) -> Tensor:
    low, high = x.amin(-1, keepdim=True), x.amax(-1, keepdim=True)
    return (x - low) / (high - low + eps)


def _scale_norm(x: Tensor, scale: Tensor, eps: float) -> Tensor:
    return scale * F.normalize(x, dim=-1, eps=eps)


def _weight_norm(v: Tensor, g: Tensor) -> Any:
    return torch._weight_norm(v, g, 0)


def _local_response_norm(x: Tensor, size: int, alpha: float, beta: float, k: float) -> Tensor:
    return F.local_response_norm(x, size, alpha, beta, k)


_X = data("x", "M N", large_half=1024.0)
_ROWS = (
    permutation("row_permutation", {0: 0}, {0: 0}),
    resampling("row_resampling", {0: 0}, {0: 0}),
)
_COLUMNS = permutation("feature_permutation", {0: 1}, {0: 1})
_FREE = homogeneity({0: 4.0}, {})
"""What a common factor of the input leaves as it is."""
_NOT_ZERO: Any = {"without": ("zeros",)}
_BARE: Any = {**_NOT_ZERO, "epsilon": 1e-8, "epsilon_backward": False}
"""Of rows without an epsilon: some are so small that one shows."""
_BATCH = (
    permutation("batch_permutation", {0: 0}, {0: 0}),
    resampling("batch_resampling", {0: 0}, {0: 0}),
)


def _scaled(
    name: str,
    summary: str,
    reference: Any,
    each: int,
    *plains: Plain,
    over: tuple[Arg, ...] = (_X,),
    relations: tuple[Relation, ...] = (*_ROWS, _COLUMNS, _FREE),
    **more: Any,
) -> Task:
    """A task over the rows of a matrix.

    Args:
        name: unique slug.
        summary: one line with the formula.
        reference: the operator in plain PyTorch.
        each: operations for an element.
        plains: plain arguments, which come last.
        over: the tensor arguments.
        relations: metamorphic relations.
        more: as ``define.operator`` takes it.
    """
    settings: dict[str, Any] = {
        "dims": ROWS,
        "out": ("M N",),
        "flops": f"{each} * M * N",
        "reduction": "N",
        "where": "N >= 4",
        "empty": True,
        "folded": "M" if all(arg.shape in ("M N", "N") for arg in over) else "",
        "relations": relations,
        **more,
    }
    return operator(name, "normalization", summary, args=(*over, *plains), reference=reference, **settings)


_IMAGE: Any = {
    "dims": (fixed("B", high=8), size("C", low=4, high=1024), size("H", high=512), size("W", high=512)),
    "over": (data("x", "B C H W", large_half=1024.0),),
    "out": ("B C H W",),
    "reduction": "C",
    "where": None,
    "empty": False,
}

TASKS = (
    _scaled("l1_normalize", "out[m] = x[m] / mean(|x[m]|)", _l1_normalize, 3, kinks="free", **_BARE),
    _scaled("l2_normalize", "out[m] = x[m] / sqrt(sum(x[m] ** 2))", _l2_normalize, 3, **_BARE),
    _scaled(
        "frobenius_normalize",
        "out = x / sqrt(sum(x ** 2)), the sum over all of x",
        _frobenius_normalize,
        3,
        reduction="M * N",
        where="M * N >= 4",
        empty=False,
        factor=2.0,  # PyTorch adds up strided tensors in turn on CPUs: 1.1 times the bound without
        relations=(permutation("row_permutation", {0: 0}, {0: 0}), _COLUMNS, _FREE),
        **_NOT_ZERO,
    ),
    _scaled(
        "rms_norm_channels",
        "out[b, :, h, w] = x[b, :, h, w] / sqrt(mean(x[b, :, h, w] ** 2) + eps), the mean over channels: pixel norm",
        _rms_norm_channels,
        3,
        plain("eps", 1e-5),
        flops="4 * B * C * H * W",
        relations=(*_BATCH, permutation("channel_permutation", {0: 1}, {0: 1})),
        **_IMAGE,
    ),
    _scaled(
        "local_response_norm",
        "out[b, c] = x[b, c] / (k + alpha * s / size) ** beta, s the sum of x[b, j] ** 2 over j from c - size // 2 to "
        "c + (size - 1) // 2, none outside",
        _local_response_norm,
        8,
        plain("size", 5, among=(1, 2, 3, 4)),
        plain("alpha", 0.5),
        plain("beta", 0.75),
        plain("k", 2.0),
        flops="10 * B * C * H * W",
        relations=_BATCH,
        **{**_IMAGE, "reduction": "5", "dtypes": ("float32", "float64")},  # no half types on CPUs
    ),
    _scaled(
        "renorm",
        "out[m] = x[m] * maxnorm / (|x[m]| + 1e-7) where |x[m]| > maxnorm, else x[m]",
        _rows_at_most,
        3,
        plain("maxnorm", formula="1.25 * N ** 0.5"),
        folded="",
        relations=(
            *_ROWS,
            _COLUMNS,
        ),
    ),
    _scaled(
        "standardize",
        "out[m] = (x[m] - mean(x[m])) / (std(x[m]) + eps), the sum of squares divided by N - 1",
        _standardize,
        7,
        plain("eps", 1e-5),
        relations=(*_ROWS, _COLUMNS, shift("shift_invariance", 0, False)),
        without=("constant",),
        rows=("far_mean",),
        empty=False,  # PyTorch warns about the deviation of nothing
    ),
    _scaled(
        "min_max_normalize",
        "out[m] = (x[m] - min(x[m])) / (max(x[m]) - min(x[m]) + eps)",
        _min_max,
        5,
        plain("eps", 1e-5),
        kinks="free",
        relations=(*_ROWS, _COLUMNS, shift("shift_invariance", 0, False)),
        without=("constant",),
        rows=("far_mean",),
        extreme="rows",
    ),
    _scaled(
        "scale_norm",
        "out[m] = scale * x[m] / max(|x[m]|, eps), one scale for all",
        _scale_norm,
        4,
        plain("eps", 1e-5),
        over=(_X, weight("scale", "one", values="ones_normal")),
        derive={"one": 1},
        epsilon=1e-5,
        source="model",
        relations=(*_ROWS, _COLUMNS, _FREE),
    ),
    _scaled(
        "weight_norm",
        "out[m] = g[m] * v[m] / |v[m]|",
        _weight_norm,
        4,
        over=(data("v", "M N", large_half=1024.0, epsilon=1e-8, epsilon_backward=False), data("g", "M one")),
        derive={"one": 1},
        relations=(
            permutation("row_permutation", {0: 0, 1: 0}, {0: 0}),
            resampling("row_resampling", {0: 0, 1: 0}, {0: 0}),
            _COLUMNS,
            _FREE,
        ),
        empty=False,  # PyTorch divides by the number of rows
        **_NOT_ZERO,
    ),
)

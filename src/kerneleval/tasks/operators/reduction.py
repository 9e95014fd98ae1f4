"""Reductions of the last dim: (M, N) -> (M,)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from kerneleval.records import Relation
from kerneleval.tasks.define import FAR_BELOW, ROWS, data, operator
from kerneleval.tasks.relations import additivity, homogeneity, permutation, resampling, shift

_ROWS = (permutation("row_permutation", {0: 0}, {0: 0}), resampling("row_resampling", {0: 0}, {0: 0}))
_ORDER = permutation("order_within_rows", {0: 1}, {})
_X = (data("x", "M N"),)


def _sum(x: torch.Tensor) -> torch.Tensor:
    return torch.sum(x, dim=-1)


def _amax(x: torch.Tensor) -> torch.Tensor:
    return torch.amax(x, dim=-1)


def _logsumexp(x: torch.Tensor) -> torch.Tensor:
    return torch.logsumexp(x, dim=-1)


def _argmax(x: torch.Tensor) -> torch.Tensor:
    return torch.argmax(x, dim=-1)


def _columns(x: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    return torch.randperm(x.shape[1], generator=generator, device=x.device)


def _moved(outs: Sequence[Any], args: Sequence[Any], generator: torch.Generator) -> list[torch.Tensor]:
    return [torch.argsort(_columns(args[0], generator))[outs[0]]]


_INDEX_FOLLOWS = Relation(
    name="index_follows_permutation",
    transform=lambda args, generator: [args[0].index_select(1, _columns(args[0], generator))],
    expect=_moved,
)

TASKS = (
    operator(
        "sum",
        "reduction",
        "out[i] = sum_j x[i, j]",
        dims=ROWS,
        args=_X,
        out=("M",),
        reference=_sum,
        flops=lambda d: d.M * d.N,
        reduction=lambda d: d.N,
        nonfinite=True,
        empty=True,
        relations=(*_ROWS, _ORDER, additivity(0), homogeneity({0: -2.0}, {0: -2.0})),
    ),
    operator(
        "amax",
        "reduction",
        "out[i] = max_j x[i, j]; NaN wins; the gradient is shared equally between equal maxima",
        dims=ROWS,
        args=_X,
        out=("M",),
        reference=_amax,
        flops=lambda d: d.M * d.N,
        where=lambda d: d.N > 0,
        nonfinite=True,
        empty=True,
        relations=(*_ROWS, _ORDER, shift("shift_equivariance", 0, True), homogeneity({0: 2.0}, {0: 2.0})),
    ),
    operator(
        "logsumexp",
        "reduction",
        "out[i] = log sum_j exp(x[i, j])",
        dims=ROWS,
        args=(data("x", "M N", common=lambda d: FAR_BELOW),),
        out=("M",),
        reference=_logsumexp,
        flops=lambda d: 4 * d.M * d.N,
        reduction=lambda d: d.N,
        where=lambda d: d.N > 0,
        empty=True,
        relations=(*_ROWS, _ORDER, shift("shift_equivariance", 0, True)),
    ),
    operator(
        "argmax",
        "reduction",
        "out[i] = a j for which x[i, j] is largest; NaN wins; any of several equal ones is right",
        dims=ROWS,
        args=_X,
        out=("M: int64",),
        reference=_argmax,
        flops=lambda d: d.M * d.N,
        where=lambda d: d.N > 0,
        nonfinite=True,
        empty=True,
        index_output=True,
        no_backward="the output is an index",
        relations=(*_ROWS, _INDEX_FOLLOWS, homogeneity({0: 2.0}, {})),
    ),
)

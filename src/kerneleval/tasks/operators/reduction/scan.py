"""Scans: each element of the output depends on those up to its place, along the last dim unless stated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the usual name

from kerneleval.records import Arg, Plain, Task, product_text
from kerneleval.tasks.define import (
    COUNTED_ROWS,
    FAR_BELOW,
    LONG_ROWS,
    ROWS,
    data,
    fixed,
    flags,
    mask,
    operator,
    plain,
    size,
    whole,
)
from kerneleval.tasks.operators.reduction.reduction import along
from kerneleval.tasks.relations import additivity, homogeneity, permutation, resampling

__all__ = ["TASKS", "scan", "wide"]

Tensor = torch.Tensor


def scan(
    name: str,
    summary: str,
    reference: Callable[..., Any],
    *plains: Plain,
    given: tuple[Arg, ...] = (),
    over: str = "M N",
    axis: int = 1,
    out: str = "",
    each: int = 1,
    **more: Any,
) -> Task:
    """A task that scans along one dim of ``x``.

    Args:
        name: unique slug.
        summary: one line with the formula.
        reference: the operator in plain PyTorch.
        plains: plain arguments, which come last.
        given: the tensor arguments, where they are not ``x`` alone.
        over: the shape of the arguments.
        axis: the dim scanned.
        out: shape and dtype of the output, where they are not the argument's.
        each: operations for an element.
        more: as ``define.operator`` takes it.
    """
    dims = over.split()
    args = given or (data("x", over, along=dims[axis]),)
    found = []
    for dim, letter in enumerate(dims):
        if dim != axis:
            where = {i: arg.shape.split().index(letter) for i, arg in enumerate(args) if letter in arg.shape.split()}
            found.append(permutation(f"{letter.lower()}_permutation", where, {0: dim}))
            found.append(resampling(f"{letter.lower()}_resampling", where, {0: dim}))
    length = dims[axis]
    settings: dict[str, Any] = {
        "dims": ROWS if over == "M N" else (size("B", high=64), size("L", high=2048), size("D", high=2048)),
        "reduction": f"{length}",
        "empty": True,
        "group": "Math",
        "complexity": 2,
        "folded": dims[0] if axis in (-1, len(dims) - 1) else dims[-1],
        **more,
    }
    return operator(
        name,
        "reduction",
        summary,
        args=(*args, *plains),
        out=(out or over,),
        reference=reference,
        flops=f"{each} * {product_text(over)}",
        common_relations=found,
        **settings,
    )


def _cumsum_reverse(x: Tensor) -> Tensor:
    return x.flip(-1).cumsum(-1).flip(-1)


def _cumsum_exclusive(x: Tensor) -> Tensor:
    return F.pad(x[..., :-1].cumsum(-1), (1, 0))


def _cumprod_exclusive(x: Tensor) -> Tensor:
    return F.pad(x[..., :-1].cumprod(-1), (1, 0), value=1.0)


def _cumsum_masked(x: Tensor, mask: Tensor) -> Tensor:
    return x.masked_fill(~mask, 0).cumsum(-1)


def _cumulative_mean(x: Tensor) -> Tensor:
    return x.cumsum(-1) / torch.arange(1, x.shape[-1] + 1, device=x.device, dtype=x.dtype)


def _cumsum_chunked(x: Tensor, chunk: int) -> Any:
    return x.unflatten(-1, (x.shape[-1] // chunk, chunk)).cumsum(-1).flatten(1)


def _segmented(x: Tensor, starts: Tensor) -> Tensor:
    total, keep = x.clone(), ~starts
    step = 1
    while step < x.shape[-1]:  # what lies a step back is added where no segment starts between
        total = total + F.pad(total[:, :-step], (step, 0)).masked_fill(~keep, 0)
        keep = keep & F.pad(keep[:, :-step], (step, 0))
        step *= 2
    return total


def _recurrence(a: Tensor, b: Tensor) -> Tensor:
    """h[l] = a[l] * h[l - 1] + b[l] along dim 1 of three, 0 before the first, by doubling."""
    step = 1
    while step < b.shape[1]:
        b = b + a * F.pad(b[:, :-step], (0, 0, step, 0))
        a = a * F.pad(a[:, :-step], (0, 0, step, 0))
        step *= 2
    return b


def _decayed(x: Tensor, by: float) -> Tensor:
    """h[n] = by * h[n - 1] + x[n] along the last dim, 0 before the first, by doubling."""
    step = 1
    while step < x.shape[-1]:
        x = x + by**step * F.pad(x[:, :-step], (step, 0))
        step *= 2
    return x


def wide(tensor: Tensor) -> Tensor:
    """Half types as fp32, others as they are."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


def _linear_recurrence(a: Tensor, b: Tensor, start: Tensor) -> Tensor:
    a, first = wide(a), wide(b)
    first = torch.cat((first[:, :1] + a[:, :1] * wide(start)[:, None], first[:, 1:]), 1)
    return _recurrence(a, first).to(b.dtype)


def _min_gru(gate: Tensor, x: Tensor) -> Tensor:
    z = wide(gate)
    return _recurrence(torch.sigmoid(-z), torch.sigmoid(z) * wide(x)).to(x.dtype)


def _ema(x: Tensor, alpha: float) -> Tensor:
    x32 = wide(x)
    return _decayed(torch.cat((x32[:, :1], alpha * x32[:, 1:]), 1), 1 - alpha).to(x.dtype)


def _discounted(x: Tensor, gamma: float) -> Tensor:
    return _decayed(wide(x).flip(1), gamma).flip(1).to(x.dtype)


def _trapezoid(x: Tensor, dx: float) -> Tensor:
    return torch.cumulative_trapezoid(x, dx=dx, dim=-1)


def _second_difference(x: Tensor) -> Tensor:
    return torch.diff(x, n=2, dim=-1)


_SCALED: Any = {"relations": (homogeneity({0: -2.0}, {0: -2.0}),)}
_LINEAR: Any = {"relations": (*_SCALED["relations"], additivity(0))}
_EXACT: Any = {"exact": True, "reduction": None}
_TIES: Any = {
    **_EXACT,
    "nonfinite": True,
    "relations": (homogeneity({0: 2.0}, {0: 2.0}),),
    "no_backward": "which of equal elements takes the gradient is not defined",
    "rows": ("ordered",),
}
_NEAR_ONE: Any = {
    "given": (data("x", "M N", values="ones_normal", along="N"),),
    "dims": (size("M"), size("N", high=512)),
    "without": ("large_scale", "small_scale"),  # powers of these overflow
}
_SEQUENCE: Any = {"over": "B L D", "axis": 1}
_DOUBLED: Any = {**_SEQUENCE, "level": 2, "source": "model"}

TASKS = (
    scan("cumsum", "out[m, n] = sum_{i <= n} x[m, i]", along(torch.cumsum, -1), dims=LONG_ROWS, **_LINEAR),
    scan("cumsum_dim0", "out[m, n] = sum_{i <= m} x[i, n]", along(torch.cumsum, 0), axis=0, **_SCALED),
    scan("cumsum_middle", "out[b, l, d] = sum_{i <= l} x[b, i, d]", along(torch.cumsum, 1), **_SEQUENCE, **_LINEAR),
    scan("cumsum_reverse", "out[m, n] = sum_{i >= n} x[m, i]", _cumsum_reverse, **_LINEAR),
    scan("cumsum_exclusive", "out[m, n] = sum_{i < n} x[m, i]", _cumsum_exclusive, **_LINEAR),
    scan(
        "cumsum_masked",
        "out[m, n] = sum of x[m, i] over i <= n with mask[m, i]",
        _cumsum_masked,
        given=(data("x", "M N", along="N"), mask("mask", "M N")),
        each=2,
        **_SCALED,
    ),
    scan(
        "cumsum_chunked",
        "out[m, n] = sum of x[m, i] over i <= n in the chunk of n; chunks of equal length",
        _cumsum_chunked,
        plain("chunk", formula="C"),
        given=(data("x", "M length"),),
        out="M length",
        dims=(size("M"), size("N", high=512), fixed("C", high=64)),
        derive={"length": "N * C"},
        over="M length",
        where="C > 0",
        source="model",
        folded="",
        **{**_LINEAR, "reduction": "C"},
    ),
    scan(
        "cumsum_segmented",
        "out[m, n] = sum of x[m, i] from the last i <= n with starts[m, i], or the first one, to n",
        _segmented,
        given=(data("x", "M N", along="N"), flags("starts", "M N")),
        each=2,
        level=2,
        folded="",
        **_SCALED,
    ),
    scan(
        "cumsum_integers",
        "out[m, n] = sum_{i <= n} x[m, i], whole numbers, in int64",
        along(torch.cumsum, -1),
        given=(whole("x", "M N", -100, 100, wide=52),),
        out="M N: int64",
        dtypes=("int32", "int64", "int8"),
        **{**_EXACT, "no_backward": "whole numbers have no gradient"},
    ),
    scan(
        "cumsum_flags",
        "out[m, n] = how many x[m, i] are True for i <= n: places of what is kept",
        along(torch.cumsum, -1),
        given=(flags("x", "M N"),),
        rows=("full",),
        dims=COUNTED_ROWS,
        out="M N: int64",
        dtypes=("float32",),
        **{**_EXACT, "no_backward": "flags have no gradient"},
    ),
    scan(
        "cumulative_mean",
        "out[m, n] = sum_{i <= n} x[m, i] / (n + 1)",
        _cumulative_mean,
        each=2,
        level=2,
        dtypes=("float32", "float64"),  # half types do not hold the counts
        **_LINEAR,
    ),
    scan("cumprod", "out[m, n] = prod_{i <= n} x[m, i]", along(torch.cumprod, -1), **_NEAR_ONE),
    scan("cumprod_exclusive", "out[m, n] = prod_{i < n} x[m, i]", _cumprod_exclusive, **_NEAR_ONE),
    scan("cummax", "out[m, n] = max_{i <= n} x[m, i]; NaN wins", along(torch.cummax, -1, 0), **_TIES),
    scan("cummin", "out[m, n] = min_{i <= n} x[m, i]; NaN wins", along(torch.cummin, -1, 0), **_TIES),
    scan(
        "cummax_middle",
        "out[b, l, d] = max_{i <= l} x[b, i, d]; NaN wins",
        along(torch.cummax, 1, 0),
        **_SEQUENCE,
        **_TIES,
    ),
    scan(
        "logcumsumexp",
        "out[m, n] = log sum_{i <= n} exp(x[m, i])",
        along(torch.logcumsumexp, -1),
        given=(data("x", "M N", common=f"{FAR_BELOW}", nonfinite="masked_nan"),),
        rows=("ordered",),
        each=4,
    ),
    scan(
        "diff",
        "out[m, n] = x[m, n + 1] - x[m, n]",
        along(torch.diff, -1),
        nonfinite=True,
        out="M less",
        derive={"less": "N - 1"},
        where="N > 1",
        complexity=1,
        **{**_LINEAR, "reduction": "2"},
    ),
    scan(
        "second_difference",
        "out[m, n] = x[m, n + 2] - 2 x[m, n + 1] + x[m, n]",
        _second_difference,
        nonfinite=True,
        out="M less",
        derive={"less": "N - 2"},
        where="N > 2",
        each=3,
        complexity=1,
        **{**_LINEAR, "reduction": "3"},
    ),
    scan(
        "cumulative_trapezoid",
        "out[m, n] = dx * sum_{i <= n} (x[m, i] + x[m, i + 1]) / 2",
        _trapezoid,
        plain("dx", 0.25),
        out="M less",
        derive={"less": "N - 1"},
        where="N > 1",
        each=4,
        **_LINEAR,
    ),
    scan(
        "ema",
        "out[m, 0] = x[m, 0], out[m, n] = (1 - alpha) * out[m, n - 1] + alpha * x[m, n]",
        _ema,
        plain("alpha", formula="min(0.125, 8 / max(1, N))"),
        each=3,
        level=2,
        folded="",
        **_LINEAR,
    ),
    scan(
        "discounted_returns",
        "out[m, n] = x[m, n] + gamma * out[m, n + 1], 0 behind the last",
        _discounted,
        plain("gamma", formula="1 - min(0.03125, 8 / max(1, N))"),
        each=2,
        level=2,
        source="model",
        folded="",
        **_LINEAR,
    ),
    scan(
        "linear_recurrence",
        "out[b, l, d] = a[b, l, d] * out[b, l - 1, d] + b[b, l, d], start[b, d] before the first",
        _linear_recurrence,
        given=(
            data("a", "B L D", values="uniform", slow=(2.0**-10, 1 - 2.0**-10)),
            data("b", "B L D", along="L"),
            data("start", "B D"),
        ),
        rows=("long_memory",),
        each=2,
        without=("outlier", "large_scale"),
        relations=(homogeneity({1: -2.0, 2: -2.0}, {0: -2.0}),),
        folded="",
        **_DOUBLED,
    ),
    scan(
        "min_gru",
        "out[b, l, d] = (1 - z) * out[b, l - 1, d] + z * x[b, l, d], z = sigmoid(gate[b, l, d]), 0 before the first",
        _min_gru,
        given=(data("gate", "B L D", slow=(1.0, -7.0)), data("x", "B L D", along="L")),
        rows=("long_memory",),
        each=7,
        relations=(homogeneity({1: -2.0}, {0: -2.0}),),
        folded="",
        **_DOUBLED,
    ),
)

"""Reductions of the last, the first or the middle dim, or of all: (M, N) -> (M,), (N,) or (), (B, M, N) -> (B, N)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from kerneleval.records import Arg, Plain, Relation, Task, product_text
from kerneleval.tasks.define import COUNTED_ROWS, FAR_BELOW, LONG_ROWS, MOST_NAMED, data, operator, size
from kerneleval.tasks.relations import additivity, homogeneity, mapping, permutation, resampling, shift

__all__ = ["TASKS", "along", "reduced"]

Tensor = torch.Tensor
_AXES = {
    "last": ("M N", "M", "N"),
    "first": ("M N", "N", "M"),
    "middle": ("B M N", "B N", "M"),
    "all": ("M N", "", "M N"),
}
"""Shape of the input, shape of the output, dims reduced."""
_KIND = {"B": "batch", "M": "row", "N": "column"}


def _aminmax(x: Tensor) -> tuple[Tensor, Tensor]:
    return x.amin(-1), x.amax(-1)  # torch.aminmax has gradients from PyTorch 2.12 on


def _sum(x: Tensor) -> Tensor:
    return torch.sum(x, -1)


def _amax(x: Tensor) -> Tensor:
    return torch.amax(x, -1)


def _argmax(x: Tensor) -> Tensor:
    return torch.argmax(x, -1)


def _logsumexp(x: Tensor) -> Tensor:
    return torch.logsumexp(x, -1)


def along(function: Callable[..., Any], dim: int, take: int | None = None, **settings: Any) -> Callable[..., Any]:
    """A function of PyTorch along one dim, which bears its name; of several outputs the one to take."""

    def call(x: Tensor, *rest: Any) -> Any:
        found = function(x, *rest, dim=dim, **settings)
        return found if take is None else found[take]

    call.__name__ = function.__name__
    return call


def _relations(over: str, count: int, *, ordered: bool) -> list[Relation]:
    """Metamorphic relations of a reduction with ``count`` outputs.

    Permuting or resampling a dim that stays does the same to every output. The order within a reduced dim does not
    matter, unless the reduction is ``ordered``.
    """
    shape, left, gone = _AXES[over]
    dims = shape.split()
    relations = []
    for place, dim in enumerate(left.split()):
        to = dict.fromkeys(range(count), place)
        relations.append(permutation(f"{_KIND[dim]}_permutation", {0: dims.index(dim)}, to))
        relations.append(resampling(f"{_KIND[dim]}_resampling", {0: dims.index(dim)}, to))
    if not ordered:
        of = {"last": "rows", "first": "columns", "middle": "columns"}
        relations += [
            permutation(f"order_within_{of.get(over, _KIND[dim] + 's')}", {0: dims.index(dim)}, {})
            for dim in gone.split()
        ]
    return relations


def reduced(
    name: str,
    summary: str,
    reference: Callable[..., Any],
    *plains: Plain,
    over: str = "last",
    given: Arg | None = None,
    each: int = 1,
    least: int = 0,
    scaling: tuple[float, float] | None = None,
    **more: Any,
) -> Task:
    """A task that reduces ``x``.

    Args:
        name: unique slug.
        summary: one line with the formula.
        reference: the operator in plain PyTorch.
        plains: plain arguments, which come last.
        over: the dims reduced, a key of ``_AXES``.
        given: the argument, where it is not ``x`` with normal data.
        each: operations for an element.
        least: the fewest elements of which it is defined and well-conditioned.
        scaling: a power of two by which the argument may be multiplied, and what the outputs are multiplied by then.
        more: as ``define.operator`` takes it.
    """
    shape, left, gone = _AXES[over]
    named = MOST_NAMED if more.get("index_output") else 0
    settings: dict[str, Any] = {
        "dims": tuple(
            size(dim, high=1024 if dim == "B" else 8192, long=named if dim in gone.split() else 0)
            for dim in shape.split()
        ),
        "out": (f"{left}: int64" if named else left,),
        "reduction": product_text(gone),
        "nonfinite": True,
        "empty": True,
        "folded": "M" if over in ("last", "all") else "N",
        **more,
    }
    if least:
        settings.setdefault("where", f"{product_text(gone)} >= {least}")
    count = len(settings["out"])
    relations = _relations(over, count, ordered=bool(settings.get("index_output")))
    if scaling:
        relations.append(homogeneity({0: scaling[0]}, dict.fromkeys(range(count), scaling[1])))
    return operator(
        name,
        "reduction",
        summary,
        args=(given or data("x", shape, along=gone), *plains),
        reference=reference,
        flops=f"{each} * {product_text(shape)}",
        common_relations=relations,
        **settings,
    )


def _log_mean_exp(x: Tensor) -> Tensor:
    return torch.logsumexp(x, -1) - math.log(x.shape[-1])


def _sum_of_squares(x: Tensor) -> Tensor:
    return x.square().sum(-1)


def _mean_of_squares(x: Tensor) -> Tensor:
    return x.square().mean(-1)


def _norm(x: Tensor, p: float) -> Any:
    return torch.linalg.vector_norm(x, p, -1)


def _l1_norm(x: Tensor) -> Any:
    return _norm(x, 1.0)


def _infinity_norm(x: Tensor) -> Any:
    return _norm(x, math.inf)


def _columns(x: Tensor, generator: torch.Generator) -> Tensor:
    return torch.randperm(x.shape[1], generator=generator, device=x.device)


def _moved(outs: Sequence[Any], args: Sequence[Any], generator: torch.Generator) -> list[Tensor]:
    return [torch.argsort(_columns(args[0], generator))[outs[0]]]


_INDEX_FOLLOWS = Relation(
    name="index_follows_permutation",
    transform=lambda args, generator: [args[0].index_select(1, _columns(args[0], generator))],
    expect=_moved,
)
_SHIFT = shift("shift_equivariance", 0, True)
_KEPT = shift("shift_invariance", 0, False)
_SUM: Any = {"scaling": (-2.0, -2.0), "nonfinite": "nan"}
_MEAN: Any = {**_SUM, "least": 1}
_EXTREME: Any = {"scaling": (2.0, 2.0), "least": 1, "reduction": None, "rows": ("ordered",)}
_INDEX: Any = {
    "scaling": (2.0, 1),  # a whole number, as the output
    "least": 1,
    "index_output": True,
    "no_backward": "the output is an index",
    "rows": ("ordered",),
    "extreme": "rows",
}
_PROD: Any = {"without": ("large_scale", "small_scale")}  # powers of these overflow
_SPREAD: Any = {
    "each": 4,
    "least": 2,
    "nonfinite": "nan",
    "without": ("constant",),  # what is left of equal numbers is rounding noise
    "empty": False,  # PyTorch warns of them
    "complexity": 2,
    "rows": ("far_mean",),
}
_SHARED = "; NaN wins; the gradient is shared equally between equal "


TASKS = (
    reduced("sum", "out[m] = sum_n x[m, n]", _sum, relations=(additivity(0),), dims=LONG_ROWS, **_SUM),
    reduced("sum_dim0", "out[n] = sum_m x[m, n]", along(torch.sum, 0), over="first", **_SUM),
    reduced(
        "sum_middle",
        "out[b, n] = sum_m x[b, m, n]",
        along(torch.sum, 1),
        over="middle",
        relations=(additivity(0),),
        **_SUM,
    ),
    reduced("sum_all", "out = sum_{m, n} x[m, n], a tensor of no dims", torch.sum, over="all", **_SUM),
    reduced(
        "mean",
        "out[m] = sum_n x[m, n] / N",
        along(torch.mean, -1),
        relations=(additivity(0), _SHIFT),
        dims=LONG_ROWS,
        **_MEAN,
    ),
    reduced("mean_dim0", "out[n] = sum_m x[m, n] / M", along(torch.mean, 0), over="first", **_MEAN),
    reduced(
        "mean_middle",
        "out[b, n] = sum_m x[b, m, n] / M",
        along(torch.mean, 1),
        over="middle",
        relations=(additivity(0),),
        **_MEAN,
    ),
    reduced("mean_all", "out = sum_{m, n} x[m, n] / (M N), a tensor of no dims", torch.mean, over="all", **_MEAN),
    reduced(
        "nansum",
        "out[m] = sum_n x[m, n] over what is not NaN",
        along(torch.nansum, -1),
        given=data("x", "M N", along="N", missing=True),
        **_SUM,
    ),
    reduced(
        "nanmean",
        "out[m] = the mean of x[m, n] over what is not NaN; NaN where there is nothing else",
        along(torch.nanmean, -1),
        given=data("x", "M N", along="N", missing=True),
        rows=("full",),
        dims=COUNTED_ROWS,
        each=2,
        **_MEAN,
    ),
    reduced("amax", f"out[m] = max_n x[m, n]{_SHARED}maxima", _amax, relations=(_SHIFT,), dims=LONG_ROWS, **_EXTREME),
    reduced("amin", f"out[m] = min_n x[m, n]{_SHARED}minima", along(torch.amin, -1), relations=(_SHIFT,), **_EXTREME),
    reduced("amax_dim0", f"out[n] = max_m x[m, n]{_SHARED}maxima", along(torch.amax, 0), over="first", **_EXTREME),
    reduced(
        "amax_middle", f"out[b, n] = max_m x[b, m, n]{_SHARED}maxima", along(torch.amax, 1), over="middle", **_EXTREME
    ),
    reduced(
        "amin_middle", f"out[b, n] = min_m x[b, m, n]{_SHARED}minima", along(torch.amin, 1), over="middle", **_EXTREME
    ),
    reduced(
        "amax_all",
        f"out = max_{{m, n}} x[m, n]{_SHARED}maxima",
        torch.amax,
        over="all",
        given=data("x", "M N", one_sided="all", extreme="rows"),
        **_EXTREME,
    ),
    reduced(
        "aminmax",
        f"out0[m], out1[m] = min_n x[m, n], max_n x[m, n]{_SHARED}ones",
        _aminmax,
        out=("M", "M"),
        each=2,
        relations=(mapping("reflection", lambda x: [-x], lambda outs, _: [-outs[1], -outs[0]]),),
        **_EXTREME,
    ),
    reduced(
        "argmax",
        "out[m] = an n for which x[m, n] is largest; NaN wins; any of several equal ones is right",
        _argmax,
        relations=(_INDEX_FOLLOWS,),
        **_INDEX,
    ),
    reduced(
        "argmin",
        "out[m] = an n for which x[m, n] is smallest; NaN wins; any of several equal ones is right",
        along(torch.argmin, -1),
        relations=(_INDEX_FOLLOWS,),
        **_INDEX,
    ),
    reduced(
        "argmax_dim0",
        "out[n] = an m for which x[m, n] is largest; NaN wins; any of several equal ones is right",
        along(torch.argmax, 0),
        over="first",
        **_INDEX,
    ),
    reduced(
        "argmax_middle",
        "out[b, n] = an m for which x[b, m, n] is largest; NaN wins; any of several equal ones is right",
        along(torch.argmax, 1),
        over="middle",
        **_INDEX,
    ),
    reduced(
        "argmin_middle",
        "out[b, n] = an m for which x[b, m, n] is smallest; NaN wins; any of several equal ones is right",
        along(torch.argmin, 1),
        over="middle",
        **_INDEX,
    ),
    reduced(
        "prod",
        "out[m] = prod_n x[m, n]",
        along(torch.prod, -1),
        given=data("x", "M N", values="ones_normal", along="N"),
        dims=(size("M"), size("N", high=512)),
        **_PROD,
    ),
    reduced(
        "prod_middle",
        "out[b, n] = prod_m x[b, m, n]",
        along(torch.prod, 1),
        over="middle",
        dims=(size("B", high=1024), size("M", high=8), size("N")),
        **_PROD,
    ),
    reduced(
        "var",
        "out[m] = sum_n (x[m, n] - mean[m]) ** 2 / (N - 1)",
        along(torch.var, -1),
        scaling=(-2.0, 4.0),
        relations=(_KEPT,),
        **_SPREAD,
    ),
    reduced(
        "var_population",
        "out[m] = sum_n (x[m, n] - mean[m]) ** 2 / N",
        along(torch.var, -1, correction=0),
        scaling=(-2.0, 4.0),
        relations=(_KEPT,),
        **_SPREAD,
    ),
    reduced(
        "std",
        "out[m] = sqrt(sum_n (x[m, n] - mean[m]) ** 2 / (N - 1)); the gradient is 0 where it is",
        along(torch.std, -1),
        scaling=(-2.0, 2.0),
        relations=(_KEPT,),
        **_SPREAD,
    ),
    reduced(
        "std_population",
        "out[m] = sqrt(sum_n (x[m, n] - mean[m]) ** 2 / N); the gradient is 0 where it is",
        along(torch.std, -1, correction=0),
        scaling=(-2.0, 2.0),
        relations=(_KEPT,),
        **_SPREAD,
    ),
    reduced(
        "var_middle",
        "out[b, n] = sum_m (x[b, m, n] - mean[b, n]) ** 2 / (M - 1)",
        along(torch.var, 1),
        over="middle",
        scaling=(-2.0, 4.0),
        **_SPREAD,
    ),
    reduced(
        "var_mean",
        "out0[m], out1[m] = sum_n (x[m, n] - mean[m]) ** 2 / (N - 1), mean[m]",
        along(torch.var_mean, -1),
        out=("M", "M"),
        **_SPREAD,
    ),
    reduced(
        "std_mean",
        "out0[m], out1[m] = sqrt(sum_n (x[m, n] - mean[m]) ** 2 / (N - 1)), mean[m]",
        along(torch.std_mean, -1),
        out=("M", "M"),
        scaling=(2.0, 2.0),
        **_SPREAD,
    ),
    reduced(
        "l1_norm",
        "out[m] = sum_n |x[m, n]|; the gradient is 0 where x is",
        _l1_norm,
        given=data("x", "M N", large_half=2.0, along="N"),
        each=2,
        nonfinite="nan",
        scaling=(-2.0, 2.0),
    ),
    reduced(
        "infinity_norm",
        "out[m] = max_n |x[m, n]|; NaN wins; equal ones share the gradient, which is 0 where x is",
        _infinity_norm,
        each=2,
        **{**_EXTREME, "scaling": (-2.0, 2.0)},
    ),
    reduced(
        "sum_of_squares",
        "out[m] = sum_n x[m, n] ** 2",
        _sum_of_squares,
        each=2,
        scaling=(-2.0, 4.0),
        dtypes=("float32", "bfloat16"),  # overflows in float16
        nonfinite="nan",
        level=2,
    ),
    reduced(
        "mean_of_squares",
        "out[m] = sum_n x[m, n] ** 2 / N",
        _mean_of_squares,
        each=2,
        nonfinite="nan",
        scaling=(-2.0, 4.0),
        least=1,
        level=2,
        source="model",
    ),
    reduced(
        "logsumexp",
        "out[m] = log sum_n exp(x[m, n])",
        _logsumexp,
        dims=LONG_ROWS,
        given=data("x", "M N", common=f"{FAR_BELOW}", along="N"),
        each=4,
        least=1,
        nonfinite="masked_nan",
        extreme="rows",
        relations=(_SHIFT,),
    ),
    reduced(
        "logsumexp_middle",
        "out[b, n] = log sum_m exp(x[b, m, n])",
        along(torch.logsumexp, 1),
        over="middle",
        given=data("x", "B M N", common=f"{FAR_BELOW}", along="M"),
        each=4,
        least=1,
        nonfinite="masked_nan",
        extreme="rows",
    ),
    reduced(
        "log_mean_exp",
        "out[m] = log (sum_n exp(x[m, n]) / N)",
        _log_mean_exp,
        given=data("x", "M N", common=f"{FAR_BELOW}", along="N"),
        each=4,
        least=1,
        nonfinite="masked_nan",
        extreme="rows",
        relations=(_SHIFT,),
        level=2,
    ),
)

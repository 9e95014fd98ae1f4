"""Operators of which every output element depends on the elements at its own place alone, a line or two each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from kerneleval.records import Arg, Plain, Relation, Task, Values
from kerneleval.tasks.define import ROWS, data, operator
from kerneleval.tasks.relations import mapping, permutation, resampling

FLAT = "its gradient is zero wherever it has one"
"""Why steps and comparisons have no backward."""

ODD = mapping("odd", lambda x, *rest: (-x, *rest), lambda outs, _: [-o for o in outs])
"""f(-x) = -f(x)."""

EVEN = mapping("even", lambda x, *rest: (-x, *rest), lambda outs, _: outs)
"""f(-x) = f(x)."""

COMMUTATIVE = mapping("commutativity", lambda x, y, *rest: (y, x, *rest), lambda outs, _: outs)
"""The first two arguments may change places."""

_BOUNDED: dict[Values, tuple[str, ...]] = {
    "uniform": ("outlier", "large_scale"),
    "symmetric": ("outlier", "large_scale"),
    "above_one": ("small_scale",),
}
"""Distributions whose numbers are outside of where the operator is defined."""


def pointwise(
    name: str,
    summary: str,
    reference: Callable[..., Any],
    each: int,
    *plains: Plain,
    over: Sequence[str | Arg] = ("x",),
    values: Values = "normal",
    out: str = "",
    without: tuple[str, ...] = (),
    **more: Any,
) -> Task:
    """A task over (M, N); other arguments are as ``define.operator`` takes them.

    ``reference`` is the operator in plain PyTorch, ``each`` the operations for an element, ``plains`` are plain
    arguments, which come last. ``over`` has the tensor arguments, or their names: these are drawn as ``values`` says.
    ``out`` is the output's dtype where it is not the case's, ``without`` distributions left out besides those outside
    of ``values``.
    """
    args = tuple(data(a, "M N", values=values) if isinstance(a, str) else a for a in over)
    numbers = [arg for arg in args if arg.role == "data" and arg.values not in ("integers", "bits", "bool")]
    if len(numbers) == 1:  # formulas of several arguments, all of them right, differ about infinities
        more.setdefault("nonfinite", "limits")
        ends = more.get("extreme") in (True, "small")
        args = tuple(replace(a, nearing=a in numbers and not ends) for a in args)
    if all(arg.shape in ("M N", "N", "one", "") for arg in args):
        more.setdefault("folded", "M")
    found = []
    for name_of, kind, dim in (("row", "M", 0), ("column", "N", 1)):
        along = {i: arg.shape.split().index(kind) for i, arg in enumerate(args) if kind in arg.shape.split()}
        found.append(permutation(f"{name_of}_permutation", along, {0: dim}))
        if dim == 0:
            found.append(resampling("row_resampling", along, {0: 0}))
    return operator(
        name,
        "elementwise",
        summary,
        dims=ROWS,
        args=(*args, *plains),
        out=(f"M N: {out}" if out else "M N",),
        reference=reference,
        flops=f"{each} * M * N",
        without=(*_BOUNDED.get(values, ()), *without),
        empty=True,
        common_relations=found,
        **more,
    )


def bent(*borders: float, beside: bool = True) -> dict[str, Any]:
    """The argument of a function that has another formula from these numbers on; ``beside`` as ``Arg`` has it."""
    return {"over": (data("x", "M N", borders=borders, beside=beside),)}


def reflected(of: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> Relation:
    """f(-x) = of(f(x), x)."""
    return mapping("reflection", lambda x, *rest: (-x, *rest), lambda outs, args: [of(outs[0], args[0])])

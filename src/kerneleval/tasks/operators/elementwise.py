"""Elementwise operators over (M, N): every output element depends on the elements at its own place alone."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 - the usual name

from kerneleval.tasks.define import ROWS, data, operator
from kerneleval.tasks.relations import mapping, permutation, resampling

_UNARY = (
    permutation("row_permutation", {0: 0}, {0: 0}),
    permutation("column_permutation", {0: 1}, {0: 1}),
    resampling("row_resampling", {0: 0}, {0: 0}),
)
_REFLECTION = mapping("reflection", lambda x: (-x,), lambda outs, args: (outs[0] - args[0],))  # f(-x) = f(x) - x

TASKS = (
    operator(
        "add",
        "elementwise",
        "out = x + y",
        dims=ROWS,
        args=(data("x", "M N"), data("y", "M N")),
        out=("M N",),
        reference=torch.add,
        flops=lambda d: d.M * d.N,
        nonfinite=True,
        empty=True,
        relations=(
            permutation("row_permutation", {0: 0, 1: 0}, {0: 0}),
            permutation("column_permutation", {0: 1, 1: 1}, {0: 1}),
            resampling("row_resampling", {0: 0, 1: 0}, {0: 0}),
            mapping("commutativity", lambda x, y: (y, x), lambda outs, args: outs),
            mapping("negation", lambda x, y: (-x, -y), lambda outs, args: (-outs[0],)),
        ),
    ),
    operator(
        # Of what is not finite NaN alone: PyTorch itself gives gelu(inf) = inf in float64, NaN in float32 (oneDNN).
        "gelu",
        "elementwise",
        "out = x * Phi(x) with the normal distribution function Phi, exact (erf), not the tanh approximation",
        dims=ROWS,
        args=(data("x", "M N"),),
        out=("M N",),
        reference=F.gelu,
        flops=lambda d: 5 * d.M * d.N,
        empty=True,
        relations=(*_UNARY, _REFLECTION),
    ),
    operator(
        "silu",
        "elementwise",
        "out = x * sigmoid(x)",
        dims=ROWS,
        args=(data("x", "M N"),),
        out=("M N",),
        reference=F.silu,
        flops=lambda d: 4 * d.M * d.N,
        nonfinite="nan",
        empty=True,
        relations=(*_UNARY, _REFLECTION),
    ),
    operator(
        "exp",
        "elementwise",
        "out = e ** x",
        dims=ROWS,
        args=(data("x", "M N"),),
        out=("M N",),
        reference=torch.exp,
        flops=lambda d: d.M * d.N,
        without=("large_scale",),  # half of it overflows, and an upstream gradient of 0 then makes NaN
        nonfinite=True,
        empty=True,
        relations=(*_UNARY, mapping("reciprocal", lambda x: (-x,), lambda outs, args: (1 / outs[0],))),
    ),
)

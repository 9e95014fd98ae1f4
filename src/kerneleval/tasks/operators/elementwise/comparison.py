"""Comparisons, tests and choices, over (M, N)."""

from __future__ import annotations

from typing import Any

import torch

from kerneleval.tasks.define import data, flags, plain, whole
from kerneleval.tasks.pointwise import COMMUTATIVE, bent, pointwise
from kerneleval.tasks.relations import mapping

_FLAG: Any = {"out": "bool", "exact": True, "no_backward": "the output is a flag"}
_NUMBERS: Any = {
    "over": (data("x", "M N"), data("y", "M N")),
    "nonfinite": True,
    "without": ("small_scale",),
    **_FLAG,
}
_SPECIAL: Any = {
    "over": (data("x", "M N", values="special"),),
    "without": ("zeros", "constant"),
    **_FLAG,
}
_WHOLE: Any = {
    "over": (whole("x", "M N", 0, 4, wide=64), whole("y", "M N", 0, 4, wide=64)),
    "dtypes": ("int32", "int64", "int8", "uint8"),
    **_FLAG,
}
_COUNTS: Any = {
    "over": (whole("x", "M N", -2, 3, wide=64), whole("y", "M N", -2, 3, wide=64)),
    "dtypes": ("int32", "int64", "int8"),
    **_FLAG,
}
_FLAGS: Any = {"over": (flags("x", "M N"), flags("y", "M N")), "dtypes": ("bool",), **_FLAG}


def _where(condition: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.where(condition, x, y)


def _masked_fill(x: torch.Tensor, where: torch.Tensor, value: float) -> torch.Tensor:
    return torch.masked_fill(x, where, value)


TASKS = (
    pointwise("eq", "out = whether x = y, whole numbers", torch.eq, 1, relations=(COMMUTATIVE,), **_WHOLE),
    pointwise("ne", "out = whether x differs from y, whole numbers", torch.ne, 1, relations=(COMMUTATIVE,), **_COUNTS),
    pointwise("lt", "out = whether x < y; false beside a NaN", torch.lt, 1, **_NUMBERS),
    pointwise("le", "out = whether x <= y; false beside a NaN", torch.le, 1, **_NUMBERS),
    pointwise("gt", "out = whether x > y; false beside a NaN", torch.gt, 1, **_NUMBERS),
    pointwise("ge", "out = whether x >= y; false beside a NaN", torch.ge, 1, **_NUMBERS),
    pointwise(
        "gt_scalar",
        "out = whether x > value",
        torch.gt,
        1,
        plain("value", 0.25),
        nonfinite=True,
        **bent(0.25),
        **_FLAG,
    ),
    pointwise("isnan", "out = whether x is NaN", torch.isnan, 1, **_SPECIAL),
    pointwise("isinf", "out = whether x is infinite", torch.isinf, 1, **_SPECIAL),
    pointwise("isfinite", "out = whether x is a finite number", torch.isfinite, 1, **_SPECIAL),
    pointwise(
        "logical_and", "out = whether x and y are both true", torch.logical_and, 1, relations=(COMMUTATIVE,), **_FLAGS
    ),
    pointwise("logical_or", "out = whether x or y is true", torch.logical_or, 1, relations=(COMMUTATIVE,), **_FLAGS),
    pointwise(
        "logical_xor", "out = whether one of x and y is true", torch.logical_xor, 1, relations=(COMMUTATIVE,), **_FLAGS
    ),
    pointwise(
        "logical_not",
        "out = whether x is 0",
        torch.logical_not,
        1,
        over=(whole("x", "M N", -1, 2, wide=64),),
        dtypes=("int32", "int64", "int8"),
        **_FLAG,
    ),
    pointwise(
        "where",
        "out = x where the condition holds, else y",
        _where,
        1,
        over=(flags("condition", "M N"), "x", "y"),
        nonfinite=True,
        exact=True,
        relations=(mapping("negation", lambda c, x, y: (~c, y, x), lambda outs, _: outs),),
    ),
    pointwise(
        "masked_fill",
        "out = value where the flag is set, else x",
        _masked_fill,
        1,
        plain("value", -1.5),
        over=("x", flags("where", "M N")),
        nonfinite=True,
        exact=True,
    ),
)

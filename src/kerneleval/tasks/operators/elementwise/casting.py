"""Numbers converted to other types, over (M, N)."""

from __future__ import annotations

from typing import Any

import torch

from kerneleval.tasks.define import INTEGERS, bits, whole
from kerneleval.tasks.pointwise import FLAT, ODD, pointwise

Tensor = torch.Tensor
_FIXED: Any = {"exact": True, "nonfinite": False}


def _to_float16(x: Tensor) -> Tensor:
    return x.to(torch.float16)


def _to_bfloat16(x: Tensor) -> Tensor:
    return x.to(torch.bfloat16)


def _to_float32(x: Tensor) -> Tensor:
    return x.to(torch.float32)


def _to_int32(x: Tensor) -> Tensor:
    return x.to(torch.int32)


def _to_int8(x: Tensor) -> Tensor:
    return x.to(torch.int8)


def _to_bool(x: Tensor) -> Tensor:
    return x.to(torch.bool)


TASKS = (
    pointwise(
        "to_float16",
        "out = x rounded to float16, ties to even; infinite beyond its range",
        _to_float16,
        1,
        out="float16",
        dtypes=("float32",),
        relations=(ODD,),
        exact=True,
        nonfinite=True,
    ),
    pointwise(
        "to_bfloat16",
        "out = x rounded to bfloat16, ties to even",
        _to_bfloat16,
        1,
        out="bfloat16",
        dtypes=("float32",),
        relations=(ODD,),
        exact=True,
        nonfinite=True,
    ),
    pointwise(
        "to_float32",
        "out = x as float32",
        _to_float32,
        1,
        out="float32",
        dtypes=("float16", "bfloat16"),
        relations=(ODD,),
        exact=True,
        nonfinite=True,
    ),
    pointwise(
        "to_int32",
        "out = x without what is behind the point",
        _to_int32,
        1,
        out="int32",
        dtypes=("float32", "float16", "bfloat16"),
        relations=(ODD,),
        without=("small_scale",),
        no_backward=FLAT,
        **_FIXED,
    ),
    pointwise(
        "int_to_float32",
        "out = x rounded to float32, ties to even",
        _to_float32,
        1,
        over=(bits("x", "M N"),),
        out="float32",
        dtypes=INTEGERS,
        no_backward="whole numbers have no gradient",
        **_FIXED,
    ),
    pointwise(
        "int_to_int8",
        "out = x modulo 256, in [-128, 128)",
        _to_int8,
        1,
        over=(bits("x", "M N"),),
        out="int8",
        dtypes=("int32", "int64"),
        no_backward="whole numbers have no gradient",
        **_FIXED,
    ),
    pointwise(
        "to_bool",
        "out = whether x differs from 0",
        _to_bool,
        1,
        over=(whole("x", "M N", -1, 2, wide=64),),
        out="bool",
        dtypes=("int32", "int64", "int8"),
        no_backward="the output is a flag",
        **_FIXED,
    ),
)

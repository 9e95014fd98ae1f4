"""Operators on the bits of whole numbers, over (M, N)."""

from __future__ import annotations

from typing import Any

import torch

from kerneleval.tasks.define import INTEGERS, bits, whole
from kerneleval.tasks.pointwise import COMMUTATIVE, pointwise

_BITS: Any = {"dtypes": INTEGERS, "exact": True, "no_backward": "whole numbers have no gradient"}
_TWO: Any = {"over": (bits("x", "M N"), bits("y", "M N")), **_BITS}
_SHIFT: Any = {"over": (bits("x", "M N"), whole("y", "M N", 0, 8, wide="shifts")), **_BITS}
_SIGNED: Any = {**_BITS, "dtypes": ("int32", "int64", "int8")}

TASKS = (
    pointwise("bitwise_and", "out = x & y", torch.bitwise_and, 1, relations=(COMMUTATIVE,), **_TWO),
    pointwise("bitwise_or", "out = x | y", torch.bitwise_or, 1, relations=(COMMUTATIVE,), **_TWO),
    pointwise("bitwise_xor", "out = x ^ y", torch.bitwise_xor, 1, relations=(COMMUTATIVE,), **_TWO),
    pointwise("bitwise_not", "out = ~x", torch.bitwise_not, 1, over=(bits("x", "M N"),), **_BITS),
    pointwise(
        "bitwise_left_shift", "out = x << y, y from 0 up to the bits of the type", torch.bitwise_left_shift, 1, **_SHIFT
    ),
    pointwise(
        "bitwise_right_shift",
        "out = x >> y, with the sign, y from 0 up to the bits of the type",
        torch.bitwise_right_shift,
        1,
        **_SHIFT,
    ),
    pointwise(
        "gcd",
        "out = the greatest common divisor of x and y",
        torch.gcd,
        32,
        relations=(COMMUTATIVE,),
        over=(whole("x", "M N", -100, 100, wide=64), whole("y", "M N", -100, 100, wide=64)),
        **_SIGNED,
    ),
    pointwise(
        "lcm",
        "out = the least common multiple of x and y, where that is a number of the type",
        torch.lcm,
        34,
        relations=(COMMUTATIVE,),
        over=(whole("x", "M N", -11, 12, wide="divisors"), whole("y", "M N", -11, 12, wide="divisors")),
        **_SIGNED,
    ),
    pointwise("integer_add", "out = x + y, modulo the type's range", torch.add, 1, relations=(COMMUTATIVE,), **_TWO),
    pointwise("integer_mul", "out = x * y, modulo the type's range", torch.mul, 1, relations=(COMMUTATIVE,), **_TWO),
)

"""Functions of one number, over (M, N)."""

from __future__ import annotations

import math

import torch

from kerneleval.tasks.define import data, plain
from kerneleval.tasks.pointwise import EVEN, FLAT, ODD, pointwise, reflected
from kerneleval.tasks.relations import homogeneity, mapping

_HUGE = ("large_scale",)
"""Half of it overflows, and an upstream gradient of 0 then makes NaN."""

_DOUBLED = homogeneity({0: 2.0}, {0: 2.0})
_ANY_SIGN = homogeneity({0: -2.0}, {0: -2.0})


def _rounded(x: torch.Tensor, decimals: int) -> torch.Tensor:
    return torch.round(x, decimals=decimals)


def _sine_over_angle(x: torch.Tensor) -> torch.Tensor:
    angle = math.pi * x.to(torch.promote_types(x.dtype, torch.float32))
    there = angle != 0
    return torch.where(there, torch.sin(angle) / torch.where(there, angle, 1), 1).to(x.dtype)


def _sine_two_units_off(x: torch.Tensor) -> torch.Tensor:
    angle = math.pi * x.to(torch.promote_types(x.dtype, torch.float32))
    there, sine = angle != 0, torch.sin(angle)
    units = 2 * torch.finfo(angle.dtype).eps  # as far as those of GPUs may be off
    return torch.where(there, (sine + (units * sine).detach()) / torch.where(there, angle, 1), 1).to(x.dtype)


TASKS = (
    # Signs and sizes
    pointwise("abs", "out = |x|; gradient 0 at 0", torch.abs, 1, nonfinite=True, relations=(EVEN, _DOUBLED)),
    pointwise("neg", "out = -x", torch.neg, 1, nonfinite=True, exact=True, relations=(ODD, _DOUBLED)),
    pointwise(
        "sign",
        "out = 1 where x >= 0, -1 where x < 0, else 0",
        torch.sign,
        1,
        relations=(ODD,),
        no_backward=FLAT,
        exact=True,
        nonfinite=False,
    ),
    pointwise(
        "signbit",
        "out = whether x has its sign bit set",
        torch.signbit,
        1,
        out="bool",
        exact=True,
        nonfinite=False,
        no_backward="the output is a flag",
    ),
    pointwise("square", "out = x ** 2", torch.square, 1, relations=(EVEN,), nonfinite=True),
    pointwise(
        "reciprocal",
        "out = 1 / x",
        torch.reciprocal,
        1,
        without=("zeros", "outlier"),
        nonfinite=True,
        backward_dtypes=("float32",),  # one gradient near zero is larger than all others, and than their rounding
        relations=(ODD, homogeneity({0: 2.0}, {0: 0.5})),
    ),
    pointwise(
        "nan_to_num",
        "out = x, with NaN as nan and infinities as the given numbers",
        torch.nan_to_num,
        3,
        plain("nan", 0.5),
        plain("posinf", 96.0),
        plain("neginf", -48.0),
        over=(data("x", "M N", missing=True),),
        nonfinite=True,
    ),
    # Roots
    pointwise(
        "sqrt",
        "out = sqrt(x), x >= 0",
        torch.sqrt,
        1,
        values="nonnegative",
        nonfinite=True,
        relations=(homogeneity({0: 4.0}, {0: 2.0}),),
    ),
    pointwise(
        "rsqrt",
        "out = 1 / sqrt(x), x >= 0",
        torch.rsqrt,
        2,
        values="nonnegative",
        nonfinite=True,
        relations=(homogeneity({0: 4.0}, {0: 0.5}),),
    ),
    # Rounding
    pointwise(
        "floor",
        "out = the largest whole number <= x",
        torch.floor,
        1,
        extreme=True,
        no_backward=FLAT,
        exact=True,
        nonfinite=True,
        without=("small_scale",),
    ),
    pointwise(
        "ceil",
        "out = the smallest whole number >= x",
        torch.ceil,
        1,
        extreme=True,
        no_backward=FLAT,
        exact=True,
        nonfinite=True,
        without=("small_scale",),
    ),
    pointwise(
        "trunc",
        "out = x without its fraction",
        torch.trunc,
        1,
        extreme=True,
        relations=(ODD,),
        no_backward=FLAT,
        exact=True,
        nonfinite=True,
    ),
    pointwise(
        "round",
        "out = the whole number next to x, the even one of two",
        torch.round,
        1,
        extreme=True,
        relations=(ODD,),
        no_backward=FLAT,
        exact=True,
        nonfinite=True,
    ),
    pointwise("frac", "out = x - trunc(x)", torch.frac, 2, relations=(ODD,), exact=True, nonfinite=False, extreme=True),
    # Exponentials and logarithms
    pointwise(
        "exp",
        "out = e ** x",
        torch.exp,
        1,
        without=_HUGE,
        nonfinite=True,
        relations=(reflected(lambda out, x: 1 / out),),
    ),
    pointwise(
        "exp2",
        "out = 2 ** x",
        torch.exp2,
        1,
        without=_HUGE,
        nonfinite=True,
        relations=(reflected(lambda out, x: 1 / out),),
    ),
    pointwise("expm1", "out = e ** x - 1, exact near 0", torch.expm1, 2, without=_HUGE, nonfinite=True),
    pointwise(
        "log",
        "out = log(x), x >= 0",
        torch.log,
        1,
        values="nonnegative",
        nonfinite=True,
        relations=(mapping("doubling", lambda x: (2 * x,), lambda outs, _: [outs[0] + math.log(2)]),),
    ),
    pointwise(
        "log2",
        "out = log2(x), x >= 0",
        torch.log2,
        1,
        values="nonnegative",
        nonfinite=True,
        relations=(mapping("doubling", lambda x: (2 * x,), lambda outs, _: [outs[0] + 1]),),
    ),
    pointwise(
        "log10",
        "out = log10(x), x >= 0",
        torch.log10,
        1,
        values="nonnegative",
        nonfinite=True,
        relations=(mapping("doubling", lambda x: (2 * x,), lambda outs, _: [outs[0] + math.log10(2)]),),
    ),
    pointwise("log1p", "out = log(1 + x), exact near 0, x >= 0", torch.log1p, 2, values="nonnegative", nonfinite=True),
    pointwise(
        "logit",
        "out = log(x / (1 - x)), x held within [eps, 1 - eps]; at both the gradient as inside",
        torch.logit,
        4,
        plain("eps", 0.0625),
        values="uniform",
        relations=(mapping("complement", lambda x, eps: (1 - x, eps), lambda outs, _: [-outs[0]]),),
    ),
    # Angles
    pointwise("sin", "out = sin(x)", torch.sin, 1, relations=(ODD,), extreme="angles"),
    pointwise("cos", "out = cos(x)", torch.cos, 1, relations=(EVEN,), extreme="angles"),
    pointwise("tan", "out = tan(x)", torch.tan, 1, relations=(ODD,), without=("large_scale", "outlier")),
    pointwise("asin", "out = arcsin(x), |x| < 1", torch.asin, 1, values="symmetric", relations=(ODD,)),
    pointwise(
        "acos",
        "out = arccos(x), |x| < 1",
        torch.acos,
        1,
        values="symmetric",
        relations=(reflected(lambda out, x: math.pi - out),),
    ),
    pointwise("atan", "out = arctan(x)", torch.atan, 1, relations=(ODD,), nonfinite=True, extreme="large"),
    pointwise("sinh", "out = sinh(x)", torch.sinh, 1, relations=(ODD,), without=_HUGE, nonfinite=True),
    pointwise("cosh", "out = cosh(x)", torch.cosh, 1, relations=(EVEN,), without=_HUGE, nonfinite=True),
    pointwise("asinh", "out = arsinh(x)", torch.asinh, 1, relations=(ODD,), nonfinite=True, extreme="large"),
    pointwise(
        "acosh", "out = arcosh(x), x >= 1", torch.acosh, 1, values="above_one", without=("zeros",), extreme="large"
    ),
    pointwise("atanh", "out = artanh(x), |x| < 1", torch.atanh, 1, values="symmetric", relations=(ODD,)),
    pointwise(
        "sinc",
        "out = sin(pi x) / (pi x), 1 at 0",
        torch.sinc,
        4,
        relations=(EVEN,),
        dtypes=("float32", "float16"),
        unfused=(_sine_over_angle, _sine_two_units_off),  # near 0 gradients cancel, each time otherwise
        in_type=False,
    ),
    pointwise("rad2deg", "out = x * 180 / pi", torch.rad2deg, 1, relations=(ODD, _ANY_SIGN)),
    pointwise("deg2rad", "out = x * pi / 180", torch.deg2rad, 1, relations=(ODD, _ANY_SIGN)),
    # Error functions
    pointwise("erf", "out = erf(x)", torch.erf, 1, relations=(ODD,), nonfinite=True),
    pointwise(
        "erfc",
        "out = 1 - erf(x), exact where it is small",
        torch.erfc,
        1,
        over=(data("x", "M N", common=5.0),),
        relations=(reflected(lambda out, x: 2 - out),),
    ),
    pointwise("erfinv", "out = the y with erf(y) = x, |x| < 1", torch.erfinv, 1, values="symmetric", relations=(ODD,)),
)

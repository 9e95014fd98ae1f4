"""Functions of two or three numbers, over (M, N); plain numbers come last."""

from __future__ import annotations

from typing import Any

import torch

from kerneleval.tasks.define import data, plain, weight
from kerneleval.tasks.pointwise import COMMUTATIVE, FLAT, ODD, bent, pointwise
from kerneleval.tasks.relations import homogeneity, mapping

_TWO: Any = {"over": ("x", "y")}
_LOG_OF_SUM: Any = {**_TWO, "nonfinite": True, "relations": (COMMUTATIVE,)}
_SAFE: Any = {"over": ("x", data("y", "M N", values="positive"))}
_LOG: Any = {"over": ("x", data("y", "M N", values="nonnegative")), "nonfinite": True}
_LINEAR = homogeneity({0: 2.0, 1: 2.0}, {0: 2.0})
_BILINEAR = homogeneity({0: 2.0, 1: -0.5}, {0: -1.0})
_SWAPPED = mapping("exchange", lambda x, y, *rest: (y, x, *rest), lambda outs, _: [-outs[0]])


def _rsub(x: torch.Tensor, y: torch.Tensor, alpha: float) -> torch.Tensor:
    return torch.rsub(x, y, alpha=alpha)


def _add_scaled(x: torch.Tensor, y: torch.Tensor, alpha: float) -> torch.Tensor:
    return torch.add(x, y, alpha=alpha)


def _div_trunc(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.div(x, y, rounding_mode="trunc")


def _addcmul(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor, value: float) -> torch.Tensor:
    return torch.addcmul(x, y, z, value=value)


def _addcdiv(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor, value: float) -> torch.Tensor:
    return torch.addcdiv(x, y, z, value=value)


def _axpy(x: torch.Tensor, y: torch.Tensor, alpha: float) -> torch.Tensor:
    return alpha * x + y


def _bias_add(x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return x + bias


def _row_scale(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    return x * scale[:, None]


TASKS = (
    pointwise("add", "out = x + y", torch.add, 1, **_TWO, nonfinite=True, relations=(COMMUTATIVE, _LINEAR)),
    pointwise("sub", "out = x - y", torch.sub, 1, **_TWO, nonfinite=True, relations=(_LINEAR, _SWAPPED)),
    pointwise("mul", "out = x * y", torch.mul, 1, **_TWO, nonfinite=True, relations=(COMMUTATIVE, _BILINEAR)),
    pointwise(
        "div",
        "out = x / y",
        torch.div,
        1,
        **_SAFE,
        extreme="small",
        relations=(homogeneity({0: -2.0, 1: 0.5}, {0: -4.0}),),
    ),
    pointwise("rsub", "out = y - alpha * x", _rsub, 2, plain("alpha", 1.5), **_TWO, relations=(_LINEAR,)),
    pointwise("add_scaled", "out = x + alpha * y", _add_scaled, 2, plain("alpha", 0.75), **_TWO, relations=(_LINEAR,)),
    pointwise(
        "axpy", "out = alpha * x + y", _axpy, 2, plain("alpha", -1.25), **_TWO, source="cublas", relations=(_LINEAR,)
    ),
    pointwise(
        "mul_scalar",
        "out = factor * x",
        torch.mul,
        1,
        plain("factor", 1.75),
        relations=(ODD, homogeneity({0: 2.0}, {0: 2.0})),
    ),
    pointwise("add_scalar", "out = x + value", torch.add, 1, plain("value", 0.75)),
    pointwise(
        "bias_add",
        "out[m, n] = x[m, n] + bias[n]",
        _bias_add,
        1,
        over=(data("x", "M N"), weight("bias", "N")),
        reduction="1",
    ),
    pointwise(
        "row_scale",
        "out[m, n] = x[m, n] * scale[m]",
        _row_scale,
        1,
        over=(data("x", "M N"), data("scale", "M")),
        gathered="N",
        reduction="1",
    ),
    pointwise(
        "pow",
        "out = x ** y, x >= 0",
        torch.pow,
        1,
        over=(data("x", "M N", values="nonnegative", borders=(0.0,)), data("y", "M N", values="symmetric")),
        without=("large_scale", "outlier"),
    ),
    pointwise(
        "pow_scalar",
        "out = x ** exponent, x >= 0",
        torch.pow,
        1,
        plain("exponent", 1.75),
        values="nonnegative",
        without=("large_scale", "outlier"),
    ),
    pointwise("cube", "out = x ** 3", torch.pow, 2, plain("exponent", 3), relations=(ODD,), without=("large_scale",)),
    pointwise(
        "maximum",
        "out = the larger of x and y; NaN wins; equal ones share the gradient",
        torch.maximum,
        1,
        **_TWO,
        nonfinite=True,
        relations=(COMMUTATIVE, _LINEAR),
    ),
    pointwise(
        "minimum",
        "out = the smaller of x and y; NaN wins; equal ones share the gradient",
        torch.minimum,
        1,
        **_TWO,
        nonfinite=True,
        relations=(COMMUTATIVE, _LINEAR),
    ),
    pointwise(
        "fmax",
        "out = the larger of x and y; NaN loses; x takes the gradient where they are equal",
        torch.fmax,
        1,
        over=(data("x", "M N", missing=True), "y"),
        nonfinite=True,
        relations=(_LINEAR,),
    ),
    pointwise(
        "fmin",
        "out = the smaller of x and y; NaN loses; x takes the gradient where they are equal",
        torch.fmin,
        1,
        over=("x", data("y", "M N", missing=True)),
        nonfinite=True,
        relations=(_LINEAR,),
    ),
    pointwise(
        "clamp",
        "out = min(max(x, low), high); gradient 1 at low and high",
        torch.clamp,
        2,
        plain("low", -0.75, among=(2.5,)),  # above high
        plain("high", 1.25),
        **bent(-0.75, 1.25),
        nonfinite=True,
    ),
    pointwise(
        "clamp_min",
        "out = max(x, low); gradient 1 at low",
        torch.clamp_min,
        1,
        plain("low", -0.5),
        nonfinite=True,
        **bent(-0.5),
    ),
    pointwise(
        "clamp_max",
        "out = min(x, high); gradient 1 at high",
        torch.clamp_max,
        1,
        plain("high", 0.5),
        nonfinite=True,
        **bent(0.5),
    ),
    pointwise(
        "hypot",
        "out = sqrt(x ** 2 + y ** 2) without overflow on the way",
        torch.hypot,
        4,
        **_TWO,
        extreme=True,
        without=("zeros",),
        forward_only=("outlier",),  # the gradient of PyTorch is 0 / 0 where both are 0
        nonfinite=True,
        relations=(COMMUTATIVE, _LINEAR),
    ),
    pointwise(
        "atan2",
        "out = the angle of (y, x), first argument over second",
        torch.atan2,
        1,
        over=("y", "x"),
        nonfinite=True,
        forward_only=("small_scale", "zeros", "outlier"),
    ),
    pointwise(
        "copysign",
        "out = |x| with the sign of y",
        torch.copysign,
        1,
        **_TWO,
        no_backward=FLAT,
        exact=True,
        nonfinite=False,
        without=("zeros",),
    ),
    pointwise(
        "heaviside",
        "out = 0 where x < 0, 1 where x > 0, y where x = 0",
        torch.heaviside,
        2,
        over=(data("x", "M N", borders=(0.0,)), data("y", "M N")),
        no_backward=FLAT,
        exact=True,
        nonfinite=False,
    ),
    pointwise(
        "remainder",
        "out = x - y * floor(x / y), y > 0",
        torch.remainder,
        4,
        over=("x", data("y", "M N", values="positive", differentiable=False, divides=True)),
        without=("outlier",),
        extreme=True,
        nonfinite=False,
    ),
    pointwise(
        "fmod",
        "out = x - y * trunc(x / y), y > 0",
        torch.fmod,
        4,
        over=("x", data("y", "M N", values="positive", differentiable=False, divides=True)),
        without=("outlier",),
        extreme=True,
        nonfinite=False,
    ),
    pointwise(
        "floor_divide",
        "out = floor(x / y), y > 0",
        torch.floor_divide,
        2,
        over=(data("x", "M N", multiple_of="y"), data("y", "M N", values="positive")),
        no_backward=FLAT,
        without=("outlier", "constant"),
        extreme=True,
        nonfinite=False,
        dtypes=("float32", "float64"),
    ),
    pointwise(
        "div_trunc",
        "out = trunc(x / y), y > 0",
        _div_trunc,
        2,
        over=(data("x", "M N", multiple_of="y"), data("y", "M N", values="positive")),
        no_backward=FLAT,
        without=("outlier", "constant"),
        extreme=True,
        nonfinite=False,
        dtypes=("float32", "float64"),
    ),
    pointwise("logaddexp", "out = log(e ** x + e ** y)", torch.logaddexp, 5, **_LOG_OF_SUM),
    pointwise(
        "logaddexp2",
        "out = log2(2 ** x + 2 ** y)",
        torch.logaddexp2,
        5,
        **_TWO,
        nonfinite=True,
        relations=(COMMUTATIVE,),
    ),
    pointwise("xlogy", "out = x * log(y), y >= 0; 0 where x is and y is not NaN", torch.xlogy, 2, **_LOG),
    pointwise(
        "xlog1py",
        "out = x * log(1 + y), y >= 0; 0 where x is and y is not NaN",
        torch.special.xlog1py,
        3,
        **_LOG,
    ),
    pointwise("lerp", "out = x + w * (y - x)", torch.lerp, 3, plain("w", 0.375), **_TWO, relations=(_LINEAR,)),
    pointwise(
        "lerp_tensor",
        "out = x + w * (y - x)",
        torch.lerp,
        3,
        over=("x", "y", data("w", "M N", values="uniform")),
        without=("large_scale",),
        relations=(_LINEAR,),
    ),
    pointwise("addcmul", "out = x + value * y * z", _addcmul, 3, plain("value", -0.75), over=("x", "y", "z")),
    pointwise(
        "addcdiv",
        "out = x + value * y / z, z > 0",
        _addcdiv,
        3,
        plain("value", -0.75),
        over=("x", data("y", "M N", extreme="small"), data("z", "M N", values="positive", extreme="small")),
        forward_only=("small_scale",),
    ),
)

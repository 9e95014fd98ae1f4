"""Activations over (M, N), and the gradients of some as operators of their own, as ATen has them."""

from __future__ import annotations

import functools
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the usual name

from kerneleval.tasks.define import data, plain, weight
from kerneleval.tasks.pointwise import ODD, bent, pointwise, reflected
from kerneleval.tasks.relations import homogeneity, mapping

_aten: Any = torch.ops.aten
_activation: Any = functools.partial(pointwise, group="Activation")
_PLUS_X = reflected(lambda out, x: out - x)  # f(-x) = f(x) - x
_POSITIVE = homogeneity({0: 2.0}, {0: 2.0})


def _prelu(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return F.prelu(x, weight)


def _gelu_tanh(x: torch.Tensor) -> torch.Tensor:
    return F.gelu(x, approximate="tanh")


def _relu_squared(x: torch.Tensor) -> torch.Tensor:
    return F.relu(x).square()


def _quick_gelu(x: torch.Tensor) -> torch.Tensor:
    return x * torch.sigmoid(1.702 * x)


def _combined(x: torch.Tensor) -> torch.Tensor:
    return torch.sigmoid(torch.tanh(x)) * F.relu(x)


def _softplus_backward(grad: torch.Tensor, x: torch.Tensor, beta: float) -> Any:
    return _aten.softplus_backward(grad, x, beta, 20.0)


def _log_sigmoid_backward(grad: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return grad * torch.sigmoid(-x)


def _rrelu_backward(grad: torch.Tensor, noise: torch.Tensor) -> Any:
    return _aten.rrelu_with_noise_backward(grad, grad, noise, 0.125, 1 / 3, True, False)


def _gelu_backward(grad: torch.Tensor, x: torch.Tensor) -> Any:
    return _aten.gelu_backward(grad, x)


def _softsign_by_inverse(x: torch.Tensor) -> torch.Tensor:
    return x * torch.reciprocal(1 + x.abs())


def _sigmoid_by_tanh(x: torch.Tensor) -> torch.Tensor:
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    return (0.5 * torch.tanh(0.5 * wide) + 0.5).to(x.dtype)


_LINEAR = homogeneity({0: -2.0}, {0: -2.0})
_GRAD = {"over": ("grad", "x"), "no_backward": "it is a gradient itself", "relations": (_LINEAR,)}

TASKS = (
    _activation("relu", "out = max(x, 0); gradient 0 at 0", F.relu, 1, nonfinite=True, relations=(_POSITIVE,)),
    _activation("relu6", "out = min(max(x, 0), 6); gradient 0 at 0 and 6", F.relu6, 2, **bent(0.0, 6.0)),
    _activation(
        "leaky_relu",
        "out = x if x > 0 else negative_slope * x",
        F.leaky_relu,
        2,
        plain("negative_slope", 0.01, among=(-0.5, 2.0)),
        relations=(_POSITIVE,),
    ),
    _activation(
        "prelu",
        "out = x if x > 0 else weight[n] * x",
        _prelu,
        2,
        over=(data("x", "M N"), weight("weight", "N")),
        folded="",
        relations=(_POSITIVE,),
    ),
    _activation("elu", "out = x if x > 0 else alpha * (e ** x - 1)", F.elu, 3, plain("alpha", 1.5)),
    _activation("celu", "out = max(0, x) + min(0, alpha * (e ** (x / alpha) - 1))", F.celu, 4, plain("alpha", 1.5)),
    _activation("selu", "out = 1.0507 * (x if x > 0 else 1.67326 * (e ** x - 1))", F.selu, 4),
    _activation(
        "gelu",
        "out = x * Phi(x) with the normal distribution function Phi, exact (erf), not the tanh approximation",
        F.gelu,
        5,
        relations=(_PLUS_X,),
    ),
    _activation(
        "gelu_tanh",
        "out = 0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x ** 3)))",
        _gelu_tanh,
        8,
        source="model",
        relations=(_PLUS_X,),
    ),
    _activation(
        "quick_gelu",
        "out = x * sigmoid(1.702 * x)",
        _quick_gelu,
        5,
        source="model",
        relations=(_PLUS_X,),
        extreme="large",
    ),
    _activation("silu", "out = x * sigmoid(x)", F.silu, 4, relations=(_PLUS_X,), extreme="large"),
    _activation("mish", "out = x * tanh(log(1 + e ** x))", F.mish, 5),
    _activation(
        "sigmoid",
        "out = 1 / (1 + e ** -x)",
        torch.sigmoid,
        3,
        relations=(reflected(lambda out, x: 1 - out),),
        extreme="large",
        unfused=(_sigmoid_by_tanh,),  # of large numbers 1 - s may be all that a gradient is
    ),
    _activation("log_sigmoid", "out = log(1 / (1 + e ** -x))", F.logsigmoid, 4, relations=(_PLUS_X,), extreme="large"),
    _activation("tanh", "out = tanh(x)", torch.tanh, 1, relations=(ODD,), nonfinite=True),
    _activation("tanhshrink", "out = x - tanh(x)", F.tanhshrink, 2, relations=(ODD,)),
    _activation(
        "softsign",
        "out = x / (1 + |x|)",
        F.softsign,
        3,
        relations=(ODD,),
        unfused=(_softsign_by_inverse,),  # of large numbers autograd's two terms cancel, each time otherwise
        in_type=False,
    ),
    _activation(
        "softplus",
        "out = log(1 + e ** (beta * x)) / beta",
        F.softplus,
        5,
        plain("beta", 1.5),
        relations=(),
        extreme="large",
    ),
    _activation(
        "hardtanh",
        "out = min(max(x, low), high); gradient 0 at low and high",
        F.hardtanh,
        2,
        plain("low", -1.5),
        plain("high", 0.75),
        **bent(-1.5, 0.75),
    ),
    _activation(
        "hardsigmoid",
        "out = min(max(x + 3, 0), 6) / 6; gradient 0 at -3 and 3",
        F.hardsigmoid,
        4,
        **bent(-3.0, 3.0, beside=False),
    ),
    _activation(
        "hardswish",
        "out = x * min(max(x + 3, 0), 6) / 6; gradient 0 at -3, 1 at 3",
        F.hardswish,
        5,
        **bent(-3.0, 3.0, beside=False),
    ),
    _activation(
        "hardshrink",
        "out = x if |x| > lambd else 0",
        F.hardshrink,
        2,
        plain("lambd", 0.5),
        relations=(ODD,),
        **bent(-0.5, 0.5),
    ),
    _activation(
        "softshrink",
        "out = sign(x) * max(|x| - lambd, 0); gradient 0 at -lambd and lambd",
        F.softshrink,
        3,
        plain("lambd", 0.5),
        relations=(ODD,),
        **bent(-0.5, 0.5),
    ),
    _activation(
        "threshold",
        "out = x if x > threshold else value",
        F.threshold,
        1,
        plain("threshold", 0.25),
        plain("value", -1.0),
        **bent(0.25),
    ),
    _activation("relu_squared", "out = max(x, 0) ** 2", _relu_squared, 2, source="model"),
    _activation(
        "combined_activation",
        "out = sigmoid(tanh(x)) * max(x, 0)",
        _combined,
        6,
        source="model",
        level=2,
        kinks="between",
    ),
    _activation(
        "relu_backward",
        "out = grad if x > threshold else 0",
        _aten.threshold_backward,
        1,
        plain("threshold", 0.25),
        **_GRAD | {"over": ("grad", *bent(0.25)["over"])},
    ),
    _activation("gelu_backward", "out = grad * (Phi(x) + x * phi(x))", _gelu_backward, 9, **_GRAD),
    _activation("silu_backward", "out = grad * s * (1 + x * (1 - s)), s = sigmoid(x)", _aten.silu_backward, 8, **_GRAD),
    _activation(
        "mish_backward",
        "out = grad * (t + x * sigmoid(x) * (1 - t ** 2)), t = tanh(log(1 + e ** x))",
        _aten.mish_backward,
        12,
        **_GRAD,
    ),
    _activation(
        "softplus_backward", "out = grad * sigmoid(beta * x)", _softplus_backward, 5, plain("beta", 1.5), **_GRAD
    ),
    _activation("log_sigmoid_backward", "out = grad * sigmoid(-x)", _log_sigmoid_backward, 4, **_GRAD),
    _activation(
        "rrelu_with_noise_backward",
        "out = grad * noise, in training mode: noise is 1 where x was above 0, else the slope drawn there",
        _rrelu_backward,
        1,
        over=("grad", data("noise", "M N", values="positive")),
        no_backward="it is a gradient itself",
        relations=(_LINEAR,),
    ),
    _activation(
        "sigmoid_backward",
        "out = grad * (1 - y) * y, y the sigmoid's output",
        _aten.sigmoid_backward,
        3,
        over=(data("grad", "M N"), data("y", "M N", values="uniform")),
        without=("outlier", "large_scale"),
        no_backward="it is a gradient itself",
        relations=(_LINEAR, mapping("complement", lambda grad, y: (grad, 1 - y), lambda outs, _: outs)),
    ),
    _activation(
        "tanh_backward",
        "out = grad * (1 - y ** 2), y the tanh's output",
        _aten.tanh_backward,
        3,
        over=(data("grad", "M N"), data("y", "M N", values="symmetric")),
        without=("outlier", "large_scale"),
        no_backward="it is a gradient itself",
        relations=(_LINEAR,),
    ),
)

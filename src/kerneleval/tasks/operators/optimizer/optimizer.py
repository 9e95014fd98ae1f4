"""Optimisers, element by element: parameters and state after several steps, from the gradients of these steps.

Every task is ``torch.optim``'s formula, where that has one, over (M, N); ``step`` is how many steps came before. Decay
rates are lower than usual, so that each step shows in the state, in half types too, which hold them and what is left
of 1: eager code that adds so much of a gradient (``add(grad, alpha=1 - beta1)``) rounds it to the type.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from kerneleval.records import Arg, Plain, Task
from kerneleval.tasks.define import ROWS, data, fixed, operator, plain, whole
from kerneleval.tasks.relations import permutation, resampling

__all__ = ["NO_GRADIENT", "STEPS", "moments", "rearranged", "updated"]

Tensor = torch.Tensor
_GRADS = data("grads", "steps M N")

STEPS = (0, 1, 3, 5, 9)
"""Other numbers of steps that may have come before."""

NO_GRADIENT = "the step of an optimiser is not differentiated"


def rearranged(args: tuple[Arg | Plain, ...], outputs: int) -> tuple[Any, ...]:
    """Relations of a step in which elements do not meet: rows and columns may change places."""
    found = []
    for name, kind, dim in (("row", "M", 0), ("column", "N", 1)):
        along = {i: a.shape.split().index(kind) for i, a in enumerate(args) if isinstance(a, Arg)}
        outs = dict.fromkeys(range(outputs), dim)
        found += [permutation(f"{name}_permutation", along, outs), resampling(f"{name}_resampling", along, outs)]
    return tuple(found)


def updated(
    name: str,
    summary: str,
    reference: Callable[..., Any],
    each: int,
    state: tuple[Arg, ...],
    *plains: Plain,
    grads: Arg = _GRADS,
    given: tuple[Arg, ...] = (),
    steps: int = 4,
    **more: Any,
) -> Task:
    """A task of up to ``steps`` steps, which gives the parameters and then the state.

    Args:
        name: unique slug.
        summary: one line with the formula of a step.
        reference: the steps in plain PyTorch.
        each: operations for an element and step.
        state: the arguments behind the gradients; an output each.
        plains: plain arguments, which come last.
        grads: the gradients of all steps.
        given: arguments between state and numbers that do not change.
        steps: the most steps.
        more: as ``define.operator`` takes it.
    """
    settings: dict[str, Any] = {"args": (data("param", "M N"), grads, *state, *given, *plains), **more}
    # as the row of an embedding that no token has, in which all is 0 from the start
    settings["args"] = tuple(replace(a, idle=True) if isinstance(a, Arg) else a for a in settings["args"])
    return operator(
        name,
        "elementwise",
        summary,
        dims=(*ROWS, fixed("steps", high=steps)),
        out=("M N",) * (1 + len(state)),
        reference=reference,
        flops=f"{each} * steps * M * N",
        reduction="steps",
        where="steps > 0",
        no_backward=NO_GRADIENT,
        empty=True,
        group="Optimizer",
        folded="M",
        relations=rearranged(settings["args"], 1 + len(state)),
        **settings,
    )


def moments(grad: Tensor, m: Tensor, v: Tensor, beta1: float, beta2: float) -> tuple[Tensor, Tensor]:
    """Running means of the gradient and of its square, a step on."""
    return torch.lerp(m, grad, 1 - beta1), (beta2 * v).addcmul(grad, grad, value=1 - beta2)


def _sgd(param: Tensor, grads: Tensor, lr: float, weight_decay: float) -> Tensor:
    for grad in grads:
        param = param.add(grad.add(param, alpha=weight_decay), alpha=-lr)
    return param


def _sgd_momentum(
    param: Tensor, grads: Tensor, momentum: Tensor, lr: float, mu: float, dampening: float, weight_decay: float
) -> tuple[Tensor, ...]:
    for grad in grads:
        momentum = (mu * momentum).add(grad.add(param, alpha=weight_decay), alpha=1 - dampening)
        param = param.add(momentum, alpha=-lr)
    return param, momentum


def _sgd_nesterov(
    param: Tensor, grads: Tensor, momentum: Tensor, lr: float, mu: float, weight_decay: float
) -> tuple[Tensor, ...]:
    for each in grads:
        grad = each.add(param, alpha=weight_decay)
        momentum = mu * momentum + grad
        param = param.add(grad.add(momentum, alpha=mu), alpha=-lr)
    return param, momentum


def _rmsprop(
    param: Tensor, grads: Tensor, v: Tensor, lr: float, alpha: float, eps: float, weight_decay: float
) -> tuple[Tensor, ...]:
    for each in grads:
        grad = each.add(param, alpha=weight_decay)
        v = (alpha * v).addcmul(grad, grad, value=1 - alpha)
        param = param.addcdiv(grad, v.sqrt() + eps, value=-lr)
    return param, v


def _rmsprop_centered(
    param: Tensor,
    grads: Tensor,
    v: Tensor,
    grad_avg: Tensor,
    momentum: Tensor,
    lr: float,
    alpha: float,
    eps: float,
    mu: float,
) -> tuple[Tensor, ...]:
    for grad in grads:
        grad_avg, v = moments(grad, grad_avg, v, alpha, alpha)
        momentum = (mu * momentum).addcdiv(grad, v.addcmul(grad_avg, grad_avg, value=-1).sqrt() + eps)
        param = param.add(momentum, alpha=-lr)
    return param, v, grad_avg, momentum


def _adagrad(
    param: Tensor, grads: Tensor, total: Tensor, lr: float, lr_decay: float, weight_decay: float, eps: float, step: int
) -> tuple[Tensor, ...]:
    for t, each in enumerate(grads, step):
        grad = each.add(param, alpha=weight_decay)
        total = total.addcmul(grad, grad)
        param = param.addcdiv(grad, total.sqrt() + eps, value=-lr / (1 + t * lr_decay))
    return param, total


def _adadelta(
    param: Tensor, grads: Tensor, v: Tensor, change: Tensor, lr: float, rho: float, eps: float, weight_decay: float
) -> tuple[Tensor, ...]:
    for each in grads:
        grad = each.add(param, alpha=weight_decay)
        v = (rho * v).addcmul(grad, grad, value=1 - rho)
        delta = (change + eps).sqrt() / (v + eps).sqrt() * grad
        change = (rho * change).addcmul(delta, delta, value=1 - rho)
        param = param.add(delta, alpha=-lr)
    return param, v, change


def _lion(
    param: Tensor, grads: Tensor, m: Tensor, lr: float, beta1: float, beta2: float, weight_decay: float
) -> tuple[Tensor, ...]:
    for grad in grads:
        param = (param * (1 - lr * weight_decay)).add(torch.lerp(m, grad, 1 - beta1).sign(), alpha=-lr)
        m = torch.lerp(m, grad, 1 - beta2)
    return param, m


def _rprop(
    param: Tensor, grads: Tensor, previous: Tensor, sizes: Tensor, up: float, down: float, least: float, most: float
) -> tuple[Tensor, ...]:
    for each in grads:
        turn = each * previous
        sizes = torch.where(turn > 0, sizes * up, torch.where(turn < 0, sizes * down, sizes)).clamp(least, most)
        previous = torch.where(turn < 0, 0, each)
        param = param.addcmul(previous.sign(), sizes, value=-1)
    return param, previous, sizes


def _asgd(
    param: Tensor, grads: Tensor, average: Tensor, lr: float, lambd: float, alpha: float, step: int, t0: int
) -> tuple[Tensor, ...]:
    for t, grad in enumerate(grads, step):
        eta = lr / (1 + lambd * lr * t) ** alpha
        param = (param * (1 - lambd * eta)).add(grad, alpha=-eta)
        average = torch.lerp(average, param, 1 / max(1, t - t0))
    return param, average


def _sophia(
    param: Tensor,
    grads: Tensor,
    m: Tensor,
    hessian: Tensor,
    lr: float,
    beta1: float,
    rho: float,
    eps: float,
    weight_decay: float,
) -> tuple[Tensor, ...]:
    for grad in grads:
        m = torch.lerp(m, grad, 1 - beta1)
        ratio = (m / (rho * hessian).clamp_min(eps)).clamp(-1, 1)
        param = (param * (1 - lr * weight_decay)).add(ratio, alpha=-lr)
    return param, m


def _ema(average: Tensor, params: Tensor, decay: float) -> Tensor:
    for param in params:
        average = torch.lerp(average, param, 1 - decay)
    return average


def _swa(average: Tensor, params: Tensor, averaged: int) -> Tensor:
    for count, param in enumerate(params, averaged + 1):
        average = average + (param - average) / (count + 1)
    return average


def _moment(name: str, **more: Any) -> Arg:
    return data(name, "M N", **more)


_M, _V = _moment("m"), _moment("v", values="variance")
_MOMENTUM = _moment("momentum")
_WHOLE = whole("grads", "steps M N", -8, 9)  # so that no sign hangs on a rounding
_LR, _EPS, _DECAY, _STEP = (
    plain("lr", 0.1),
    plain("eps", 1e-8),
    plain("weight_decay", 0.3),
    plain("step", 2, among=STEPS),
)

TASKS = (
    updated("sgd", "p = p - lr * (g + weight_decay * p), for each g of grads", _sgd, 4, (), _LR, _DECAY),
    updated(
        "sgd_momentum",
        "b = mu * b + (1 - dampening) * (g + weight_decay * p), p = p - lr * b, for each g of grads",
        _sgd_momentum,
        7,
        (_MOMENTUM,),
        *(_LR, plain("mu", 0.6), plain("dampening", 0.25), _DECAY),
    ),
    updated(
        "sgd_nesterov",
        "d = g + weight_decay * p, b = mu * b + d, p = p - lr * (d + mu * b), for each g of grads",
        _sgd_nesterov,
        8,
        (_MOMENTUM,),
        *(_LR, plain("mu", 0.6), _DECAY),
    ),
    updated(
        "rmsprop",
        "d = g + weight_decay * p, v = alpha * v + (1 - alpha) * d ** 2, p = p - lr * d / (sqrt(v) + eps), "
        "for each g of grads",
        _rmsprop,
        10,
        (_V,),
        *(_LR, plain("alpha", 0.6), _EPS, _DECAY),
    ),
    updated(
        "rmsprop_centered",
        "v = alpha * v + (1 - alpha) * g ** 2, a = alpha * a + (1 - alpha) * g, b = mu * b + g / (sqrt(v - a ** 2) "
        "+ eps), p = p - lr * b, for each g of grads",
        _rmsprop_centered,
        15,
        # a ** 2 < v, as of a mean and a mean of squares
        (_V, _moment("grad_avg", values="symmetric", fan_in="four"), _MOMENTUM),
        *(_LR, plain("alpha", 0.59375), _EPS, plain("mu", 0.5)),
        derive={"four": 4},
        without=("outlier", "large_scale"),
    ),
    updated(
        "adagrad",
        "d = g + weight_decay * p, s = s + d ** 2, p = p - lr / (1 + t * lr_decay) * d / (sqrt(s) + eps), "
        "t = step for the first g of grads",
        _adagrad,
        8,
        (_moment("total", values="variance"),),
        *(_LR, plain("lr_decay", 0.2), _DECAY, _EPS, _STEP),
    ),
    updated(
        "adadelta",
        "d = g + weight_decay * p, v = rho * v + (1 - rho) * d ** 2, x = sqrt((c + eps) / (v + eps)) * d, "
        "c = rho * c + (1 - rho) * x ** 2, p = p - lr * x, for each g of grads",
        _adadelta,
        18,
        (_V, _moment("change", values="variance")),
        *(plain("lr", 0.5), plain("rho", 0.6), plain("eps", 1e-6), _DECAY),
    ),
    updated(
        "lion",
        "p = p * (1 - lr * weight_decay) - lr * sign(beta1 * m + (1 - beta1) * g), m = beta2 * m + (1 - beta2) * g, "
        "for each g of grads; sign(0) = 0; g and m are whole numbers",
        _lion,
        9,
        (whole("m", "M N", -8, 9),),
        # by which sums of whole numbers are exact in half types
        *(_LR, plain("beta1", 0.5, among=(0.25, 0.5, 0.75)), plain("beta2", 0.75, among=(0.25, 0.5, 0.75)), _DECAY),
        steps=2,
        grads=_WHOLE,
    ),
    updated(
        "rprop",
        "s = clamp(s * (up where g * g' > 0, down where < 0, else 1), least, most); g = 0 where g * g' < 0; "
        "p = p - sign(g) * s, g' = g, for each g of grads, whole numbers",
        _rprop,
        9,
        (whole("previous", "M N", -8, 9), _moment("sizes", values="variance")),
        *(plain("up", 1.2), plain("down", 0.5), plain("least", 0.25), plain("most", 1.75)),
        grads=_WHOLE,
    ),
    updated(
        "asgd",
        "eta = lr / (1 + lambd * lr * t) ** alpha, p = p * (1 - lambd * eta) - eta * g, "
        "a = a + (p - a) / max(1, t - t0), t = step for the first g of grads",
        _asgd,
        6,
        (_moment("average"),),
        *(_LR, plain("lambd", 0.4), plain("alpha", 0.75), plain("step", 4, among=(3, 5, 6, 9))),
        plain("t0", 2, among=(0, 1)),
    ),
    updated(
        "sophia",
        "m = beta1 * m + (1 - beta1) * g, p = p * (1 - lr * weight_decay) - lr * clamp(m / max(rho * h, eps), -1, 1), "
        "for each g of grads",
        _sophia,
        10,
        (_M,),
        *(_LR, plain("beta1", 0.59375), plain("rho", 0.8), plain("eps", 1e-8), _DECAY),
        given=(_moment("hessian", values="variance"),),
    ),
    updated(
        "ema_update",
        "a = decay * a + (1 - decay) * p, for each p of params",
        _ema,
        3,
        (),
        args=(data("average", "M N"), data("params", "steps M N"), plain("decay", 0.59375)),
    ),
    updated(
        "swa_update",
        "a = a + (p - a) / (n + 1), n = averaged + 1 for the first p of params, as each adds one",
        _swa,
        3,
        (),
        args=(data("average", "M N"), data("params", "steps M N"), plain("averaged", 1, among=(0, 2, 3, 7))),
    ),
)

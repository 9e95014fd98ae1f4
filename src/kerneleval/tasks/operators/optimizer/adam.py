"""Adam and its relatives; as ``optimizer.py``."""

from __future__ import annotations

import torch

from kerneleval.tasks.define import data, plain
from kerneleval.tasks.operators.optimizer.optimizer import STEPS, moments, updated

Tensor = torch.Tensor


def _adam(
    param: Tensor,
    grads: Tensor,
    m: Tensor,
    v: Tensor,
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
    step: int,
) -> tuple[Tensor, ...]:
    for t, grad in enumerate(grads, step + 1):
        m, v = moments(grad.add(param, alpha=weight_decay), m, v, beta1, beta2)
        denominator = v.sqrt() / (1 - beta2**t) ** 0.5 + eps
        param = param.addcdiv(m, denominator, value=-lr / (1 - beta1**t))
    return param, m, v


def _adamw(
    param: Tensor,
    grads: Tensor,
    m: Tensor,
    v: Tensor,
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
    step: int,
) -> tuple[Tensor, ...]:
    for t, grad in enumerate(grads, step + 1):
        m, v = moments(grad, m, v, beta1, beta2)
        denominator = v.sqrt() / (1 - beta2**t) ** 0.5 + eps
        param = (param * (1 - lr * weight_decay)).addcdiv(m, denominator, value=-lr / (1 - beta1**t))
    return param, m, v


def _amsgrad(
    param: Tensor,
    grads: Tensor,
    m: Tensor,
    v: Tensor,
    most: Tensor,
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
    step: int,
) -> tuple[Tensor, ...]:
    for t, grad in enumerate(grads, step + 1):
        m, v = moments(grad.add(param, alpha=weight_decay), m, v, beta1, beta2)
        most = torch.maximum(most, v)
        denominator = most.sqrt() / (1 - beta2**t) ** 0.5 + eps
        param = param.addcdiv(m, denominator, value=-lr / (1 - beta1**t))
    return param, m, v, most


def _adamax(
    param: Tensor,
    grads: Tensor,
    m: Tensor,
    u: Tensor,
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
    step: int,
) -> tuple[Tensor, ...]:
    for t, each in enumerate(grads, step + 1):
        grad = each.add(param, alpha=weight_decay)
        m = torch.lerp(m, grad, 1 - beta1)
        u = torch.maximum(beta2 * u, grad.abs() + eps)
        param = param.addcdiv(m, u, value=-lr / (1 - beta1**t))
    return param, m, u


def _nadam(
    param: Tensor,
    grads: Tensor,
    m: Tensor,
    v: Tensor,
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    momentum_decay: float,
    mu_product: float,
    step: int,
) -> tuple[Tensor, ...]:
    for t, grad in enumerate(grads, step + 1):
        mu = beta1 * (1 - 0.5 * 0.96 ** (t * momentum_decay))
        after = beta1 * (1 - 0.5 * 0.96 ** ((t + 1) * momentum_decay))
        mu_product *= mu
        m, v = moments(grad, m, v, beta1, beta2)
        denominator = (v / (1 - beta2**t)).sqrt() + eps
        param = param.addcdiv(grad, denominator, value=-lr * (1 - mu) / (1 - mu_product))
        param = param.addcdiv(m, denominator, value=-lr * after / (1 - mu_product * after))
    return param, m, v


def _radam(
    param: Tensor, grads: Tensor, m: Tensor, v: Tensor, lr: float, beta1: float, longest: int, eps: float, step: int
) -> tuple[Tensor, ...]:
    beta2 = 1 - 2 / (longest + 1)
    for t, grad in enumerate(grads, step + 1):
        m, v = moments(grad, m, v, beta1, beta2)
        size, length = lr / (1 - beta1**t), longest - 2 * t * beta2**t / (1 - beta2**t)
        if length > 5:
            over = (longest - 4) * (longest - 2) * length
            size *= ((length - 4) * (length - 2) * longest / over * (1 - beta2**t)) ** 0.5
            param = param.addcdiv(m, v.sqrt() + eps, value=-size)
        else:
            param = param.add(m, alpha=-size)
    return param, m, v


def _adabelief(
    param: Tensor, grads: Tensor, m: Tensor, s: Tensor, lr: float, beta1: float, beta2: float, eps: float, step: int
) -> tuple[Tensor, ...]:
    for t, grad in enumerate(grads, step + 1):
        m = torch.lerp(m, grad, 1 - beta1)
        surprise = grad - m
        s = (beta2 * s).addcmul(surprise, surprise, value=1 - beta2) + eps
        denominator = s.sqrt() / (1 - beta2**t) ** 0.5 + eps
        param = param.addcdiv(m, denominator, value=-lr / (1 - beta1**t))
    return param, m, s


_M, _V = data("m", "M N"), data("v", "M N", values="variance")
_BETAS = (plain("beta1", 0.4375), plain("beta2", 0.59375))
_LR, _EPS, _DECAY, _STEP = (
    plain("lr", 0.1),
    plain("eps", 1e-8),
    plain("weight_decay", 0.3),
    plain("step", 2, among=STEPS),
)

TASKS = (
    updated(
        "adam",
        "d = g + weight_decay * p, m = beta1 * m + (1 - beta1) * d, v = beta2 * v + (1 - beta2) * d ** 2, "
        "p = p - lr * m / (1 - beta1 ** t) / (sqrt(v / (1 - beta2 ** t)) + eps), t = step + 1 for the first g of grads",
        _adam,
        15,
        (_M, _V),
        *(_LR, *_BETAS, _EPS, _DECAY, _STEP),
    ),
    updated(
        "adamw",
        "m = beta1 * m + (1 - beta1) * g, v = beta2 * v + (1 - beta2) * g ** 2, p = p * (1 - lr * weight_decay) "
        "- lr * m / (1 - beta1 ** t) / (sqrt(v / (1 - beta2 ** t)) + eps), t = step + 1 for the first g of grads",
        _adamw,
        14,
        (_M, _V),
        *(_LR, *_BETAS, _EPS, _DECAY, _STEP),
    ),
    updated(
        "amsgrad",
        "Adam whose v is in the root the largest so far: most = max(most, v)",
        _amsgrad,
        16,
        (_M, _V, data("most", "M N", values="variance")),
        *(_LR, *_BETAS, _EPS, _DECAY, _STEP),
    ),
    updated(
        "adamax",
        "d = g + weight_decay * p, m = beta1 * m + (1 - beta1) * d, u = max(beta2 * u, |d| + eps), "
        "p = p - lr * m / (1 - beta1 ** t) / u, t = step + 1 for the first g of grads",
        _adamax,
        12,
        (_M, data("u", "M N", values="variance")),
        *(_LR, *_BETAS, _EPS, _DECAY, _STEP),
    ),
    updated(
        "nadam",
        "Adam's m and v, p = p - lr * ((1 - mu(t)) * g / (1 - c) + mu(t + 1) * m / (1 - c * mu(t + 1))) / (sqrt(v / "
        "(1 - beta2 ** t)) + eps), mu(t) = beta1 * (1 - 0.96 ** (t * momentum_decay) / 2), c = mu_product * mu(t)",
        _nadam,
        16,
        (_M, _V),
        *(_LR, *_BETAS, _EPS, plain("momentum_decay", 0.04), plain("mu_product", 0.3), _STEP),
    ),
    updated(
        "radam",
        "Adam's m and v, a = lr * m / (1 - beta1 ** t), b = beta2 ** t = (1 - 2 / (l + 1)) ** t, l = longest, n = l - "
        "2 t b / (1 - b), p = p - a where n <= 5, else p - a * sqrt((n - 4) (n - 2) l (1 - b) / ((l - 4) (l - 2) n)) "
        "/ (sqrt(v) + eps)",
        _radam,
        11,
        (_M, _V),
        # both branches lie within four steps
        *(
            _LR,
            plain("beta1", 0.59375),
            plain("longest", 19, among=(12, 30)),
            _EPS,
            plain("step", 4, among=(3, 5, 6, 9)),
        ),
    ),
    updated(
        "adabelief",
        "m = beta1 * m + (1 - beta1) * g, s = beta2 * s + (1 - beta2) * (g - m) ** 2 + eps, "
        "p = p - lr * m / (1 - beta1 ** t) / (sqrt(s / (1 - beta2 ** t)) + eps), t = step + 1 for the first g of grads",
        _adabelief,
        15,
        (_M, data("s", "M N", values="variance")),
        *(_LR, *_BETAS, _EPS, _STEP),
    ),
)

"""Optimisers that look at a whole matrix for a step: norms, factored second moments, orthogonal updates; and what is
done to gradients before.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from kerneleval.records import Arg, Plain
from kerneleval.tasks.define import ROWS, data, fixed, operator, plain
from kerneleval.tasks.operators.optimizer.optimizer import NO_GRADIENT, STEPS, moments, rearranged
from kerneleval.tasks.relations import homogeneity

Tensor = torch.Tensor
_NEWTON_SCHULZ = (3.4445, -4.775, 2.0315)


def _trust(param: Tensor, update: Tensor, eps: float) -> Tensor:
    """The length of the parameters by that of their update; 1 where one of them is 0."""
    length, of_update = torch.linalg.vector_norm(param), torch.linalg.vector_norm(update)
    return torch.where((length > 0) & (of_update > 0), length / (of_update + eps), 1.0)


def _lamb(
    param: Tensor,
    grad: Tensor,
    m: Tensor,
    v: Tensor,
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
    step: int,
) -> tuple[Tensor, ...]:
    t = step + 1
    m, v = moments(grad, m, v, beta1, beta2)
    update = m / (1 - beta1**t) / ((v / (1 - beta2**t)).sqrt() + eps) + weight_decay * param
    return param - lr * _trust(param, update, 0.0) * update, m, v


def _lars(
    param: Tensor, grad: Tensor, momentum: Tensor, lr: float, mu: float, trust: float, eps: float, weight_decay: float
) -> tuple[Tensor, ...]:
    update = grad.add(param, alpha=weight_decay)
    momentum = mu * momentum + lr * trust * _trust(param, update, eps) * update
    return param - momentum, momentum


def _rms(x: Tensor, dim: int | None = None) -> Any:
    """Sums of squares overflow float16."""
    size = torch.linalg.vector_norm(x, dim=dim)
    return size * (x.numel() if dim is None else x.shape[dim]) ** -0.5


def _adafactor(
    param: Tensor,
    grad: Tensor,
    rows: Tensor,
    columns: Tensor,
    lr: float,
    decay: float,
    eps: float,
    clip: float,
    weight_decay: float,
    step: int,
) -> tuple[Tensor, ...]:
    t = step + 1
    rows = torch.lerp(rows, _rms(grad, 1).square(), t**-decay)
    columns = torch.lerp(columns, _rms(grad, 0).square(), t**-decay)
    update = grad * (rows / rows.mean()).rsqrt()[:, None] * columns.rsqrt()
    size = min(lr, t**-0.5) * _rms(param).clamp_min(eps)
    step_size = size / (_rms(update) / clip).clamp_min(1.0)
    return param * (1 - lr * weight_decay) - step_size * update, rows, columns


def _newton_schulz(x: Tensor, steps: int) -> Tensor:
    a, b, c = _NEWTON_SCHULZ
    wide = x.mT if x.shape[0] > x.shape[1] else x
    wide = wide / (torch.linalg.vector_norm(wide) + 1e-7)
    for _ in range(steps):
        gram = wide @ wide.mT
        wide = torch.addmm(wide, torch.addmm(gram, gram, gram, beta=b, alpha=c), wide, beta=a)
    return (wide.mT if x.shape[0] > x.shape[1] else wide).contiguous()


def _muon(
    param: Tensor, grad: Tensor, momentum: Tensor, lr: float, mu: float, weight_decay: float, steps: int
) -> tuple[Tensor, ...]:
    momentum = torch.lerp(momentum, grad, 1 - mu)
    update = _newton_schulz(torch.lerp(grad, momentum, mu), steps)
    size = lr * max(1.0, param.shape[0] / param.shape[1]) ** 0.5
    return (param * (1 - lr * weight_decay)).add(update, alpha=-size), momentum


def _clip_grad_norm(grad: Tensor, max_norm: float) -> tuple[Tensor, Tensor]:
    total = torch.linalg.vector_norm(grad)
    return grad * (max_norm / (total + 1e-6)).clamp_max(1.0), total


def _unscale(grad: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    return grad * (1 / scale), torch.logical_not(torch.isfinite(grad).all())


_SCHULZ_FLOPS = "3 * M * N + steps * (4 * min(M, N) ** 2 * max(M, N) + 2 * min(M, N) ** 3 + 2 * min(M, N) ** 2 + M * N)"
_P, _G = data("param", "M N"), data("grad", "M N")
_FIRST = data("param", "M N", unset=True)
"""Parameters that are 0 in half of the calls. A rate that is a multiple of their norm needs a guard there."""
_M, _V = data("m", "M N"), data("v", "M N", values="variance")
_LR, _EPS, _DECAY, _STEP = (
    plain("lr", 0.1),
    plain("eps", 1e-6),
    plain("weight_decay", 0.3),
    plain("step", 2, among=STEPS),
)
_NORM: Any = {
    "dims": ROWS,
    "group": "Optimizer",
    "reduction": "M * N",
    "no_backward": NO_GRADIENT,
    "complexity": 2,
}
_LAMB: tuple[Arg | Plain, ...] = (
    *(replace(arg, idle=True) for arg in (_FIRST, _G, _M, _V)),
    *(_LR, plain("beta1", 0.4375), plain("beta2", 0.59375), _EPS, _DECAY, _STEP),
)
_LARS = (_FIRST, _G, data("momentum", "M N"), _LR, plain("mu", 0.6), plain("trust", 0.5), _EPS, _DECAY)
_MATRIX: Any = {
    **_NORM,
    "dims": (*ROWS, fixed("steps", low=2, high=5)),
    "reduction": "max(M, N)",
    "normwise": True,
    "nonfinite": False,
    "complexity": 3,
}

TASKS = (
    operator(
        "lamb",
        "reduction",
        "Adam's m and v, u = m / (1 - beta1 ** t) / (sqrt(v / (1 - beta2 ** t)) + eps) + weight_decay * p, "
        "p = p - lr * |p| / |u| * u, Euclidean norms (1 for their quotient where one is 0), t = step + 1",
        args=_LAMB,
        out=("M N",) * 3,
        reference=_lamb,
        flops="22 * M * N",
        nonfinite=False,  # a norm that is NaN is not 0, and not above it
        relations=rearranged(_LAMB, 3)[::2],
        **_NORM,
    ),
    operator(
        "lars",
        "reduction",
        "u = g + weight_decay * p, b = mu * b + lr * trust * |p| / (|u| + eps) * u, p = p - b, Euclidean norms of the "
        "matrices (1 for their quotient where one is 0)",
        args=_LARS,
        out=("M N",) * 2,
        reference=_lars,
        flops="10 * M * N",
        extreme="floors",
        nonfinite=False,
        relations=rearranged(_LARS, 2)[::2],
        **_NORM,
    ),
    operator(
        "adafactor",
        "reduction",
        "w = t ** -decay, r = r + w * (mean_n g ** 2 - r), c = c + w * (mean_m g ** 2 - c), u = g * sqrt(mean(r) / "
        "(r[m] c[n])), p = p * (1 - lr * weight_decay) - min(lr, t ** -0.5) * max(eps, rms(p)) / max(1, rms(u) / clip) "
        "* u, t = step + 1",
        args=(
            _FIRST,
            _G,
            data("rows", "M", values="variance"),
            data("columns", "N", values="variance"),
            # larger than 1 / sqrt(t) from the second step on; other numbers that are drawn may be smaller
            *(plain("lr", 0.75), plain("decay", 0.8), plain("eps", 1e-3), plain("clip", 0.8), _DECAY, _STEP),
        ),
        out=("M N", "M", "N"),
        reference=_adafactor,
        flops="14 * M * N",
        **_NORM,
    ),
    operator(
        "newton_schulz",
        "gemm",
        "y = x / (|x| + 1e-7), Euclidean norm, then steps times y = 3.4445 y - 4.775 s y + 2.0315 s s y, s = y @ y.T "
        "(or the same from the right)",
        args=(data("x", "M N"), plain("steps", formula="steps")),
        out=("M N",),
        reference=_newton_schulz,
        flops=_SCHULZ_FLOPS,
        relations=(homogeneity({0: -1.0}, {0: -1.0}),),
        **_MATRIX,
    ),
    operator(
        "muon",
        "gemm",
        "b = b + (1 - mu) * (g - b), u = newton_schulz(g + mu * (b - g), steps), p = p * (1 - lr * weight_decay) "
        "- lr * sqrt(max(1, M / N)) * u",
        args=(
            *(_P, _G, data("momentum", "M N")),
            *(_LR, plain("mu", 0.59375), _DECAY, plain("steps", formula="steps")),
        ),
        out=("M N",) * 2,
        reference=_muon,
        flops=f"{_SCHULZ_FLOPS} + 9 * M * N",
        **_MATRIX,
    ),
    operator(
        "clip_grad_norm",
        "reduction",
        "out0 = g * min(1, max_norm / (out1 + 1e-6)), out1 = the Euclidean norm of g",
        args=(data("grad", "M N"), plain("max_norm", 1.5)),
        out=("M N", ""),
        reference=_clip_grad_norm,
        flops="3 * M * N",
        relations=rearranged((data("grad", "M N"),), 1)[::2],
        **_NORM,
    ),
    operator(
        "unscale_gradients",
        "elementwise",
        "out0 = g / scale, out1 = whether an element of g is infinite or NaN",
        args=(data("grad", "M N", extreme=True), plain("scale", 6.5)),
        out=("M N", ": bool"),
        reference=_unscale,
        flops="2 * M * N",
        **{**_NORM, "reduction": None, "complexity": 1},
        nonfinite=True,
    ),
)

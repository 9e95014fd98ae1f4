"""Losses that compare numbers place by place: their mean under PyTorch's own name, unreduced as ``..._none``.

In half types, gradients of a mean over many elements are below the smallest numbers: float16 has none of them.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the usual name

from kerneleval.records import Arg, Plain, Relation, Task
from kerneleval.tasks.define import ROWS, data, operator, plain, whole
from kerneleval.tasks.pointwise import pointwise
from kerneleval.tasks.relations import mapping, permutation

__all__ = ["averaged", "reduced"]

Tensor = torch.Tensor
_aten: Any = torch.ops.aten


def reduced(each: Tensor, reduction: str) -> Tensor:
    """The mean of the losses, or the losses themselves, as PyTorch's ``reduction`` has it."""
    return each.mean() if reduction == "mean" else each


def averaged(reference: Any, reduction: str) -> Any:
    """The reference with a reduction of its own, under its name."""
    return functools.update_wrapper(functools.partial(reference, reduction=reduction), reference)


def _smooth_l1(x: Tensor, target: Tensor, beta: float, reduction: str) -> Tensor:
    return F.smooth_l1_loss(x, target, reduction=reduction, beta=beta)


def _huber(x: Tensor, target: Tensor, delta: float, reduction: str) -> Tensor:
    return F.huber_loss(x, target, reduction=reduction, delta=delta)


def _logits(x: Tensor, target: Tensor, pos_weight: Tensor, reduction: str) -> Tensor:
    return F.binary_cross_entropy_with_logits(x, target, pos_weight=pos_weight, reduction=reduction)


def _kl_div(x: Tensor, target: Tensor, reduction: str) -> Tensor:
    return F.kl_div(x, target, reduction="batchmean" if reduction == "mean" else reduction)


def _kl_div_log_target(x: Tensor, target: Tensor, reduction: str) -> Tensor:
    return F.kl_div(x, target, reduction="batchmean" if reduction == "mean" else reduction, log_target=True)


def _poisson_nll_full(x: Tensor, target: Tensor, reduction: str) -> Tensor:
    return F.poisson_nll_loss(x, target, full=True, reduction=reduction)


def _poisson_nll_rate(x: Tensor, target: Tensor, eps: float, reduction: str) -> Tensor:
    return F.poisson_nll_loss(x, target, log_input=False, eps=eps, reduction=reduction)


def _gaussian_nll(x: Tensor, target: Tensor, var: Tensor, eps: float, reduction: str) -> Tensor:
    return F.gaussian_nll_loss(x, target, var, eps=eps, reduction=reduction)


def _hinge(x: Tensor, target: Tensor, reduction: str) -> Tensor:
    return reduced(torch.clamp(1 - x * target, min=0), reduction)


def _squared_hinge(x: Tensor, target: Tensor, reduction: str) -> Tensor:
    return reduced(torch.clamp(1 - x * target, min=0).square(), reduction)


def _hinge_embedding(x: Tensor, target: Tensor, margin: float, reduction: str) -> Tensor:
    return F.hinge_embedding_loss(x, target, margin, reduction=reduction)


def _margin_ranking(x: Tensor, y: Tensor, target: Tensor, margin: float, reduction: str) -> Tensor:
    return F.margin_ranking_loss(x, y, target, margin, reduction=reduction)


def _bpr(x: Tensor, y: Tensor, reduction: str) -> Tensor:
    return reduced(-F.logsigmoid(x - y), reduction)


def _focal(x: Tensor, target: Tensor, alpha: float, gamma: float, reduction: str) -> Tensor:
    p = torch.sigmoid(x)
    entropy = F.binary_cross_entropy_with_logits(x, target, reduction="none")
    hit = p * target + (1 - p) * (1 - target)
    each = (alpha * target + (1 - alpha) * (1 - target)) * entropy * (1 - hit) ** gamma
    return reduced(each, reduction)


def _log_cosh(x: Tensor, target: Tensor, reduction: str) -> Tensor:
    off = (x - target).abs()
    return reduced(off + F.softplus(-2 * off) - math.log(2), reduction)


def _charbonnier(x: Tensor, target: Tensor, eps: float, reduction: str) -> Tensor:
    return reduced(torch.sqrt((x - target).square() + eps * eps), reduction)


def _pinball(x: Tensor, target: Tensor, quantile: float, reduction: str) -> Tensor:
    off = target - x
    return reduced(torch.maximum(quantile * off, (quantile - 1) * off), reduction)


def _smooth_l1_backward(grad: Tensor, x: Tensor, target: Tensor, beta: float) -> Any:
    return _aten.smooth_l1_loss_backward(grad, x, target, 0, beta)


def _huber_backward(grad: Tensor, x: Tensor, target: Tensor, delta: float) -> Any:
    return _aten.huber_loss_backward(grad, x, target, 0, delta)


def _mse_backward(grad: Tensor, x: Tensor, target: Tensor) -> Any:
    return _aten.mse_loss_backward(grad, x, target, 0)


def _bce_backward(grad: Tensor, x: Tensor, target: Tensor) -> Any:
    return _aten.binary_cross_entropy_backward(grad, x, target, None, 0)


_LOSS: Any = {"group": "Loss"}
_X = data("x", "M N")
_BOTH = (_X, data("target", "M N"))
_SIGN = whole("target", "M N", -1, 2)
_SHARE = data("target", "M N", values="uniform")
_MODERATE: Any = {"without": ("large_scale", "outlier")}
_PROBABLE: Any = {**_MODERATE, "nonfinite": False}  # PyTorch takes no NaN for a probability
_KINKED: Any = {"backward_dtypes": ("float32",)}  # half types step over a kink, or cancel 1 - h
_LOG = data("x", "M N", values="symmetric")
_COUNTS = data("target", "M N", values="nonnegative")
_SAME = (mapping("symmetry", lambda x, target, *rest: (target, x, *rest), lambda outs, _: outs),)
_NEGATED = (mapping("even", lambda x, target, *rest: (-x, -target, *rest), lambda outs, _: outs),)


def _loss(
    name: str,
    formula: str,
    reference: Any,
    each: int,
    *plains: Plain,
    over: tuple[Arg, ...] = _BOTH,
    relations: tuple[Relation, ...] = (),
    mean: str = "the mean over all elements of",
    **more: Any,
) -> tuple[Task, Task]:
    """A loss averaged and, as ``..._none``, unreduced.

    Args:
        name: slug of the mean.
        formula: the loss of one element.
        reference: takes the arguments and ``reduction``.
        each: operations for an element.
        plains: plain arguments, which come last.
        over: the tensor arguments.
        relations: metamorphic relations of both, beside permutations.
        mean: what the averaged one is of the formula.
        more: as ``define.operator`` takes it, for both.
    """
    settings = {**_LOSS, **more}
    alike = {i: arg.shape.split() for i, arg in enumerate(over)}
    rows = {i: names.index("M") for i, names in alike.items() if "M" in names}
    columns = {i: names.index("N") for i, names in alike.items() if "N" in names}
    order = (permutation("row_permutation", rows, {}), permutation("column_permutation", columns, {}))
    whole_batch = operator(
        name,
        "reduction",
        f"out = {mean} {formula}",
        dims=ROWS,
        args=(*over, *plains),
        out=("",),
        reference=averaged(reference, "mean"),
        flops=f"({each} + 1) * M * N",
        reduction="M * N",
        relations=(*order, *relations),
        **{"backward_dtypes": ("float32", "bfloat16"), "folded": "M", **settings},
    )
    single = pointwise(
        f"{name}_none",
        f"out = {formula}",
        averaged(reference, "none"),
        each,
        *plains,
        over=over,
        relations=relations,
        **settings,
    )
    return whole_batch, single


def _backward(
    name: str, formula: str, reference: Any, each: int, *plains: Plain, over: tuple[Arg, ...] = _BOTH, **more: Any
) -> Task:
    """The gradient of x of an unreduced loss, from ``grad`` and the loss's own arguments."""
    return pointwise(
        name,
        f"out = {formula}: the gradient of x of the unreduced loss",
        reference,
        each,
        *plains,
        over=(data("grad", "M N"), *over),
        no_backward="it is a gradient itself",
        **_LOSS,
        **more,
    )


TASKS = (
    *_loss("mse_loss", "(x - target) ** 2", F.mse_loss, 2, relations=_SAME),
    *_loss("l1_loss", "|x - target|; gradient 0 where they are equal", F.l1_loss, 2, relations=_SAME),
    *_loss(
        "smooth_l1_loss",
        "d ** 2 / (2 * beta) for d = |x - target| < beta, else d - beta / 2",
        _smooth_l1,
        5,
        plain("beta", 0.75, among=(0.0,)),
        relations=_SAME,
    ),
    *_loss(
        "huber_loss",
        "d ** 2 / 2 for d = |x - target| <= delta, else delta * (d - delta / 2)",
        _huber,
        5,
        plain("delta", 1.5),
        relations=_SAME,
    ),
    *_loss(
        "binary_cross_entropy",
        "-(target * log(x) + (1 - target) * log(1 - x)), logarithms no less than -100, x and target within [0, 1]",
        F.binary_cross_entropy,
        8,
        over=(data("x", "M N", values="uniform"), _SHARE),
        **_PROBABLE,
    ),
    *_loss(
        "binary_cross_entropy_with_logits",
        "-(target * log(sigmoid(x)) + (1 - target) * log(1 - sigmoid(x)))",
        F.binary_cross_entropy_with_logits,
        7,
        over=(_X, _SHARE),
    ),
    *_loss(
        "binary_cross_entropy_pos_weight",
        "-(pos_weight[n] * target * log(sigmoid(x)) + (1 - target) * log(1 - sigmoid(x)))",
        _logits,
        9,
        over=(_X, _SHARE, data("pos_weight", "N", values="positive", differentiable=False)),
    ),
    *_loss(
        "kl_div",
        "target * (log(target) - x), x log-probabilities, 0 where target is",
        _kl_div,
        4,
        over=(_X, _COUNTS),
        folded="N",
        mean="the sum over all, divided by M, of",
    ),
    *_loss(
        "kl_div_log_target",
        "exp(target) * (target - x), both log-probabilities",
        _kl_div_log_target,
        3,
        over=(_X, data("target", "M N", values="symmetric", differentiable=False)),
        folded="N",
        mean="the sum over all, divided by M, of",
        **_MODERATE,
    ),
    *_loss(
        "poisson_nll_loss",
        "exp(x) - target * x",
        F.poisson_nll_loss,
        3,
        over=(_LOG, _COUNTS),
        **_MODERATE,
    ),
    *_loss(
        "poisson_nll_loss_full",
        "exp(x) - target * x + (target * log(target) - target + log(2 pi target) / 2 where target > 1)",
        _poisson_nll_full,
        10,
        over=(_LOG, data("target", "M N", values="nonnegative", differentiable=False, borders=(1.0,))),
        **_MODERATE,
    ),
    *_loss(
        "poisson_nll_loss_rate",
        "x - target * log(x + eps), x a rate",
        _poisson_nll_rate,
        4,
        plain("eps", 1e-8),
        over=(data("x", "M N", values="nonnegative"), _COUNTS),
    ),
    *_loss(
        "gaussian_nll_loss",
        "(log(v) + (x - target) ** 2 / v) / 2 for v = max(var, eps); the gradient of var as if it were v",
        _gaussian_nll,
        7,
        plain("eps", 1e-6),
        over=(*_BOTH, data("var", "M N", values="positive", epsilon=1e-6)),
    ),
    *_loss(
        "soft_margin_loss",
        "log(1 + exp(-target * x)), target -1, 0 or 1",
        F.soft_margin_loss,
        4,
        over=(_X, _SIGN),
        relations=_NEGATED,
        forward_only=("large_scale",),  # the gradient of PyTorch is inf / inf there, in fp64 too
    ),
    *_loss(
        "hinge_loss",
        "max(0, 1 - x * target), target -1, 0 or 1",
        _hinge,
        3,
        over=(_X, _SIGN),
        relations=_NEGATED,
        kinks="between",
    ),
    *_loss(
        "squared_hinge_loss",
        "max(0, 1 - x * target) ** 2, target -1, 0 or 1",
        _squared_hinge,
        4,
        over=(_X, _SIGN),
        relations=_NEGATED,
    ),
    *_loss(
        "hinge_embedding_loss",
        "x where target is 1, max(0, margin - x) where it is -1, their sum where it is 0; at x = margin the gradient "
        "of margin - x",
        _hinge_embedding,
        4,
        plain("margin", 0.75),
        over=(_X, whole("target", "M N", -1, 2, dtype="int64")),
    ),
    *_loss(
        "margin_ranking_loss",
        "max(0, -target * (x - y) + margin), target -1, 0 or 1; the gradient of the second where both are 0",
        _margin_ranking,
        4,
        plain("margin", 0.25),
        over=(_X, data("y", "M N"), _SIGN),
        **_KINKED,
        relations=(mapping("exchange", lambda x, y, target, margin: (y, x, -target, margin), lambda outs, _: outs),),
    ),
    *_loss("bpr_loss", "-log(sigmoid(x - y))", _bpr, 5, over=(_X, data("y", "M N")), source="model", level=2),
    *_loss(
        "sigmoid_focal_loss",
        "a * (1 - h) ** gamma * binary_cross_entropy_with_logits(x, target) for h = p * target + (1 - p) * "
        "(1 - target), a = alpha * target + (1 - alpha) * (1 - target), p = sigmoid(x)",
        _focal,
        24,
        plain("alpha", 0.25),
        plain("gamma", 2.0),
        source="model",
        level=2,
        over=(_X, whole("target", "M N", 0, 2)),
        **_KINKED,
    ),
    *_loss(
        "log_cosh_loss",
        "log(cosh(x - target)), as d + softplus(-2 * d) - log(2) for d = |x - target|",
        _log_cosh,
        7,
        source="model",
        level=2,
        relations=_SAME,
        without=("small_scale",),
    ),
    *_loss(
        "charbonnier_loss",
        "sqrt((x - target) ** 2 + eps ** 2)",
        _charbonnier,
        4,
        plain("eps", 0.125),
        source="model",
        level=2,
        relations=_SAME,
    ),
    *_loss(
        "pinball_loss",
        "max(quantile * d, (quantile - 1) * d) for d = target - x",
        _pinball,
        4,
        plain("quantile", 0.875),
        source="model",
        level=2,
        kinks="between",
    ),
    _backward("mse_loss_backward", "2 * (x - target) * grad", _mse_backward, 3),
    _backward(
        "smooth_l1_loss_backward",
        "clamp((x - target) / beta, -1, 1) * grad",
        _smooth_l1_backward,
        5,
        plain("beta", 0.75),
    ),
    _backward(
        "huber_loss_backward", "clamp(x - target, -delta, delta) * grad", _huber_backward, 5, plain("delta", 1.5)
    ),
    _backward(
        "binary_cross_entropy_backward",
        "grad * (x - target) / max(x * (1 - x), 1e-12)",
        _bce_backward,
        6,
        over=(data("x", "M N", values="uniform"), _SHARE),
        **_PROBABLE,
    ),
)

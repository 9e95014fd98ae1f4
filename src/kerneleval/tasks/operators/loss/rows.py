"""Losses of rows, (M, N) -> one number a row: their mean under PyTorch's own name, unreduced as ``..._none``.

Classes are the last dim. In half types, gradients of a mean are below the smallest numbers: float16 has none of them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the usual name

from kerneleval.records import Arg, Plain, Task
from kerneleval.tasks.define import FAR_BELOW, MOST_NAMED, ROWS, data, fixed, index, operator, plain, size, whole
from kerneleval.tasks.operators.loss.loss import averaged, reduced
from kerneleval.tasks.relations import homogeneity, mapping, permutation, resampling, shift

Tensor = torch.Tensor


def _cross_entropy_weight(logits: Tensor, targets: Tensor, weight: Tensor, reduction: str) -> Tensor:
    return F.cross_entropy(logits, targets, weight, reduction=reduction)


def _cross_entropy_ignore(logits: Tensor, targets: Tensor, ignore_index: int, reduction: str) -> Tensor:
    return F.cross_entropy(logits, targets, ignore_index=ignore_index, reduction=reduction)


def _cross_entropy_smooth(logits: Tensor, targets: Tensor, label_smoothing: float, reduction: str) -> Tensor:
    return F.cross_entropy(logits, targets, label_smoothing=label_smoothing, reduction=reduction)


def _cross_entropy_image(logits: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(logits, targets, reduction="none")


def _cross_entropy_z(logits: Tensor, targets: Tensor, factor: float, reduction: str) -> Tensor:
    return reduced(
        F.cross_entropy(logits, targets, reduction="none") + factor * torch.logsumexp(logits, -1).square(), reduction
    )


def _nll_weight(x: Tensor, targets: Tensor, weight: Tensor, reduction: str) -> Tensor:
    return F.nll_loss(x, targets, weight, reduction=reduction)


def _distillation(x: Tensor, teacher: Tensor, temperature: float, reduction: str) -> Tensor:
    each = F.kl_div(
        F.log_softmax(x / temperature, -1),
        F.log_softmax(teacher / temperature, -1),
        reduction="none",
        log_target=True,
    )
    return reduced(each.sum(-1) * temperature**2, reduction)


def _multi_margin(x: Tensor, targets: Tensor, margin: float, reduction: str) -> Tensor:
    return F.multi_margin_loss(x, targets, margin=margin, reduction=reduction)


def _cosine_embedding(x: Tensor, y: Tensor, target: Tensor, margin: float, reduction: str) -> Tensor:
    return F.cosine_embedding_loss(x, y, target, margin, reduction=reduction)


def _cosine_embedding_normalized(x: Tensor, y: Tensor, target: Tensor, margin: float, reduction: str) -> Tensor:
    return F.cosine_embedding_loss(F.normalize(x), F.normalize(y), target, margin, reduction=reduction)


def _cosine_similarity(x: Tensor, y: Tensor, reduction: str) -> Tensor:
    return reduced(1 - F.cosine_similarity(x, y), reduction)


def _triplet_margin(anchor: Tensor, positive: Tensor, negative: Tensor, margin: float, reduction: str) -> Tensor:
    return F.triplet_margin_loss(anchor, positive, negative, margin, reduction=reduction)


def _contrastive(x: Tensor, y: Tensor, same: Tensor, margin: float, reduction: str) -> Tensor:
    distance = F.pairwise_distance(x, y)
    apart = torch.clamp(margin - distance, min=0)
    return reduced(torch.where(same, distance.square(), apart.square()), reduction)


def _dice(x: Tensor, target: Tensor, smooth: float, reduction: str) -> Tensor:
    shared = (x * target).sum(-1)
    return reduced(1 - (2 * shared + smooth) / (x.sum(-1) + target.sum(-1) + smooth), reduction)


def _iou(x: Tensor, target: Tensor, smooth: float, reduction: str) -> Tensor:
    shared = (x * target).sum(-1)
    return reduced(1 - (shared + smooth) / (x.sum(-1) + target.sum(-1) - shared + smooth), reduction)


def _tversky(x: Tensor, target: Tensor, alpha: float, beta: float, smooth: float, reduction: str) -> Tensor:
    shared, extra, missed = (x * target).sum(-1), (x * (1 - target)).sum(-1), ((1 - x) * target).sum(-1)
    return reduced(1 - (shared + smooth) / (shared + alpha * extra + beta * missed + smooth), reduction)


_LOGITS = data("logits", "M N", common=f"{FAR_BELOW}", nonfinite="masked_nan", extreme="rows")
_CLASS = index("targets", "M", high="max(1, N)")
_X, _Y = data("x", "M N"), data("y", "M N")
_LOGS = data("x", "M N", values="positive")  # of one sign, as logarithms of probabilities are
_SHIFTED = (shift("shift_invariance", 0, False),)
_CHOICE: Any = {"relations": _SHIFTED, "where": "2 <= N"}
_MANY: Any = {"dims": (size("M"), size("N", long=MOST_NAMED))}
_CLASSES: Any = {"over": (_LOGITS, _CLASS), **_CHOICE, **_MANY}
_WEIGHTS = data("weight", "N", values="positive", differentiable=False)
_MODEL: Any = {"source": "model", "level": 2}
# PyTorch adds up in turn, in float64 too, where its own sums of equal terms would be the oracle
_MARGIN: Any = {**_CHOICE, "dtypes": ("float32", "float64"), "backward_dtypes": ("float32",)}
_WITHOUT_NAN = data("x", "M N", nonfinite="none")  # PyTorch drops them by a comparison, where a maximum keeps them
_SIGN = whole("target", "M", -1, 2, dtype="int64")
_OVERLAP: Any = {
    "dims": (size("M"), size("N", high=1024)),  # longer sums of positive numbers hide the errors of narrow inputs
    "over": (data("x", "M N", values="uniform"), data("target", "M N", values="uniform")),
    "without": ("large_scale", "outlier"),
    **_MODEL,
}
_KINKED: Any = {"backward_dtypes": ("float32",)}  # half types step over a kink
_ANGLE: Any = {"over": (_X, _Y, _SIGN), "where": "4 <= N", **_KINKED}


def _loss(
    name: str,
    formula: str,
    reference: Any,
    each: int,
    *plains: Plain,
    over: tuple[Arg, ...] = (_X, _Y),
    mean: str = "the mean over m of",
    only: str = "",
    reduction: str = "N",
    **more: Any,
) -> tuple[Task, ...]:
    """A loss averaged and, as ``..._none``, one for each row.

    Args:
        name: slug of the mean.
        formula: the loss of row m.
        reference: takes the arguments and ``reduction``.
        each: operations for an element.
        plains: plain arguments, which come last.
        over: the tensor arguments.
        mean: what the averaged one is of the formula.
        only: ``mean`` or ``none``: this one alone.
        reduction: terms of a row's sum.
        more: as ``define.operator`` takes it, for both.
    """
    rows = {i: 0 for i, arg in enumerate(over) if "M" in arg.shape.split()}
    settings: dict[str, Any] = {
        "dims": ROWS,
        "args": (*over, *plains),
        "flops": f"{each} * M * N",
        "group": "Loss",
        "complexity": 2,
        "where": "1 <= N",
        **more,
    }
    whole_batch = operator(
        name,
        "reduction",
        f"out = {mean} {formula}",
        out=("",),
        reference=averaged(reference, "mean"),
        reduction=f"M * ({reduction})",
        common_relations=(permutation("row_permutation", rows, {}),),
        **{"backward_dtypes": ("float32", "bfloat16"), **settings},
    )
    single = operator(
        f"{name}_none",
        "reduction",
        f"out[m] = {formula}",
        out=("M",),
        reference=averaged(reference, "none"),
        reduction=reduction,
        empty=True,
        common_relations=(permutation("row_permutation", rows, {0: 0}), resampling("row_resampling", rows, {0: 0})),
        **settings,
    )
    return tuple(task for kind, task in (("mean", whole_batch), ("none", single)) if only in ("", kind))


TASKS = (
    *_loss(
        "cross_entropy",
        "log(sum_n exp(logits[m, n])) - logits[m, targets[m]]",
        F.cross_entropy,
        4,
        only="mean",  # the other is softmax_cross_entropy
        **_CLASSES,
    ),
    *_loss(
        "cross_entropy_weight",
        "weight[t] * (log(sum_n exp(logits[m, n])) - logits[m, t]), t = targets[m]",
        _cross_entropy_weight,
        4,
        over=(_LOGITS, _CLASS, _WEIGHTS),
        mean="the sum over m, divided by that of weight[t], of",
        **_CHOICE,
        **_MANY,
    ),
    *_loss(
        "cross_entropy_ignore_index",
        "log(sum_n exp(logits[m, n])) - logits[m, targets[m]], 0 where targets[m] is ignore_index",
        _cross_entropy_ignore,
        4,
        plain("ignore_index", -1, among=(-100, 0, "N // 2", "N - 1")),
        over=(_LOGITS, replace(_CLASS, ignored="ignore_index")),
        **_CHOICE,
        **_MANY,
        only="none",
    ),
    *_loss(
        "cross_entropy_label_smoothing",
        "log(sum_n exp(l[n])) - (1 - s) * l[targets[m]] - s * mean(l) for l = logits[m], s = label_smoothing",
        _cross_entropy_smooth,
        5,
        plain("label_smoothing", 0.125),
        **_CLASSES,
    ),
    *_loss(
        "cross_entropy_soft_targets",
        "sum_n targets[m, n] * (log(sum_k exp(logits[m, k])) - logits[m, n])",
        F.cross_entropy,
        6,
        over=(_LOGITS, data("targets", "M N", values="uniform")),
        **_CHOICE,
        without=("large_scale", "outlier"),
    ),
    *_loss(
        "cross_entropy_z_loss",
        "z - logits[m, targets[m]] + factor * z ** 2 for z = log(sum_n exp(logits[m, n]))",
        _cross_entropy_z,
        4,
        plain("factor", 0.125),
        over=(_LOGITS, _CLASS),
        where="2 <= N",
        without=("large_scale",),
        **_MODEL,
        **_MANY,
    ),
    operator(
        "cross_entropy_image",
        "reduction",
        "out[b, h, w] = log(sum_c exp(logits[b, c, h, w])) - logits[b, t, h, w], t = targets[b, h, w]",
        dims=(fixed("B", high=4), size("C", low=2, high=256), size("H", high=512), size("W", high=512)),
        args=(
            data("logits", "B C H W", common=f"{FAR_BELOW}", extreme="rows"),
            index("targets", "B H W", high="max(1, C)"),
        ),
        out=("B H W",),
        reference=_cross_entropy_image,
        flops="4 * B * C * H * W",
        reduction="C",
        group="Loss",
        complexity=2,
        relations=(resampling("batch_resampling", {0: 0, 1: 0}, {0: 0}),),
    ),
    *_loss(
        "nll_loss",
        "-x[m, targets[m]]",
        F.nll_loss,
        1,
        over=(_LOGS, _CLASS),
        **_MANY,
        reduction="1",
        complexity=1,
        relations=(homogeneity({0: -2.0}, {0: -2.0}),),
    ),
    *_loss(
        "nll_loss_weight",
        "-weight[targets[m]] * x[m, targets[m]]",
        _nll_weight,
        1,
        over=(_LOGS, _CLASS, _WEIGHTS),
        mean="the sum over m, divided by that of weight[targets[m]], of",
        **_MANY,
        reduction="1",
        complexity=1,
        relations=(homogeneity({0: -2.0}, {0: -2.0}),),
    ),
    *_loss(
        "distillation_loss",
        "T ** 2 * sum_n q[n] * (log(q[n]) - log(p[n])) for p = softmax(x[m] / T), q = softmax(teacher[m] / T), "
        "T = temperature",
        _distillation,
        14,
        plain("temperature", 2.0),
        over=(data("x", "M N", common=f"{FAR_BELOW}"), data("teacher", "M N", common=f"{FAR_BELOW}")),
        **_CHOICE,
        **_MODEL,
    ),
    *_loss(
        "multi_margin_loss",
        "sum_n max(0, margin - x[m, t] + x[m, n]) / N, n other than t = targets[m]",
        _multi_margin,
        4,
        plain("margin", 1.0),
        over=(_WITHOUT_NAN, _CLASS),
        **_MARGIN,
    ),
    *_loss(
        "multilabel_margin_loss",
        "sum_j sum_n max(0, 1 - x[m, j] + x[m, n]) / N, j any of targets[m] up to the first -1, n none of them",
        F.multilabel_margin_loss,
        4,
        over=(_WITHOUT_NAN, index("targets", "M N", low=-1, high="max(1, N)")),
        dims=(size("M"), size("N", high=2048)),
        flops="4 * M * N * N",
        no_backward="on CUDA (2.11), PyTorch's own gradient is another one in every run",
        **{**_MARGIN, "dtypes": ("float32",), "backward_dtypes": ()},
    ),
    *_loss(
        "multilabel_soft_margin_loss",
        "-mean_n(target * log(sigmoid(x)) + (1 - target) * log(1 - sigmoid(x))), target 0 or 1",
        F.multilabel_soft_margin_loss,
        8,
        over=(_X, whole("target", "M N", 0, 2)),
        complexity=1,
    ),
    *_loss(
        "cosine_embedding_loss",
        "1 - cos(x[m], y[m]) where target[m] is 1, max(0, cos(x[m], y[m]) - margin) where it is -1, 0 where it is 0",
        _cosine_embedding,
        6,
        plain("margin", -0.5),
        dtypes=("float32", "bfloat16"),  # PyTorch multiplies the squares of both norms, which float16 does not hold
        **_ANGLE,
    ),
    *_loss(
        "cosine_embedding_loss_with_normalization",
        "cosine_embedding_loss of x[m] / max(|x[m]|, 1e-12) and y[m] / max(|y[m]|, 1e-12)",
        _cosine_embedding_normalized,
        12,
        plain("margin", -0.5),
        epsilon=1e-12,
        level=2,
        **_ANGLE,
    ),
    *_loss(
        "cosine_similarity_loss",
        "1 - x[m] . y[m] / (max(|x[m]|, 1e-8) * max(|y[m]|, 1e-8))",
        _cosine_similarity,
        6,
        epsilon=1e-8,
        epsilon_backward=False,  # as cosine_similarity
        where="4 <= N",
        relations=(mapping("symmetry", lambda x, y: (y, x), lambda outs, _: outs), homogeneity({0: 2.0}, {})),
    ),
    *_loss(
        "triplet_margin_loss",
        "max(0, |anchor[m] - positive[m] + 1e-6| - |anchor[m] - negative[m] + 1e-6| + margin)",
        _triplet_margin,
        8,
        plain("margin", 1.0),
        over=tuple(data(name, "M N", along="N") for name in ("anchor", "positive", "negative")),
        rows=("far_mean",),
        **_KINKED,
    ),
    *_loss(
        "contrastive_loss",
        "d ** 2 where same[m], else max(0, margin - d) ** 2, for d = |x[m] - y[m] + 1e-6|",
        _contrastive,
        4,
        plain("margin", 2.0),
        over=(
            *(data(name, "M N", along="N") for name in ("x", "y")),
            Arg(name="same", shape="M", values="bool", dtype="bool"),
        ),
        rows=("far_mean",),
        only="none",
        **_MODEL,
    ),
    *_loss(
        "dice_loss",
        "1 - (2 * sum_n x * target + smooth) / (sum_n x + sum_n target + smooth), numbers within [0, 1)",
        _dice,
        4,
        plain("smooth", 1.0),
        **_OVERLAP,
    ),
    *_loss(
        "iou_loss",
        "1 - (I + smooth) / (sum_n x + sum_n target - I + smooth) for I = sum_n x * target, numbers within [0, 1)",
        _iou,
        4,
        plain("smooth", 1.0),
        **_OVERLAP,
    ),
    *_loss(
        "tversky_loss",
        "1 - (I + smooth) / (I + alpha * sum_n x * (1 - target) + beta * sum_n (1 - x) * target + smooth) for "
        "I = sum_n x * target, numbers within [0, 1)",
        _tversky,
        8,
        plain("alpha", 0.25),
        plain("beta", 0.75),
        plain("smooth", 1.0),
        **_OVERLAP,
    ),
)

"""Softmax and its kin, along the last dim unless stated: of masked, scaled and capped scores, and the gradients."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the usual name

from kerneleval.records import Arg, Plain, Task, product_text
from kerneleval.tasks.define import FAR_BELOW, LONG_ROWS, ROWS, data, fixed, mask, operator, plain, size, weight
from kerneleval.tasks.operators.reduction.reduction import along
from kerneleval.tasks.operators.reduction.scan import wide
from kerneleval.tasks.relations import homogeneity, permutation, resampling, shift

Tensor = torch.Tensor
_aten: Any = torch.ops.aten
_PLANES = (size("B", high=1024), size("M"), size("N"))
_IMAGES = (fixed("B"), size("C", high=1024), size("H", high=512), size("W", high=512))
_SCORES = (fixed("B", high=4), fixed("H", high=16), size("L", high=2048), size("S", high=2048))


def normalised(
    name: str,
    summary: str,
    reference: Callable[..., Any],
    *plains: Plain,
    given: tuple[Arg, ...] = (),
    over: str = "M N",
    axis: int = -1,
    each: int = 5,
    shifts: bool = True,
    **more: Any,
) -> Task:
    """A task whose output has the shape of its first argument, along one dim of which it is normalised.

    Args:
        name: unique slug.
        summary: one line with the formula.
        reference: the operator in plain PyTorch.
        plains: plain arguments, which come last.
        given: the tensor arguments, where they are not ``x`` alone.
        over: the shape of the output.
        axis: the dim normalised.
        each: operations for an element.
        shifts: whether a number added to all of a row of (M, N) changes nothing.
        more: as ``define.operator`` takes it.
    """
    names, args = over.split(), given or (data("x", over, common=f"{FAR_BELOW}", extreme="rows"),)
    length = names[axis]
    rest = next(name for name in names if name != length)
    along_rest, along_axis = (
        {i: arg.shape.split().index(letter) for i, arg in enumerate(args) if letter in arg.shape.split()}
        for letter in (rest, length)
    )
    found = [resampling(f"{rest.lower()}_resampling", along_rest, {0: names.index(rest)})]
    if names.count(length) == 1:  # of a square, the order matters
        found.append(permutation("order", along_axis, {0: names.index(length)}))
    if shifts and over == "M N" and length == "N":
        found.append(shift("shift_invariance", 0, False))
    settings: dict[str, Any] = {
        "reduction": f"{length}",
        "dims": ROWS,
        "where": f"{length} >= 2",  # of one element, all gradients are 0
        "empty": True,
        "group": "Activation",
        "nonfinite": "masked_nan",
        "drifts": True,
        "folded": "" if len(names) > 3 and not axis > 0 else names[0] if axis == -1 else names[-1],
        **more,
    }
    return operator(
        name,
        "normalization",
        summary,
        args=(*args, *plains),
        out=(over,),
        reference=reference,
        flops=f"{each} * {product_text(over)}",
        common_relations=found,
        **settings,
    )


def _softmax_backward(grad: Tensor, y: Tensor) -> Any:
    return _aten._softmax_backward_data(grad, y, -1, y.dtype)


def _log_softmax_backward(grad: Tensor, y: Tensor) -> Any:
    return _aten._log_softmax_backward_data(grad, y, -1, y.dtype)


def _temperature(x: Tensor, temperature: float) -> Tensor:
    return torch.softmax(x / temperature, -1)


def _softcap(x: Tensor, cap: float) -> Tensor:
    return torch.softmax(cap * torch.tanh(x / cap), -1)


def _masked(x: Tensor, mask: Tensor) -> Tensor:
    return torch.softmax(x.masked_fill(~mask, -math.inf), -1)


def _scaled_masked(x: Tensor, mask: Tensor, scale: float) -> Tensor:
    return torch.softmax((x * scale).masked_fill(~mask[:, None, None], -math.inf), -1)


def _biased(x: Tensor, bias: Tensor, scale: float) -> Tensor:
    return torch.softmax(x * scale + bias, -1)


def _causal(x: Tensor) -> Tensor:
    later = torch.ones(x.shape[-2:], dtype=torch.bool, device=x.device).triu(1 + x.shape[-1] - x.shape[-2])
    return torch.softmax(x.masked_fill(later, -math.inf), -1)


def _scaled_causal(x: Tensor, scale: float) -> Tensor:
    return _causal(x * scale)


def _window(x: Tensor, window: int) -> Tensor:
    seen = torch.ones(x.shape[-2:], dtype=torch.bool, device=x.device).tril().triu(1 - window)
    return torch.softmax(x.masked_fill(~seen, -math.inf), -1)


def _softmax_one(x: Tensor) -> Tensor:
    return torch.softmax(F.pad(x, (0, 1)), -1)[..., :-1].contiguous()


def _one_added(x: Tensor) -> Tensor:
    """The same step by step: what is added to the sum is less than a rounding of it in half types."""
    most = x.amax(-1, keepdim=True).detach().clamp_min(0)
    shares = torch.exp(x - most)
    return shares / (torch.exp(-most) + shares.sum(-1, keepdim=True))


def _sink(x: Tensor, sinks: Tensor) -> Tensor:
    column = sinks[:, None, None].expand(*x.shape[:-1], 1)
    return torch.softmax(torch.cat((x, column), -1), -1)[..., :-1].contiguous()


def _dual(x: Tensor) -> Tensor:
    return torch.softmax(x, -1) * torch.softmax(x, -2)


def _threshold(scores: Tensor) -> Tensor:
    """What sparsemax subtracts from every score of a row, (M, 1)."""
    ordered = torch.sort(scores, -1, descending=True).values
    excess = ordered.cumsum(-1) - 1
    place = torch.arange(1, scores.shape[-1] + 1, device=scores.device)
    support = (place * ordered > excess).sum(-1, keepdim=True).clamp_min(1)  # none where there is a NaN
    return excess.gather(-1, support - 1) / support


def _sparsemax(x: Tensor) -> Tensor:
    scores = wide(x)
    return (scores - _threshold(scores)).clamp_min(0).to(x.dtype)


def _mean_in_type(x: Tensor) -> Tensor:
    """Sparsemax, the mean of whose gradients is rounded to the type of ``x``."""
    scores = wide(x)
    threshold = _threshold(scores)
    rounded = threshold.to(x.dtype)  # and its gradient with it
    return (scores - (rounded + (threshold - rounded).detach())).clamp_min(0).to(x.dtype)


def _entropy(x: Tensor) -> Tensor:
    logs = torch.log_softmax(x, -1)
    return -(logs.exp() * logs).sum(-1)


def _entropy_of_shares(x: Tensor) -> Tensor:
    """From the softmax and the logarithm of the sum, each rounded by itself: in a single row the errors of all elements
    are one, and either formula's may be small by chance.
    """
    return (torch.softmax(x, -1) * (torch.logsumexp(x, -1, keepdim=True) - x)).sum(-1)


_MIDDLE: Any = {"over": "B M N", "axis": 1, "dims": _PLANES}
_CHANNELS: Any = {"over": "B C H W", "axis": 1, "dims": _IMAGES}
_BLOCK: Any = {"over": "B H L S", "dims": _SCORES, "group": "Fusion", "level": 2, "source": "model"}
_SQUARE: Any = {**_BLOCK, "over": "B H L L", "dims": _SCORES[:3], "where": "L >= 4"}
_FUSED: Any = {"level": 2, "source": "model", "group": "Fusion"}
_GRAD: Any = {
    "no_backward": "it is a gradient itself",
    "shifts": False,
    "nonfinite": "nan",
    "relations": (homogeneity({0: -2.0}, {0: -2.0}),),
}

TASKS = (
    normalised("softmax", "out[m, n] = exp(x[m, n]) / sum_i exp(x[m, i])", along(torch.softmax, -1), dims=LONG_ROWS),
    normalised("softmax_dim0", "out[m, n] = exp(x[m, n]) / sum_i exp(x[i, n])", along(torch.softmax, 0), axis=0),
    normalised(
        "softmax_middle", "out[b, m, n] = exp(x[b, m, n]) / sum_i exp(x[b, i, n])", along(torch.softmax, 1), **_MIDDLE
    ),
    normalised(
        "softmax2d",
        "out[b, c, h, w] = exp(x[b, c, h, w]) / sum_i exp(x[b, i, h, w])",
        along(torch.softmax, 1),
        **_CHANNELS,
    ),
    normalised(
        "log_softmax", "out[m, n] = x[m, n] - log sum_i exp(x[m, i])", along(torch.log_softmax, -1), dims=LONG_ROWS
    ),
    normalised(
        "log_softmax_middle",
        "out[b, m, n] = x[b, m, n] - log sum_i exp(x[b, i, n])",
        along(torch.log_softmax, 1),
        **_MIDDLE,
    ),
    normalised(
        "softmin",
        "out[m, n] = exp(-x[m, n]) / sum_i exp(-x[m, i])",
        along(F.softmin, -1),
        given=(data("x", "M N", common=f"{FAR_BELOW}", common_signs=True, extreme="rows"),),
        nonfinite="limits",  # minus infinity, as masks leave it, makes NaN of whole rows
    ),
    normalised(
        "softmax_temperature",
        "out[m, n] = exp(x[m, n] / temperature) / sum_i exp(x[m, i] / temperature)",
        _temperature,
        plain("temperature", 0.75),
        each=6,
        **_FUSED,
    ),
    normalised(
        "softmax_softcap",
        "out[m] = softmax(cap * tanh(x[m] / cap))",
        _softcap,
        plain("cap", 30.0),
        each=8,
        shifts=False,
        **_FUSED,
    ),
    normalised(
        "softmax_one",
        "out[m, n] = exp(x[m, n]) / (1 + sum_i exp(x[m, i]))",
        _softmax_one,
        given=(data("x", "M N"),),
        shifts=False,
        unfused=(_one_added,),
        in_type=False,
        backward_dtypes=("float32",),  # rows that are equal leave rounding errors of half types alone
        source="model",
    ),
    normalised(
        "sparsemax",
        "out[m] = the point next to x[m] among those of numbers that are 0 or more and whose sum is 1",
        _sparsemax,
        each=20,
        kinks="free",
        unfused=(_mean_in_type,),  # beside a gradient that is next to it, the rounding of the mean is all there is
        in_type=False,
        given=(data("x", "M N", common=f"{FAR_BELOW}"),),  # differences of larger sums lose all digits
        nan_signs=False,
        rows=("ordered",),
        source="model",
        level=2,
    ),
    normalised(
        "softmax_backward",
        "out[m, n] = y[m, n] * (grad[m, n] - sum_i grad[m, i] * y[m, i]), y the softmax's output",
        _softmax_backward,
        given=(data("grad", "M N"), data("y", "M N", values="uniform", fan_in="N N")),
        each=4,
        without=("large_scale", "outlier"),
        **_GRAD,
    ),
    normalised(
        "log_softmax_backward",
        "out[m, n] = grad[m, n] - exp(y[m, n]) * sum_i grad[m, i], y the log-softmax's output",
        _log_softmax_backward,
        given=(data("grad", "M N"), data("y", "M N")),
        each=4,
        without=("large_scale", "outlier"),
        **_GRAD,
    ),
    normalised(
        "masked_softmax",
        "out[m] = softmax of x[m] over what mask allows, 0 elsewhere; every row has something",
        _masked,
        given=(data("x", "M N", common=f"{FAR_BELOW}", extreme="rows"), mask("mask", "M N")),
        each=6,
        **_FUSED,
    ),
    normalised(
        "causal_softmax",
        "out[b, h, l] = softmax of x[b, h, l, s] over s <= l, 0 elsewhere",
        _causal,
        **_SQUARE,
    ),
    normalised(
        "scaled_causal_softmax",
        "out[b, h, l] = softmax of x[b, h, l, s] * scale over s <= l, 0 elsewhere",
        _scaled_causal,
        plain("scale", 0.125),
        each=6,
        **_SQUARE,
    ),
    normalised(
        "sliding_window_softmax",
        "out[b, h, l] = softmax of x[b, h, l, s] over l - window < s <= l, 0 elsewhere",
        _window,
        plain("window", formula="K"),
        **{**_SQUARE, "dims": (*_SCORES[:3], fixed("K", low=2, high=128)), "where": "L > 3 and K > 1"},
    ),
    normalised(
        "scaled_masked_softmax",
        "out[b, h, l] = softmax of x[b, h, l, s] * scale over s with mask[b, s], 0 elsewhere; every batch has one",
        _scaled_masked,
        plain("scale", 0.125),
        given=(data("x", "B H L S", common=f"{FAR_BELOW}", extreme="rows"), mask("mask", "B S")),
        each=6,
        where="S >= 4",
        **_BLOCK,
    ),
    normalised(
        "scaled_biased_softmax",
        "out[b, h, l] = softmax of x[b, h, l, s] * scale + bias[h, l, s] over s",
        _biased,
        plain("scale", 0.125),
        given=(data("x", "B H L S"), replace(weight("bias", "H L S"), common=FAR_BELOW)),
        each=7,
        gathered="B",
        **_BLOCK,
    ),
    normalised(
        "sink_softmax",
        "out[b, h, l, s] = exp(x[b, h, l, s]) / (exp(sinks[h]) + sum_i exp(x[b, h, l, i]))",
        _sink,
        given=(data("x", "B H L S", common=FAR_BELOW), replace(weight("sinks", "H"), common=FAR_BELOW)),
        each=6,
        forward_only=("large_scale",),  # where the gradient of sinks is nothing, or nearly so
        dtypes=("float32",),  # among thousands a sink is less than a rounding of half types
        gathered="B * L * S",
        **_BLOCK,
    ),
    normalised(
        "dual_softmax",
        "out[b, m, n] = softmax of x[b, m] at n times softmax of x[b, :, n] at m",
        _dual,
        given=(data("x", "B M N", common=FAR_BELOW),),
        over="B M N",
        dims=(size("B", high=1024), size("M", low=2), size("N", low=2)),
        each=11,
        where="M > 1 and N > 1",
        **_FUSED,
    ),
    operator(
        "softmax_entropy",
        "reduction",
        "out[m] = -sum_n p[m, n] * log p[m, n], p[m] = softmax(x[m])",
        dims=ROWS,
        args=(data("x", "M N", common=f"{FAR_BELOW}"),),
        out=("M",),
        reference=_entropy,
        unfused=(_entropy_of_shares,),
        in_type=False,
        flops="7 * M * N",
        reduction="N",
        extreme="rows",
        where="N > 1",
        empty=True,
        relations=(
            permutation("row_permutation", {0: 0}, {0: 0}),
            permutation("order_within_rows", {0: 1}, {}),
            shift("shift_invariance", 0, False),
        ),
        complexity=2,
        **_FUSED,
    ),
)

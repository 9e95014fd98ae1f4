"""Pooling of lines (B, C, L), images (B, C, H, W) and volumes (B, C, T, H, W) under windows of one size.

Windows of width K begin every S places and reach padding, up to half of K, over the edges. Maxima take no padding into
account, and NaN is the largest number; the first of equal maxima takes the gradient.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the usual name

from kerneleval.records import Arg, Dim, Plain, Relation, Task, product_text
from kerneleval.tasks.define import data, fixed, nonempty, operator, plain, size
from kerneleval.tasks.relations import additivity, homogeneity, permutation, resampling

__all__ = ["CHANNELS", "EXTREME", "LINEAR", "pooled"]

Tensor = torch.Tensor
_aten: Any = torch.ops.aten


def _avg_pool2d_no_pad(x: Tensor, kernel: int, stride: int, padding: int) -> Tensor:
    return F.avg_pool2d(x, kernel, stride, padding, count_include_pad=False)


def _sum_pool2d(x: Tensor, kernel: int, stride: int, padding: int) -> Tensor:
    return F.avg_pool2d(x, kernel, stride, padding, divisor_override=1)


def _avg_pool2d_backward(
    grad: Tensor, height: int, width: int, kernel: int, stride: int, padding: int, include_pad: bool
) -> Any:
    x = grad.new_empty((*grad.shape[:2], height, width))
    return _aten.avg_pool2d_backward(
        grad, x, (kernel, kernel), (stride, stride), (padding, padding), False, include_pad, None
    )


def _max_pool2d_ceil(x: Tensor, kernel: int, stride: int, padding: int) -> Tensor:
    return F.max_pool2d(x, kernel, stride, padding, ceil_mode=True)


def _max_pool2d_with_indices(x: Tensor, kernel: int, stride: int, padding: int) -> tuple[Tensor, Tensor]:
    values, indices = F.max_pool2d(x, kernel, stride, padding, return_indices=True)
    return values, indices


def _min_pool2d(x: Tensor, kernel: int, stride: int, padding: int) -> Tensor:
    return -F.max_pool2d(-x, kernel, stride, padding)


def _max_pool_unpool2d(x: Tensor, kernel: int) -> Tensor:
    values, indices = F.max_pool2d(x, kernel, return_indices=True)
    return F.max_unpool2d(values, indices, [kernel, kernel], output_size=list(x.shape))


def _lp_pool1d(x: Tensor, p: float, kernel: int, stride: int) -> Tensor:
    return F.lp_pool1d(x, p, kernel, stride)


def _lp_pool2d(x: Tensor, p: float, kernel: int, stride: int) -> Tensor:
    return F.lp_pool2d(x, p, kernel, stride)


CHANNELS: tuple[Dim, ...] = (fixed("B", high=8), size("C", high=512))
"""The first dims of every tensor."""

LINEAR: tuple[Relation, ...] = (additivity(0), homogeneity({0: -2.0}, {0: -2.0}))
"""Relations of sums and means."""

EXTREME: Any = {
    "relations": (homogeneity({0: 2.0}, {0: 2.0}),),
    "exact": True,
    "nonfinite": True,
    "backward_dtypes": ("float32",),
    "forward_only": ("constant", "zeros"),
}
"""What maxima have: in half types many are equal, and moving the inputs tells nothing about gradients."""

_KERNEL, _STEP = fixed("K", low=2, high=4), fixed("S", high=3)
_SIZES = (_KERNEL, _STEP, fixed("E", low=0, high=2))
"""Width of a window, places between two, and how far they reach over the edges."""
_WINDOW = (plain("kernel", formula="K"), plain("stride", formula="S"), plain("padding", formula="E"))
_DILATED = (*_WINDOW, plain("dilation", formula="D"))


def _length(name: str, up: bool = False, padded: bool = True, dilated: bool = False) -> str:
    """Formula of how many windows lie along a dim; ``up``: also one of which only the beginning does."""
    edge = " + E" if padded else ""
    rest = f"{name}{' + 2 * E' if padded else ''} - {'D * ' if dilated else ''}(K - 1) - 1"
    if not up:
        return f"({rest}) // S + 1"
    return f"-(-({rest}) // S) + 1 - (-(-({rest}) // S) * S >= {name}{edge})"


def _across(names: str, outs: str, **how: bool) -> dict[str, str]:
    return {out: _length(name, **how) for name, out in zip(names.split(), outs.split(), strict=True)}


def positions(own: str, *extra: Dim, least: int = 1) -> tuple[Dim, ...]:
    """Batch, channels, the positions that ``own`` names (at least ``least`` of each), and the dims beside them."""
    places = own.split()
    most = {1: 8192, 2: 512, 3: 96}[len(places)]
    return (*CHANNELS, *(size(place, low=least, high=most) for place in places), *extra)


def pooled(
    name: str,
    summary: str,
    reference: Any,
    own: str,
    out: str,
    *plains: Plain,
    over: Sequence[Arg] = (),
    outputs: tuple[str, ...] = (),
    **more: Any,
) -> Task:
    """A task that pools positions of each channel.

    Args:
        name: unique slug.
        summary: one line with the formula.
        reference: the operator in plain PyTorch.
        own: names of the positions of ``x``.
        out: names of the positions of the output.
        plains: plain arguments, which come last.
        over: the tensor arguments, if ``x`` is not the only one.
        outputs: shapes of the outputs, if there are several.
        more: as ``define.operator`` takes it.
    """
    shapes = outputs or (f"B C {out}",)
    # whole channels, and so windows, that are not finite
    rows = own if more.get("nonfinite") in (True, "infinite") else ""
    args = tuple(over) or (data("x", f"B C {own}", along=rows),)
    every, whole_batch = dict.fromkeys(range(len(shapes)), 0), dict.fromkeys(range(len(args)), 0)
    settings: dict[str, Any] = {
        "dims": positions(own, *_SIZES),
        "reduction": f"K ** {len(own.split())}",
        **more,
    }
    settings.setdefault("gathered", settings["reduction"])
    settings.setdefault("flops", f"{product_text(f'B C {out}')} * ({settings['reduction']})")
    settings.setdefault("where", f"{nonempty(settings['dims'], 'E')} and min({', '.join(out.split())}, 1) > 0")
    if any(dim.name == "E" for dim in settings["dims"]):
        settings["where"] += f" and min({', '.join(settings['derive'])}, 1) > 0 and E <= K // 2"
    if any(one.name == "dilation" for one in plains):  # or a window may hold no element, whose gradient goes anywhere
        settings["where"] += f" and min({own.replace(' ', ', ')}, {own.split(maxsplit=1)[0]}) >= D"
    return operator(
        name,
        "reduction",
        summary,
        args=(*args, *plains),
        out=shapes,
        reference=reference,
        group="Pooling",
        complexity=2,
        common_relations=(
            resampling("batch_resampling", whole_batch, every),
            permutation("channel_permutation", dict.fromkeys(whole_batch, 1), dict.fromkeys(every, 1)),
        ),
        **settings,
    )


_LINE: Any = {"derive": _across("L", "P")}
_IMAGE: Any = {"derive": _across("H W", "P Q")}
_VOLUME: Any = {"derive": _across("T H W", "O P Q")}


def _spread(names: str, outs: str) -> dict[str, Any]:
    """Windows whose elements lie D apart."""
    return {"dims": positions(names, *_SIZES, fixed("D", high=3)), "derive": _across(names, outs, dilated=True)}


_UNPADDED = (plain("p", 2.0), plain("kernel", formula="K"), plain("stride", formula="S"))
_ROOT: Any = {"relations": (homogeneity({0: 2.0}, {0: 2.0}),)}
TASKS = (
    pooled(
        "avg_pool1d",
        "out[b, c, p] = sum_k x[b, c, p * stride + k - padding] / kernel, 0 outside",
        F.avg_pool1d,
        "L",
        "P",
        *_WINDOW,
        relations=LINEAR,
        **_LINE,
    ),
    pooled(
        "avg_pool2d",
        "out[b, c, p, q] = sum_{i, j} x[b, c, p * stride + i - padding, q * stride + j - padding] / kernel ** 2, "
        "0 outside",
        F.avg_pool2d,
        "H W",
        "P Q",
        *_WINDOW,
        relations=LINEAR,
        **_IMAGE,
    ),
    pooled(
        "avg_pool3d",
        "out[b, c, o, p, q] = sum_{i, j, k} x[b, c, o * stride + i - padding, p * stride + j - padding, q * stride + k "
        "- padding] / kernel ** 3, 0 outside",
        F.avg_pool3d,
        "T H W",
        "O P Q",
        *_WINDOW,
        dims=positions("T H W", *_SIZES, least=4),  # PyTorch takes no volume thinner than the window
        dtypes=("float32", "float64"),  # and no half types on CPUs
        relations=LINEAR,
        **_VOLUME,
    ),
    pooled(
        "avg_pool2d_no_pad",
        "out[b, c, p, q] = the mean of x[b, c] over the part of the window from (p, q) * stride - padding on that lies "
        "inside",
        _avg_pool2d_no_pad,
        "H W",
        "P Q",
        *_WINDOW,
        relations=LINEAR,
        **_IMAGE,
    ),
    pooled(
        "sum_pool2d",
        "out[b, c, p, q] = sum_{i, j} x[b, c, p * stride + i - padding, q * stride + j - padding], 0 outside",
        _sum_pool2d,
        "H W",
        "P Q",
        *_WINDOW,
        relations=LINEAR,
        **_IMAGE,
    ),
    *(
        pooled(
            f"avg_pool2d_{name}",
            f"out[b, c, h, w] = the sum of grad[b, c, p, q] / {count} over the windows (p, q) of avg_pool2d on it",
            _avg_pool2d_backward,
            "H W",
            "H W",
            plain("height", formula="H"),
            plain("width", formula="W"),
            *_WINDOW,
            plain("include_pad", include),
            over=(data("grad", "B C P Q"),),
            relations=LINEAR,
            no_backward="it is a gradient itself",
            **_IMAGE,
        )
        for name, count, include in (
            ("backward", "kernel ** 2", True),
            ("no_pad_backward", "as many as are inside of the window", False),
        )
    ),
    pooled(
        "max_pool1d",
        "out[b, c, p] = max_k x[b, c, p * stride + k * dilation - padding]; the first of equal ones takes the gradient",
        F.max_pool1d,
        "L",
        "P",
        *_DILATED,
        **_spread("L", "P"),
        **EXTREME,
    ),
    pooled(
        "max_pool2d",
        "out[b, c, p, q] = max_{i, j} x[b, c, p * stride + i * dilation - padding, q * stride + j * dilation - "
        "padding]; the first of equal ones takes the gradient",
        F.max_pool2d,
        "H W",
        "P Q",
        *_DILATED,
        **_spread("H W", "P Q"),
        **EXTREME,
    ),
    pooled(
        "max_pool3d",
        "out[b, c, o, p, q] = max_{i, j, k} x[b, c, o * stride + i * dilation - padding, p * stride + j * dilation - "
        "padding, q * stride + k * dilation - padding]; the first of equal ones takes the gradient",
        F.max_pool3d,
        "T H W",
        "O P Q",
        *_DILATED,
        **_spread("T H W", "O P Q"),
        **EXTREME,
    ),
    pooled(
        "max_pool2d_ceil",
        "out[b, c, p, q] = max_{i, j} x[b, c, p * stride + i - padding, q * stride + j - padding]; windows may reach "
        "further, if they begin before the end of x or of its left padding; the first of equal ones takes the gradient",
        _max_pool2d_ceil,
        "H W",
        "P Q",
        *_WINDOW,
        derive=_across("H W", "P Q", up=True),
        **EXTREME,
    ),
    pooled(
        "max_pool2d_with_indices",
        "out = (the maxima of max_pool2d, their places h * W + w in x[b, c]), of equal ones the first",
        _max_pool2d_with_indices,
        "H W",
        "P Q",
        *_WINDOW,
        outputs=("B C P Q", "B C P Q: int64"),
        derive=_across("H W", "P Q"),
        **{**EXTREME, "nonfinite": "infinite"},  # of several NaN the last
    ),
    pooled(
        "min_pool2d",
        "out[b, c, p, q] = min_{i, j} x[b, c, p * stride + i - padding, q * stride + j - padding]; the first of "
        "equal ones takes the gradient",
        _min_pool2d,
        "H W",
        "P Q",
        *_WINDOW,
        level=2,
        **_IMAGE,
        **EXTREME,
    ),
    pooled(
        "max_pool_unpool2d",
        "out = x where it is the (first) maximum of its square of kernel * kernel; else, and in no whole square, 0",
        _max_pool_unpool2d,
        "H W",
        "H W",
        plain("kernel", formula="K"),
        dims=positions("H W", _KERNEL, least=4),
        reduction="1",
        level=2,
        **{**EXTREME, "nonfinite": False},
    ),
    pooled(
        "lp_pool1d",
        "out[b, c, l] = (sum_k x[b, c, l * stride + k] ** p) ** (1 / p), x >= 0",
        _lp_pool1d,
        "L",
        "P",
        *_UNPADDED,
        over=(data("x", "B C L", values="nonnegative"),),
        dims=positions("L", _KERNEL, _STEP, least=4),
        flops="B * C * P * (2 * K * K + 2)",
        derive=_across("L", "P", padded=False),
        **_ROOT,
    ),
    pooled(
        "lp_pool2d",
        "out[b, c, h, w] = (sum_{i, j} x[b, c, h * stride + i, w * stride + j] ** p) ** (1 / p), x >= 0",
        _lp_pool2d,
        "H W",
        "P Q",
        *_UNPADDED,
        over=(data("x", "B C H W", values="nonnegative"),),
        dims=positions("H W", _KERNEL, _STEP, least=4),
        flops="B * C * P * Q * (2 * K * K + 2)",
        derive=_across("H W", "P Q", padded=False),
        **_ROOT,
    ),
)

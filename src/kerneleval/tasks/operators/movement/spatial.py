"""Images warped, folded, shuffled: (B, C, H, W) and the like.

A position of the output lies in the input as PyTorch has it: pixels are squares whose centres have whole numbers, and
ends (-1 and 1) are the outer edges of the outer pixels, with ``align_corners`` their centres.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the usual name

from kerneleval.records import Plain, Task
from kerneleval.tasks.define import data, fixed, nonempty, plain, size, weight
from kerneleval.tasks.operators.movement.movement import moved
from kerneleval.tasks.relations import additivity, permutation

Tensor = torch.Tensor


def _grid_sample(x: Tensor, grid: Tensor) -> Tensor:
    return F.grid_sample(x, grid, align_corners=False)


def _grid_sample_border(x: Tensor, grid: Tensor) -> Tensor:
    return F.grid_sample(x, grid, padding_mode="border", align_corners=True)


def _grid_sample_bicubic(x: Tensor, grid: Tensor) -> Tensor:
    return F.grid_sample(x, grid, mode="bicubic", align_corners=False)


def _affine_grid(theta: Tensor, height: int, width: int) -> Tensor:
    return F.affine_grid(theta, [theta.shape[0], 1, height, width], align_corners=False)


def _affine_sample(x: Tensor, theta: Tensor, height: int, width: int) -> Tensor:
    return _grid_sample(x, _affine_grid(theta, height, width))


def _im2col(x: Tensor, kernel: int, padding: int, stride: int) -> Tensor:
    return F.unfold(x, kernel, padding=padding, stride=stride)


def _col2im(x: Tensor, height: int, width: int, kernel: int, padding: int, stride: int) -> Tensor:
    return F.fold(x, (height, width), kernel, padding=padding, stride=stride)


_BATCH = fixed("B", low=2, high=4)
_CHANNELS = size("C", high=256)
_IMAGE = (_BATCH, _CHANNELS, size("H", high=512), size("W", high=512))
_RESIZED = (*_IMAGE, size("P", high=512), size("Q", high=512))
_SCALED: Any = {"scaled": "H * S", "wide": "W * S"}
_SIZE = (plain("height", formula="P"), plain("width", formula="Q"))
_COMPUTED: Any = {"exact": False, "nonfinite": "nan"}


def spatial(
    name: str, summary: str, reference: Callable[..., Any], over: Any, out: str, *plains: Plain, **more: Any
) -> Task:
    """A task that moves or weighs the pixels of a batch, of which only the batch B may be 0.

    ``more`` as ``movement.moved`` takes it.
    """
    settings: dict[str, Any] = {"group": "SpatialOps", "where": nonempty(more["dims"], "B"), **more}
    return moved(name, summary, reference, over, out, *plains, batch=True, **settings)


_GRID = data("grid", "B P Q two", values="symmetric")
_SAMPLED: Any = {
    "dims": _RESIZED,
    "derive": {"two": 2},
    "gathered": "P * Q",
    "placed": True,
    "scaling": 0,
    "relations": (permutation("channel_permutation", {0: 1}, {0: 1}),),
    "without": ("large_scale",),
    # PyTorch finds the place in the grid's type; half types have no more than 256 or 2048 places in a row.
    "dtypes": ("float32", "float64"),
    **_COMPUTED,
    "nonfinite": False,  # a NaN may or may not count where it weighs nothing
}
_FOLDED: Any = {
    "dims": (
        _BATCH,
        size("C", high=128),
        size("H", high=256),
        size("W", high=256),
        fixed("K", high=4),
        fixed("S", high=2),
        fixed("E", low=0, high=3),
    ),
    "derive": {
        "rows": "C * K * K",
        "P": "(H + 2 * E - K) // S + 1",
        "Q": "(W + 2 * E - K) // S + 1",
        "places": "P * Q",
    },
    "where": "min(C, H, W, K, S) > 0 and min(P, Q) > 0 and E < K",
}
_KERNEL = (plain("kernel", formula="K"), plain("padding", formula="E"), plain("stride", formula="S"))


TASKS = (
    spatial(
        "pixel_shuffle",
        "out[b, c, h * scale + i, w * scale + j] = x[b, (c * scale + i) * scale + j, h, w]",
        F.pixel_shuffle,
        "B channels H W",
        "B C scaled wide",
        plain("scale", formula="S"),
        dims=(*_IMAGE, fixed("S", low=2, high=4)),
        derive={**_SCALED, "channels": "C * S * S"},
        empty=False,  # PyTorch's gradient of nothing has a wrong shape
    ),
    spatial(
        "pixel_unshuffle",
        "out[b, (c * scale + i) * scale + j, h, w] = x[b, c, h * scale + i, w * scale + j]",
        F.pixel_unshuffle,
        "B C scaled wide",
        "B channels H W",
        plain("scale", formula="S"),
        dims=(*_IMAGE, fixed("S", low=2, high=4)),
        derive={**_SCALED, "channels": "C * S * S"},
        empty=False,  # PyTorch's gradient of nothing has a wrong shape
    ),
    spatial(
        "grid_sample",
        "out[b, c, p, q] = x[b, c] at column ((g0 + 1) * W - 1) / 2 and row ((g1 + 1) * H - 1) / 2 for g = "
        "grid[b, p, q], between its four neighbours, those outside 0",
        _grid_sample,
        (data("x", "B C H W"), _GRID),
        "B C P Q",
        each=16,
        reduction="4",
        **_SAMPLED,
    ),
    spatial(
        "grid_sample_border",
        "out[b, c, p, q] = x[b, c] at column (g0 + 1) * (W - 1) / 2 and row (g1 + 1) * (H - 1) / 2 for g = "
        "grid[b, p, q], moved to the edge from outside, between its four neighbours",
        _grid_sample_border,
        (data("x", "B C H W"), replace(_GRID, borders=(-1.0, 1.0))),
        "B C P Q",
        each=20,
        reduction="4",
        kinks="between",  # beyond the edge the slope is 0
        **_SAMPLED,
    ),
    spatial(
        "grid_sample_bicubic",
        "out[b, c, p, q] = x[b, c] at column ((g0 + 1) * W - 1) / 2 and row ((g1 + 1) * H - 1) / 2 for g = "
        "grid[b, p, q], by cubic convolution (a = -0.75) of its 4 x 4 neighbours, those outside 0",
        _grid_sample_bicubic,
        (data("x", "B C H W"), _GRID),
        "B C P Q",
        each=60,
        reduction="16",
        **_SAMPLED,
    ),
    spatial(
        "affine_grid",
        "out[b, p, q] = theta[b] (X, Y, 1) for X = (2 * q + 1) / width - 1, Y = (2 * p + 1) / height - 1",
        _affine_grid,
        (data("theta", "B two three"),),
        "B P Q two",
        *_SIZE,
        dims=(size("B", high=64), size("P", high=512), size("Q", high=512)),
        derive={"two": 2, "three": 3},
        each=5,
        reduction="3",
        gathered="P * Q",
        empty=False,
        dtypes=("float32", "float64"),
        **_COMPUTED,
    ),
    spatial(
        "affine_grid_sample",
        "out = grid_sample(x, affine_grid(theta, (height, width))), bilinear with zeros outside: a spatial transformer",
        _affine_sample,
        (data("x", "B C H W"), weight("theta", "B two three", fan_in="three")),
        "B C P Q",
        *_SIZE,
        each=22,
        reduction="4",
        level=2,
        source="model",
        **_SAMPLED | {"derive": {"two": 2, "three": 3}, "empty": False},
    ),
    spatial(
        "im2col",
        "out[b, (c * kernel + i) * kernel + j, l] = x[b, c, p * stride + i - padding, q * stride + j - padding], 0 "
        "outside, for the l-th place (p, q)",
        _im2col,
        "B C H W",
        "B rows places",
        *_KERNEL,
        reduction="1",
        gathered="(-(-K // S)) ** 2",
        **_FOLDED,
    ),
    spatial(
        "col2im",
        "out[b, c, h, w] = the sum of x[b, (c * kernel + i) * kernel + j, l] over all that im2col copies from there",
        _col2im,
        "B rows places",
        "B C H W",
        plain("height", formula="H"),
        plain("width", formula="W"),
        *_KERNEL,
        each=9,
        reduction="(-(-K // S)) ** 2",
        relations=(additivity(0),),
        **_FOLDED,
        **_COMPUTED,
    ),
)

"""Images, lines and volumes resized: (B, C, L), (B, C, H, W), (B, C, D, H, W).

Pixels are squares whose centres have whole numbers; with ``align_corners`` the first and the last centres stay.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the usual name

from kerneleval.records import Task
from kerneleval.tasks.define import data, fixed, plain, size
from kerneleval.tasks.operators.movement.spatial import spatial
from kerneleval.tasks.relations import permutation

Tensor = torch.Tensor
_aten: Any = torch.ops.aten


def _nearest(x: Tensor, scale: int) -> Tensor:
    return F.interpolate(x, scale_factor=scale, mode="nearest")


def _nearest_exact(x: Tensor, scale: int) -> Tensor:
    return F.interpolate(x, scale_factor=scale, mode="nearest-exact")


def _nearest_down(x: Tensor, height: int, width: int) -> Tensor:
    return F.interpolate(x, (height, width), mode="nearest")


def _linear(x: Tensor, length: int) -> Tensor:
    return F.interpolate(x, length, mode="linear")


def _bilinear(x: Tensor, height: int, width: int) -> Tensor:
    return F.interpolate(x, (height, width), mode="bilinear")


def _bilinear_aligned(x: Tensor, height: int, width: int) -> Tensor:
    return F.interpolate(x, (height, width), mode="bilinear", align_corners=True)


def _bilinear_antialias(x: Tensor, height: int, width: int) -> Tensor:
    return F.interpolate(x, (height, width), mode="bilinear", antialias=True)


def _bicubic(x: Tensor, height: int, width: int) -> Tensor:
    return F.interpolate(x, (height, width), mode="bicubic")


def _bicubic_aligned(x: Tensor, height: int, width: int) -> Tensor:
    return F.interpolate(x, (height, width), mode="bicubic", align_corners=True)


def _trilinear(x: Tensor, depth: int, height: int, width: int) -> Tensor:
    return F.interpolate(x, (depth, height, width), mode="trilinear")


def _area(x: Tensor, height: int, width: int) -> Tensor:
    return F.interpolate(x, (height, width), mode="area")


def _nearest_backward(grad: Tensor, height: int, width: int) -> Any:
    return _aten.upsample_nearest2d_backward(grad, grad.shape[2:], (*grad.shape[:2], height, width))


def _bilinear_backward(grad: Tensor, height: int, width: int) -> Any:
    return _aten.upsample_bilinear2d_backward(grad, grad.shape[2:], (*grad.shape[:2], height, width), False)


_BATCH = fixed("B", low=2, high=4)
_CHANNELS = size("C", high=256)
_IMAGE = (_BATCH, _CHANNELS, size("H", high=512), size("W", high=512))
_RESIZED = (*_IMAGE, size("P", high=512), size("Q", high=512))
_SCALED: Any = {"scaled": "H * S", "wide": "W * S"}
_SIZE = (plain("height", formula="P"), plain("width", formula="Q"))
_BY_CHANNEL = (permutation("channel_permutation", {0: 1}, {0: 1}),)
_COMPUTED: Any = {"exact": False, "nonfinite": "nan"}
_PLACED: Any = {"exact": False, "nonfinite": "channels"}
"""Whether a place is a whole number, and which neighbours count, hangs on how it is rounded."""


def _reach(taps: int, *pairs: tuple[str, str]) -> str:
    """Formula of how many elements of the output one of the input contributes to."""
    return " * ".join(f"({taps} * -(-{out} // {own}) + 1)" for own, out in pairs)


def _resized(name: str, summary: str, reference: Any, taps: int, each: int, **more: Any) -> Task:
    """An interpolation from (B, C, H, W) to (B, C, P, Q) of ``taps`` neighbours along each dim."""
    return spatial(
        name,
        summary,
        reference,
        "B C H W",
        "B C P Q",
        *_SIZE,
        **{
            "dims": _RESIZED,
            "each": each,
            "reduction": f"{taps} * {taps}",
            "gathered": _reach(taps, ("H", "P"), ("W", "Q")),
            "relations": _BY_CHANNEL,
            **_PLACED,
            **more,
        },
    )


_NOT_TWICE: Any = {"no_backward": "it is a gradient itself"}


TASKS = (
    spatial(
        "interpolate_nearest",
        "out[b, c, h, w] = x[b, c, floor(h / scale), floor(w / scale)]",
        _nearest,
        "B C H W",
        "B C scaled wide",
        plain("scale", formula="S"),
        dims=(*_IMAGE, fixed("S", low=2, high=4)),
        derive=_SCALED,
        reduction="1",
        gathered="S * S",
        relations=_BY_CHANNEL,
    ),
    spatial(
        "interpolate_nearest1d",
        "out[b, c, l] = x[b, c, floor(l / scale)]",
        _nearest,
        "B C L",
        "B C long",
        plain("scale", formula="S"),
        dims=(_BATCH, _CHANNELS, size("L", high=4096), fixed("S", low=2, high=4)),
        derive={"long": "L * S"},
        reduction="1",
        gathered="S",
        relations=_BY_CHANNEL,
    ),
    spatial(
        "interpolate_nearest_exact",
        "out[b, c, h, w] = x[b, c, floor((h + 0.5) / scale), floor((w + 0.5) / scale)]",
        _nearest_exact,
        "B C H W",
        "B C scaled wide",
        plain("scale", formula="S"),
        dims=(*_IMAGE, fixed("S", low=2, high=4)),
        derive=_SCALED,
        reduction="1",
        gathered="S * S",
        relations=_BY_CHANNEL,
    ),
    spatial(
        "interpolate_nearest_down",
        "out[b, c, h, w] = x[b, c, h * H / height, w * W / width], both quotients whole",
        _nearest_down,
        "B C scaled wide",
        "B C H W",
        plain("height", formula="H"),
        plain("width", formula="W"),
        dims=(*_IMAGE, fixed("S", low=2, high=4)),
        derive=_SCALED,
        relations=_BY_CHANNEL,
    ),
    spatial(
        "interpolate_linear",
        "out[b, c, p] = x[b, c] at (p + 0.5) * L / length - 0.5, no less than 0, between its two neighbours",
        _linear,
        "B C L",
        "B C P",
        plain("length", formula="P"),
        dims=(_BATCH, _CHANNELS, size("L", high=4096), size("P", high=4096)),
        each=4,
        reduction="2",
        gathered=_reach(2, ("L", "P")),
        relations=_BY_CHANNEL,
        **_PLACED,
    ),
    _resized(
        "interpolate_bilinear",
        "out[b, c, p, q] = x[b, c] at (p + 0.5) * H / height - 0.5 and so on, no less than 0, between four neighbours",
        _bilinear,
        2,
        10,
    ),
    _resized(
        "interpolate_bilinear_aligned",
        "out[b, c, p, q] = x[b, c] at p * (H - 1) / (height - 1) and so on, between its four neighbours",
        _bilinear_aligned,
        2,
        10,
    ),
    _resized(
        "interpolate_bilinear_antialias",
        "out[b, c, p, q] = x[b, c] under a triangle about (p + 0.5) * H / height - 0.5 and so on, as wide as the step",
        _bilinear_antialias,
        2,
        10,
        reduction="4 * (1 + H // P) * (1 + W // Q)",
        dtypes=("float32", "float64"),
        empty=False,  # PyTorch raises on CUDA where the batch is
    ),
    _resized(
        "interpolate_bicubic",
        "out[b, c, p, q] = x[b, c] at (p + 0.5) * H / height - 0.5 and so on, by cubic convolution (a = -0.75) of its "
        "4 x 4 neighbours, those outside at the edge",
        _bicubic,
        4,
        60,
    ),
    _resized(
        "interpolate_bicubic_aligned",
        "out[b, c, p, q] = x[b, c] at p * (H - 1) / (height - 1) and so on, by cubic convolution (a = -0.75) of its "
        "4 x 4 neighbours, those outside at the edge",
        _bicubic_aligned,
        4,
        60,
    ),
    spatial(
        "interpolate_trilinear",
        "out[b, c, o, p, q] = x[b, c] at (o + 0.5) * D / depth - 0.5 and so on, no less than 0, between 8 neighbours",
        _trilinear,
        "B C D H W",
        "B C O P Q",
        plain("depth", formula="O"),
        *_SIZE,
        dims=(_BATCH, *(size(dim, high=64) for dim in "CDHWOPQ")),
        each=22,
        reduction="8",
        gathered=_reach(2, ("D", "O"), ("H", "P"), ("W", "Q")),
        relations=_BY_CHANNEL,
        **_PLACED,
    ),
    _resized(
        "interpolate_area",
        "out[b, c, p, q] = the mean of x[b, c] over rows floor(p * H / height) to ceil((p + 1) * H / height) - 1 and "
        "columns alike",
        _area,
        1,
        1,
        reduction="(1 + -(-H // P)) * (1 + -(-W // Q))",
    ),
    spatial(
        "upsample_nearest2d_backward",
        "out[b, c, h, w] = the sum of grad over the square of pixels that nearest upsampling copies from there",
        _nearest_backward,
        (data("grad", "B C scaled wide"),),
        "B C H W",
        plain("height", formula="H"),
        plain("width", formula="W"),
        dims=(*_IMAGE, fixed("S", low=2, high=4)),
        derive=_SCALED,
        each=16,
        reduction="S * S",
        relations=_BY_CHANNEL,
        **_NOT_TWICE,
        **_COMPUTED,
    ),
    spatial(
        "upsample_bilinear2d_backward",
        "out[b, c, h, w] = the sum of grad[b, c, p, q] times what x[b, c, h, w] weighs in bilinear upsampling",
        _bilinear_backward,
        (data("grad", "B C P Q"),),
        "B C H W",
        plain("height", formula="H"),
        plain("width", formula="W"),
        dims=_RESIZED,
        each=16,
        reduction=_reach(2, ("H", "P"), ("W", "Q")),
        relations=_BY_CHANNEL,
        **_NOT_TWICE,
        **_PLACED,
    ),
)

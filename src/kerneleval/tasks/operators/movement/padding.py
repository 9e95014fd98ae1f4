"""Borders around the last dims: constants, mirror images, copies of the ends, wrapped around."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the usual name

from kerneleval.records import Plain, Task
from kerneleval.tasks.define import data, fixed, plain, size
from kerneleval.tasks.operators.movement.movement import moved
from kerneleval.tasks.relations import permutation

Tensor = torch.Tensor
_aten: Any = torch.ops.aten


def _constant(x: Tensor, *padding: Any) -> Tensor:
    return F.pad(x, padding[:-1], value=padding[-1])


def _zero(x: Tensor, *padding: int) -> Tensor:
    return F.pad(x, padding)


def _reflection(x: Tensor, *padding: int) -> Tensor:
    return F.pad(x, padding, mode="reflect")


def _replication(x: Tensor, *padding: int) -> Tensor:
    return F.pad(x, padding, mode="replicate")


def _circular(x: Tensor, *padding: int) -> Tensor:
    return F.pad(x, padding, mode="circular")


def _crop(x: Tensor, left: int, right: int, top: int, bottom: int) -> Tensor:
    return F.pad(x, (-left, -right, -top, -bottom)).clone(memory_format=torch.contiguous_format)


def _reflection_backward(grad: Tensor, left: int, right: int) -> Any:
    return _aten.reflection_pad1d_backward(grad, grad[..., left : grad.shape[-1] - right], (left, right))


def _replication_backward(grad: Tensor, left: int, right: int) -> Any:
    return _aten.replication_pad1d_backward(grad, grad[..., left : grad.shape[-1] - right], (left, right))


_LENGTHS = ("W", "H", "D")
_BORDERS = {
    "W": (plain("left", formula="S"), plain("right", formula="T % 5")),
    "H": (plain("top", formula="(T + 1) % 5"), plain("bottom", formula="(S + 1) % 5")),
    "D": (plain("front", formula="(S + 2) % 5"), plain("back", formula="(T + 2) % 5")),
}
"""Borders of each dim, from 0 to 4. No two are equal for every S and T, so that none can always be taken for another.
"""
_LONGEST = {1: 4096, 2: 512, 3: 64}
_WIDER = {"W": "wide", "H": "tall", "D": "deep"}
_VALUE = plain("value", -1.25)
_CHANNELS = permutation("channel_permutation", {0: 1}, {0: 1})
_GRADIENT: Any = {"no_backward": "it is a gradient itself", "exact": False, "nonfinite": "nan"}


def _padded(
    name: str, summary: str, reference: Any, count: int, *plains: Plain, longer: bool | None = None, **more: Any
) -> Task:
    """A task over (B, C) and the last ``count`` of D, H, W, each with a border before and one behind it.

    Args:
        name: unique slug.
        summary: one line with the formula.
        reference: the operator in plain PyTorch.
        count: how many dims are padded.
        plains: plain arguments behind the borders.
        longer: whether every padded dim must be longer than its borders, which mirror it or wrap it around; False: it
            must have an end that is copied; None: it may be empty.
        more: as ``moved`` takes it.
    """
    lengths = _LENGTHS[:count][::-1]
    borders = [side for name in _LENGTHS[:count] for side in _BORDERS[name]]
    wide = {name: [side.formula for side in _BORDERS[name]] for name in lengths}
    settings: dict[str, Any] = {
        "over": f"B C {' '.join(lengths)}",
        "out": f"B C {' '.join(_WIDER[name] for name in lengths)}",
        "derive": {_WIDER[name]: f"{name} + {before} + {behind}" for name, (before, behind) in wide.items()},
        "reduction": "1",
        "gathered": " * ".join(f"(1 + max({before}, {behind}))" for before, behind in wide.values()),
        "relations": (_CHANNELS,),
        **more,
    }
    over, out = settings.pop("over"), settings.pop("out")
    # the smallest mirrored dim is longer than the borders that it has where S is 0 and T 1
    least = {name: 2 + (_LENGTHS.index(name) if longer else 0) for name in lengths}
    sampled = tuple(size(name, low=least[name], high=_LONGEST[count]) for name in lengths)
    if longer:
        longer_than = [f"{name} > max({before}, {behind})" for name, (before, behind) in wide.items()]
        settings["where"] = f"C * T > 0 and {' and '.join(longer_than)}"
    elif longer is False:
        settings["where"] = f"min({', '.join(('C', *lengths, 'T'))}) > 0"
    if count == 1:  # or nothing would be done
        settings["where"] = " and ".join(filter(None, (settings.get("where"), "S + T % 5 > 0")))
    return moved(
        name,
        summary,
        reference,
        over,
        out,
        *borders,
        *plains,
        dims=(fixed("B", low=2, high=4), size("C", high=512), *sampled, fixed("S", low=0, high=4), fixed("T", high=5)),
        batch=True,
        group="SpatialOps",
        **settings,
    )


_FILLED: Any = {"scaling": 0}

TASKS = (
    _padded("zero_pad1d", "out = x with zeros around, in the last dim", _zero, 1),
    _padded("zero_pad2d", "out = x with zeros around, in the last two dims", _zero, 2),
    _padded("constant_pad1d", "out = x with value around, in the last dim", _constant, 1, _VALUE, **_FILLED),
    _padded("constant_pad2d", "out = x with value around, in the last two dims", _constant, 2, _VALUE, **_FILLED),
    _padded("constant_pad3d", "out = x with value around, in the last three dims", _constant, 3, _VALUE, **_FILLED),
    _padded(
        "crop",
        "out[b, c, h, w] = x[b, c, h + top, w + left]",
        _crop,
        2,
        over="B C tall wide",
        out="B C H W",
        longer=False,
    ),
    _padded(
        "reflection_pad1d",
        "out = x mirrored at its ends, which are not repeated, in the last dim",
        _reflection,
        1,
        longer=True,
    ),
    _padded(
        "reflection_pad2d",
        "out = x mirrored at its ends, which are not repeated, in the last two dims",
        _reflection,
        2,
        longer=True,
    ),
    _padded(
        "reflection_pad3d",
        "out = x mirrored at its ends, which are not repeated, in the last three dims",
        _reflection,
        3,
        longer=True,
    ),
    _padded("replication_pad1d", "out = x with its ends repeated, in the last dim", _replication, 1, longer=False),
    _padded("replication_pad2d", "out = x with its ends repeated, in the last two dims", _replication, 2, longer=False),
    _padded(
        "replication_pad3d", "out = x with its ends repeated, in the last three dims", _replication, 3, longer=False
    ),
    _padded("circular_pad1d", "out = x wrapped around, in the last dim", _circular, 1, longer=True),
    _padded("circular_pad2d", "out = x wrapped around, in the last two dims", _circular, 2, longer=True),
    *(
        _padded(
            f"{kind}_pad1d_backward",
            f"out = the sum of grad over all places that {kind} padding fills from there",
            reference,
            1,
            over=over,
            out="B C W",
            longer=True,
            each=2,
            **_GRADIENT,
        )
        for kind, reference, over in (
            ("reflection", _reflection_backward, (data("grad", "B C wide"),)),
            ("replication", _replication_backward, (data("grad", "B C wide"),)),
        )
    ),
)

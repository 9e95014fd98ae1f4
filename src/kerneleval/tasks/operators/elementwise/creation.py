"""Tensors made of sizes and a few numbers: ranges, masks of attention, tables of positions."""

from __future__ import annotations

from typing import Any

import torch

from kerneleval.tasks.define import data, fixed, plain, size, whole
from kerneleval.tasks.operators.movement.movement import moved
from kerneleval.tasks.relations import mapping

Tensor = torch.Tensor


def _linspace(start: Tensor, end: Tensor, steps: int) -> Tensor:
    return torch.linspace(start, end, steps, dtype=start.dtype, device=start.device)


def _logspace(start: Tensor, end: Tensor, steps: int) -> Tensor:
    return torch.logspace(start, end, steps, dtype=start.dtype, device=start.device)


def _positions(offset: Tensor, length: int) -> Tensor:
    return offset[:, None] + torch.arange(length, device=offset.device)


def _sequence_mask(lengths: Tensor, longest: int) -> Tensor:
    return torch.arange(longest, device=lengths.device) < lengths[:, None]


def _causal_mask(past: Tensor, queries: int, keys: int) -> Tensor:
    last = past[:, None] + torch.arange(queries, device=past.device)
    return torch.arange(keys, device=past.device) <= last[..., None]


def _sliding_window_mask(past: Tensor, queries: int, keys: int, window: int) -> Tensor:
    last = (past[:, None] + torch.arange(queries, device=past.device))[..., None]
    place = torch.arange(keys, device=past.device)
    return (place <= last) & (place > last - window)


def _segment_mask(segment: Tensor) -> Tensor:
    return segment[:, :, None] == segment[:, None, :]


def _alibi_bias(slopes: Tensor, queries: int, keys: int) -> Tensor:
    distance = torch.arange(keys, device=slopes.device) - torch.arange(queries, device=slopes.device)[:, None]
    return slopes[:, None, None] * distance


def _fill_diagonal(x: Tensor, value: float) -> Tensor:
    return x.clone().fill_diagonal_(value)


def _timestep_embedding(steps: Tensor, half: int, longest: float) -> Tensor:
    powers = torch.arange(half, device=steps.device, dtype=steps.dtype) / half
    angles = steps[:, None] * longest**-powers
    return torch.cat((angles.cos(), angles.sin()), -1)


_INTEGER: Any = {"dtypes": ("int64",), "no_backward": "whole numbers have no gradient"}
_FLAG: Any = {"dtypes": ("int64", "int32"), "no_backward": "the output is a flag"}
_ENDS = (data("start", ""), data("end", ""))
_LINE: Any = {"dims": (size("N"),), "exact": False, "no_backward": "PyTorch has none", "empty": False}
_REVERSED = mapping("reversal", lambda start, end, steps: (end, start, steps), lambda outs, _: [outs[0].flip(0)])
_SQUARE = (fixed("B"), size("L", high=2048), size("K", high=2048))
_EXTENT = (plain("queries", formula="L"), plain("keys", formula="K"))

TASKS = (
    moved(
        "linspace",
        "out[n] = start + n * (end - start) / (steps - 1)",
        _linspace,
        _ENDS,
        "N",
        plain("steps", formula="N"),
        each=2,
        relations=(_REVERSED,),
        **_LINE,
    ),
    moved(
        "logspace",
        "out[n] = 10 ** (start + n * (end - start) / (steps - 1))",
        _logspace,
        _ENDS,
        "N",
        plain("steps", formula="N"),
        each=3,
        without=("large_scale", "outlier"),
        scaling=0,
        relations=(_REVERSED,),
        **_LINE,
    ),
    moved(
        "position_ids",
        "out[b, l] = offset[b] + l",
        _positions,
        (whole("offset", "B", 0, 4096, wide=30),),
        "B L",
        plain("length", formula="L"),
        dims=(size("B", high=1024), size("L")),
        batch=True,
        **_INTEGER,
    ),
    moved(
        "sequence_mask",
        "out[b, l] = whether l < lengths[b]",
        _sequence_mask,
        (whole("lengths", "B", 0, "L + 1"),),
        "B L: bool",
        plain("longest", formula="L"),
        dims=(size("B", high=1024), size("L")),
        batch=True,
        **_FLAG,
    ),
    moved(
        "causal_mask",
        "out[b, l, k] = whether k <= past[b] + l",
        _causal_mask,
        (whole("past", "B", 0, "max(K, 1)"),),
        "B L K: bool",
        *_EXTENT,
        dims=_SQUARE,
        batch=True,
        **_FLAG,
    ),
    moved(
        "sliding_window_mask",
        "out[b, l, k] = whether past[b] + l - window < k <= past[b] + l",
        _sliding_window_mask,
        (whole("past", "B", 0, "max(K, 1)"),),
        "B L K: bool",
        *_EXTENT,
        plain("window", formula="4 * S", among=(1, 3, "K + 1")),
        dims=(*_SQUARE, fixed("S", high=16)),
        each=2,
        batch=True,
        **_FLAG,
    ),
    moved(
        "segment_mask",
        "out[b, l, k] = whether segment[b, l] = segment[b, k]: packed sequences that do not see one another",
        _segment_mask,
        (whole("segment", "B L", 0, 4, wide=64),),
        "B L L: bool",
        dims=(fixed("B"), size("L", high=2048)),
        batch=True,
        **_FLAG,
    ),
    moved(
        "alibi_bias",
        "out[h, l, k] = slopes[h] * (k - l)",
        _alibi_bias,
        (data("slopes", "H"),),
        "H L K",
        *_EXTENT,
        dims=(fixed("H", low=2, high=16), size("L", high=2048), size("K", high=2048)),
        reduction="1",
        gathered="L * K",
        exact=False,
        nonfinite="nan",
        batch=True,
        source="model",
    ),
    moved(
        "fill_diagonal",
        "out[n, n] = value, else x",
        _fill_diagonal,
        "M N",
        "M N",
        plain("value", 1.25),
        where="M * N > 0",
        relations=(
            mapping(
                "negation",
                lambda x, value: (-x, value),
                lambda outs, args: [(-outs[0]).fill_diagonal_(args[1])],
            ),
        ),
        scaling=0,
    ),
    moved(
        "timestep_embedding",
        "out[b, :half] = cos(a), out[b, half:] = sin(a), a = steps[b] * longest ** -(i / half) for i < half",
        _timestep_embedding,
        (data("steps", "B"),),
        "B width",
        plain("half", formula="D"),
        plain("longest", 10000.0),
        dims=(size("B"), size("D", high=1024)),
        derive={"width": "2 * D"},
        where="D > 0",
        each=4,
        without=("large_scale", "outlier"),
        exact=False,
        nonfinite="nan",
        scaling=0,
        batch=True,
        reduction="1",
        source="model",
        level=2,
    ),
)

"""What flags select, moved together: outputs as large as if all were selected, with zeros behind what is."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the usual name

from kerneleval.tasks.define import data, flags
from kerneleval.tasks.operators.movement.movement import moved

Tensor = torch.Tensor


def _filled(selected: Tensor, like: Tensor) -> Tensor:
    return F.pad(selected, (0, like.numel() - selected.numel()))


def _masked_select(x: Tensor, keep: Tensor) -> Tensor:
    return _filled(torch.masked_select(x, keep), keep)


def _masked_select_add_gelu(x: Tensor, keep: Tensor, other: Tensor) -> Tensor:
    selected = torch.masked_select(x, keep)
    return _filled(F.gelu(selected + other[: len(selected)]), keep)


_SELECTED = (data("x", "M N"), flags("keep", "M N"))
_ALL: Any = {"derive": {"total": "M * N"}, "group": "Index", "complexity": 2}

TASKS = (
    moved(
        "masked_select",
        "out = the x[m, n] with keep[m, n], row by row, and zeros behind them: as many numbers as x has",
        _masked_select,
        _SELECTED,
        "total",
        **_ALL,
    ),
    moved(
        "masked_select_add_gelu",
        "out[k] = gelu(z[k] + other[k]) for the x[m, n] with keep[m, n], row by row, z, and zeros behind them",
        _masked_select_add_gelu,
        (*_SELECTED, data("other", "total")),
        "total",
        each=6,
        scaling=0,
        exact=False,
        nonfinite=False,
        level=2,
        source="model",
        **{**_ALL, "group": "Fusion"},
    ),
)

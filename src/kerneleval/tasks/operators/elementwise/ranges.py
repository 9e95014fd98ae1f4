"""Whole numbers in even steps."""

from __future__ import annotations

import torch

from kerneleval.tasks.define import plain, size, whole
from kerneleval.tasks.operators.movement.movement import moved

Tensor = torch.Tensor


def _arange(start: Tensor, step: Tensor, count: int) -> Tensor:
    return start + step * torch.arange(count, dtype=start.dtype, device=start.device)


TASKS = (
    moved(
        "arange",
        "out[n] = start + n * step",
        _arange,
        (whole("start", "", -100, 100, wide=30), whole("step", "", 1, 10, wide=15)),
        "N",
        plain("count", formula="N"),
        dims=(size("N"),),
        dtypes=("int64", "int32"),
        no_backward="whole numbers have no gradient",
        empty=False,
    ),
)

"""Series near 0 that are cut off too soon: right at 0.001, right from 0.01 or so on, and wrong between."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from kerneleval.judge.oracle import reference
from kerneleval.judge.oracle.comparison import matches
from kerneleval.records import Arg
from kerneleval.tasks import all_tasks, find

from .conftest import case_of, drawn

NEARING = [n for n, t in all_tasks().items() if any(isinstance(a, Arg) and a.nearing for a in t.table.args)]
DRAWS = 12


def passes(name: str, kernel: Callable[..., Tensor]) -> list[bool]:
    task, found = find(name), []
    case = case_of(name, {"M": 40, "N": 70}, distribution="small_scale")
    for seed in range(DRAWS):
        args, _ = drawn(task, case, seed)
        found.append(matches([kernel(*args)], reference.expect(task, case, args)))
    return found


def below(most: float, series: Callable[[Tensor], Tensor], other: Callable[[Tensor], Tensor]) -> Callable[..., Tensor]:
    return lambda x: torch.where(x.abs() < most, series(x), other(x))


KERNELS = {
    "sinh": (below(1e-2, lambda x: x, torch.sinh), below(1e-2, lambda x: x * (1 + x * x / 6), torch.sinh)),
    "tanh": (below(1e-2, lambda x: x, torch.tanh), below(1e-2, lambda x: x * (1 - x * x / 3), torch.tanh)),
    "atanh": (below(1e-2, lambda x: x, torch.atanh), below(1e-2, lambda x: x * (1 + x * x / 3), torch.atanh)),
    "expm1": (
        below(1e-2, lambda x: x * (1 + x / 2), torch.expm1),
        below(1e-2, lambda x: x * (1 + x / 2 * (1 + x / 3)), torch.expm1),
    ),
    "log1p": (
        below(1e-2, lambda x: x * (1 - x / 2), torch.log1p),
        below(1e-2, lambda x: x * (1 - x * (0.5 - x / 3)), torch.log1p),
    ),
}


@pytest.mark.parametrize("name", KERNELS)
def test_a_series_with_a_term_too_few_is_found(name: str) -> None:
    """With one more it passes in every draw."""
    short, enough = KERNELS[name]
    assert sum(passes(name, short)) <= DRAWS - 3
    assert all(passes(name, enough))


@pytest.mark.parametrize("name", NEARING)
def test_pytorch_passes_at_all_small_sizes(name: str) -> None:
    """In each type, and in fp32 rounded to it."""
    task = find(name)
    if "small_scale" not in task.distributions:
        return
    for dtype in task.dtypes:
        case = case_of(name, {"M": 40, "N": 70}, dtype=dtype, distribution="small_scale")
        for seed in range(4):
            args, _ = drawn(task, case, seed)
            expectation = reference.expect(task, case, args)
            assert matches(expectation.native, expectation)
            wide = [a.float() if isinstance(a, Tensor) and a.dtype.itemsize == 2 else a for a in args]
            outs = task.reference(*wide)
            outs = outs if isinstance(outs, tuple) else (outs,)
            rounded = [o.to(n.dtype) for o, n in zip(outs, expectation.native, strict=True)]
            assert matches(rounded, expectation)

"""Sines and cosines of large numbers whose angle is reduced by a period that is rounded once."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from kerneleval.judge.oracle import reference
from kerneleval.judge.oracle.comparison import matches
from kerneleval.tasks import find

from .conftest import case_of, drawn

DRAWS = 8
FUNCTIONS = {"sin": torch.sin, "cos": torch.cos}


def single(x: Tensor | float) -> Tensor:
    return torch.as_tensor(x, dtype=torch.float64).to(torch.float32)


def less(x: Tensor, turns: Tensor, part: Tensor) -> Tensor:
    """x - turns * part in fp32, as one fused multiply-add rounds it."""
    return single(x.double() - turns.double() * part.double())


def by_one_period(x: Tensor) -> Tensor:
    period = single(2 * math.pi)
    return x - torch.round(x / period) * period


def by_three_parts(x: Tensor) -> Tensor:
    """Cody and Waite's reduction, each part of the period by a fused multiply-add."""
    turns, left = torch.round(x * single(1 / (2 * math.pi))), 2 * math.pi
    for _ in range(3):
        part = single(left)
        x, left = less(x, turns, part), left - float(part)
    return x


def by_double(x: Tensor) -> Tensor:
    wide = x.double()
    return single(wide - torch.round(wide / (2 * math.pi)) * (2 * math.pi))


def passes(name: str, dtype: str, reduced: Callable[[Tensor], Tensor]) -> list[bool]:
    task, found = find(name), []
    case = case_of(name, {"M": 40, "N": 70}, dtype, distribution="large_scale")
    for seed in range(DRAWS):
        args, _ = drawn(task, case, seed)
        out = FUNCTIONS[name](reduced(args[0].float())).to(args[0].dtype)
        found.append(matches([out], reference.expect(task, case, args)))
    return found


@pytest.mark.parametrize("name", FUNCTIONS)
def test_an_angle_reduced_by_a_rounded_period_is_found(name: str) -> None:
    assert not any(passes(name, "float32", by_one_period))


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("reduced", [by_three_parts, by_double, lambda x: x])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_right_reductions_pass(name: str, dtype: str, reduced: Callable[[Tensor], Tensor]) -> None:
    assert all(passes(name, dtype, reduced))

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
FUNCTIONS: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]] = {
    "sin": (torch.sin, torch.cos),
    "cos": (torch.cos, lambda x: -torch.sin(x)),
}
"""Each with its derivative."""
PERIOD = 2 * math.pi


def single(x: Tensor | float) -> Tensor:
    return torch.as_tensor(x, dtype=torch.float64).to(torch.float32)


def less(x: Tensor, turns: Tensor, part: Tensor) -> Tensor:
    """x - turns * part in fp32, as one fused multiply-add rounds it."""
    return single(x.double() - turns.double() * part.double())


Reduction = Callable[[Tensor], Tensor]


def by_one_period(x: Tensor) -> Tensor:
    rounded = single(PERIOD)
    return x - torch.round(x / rounded) * rounded


def by_three_parts(x: Tensor) -> Tensor:
    """Cody and Waite's reduction, each part of the period by a fused multiply-add."""
    turns, left = torch.round(x * single(1 / PERIOD)), PERIOD
    for _ in range(3):
        part = single(left)
        x, left = less(x, turns, part), left - float(part)
    return x


def by_double(x: Tensor) -> Tensor:
    wide = x.double()
    return single(wide - torch.round(wide / PERIOD) * PERIOD)


def by_none(x: Tensor) -> Tensor:
    return x


def passes(name: str, dtype: str, direction: str, reduced: Reduction) -> list[bool]:
    task, found = find(name), []
    function, slope = FUNCTIONS[name]
    case = case_of(name, {"M": 40, "N": 70}, dtype, direction, distribution="large_scale")
    for seed in range(DRAWS):
        args, grads = drawn(task, case, seed)
        angle = reduced(args[0].float())
        out = function(angle) if grads is None else grads[0].float() * slope(angle)
        found.append(matches([out.to(args[0].dtype)], reference.expect(task, case, args, grads)))
    return found


@pytest.mark.parametrize("direction", ["forward", "backward"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_an_angle_reduced_by_a_rounded_period_is_found(name: str, direction: str) -> None:
    assert not any(passes(name, "float32", direction, by_one_period))


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("direction", ["forward", "backward"])
@pytest.mark.parametrize("reduced", [by_three_parts, by_double, by_none])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_right_reductions_pass(name: str, dtype: str, direction: str, reduced: Reduction) -> None:
    assert all(passes(name, dtype, direction, reduced))

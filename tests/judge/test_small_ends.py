"""Functions where all that comes out is small: a sum with 1 on the way has lost its digits there."""

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

DRAWS = 5
ROOT = math.sqrt(0.5)


def passes(name: str, kernel: Callable[..., Tensor], direction: str = "forward") -> list[bool]:
    """Whether it is right in each of several draws in fp32; gradients by autograd."""
    task, found = find(name), []
    case = case_of(name, {"M": 40, "N": 70}, direction=direction, distribution="common")
    for seed in range(DRAWS):
        args, grads = drawn(task, case, seed)
        expectation = reference.expect(task, case, args, grads)
        if grads is None:
            outs = [kernel(*args)]
        else:
            x = args[0].requires_grad_()
            outs = list(torch.autograd.grad(kernel(x, *args[1:]), [x], grads))
        found.append(matches(outs, expectation))
    return found


WRONG: tuple[tuple[str, Callable[..., Tensor]], ...] = (
    ("erfc", lambda x: 1 - torch.erf(x)),
    ("log_ndtr", lambda x: torch.log(0.5 * torch.erfc(-x * ROOT))),
)
RIGHT: tuple[tuple[str, Callable[..., Tensor]], ...] = (
    ("erfc", lambda x: torch.where(x > 0, torch.special.erfcx(x.clamp(min=0)) * torch.exp(-x * x), 1 + torch.erf(-x))),
    ("log_ndtr", lambda x: torch.log(0.5 * torch.special.erfcx(-x * ROOT)) - 0.5 * x * x),
)


@pytest.mark.parametrize(("name", "kernel"), WRONG)
def test_what_loses_its_digits_is_found_in_every_draw(name: str, kernel: Callable[..., Tensor]) -> None:
    assert not any(passes(name, kernel))


@pytest.mark.parametrize(("name", "kernel"), RIGHT)
def test_right_formulas_pass(name: str, kernel: Callable[..., Tensor]) -> None:
    assert all(passes(name, kernel))
    if not find(name).no_backward:
        assert all(passes(name, kernel, "backward"))

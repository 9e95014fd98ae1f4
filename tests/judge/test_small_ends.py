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


def by_exponentials(x: Tensor) -> Tensor:
    """mish's tanh(log(1 + e ** x)) as a quotient."""
    small = torch.exp(x.clamp(max=20))
    part = small * (small + 2)
    return torch.where(x > 20, x, x * part / (part + 2))


WRONG: tuple[tuple[str, Callable[..., Tensor]], ...] = (
    ("softplus", lambda x, beta: torch.log(1 + torch.exp(beta * x)) / beta),
    ("softplus", lambda x, beta: x.clamp(min=0) + torch.log(1 + torch.exp(-(beta * x).abs())) / beta),
    ("softplus_backward", lambda grad, x, beta: grad * (1 - 1 / (1 + torch.exp(beta * x)))),
    ("mish", lambda x: x * torch.tanh(torch.log(1 + torch.exp(x)))),
    ("log_sigmoid", lambda x: torch.log(torch.sigmoid(x))),
    ("log_sigmoid", lambda x: x.clamp(max=0) - torch.log(1 + torch.exp(-x.abs()))),
    ("log_sigmoid_backward", lambda grad, x: grad * (1 - torch.sigmoid(x))),
    ("log_ndtr", lambda x: torch.log(0.5 * torch.erfc(-x * ROOT))),
)
RIGHT: tuple[tuple[str, Callable[..., Tensor]], ...] = (
    ("softplus", lambda x, beta: torch.log1p(torch.exp(beta * x)) / beta),
    ("softplus", lambda x, beta: x.clamp(min=0) + torch.log1p(torch.exp(-(beta * x).abs())) / beta),
    ("softplus_backward", lambda grad, x, beta: grad / (1 + torch.exp(-beta * x))),
    ("mish", lambda x: x * torch.tanh(torch.log1p(torch.exp(x)))),
    ("mish", by_exponentials),
    ("log_sigmoid", lambda x: -torch.log1p(torch.exp(-x))),
    ("log_sigmoid", lambda x: x.clamp(max=0) - torch.log1p(torch.exp(-x.abs()))),
    ("log_sigmoid_backward", lambda grad, x: grad / (1 + torch.exp(x))),
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


@pytest.mark.parametrize("name", sorted({name for name, _ in WRONG}))
def test_pytorch_passes(name: str) -> None:
    for dtype in find(name).dtypes:
        for direction in ("forward", "backward"):
            case = case_of(name, {"M": 40, "N": 70}, dtype=dtype, direction=direction, distribution="common")
            if direction == "backward" and find(name).no_backward:
                continue
            for seed in range(DRAWS):
                expectation = reference.expect(find(name), case, *drawn(find(name), case, seed))
                assert matches(expectation.native, expectation)

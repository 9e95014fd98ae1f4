"""Sums of equal terms in one accumulator, as a loop of one thread makes them: they drift, and are right."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from kerneleval.judge.oracle import reference
from kerneleval.judge.oracle.comparison import matches
from kerneleval.tasks import find

from .conftest import case_of, drawn
from .variants import sequential_sum

Sum = Callable[[Tensor], Tensor]


def all_but_last(x: Tensor) -> Tensor:
    return sequential_sum(x[..., :-1])


def entropy(total: Sum, x: Tensor) -> Tensor:
    shares = torch.softmax(x, -1)
    return -total(shares * torch.log(shares))


def poisson(total: Sum, x: Tensor, target: Tensor, eps: float) -> Tensor:
    each = x - target * torch.log(x + eps)
    return total(each.flatten()) / each.numel()


def soft_margin(total: Sum, x: Tensor, targets: Tensor) -> Tensor:
    each = targets * torch.nn.functional.logsigmoid(x) + (1 - targets) * torch.nn.functional.logsigmoid(-x)
    return -total(each) / each.shape[-1]


KERNELS = {
    "softmax_entropy": (entropy, {"M": 65, "N": 656}),
    "poisson_nll_loss_rate": (poisson, {"M": 58, "N": 39}),
    "multilabel_soft_margin_loss_none": (soft_margin, {"M": 50, "N": 412}),
}


@pytest.mark.parametrize("name", sorted(KERNELS))
def test_a_running_sum_of_equal_terms_passes(name: str) -> None:
    """All terms of ``zeros`` are equal, as those of ``constant`` are: it was up to 4.5 times beyond the bound."""
    kernel, dims = KERNELS[name]
    task, case = find(name), case_of(name, dims, distribution="zeros")
    for seed in range(5):
        args, _ = drawn(task, case, seed)
        expectation = reference.expect(task, case, args)
        for honest in (sequential_sum, lambda x: x.sum(-1)):
            assert matches([kernel(honest, *args)], expectation)
        assert not matches([kernel(all_but_last, *args)], expectation)


def test_gradients_of_zeros_are_judged_as_closely_as_others() -> None:
    """Upstream gradients are not equal."""
    task = find("log_softmax")
    case = case_of(task.name, {"M": 65, "N": 656}, direction="backward", distribution="zeros")
    args, grads = drawn(task, case, 1)
    expectation = reference.expect(task, case, args, grads)
    (right,) = expectation.native
    assert matches([right], expectation)
    assert not matches([right * (1 + 2.0**-16)], expectation)

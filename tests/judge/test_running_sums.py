"""Sums of equal terms in one accumulator, as a loop of one thread makes them: they drift, and are right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from kerneleval.judge.oracle import reference
from kerneleval.judge.oracle.comparison import matches
from kerneleval.tasks import find

from .conftest import case_of, drawn, gradients
from .variants import sequential_matmul, sequential_sum

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
    "poisson_nll_loss_rate": (poisson, {"M": 58, "N": 39}),  # of zeros all terms are 0
    "multilabel_soft_margin_loss_none": (soft_margin, {"M": 50, "N": 412}),
}


@pytest.mark.parametrize("name", sorted(KERNELS))
def test_a_running_sum_of_equal_terms_passes(name: str) -> None:
    """All terms of ``zeros`` are equal, as those of ``constant`` are: it was up to 4.5 times beyond the bound."""
    kernel, dims = KERNELS[name]
    task, case = find(name), case_of(name, dims, distribution="constant" if kernel is poisson else "zeros")
    for seed in range(5):
        args, _ = drawn(task, case, seed)
        expectation = reference.expect(task, case, args)
        for honest in (sequential_sum, lambda x: x.sum(-1)):
            assert matches([kernel(honest, *args)], expectation)
        assert not matches([kernel(all_but_last, *args)], expectation)


class _InverseRoot(torch.autograd.Function):
    """Of products that are added in turn, which the gradient cubes."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
        a, b = a.flatten(1), b.flatten(0, 1)
        out = torch.rsqrt(sequential_matmul(a, b))
        ctx.save_for_backward(a, b, out)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        a, b, out = ctx.saved_tensors
        inner = -0.5 * grad * out**3
        return (inner @ b.T).unflatten(1, (-1, 4)), (a.T @ inner).unflatten(0, (-1, 4))


@pytest.mark.parametrize("distribution", ["zeros", "constant"])
def test_a_running_sum_of_equal_terms_passes_in_a_gradient(distribution: str) -> None:
    task = find("tensordot_rsqrt")
    case = case_of(task.name, {"M": 12, "N": 12, "K": 256}, "float32", "backward", distribution)
    for seed in range(3):
        args, grads = drawn(task, case, seed)
        expectation = reference.expect(task, case, args, grads)
        found = gradients(_InverseRoot.apply, task, case, args, grads or [])
        assert matches(found, expectation)
        assert not matches([found[0] * (1 + 2.0**-10), found[1]], expectation)

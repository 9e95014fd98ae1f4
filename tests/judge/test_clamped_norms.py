"""Epsilons that count. Gradients of a cosine where a norm is held at its epsilon: two conventions are right, what
ignores it is not.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - the usual name

from kerneleval.judge.oracle import reference
from kerneleval.judge.oracle.comparison import matches
from kerneleval.tasks import find
from kerneleval.tasks.operators.loss.distance import cosine_by_clamps

from .conftest import called, case_of, drawn, gradients

Tensor = torch.Tensor


def unheld(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Without an epsilon."""
    return (x * y).sum(-1) / (x.norm(dim=-1) * y.norm(dim=-1)).clamp_min(1e-38)


def held_together(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The product of both norms against the epsilon."""
    return (x * y).sum(-1) / (x.norm(dim=-1) * y.norm(dim=-1)).clamp_min(1e-8)


def nothing_below(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """No gradient at all for rows below it."""
    one, other = (torch.where(a.norm(dim=-1, keepdim=True) > 1e-8, a, a.detach()) for a in (x, y))
    return F.cosine_similarity(one, other, -1)


def test_gradients_of_a_cosine_where_norms_are_held() -> None:
    task = find("cosine_similarity")
    case = case_of(task.name, {"M": 120, "N": 90}, direction="backward", distribution="small_scale")
    for seed in range(8):
        args, grads = drawn(task, case, seed)
        assert grads is not None
        assert (args[0].norm(dim=-1) < 1e-8).any()
        expectation = reference.expect(task, case, args, grads)
        for right in (lambda x, y: F.cosine_similarity(x, y, -1), cosine_by_clamps):
            assert matches(gradients(right, task, case, args, grads), expectation)
        for wrong in (unheld, held_together, nothing_below):
            assert not matches(gradients(wrong, task, case, args, grads), expectation), wrong.__doc__


def attended(q: Tensor, k: Tensor, v: Tensor, scale: float, *, eps: float = 1e-6) -> Tensor:
    """By the reciprocals of norms behind the product."""
    by_query, by_key = (1 / a.norm(dim=-1, keepdim=True).clamp_min(eps) for a in (q, k))
    return torch.softmax(q @ k.mT * by_query * by_key.mT * scale, -1) @ v


def scaled(x: Tensor, scale: Tensor, eps: float) -> Tensor:
    return x * (scale / x.square().sum(-1, keepdim=True).sqrt().clamp_min(eps))


def by_rate(param: Tensor, grad: Tensor, momentum: Tensor, *plains: float) -> tuple[Tensor, Tensor]:
    """``lars``."""
    lr, mu, trust, eps, decay = plains
    update = grad + decay * param
    size, of_update = param.norm(), update.norm()
    rate = torch.where((size > 0) & (of_update > 0), size / (of_update + eps), 1.0)
    momentum = mu * momentum + lr * trust * rate * update
    return param - momentum, momentum


def of_rates(x: Tensor, target: Tensor, eps: float) -> Tensor:
    return x - target * (torch.log2(x + eps) * math.log(2))


def lamb(param: Tensor, grad: Tensor, m: Tensor, v: Tensor, *plains: float) -> tuple[Tensor, Tensor, Tensor]:
    lr, beta1, beta2, eps, decay, step = plains
    m, v = beta1 * m + (1 - beta1) * grad, beta2 * v + (1 - beta2) * grad * grad
    update = m / (1 - beta1 ** (step + 1)) / ((v / (1 - beta2 ** (step + 1))).sqrt() + eps) + decay * param
    size, of_update = param.norm(), update.norm()
    return param - lr * torch.where((size > 0) & (of_update > 0), size / of_update, 1.0) * update, m, v


EPSILONS: dict[str, tuple[str, Callable[..., Any], int]] = {
    "cosine_attention": ("small_scale", attended, 0),
    "scale_norm": ("small_scale", scaled, 2),
    "lars": ("small_scale", by_rate, 6),
    "lamb": ("standard", lamb, 7),
    "poisson_nll_loss_rate_none": ("outlier", of_rates, 2),
}
"""The distribution in which an epsilon shows, a kernel, and the place of its epsilon; 0: its own keyword."""


@pytest.mark.parametrize("name", EPSILONS)
def test_an_epsilon_is_the_one_that_is_given(name: str) -> None:
    """Kernels with an epsilon a hundred times smaller or ten times larger passed."""
    distribution, kernel, place = EPSILONS[name]
    task = find(name)
    dims = {dim.name: {"B": 2, "H": 2, "L": 12, "S": 20, "D": 16}.get(dim.name, 40) for dim in task.dims}
    case, found = case_of(name, dims, distribution=distribution), set()
    for seed in range(4):
        args, _ = drawn(task, case, seed)
        expectation = reference.expect(task, case, args).widest
        for factor in (1.0, 0.01, 10.0):
            given = list(args)
            if place:
                given[place] *= factor
            outs = called(kernel if place else partial(kernel, eps=1e-6 * factor), given)
            found.add((factor, matches(outs, expectation)))
    assert (1.0, False) not in found
    assert {(0.01, False), (10.0, False)} <= found

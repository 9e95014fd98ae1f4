"""Gradients of a cosine where a norm is held at its epsilon: two conventions are right, what ignores it is not."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 - the usual name

from kerneleval.judge.oracle import reference
from kerneleval.judge.oracle.comparison import matches
from kerneleval.tasks import find
from kerneleval.tasks.operators.loss.distance import cosine_by_clamps

from .conftest import case_of, drawn, gradients


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

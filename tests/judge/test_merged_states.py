"""States of attention that are merged by one quotient of two sums, as the summaries have it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from kerneleval.judge.oracle import reference
from kerneleval.judge.oracle.comparison import matches
from kerneleval.tasks import find

from .conftest import case_of, drawn, gradients

DRAWS = 24


def merged(outs: Tensor, lse: Tensor, *, kept: bool = False) -> tuple[Tensor, Tensor]:
    """``kept``: the sum is a constant of the merged states' gradient."""
    most = lse.float().amax(0).detach()
    weights = torch.exp2((lse.float() - most) * 1.4426950408889634)
    total = weights.sum(0)
    inverse = 1 / (total.detach() if kept else total)
    found = (outs.float() * weights[..., None]).sum(0) * inverse[..., None]
    return found.to(outs.dtype), (most + torch.log(total)).to(lse.dtype)


def two_merged(
    first: Tensor, first_lse: Tensor, other: Tensor, other_lse: Tensor, **more: Any
) -> tuple[Tensor, Tensor]:
    found, lse = merged(torch.stack((first, other)), torch.stack((first_lse.mT, other_lse.mT)), **more)
    return found, lse.mT


CASES = {
    "merge_attn_states": (two_merged, {"T": 39, "H": 2, "D": 33}),
    "merge_split_states": (merged, {"P": 4, "T": 62, "H": 3, "D": 39}),
}


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("name", CASES)
def test_gradients_under_large_states_pass(name: str, dtype: str) -> None:
    kernel, dims = CASES[name]
    task, case = find(name), case_of(name, dims, dtype, "backward", "large_scale")
    for seed in range(DRAWS):
        args, grads = drawn(task, case, seed)
        assert matches(gradients(kernel, task, case, args, grads or ()), reference.expect(task, case, args, grads)), (
            seed
        )


@pytest.mark.parametrize("distribution", ["standard", "large_scale"])
@pytest.mark.parametrize("name", CASES)
def test_a_sum_that_has_no_gradient_is_found(name: str, distribution: str) -> None:
    kernel, dims = CASES[name]
    task, case = find(name), case_of(name, dims, direction="backward", distribution=distribution)
    for seed in range(4):
        args, grads = drawn(task, case, seed)
        lost = gradients(lambda *given: kernel(*given, kept=True), task, case, args, grads or ())
        assert not matches(lost, reference.expect(task, case, args, grads))

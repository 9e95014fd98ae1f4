"""Rows divided by their norm with no epsilon in the formula, and whole numbers next to a tie of fp32."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from kerneleval.judge.oracle import reference
from kerneleval.judge.oracle.comparison import matches
from kerneleval.tasks import find

from .conftest import case_of, drawn

DRAWS = 6


def passes(name: str, kernel: Callable[..., Tensor], dtype: str, distribution: str) -> list[bool]:
    task, found = find(name), []
    case = case_of(name, {"M": 40, "N": 70}, dtype=dtype, distribution=distribution)
    for seed in range(DRAWS):
        args, _ = drawn(task, case, seed)
        expectation = reference.expect(task, case, args)
        wide = [a.float() if isinstance(a, Tensor) and a.is_floating_point() else a for a in args]
        found.append(matches([kernel(*wide).to(expectation.native[0].dtype)], expectation))
    return found


NORMS: dict[str, Callable[..., Tensor]] = {
    "l2_normalize": lambda x, eps: x * torch.rsqrt(x.square().sum(-1, keepdim=True) + eps),
    "l1_normalize": lambda x, eps: x / (x.abs().mean(-1, keepdim=True) + eps),
    "weight_norm": lambda v, g, eps: v * (g / (v.square().sum(-1, keepdim=True) + eps).sqrt()),
}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", NORMS)
def test_an_epsilon_that_the_formula_has_not_is_found(name: str, dtype: str) -> None:
    kernel = NORMS[name]
    for eps in (1e-10, 1e-8):
        assert not any(passes(name, lambda *args: kernel(*args, eps=eps), dtype, "small_scale"))  # noqa: B023
    assert all(passes(name, lambda *args: kernel(*args, eps=0), dtype, "small_scale"))
    assert all(passes(name, find(name).reference, dtype, "small_scale"))


def test_a_whole_number_rounded_twice_is_found() -> None:
    assert not any(passes("int_to_float32", lambda x: x.double().float(), "int64", "standard"))
    for dtype in find("int_to_float32").dtypes:
        assert all(passes("int_to_float32", lambda x: x.float(), dtype, "standard"))

"""Numbers below the epsilons that kernels guard their quotients with, or that the operator has itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from torch import Tensor

from kerneleval.judge.oracle import reference
from kerneleval.judge.oracle.comparison import matches
from kerneleval.tasks import find

from .conftest import called, case_of, drawn, gradients

DIMS = {"M": 40, "N": 300}
DRAWS = 3


def right(kernel: Callable[..., Any], name: str, direction: str = "forward", dtype: str = "float32") -> bool:
    task, case = find(name), case_of(name, DIMS, dtype=dtype, direction=direction, distribution="small_scale")
    found = []
    for seed in range(DRAWS):
        args, grads = drawn(task, case, seed)
        expectation = reference.expect(task, case, args, grads)
        assert matches(expectation.native, expectation)
        outs = called(kernel, args) if grads is None else gradients(kernel, task, case, args, grads)
        found.append(matches(outs, expectation))
    return all(found)


def guarded(x: Tensor, y: Tensor) -> Tensor:
    return x / y.clamp_min(1e-6)


def raised(x: Tensor, y: Tensor) -> Tensor:
    return x / (y + 1e-12)


def by_reciprocal(x: Tensor, y: Tensor) -> Tensor:
    return (x.float() * (1 / y.float())).to(x.dtype)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_divisors_are_as_small_as_what_is_divided(dtype: str) -> None:
    for kernel in (guarded, raised):
        assert not right(kernel, "div", dtype=dtype)
        assert not right(lambda x, y, z, value, kernel=kernel: x + value * kernel(y, z), "addcdiv", dtype=dtype)
    assert right(by_reciprocal, "div", dtype=dtype)
    assert right(lambda x, y, z, value: x + value * by_reciprocal(y, z), "addcdiv", dtype=dtype)
    assert right(by_reciprocal, "div", "backward", dtype)


def test_nothing_is_smaller_in_float16() -> None:
    assert right(by_reciprocal, "div", dtype="float16")
    args, _ = drawn(find("div"), case_of("div", DIMS, dtype="float16", distribution="small_scale"))
    assert float(args[1].min()) > 1e-5


def unheld(x: Tensor, target: Tensor, var: Tensor, eps: float) -> Tensor:
    return (var.log() + (x - target) ** 2 / var) / 2


def without_gradient(x: Tensor, target: Tensor, var: Tensor, eps: float) -> Tensor:
    return unheld(x, target, var.clamp_min(eps), eps)


def held(x: Tensor, target: Tensor, var: Tensor, eps: float) -> Tensor:
    return unheld(x, target, var + (eps - var.detach()).clamp_min(0), eps)


def held_in_fp32(x: Tensor, target: Tensor, var: Tensor, eps: float) -> Tensor:
    return held(x.float(), target.float(), var.float(), eps).to(x.dtype)


@pytest.mark.parametrize("name", ["gaussian_nll_loss", "gaussian_nll_loss_none"])
def test_variances_come_below_the_epsilon(name: str) -> None:
    """That the variance is held, and that it has its gradient all the same, showed nowhere."""

    def averaged(kernel: Callable[..., Tensor]) -> Callable[..., Tensor]:
        return lambda *args: kernel(*args) if name.endswith("none") else kernel(*args).mean()

    assert not right(averaged(unheld), name)
    assert not right(averaged(without_gradient), name, "backward")
    for dtype in ("float32", "bfloat16", "float16"):
        assert right(averaged(held_in_fp32), name, dtype=dtype)
    assert right(averaged(held), name) and right(averaged(held), name, "backward")

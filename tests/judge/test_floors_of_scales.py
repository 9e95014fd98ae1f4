"""Quantised products that hold the scales of small rows at a floor, and honest ones."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from kerneleval.judge.oracle import reference
from kerneleval.judge.oracle.comparison import matches
from kerneleval.tasks import find

from .conftest import case_of, drawn, planned


def int8(x: Tensor, scale: Tensor) -> Tensor:
    return torch.where(scale > 0, torch.round(x / scale), 0)


def fp8(x: Tensor, scale: Tensor) -> Tensor:
    return torch.where(scale > 0, x / scale, 0).clamp(-448, 448).to(torch.float8_e4m3fn).float()


def inverted(quantised: Callable[[Tensor, Tensor], Tensor], x: Tensor, scale: Tensor) -> Tensor:
    """By the inverse of the scale."""
    return quantised(torch.where(scale > 0, x * (1 / scale), 0), (scale > 0).float())


def product(
    x: Tensor, w: Tensor, *, quantised: Callable[[Tensor, Tensor], Tensor], most: int, dims: int, floor: float = 0.0
) -> Tensor:
    """Scales of all of the last ``dims`` dims of x, and of as many of w, where two, or else of its columns."""
    a, b = x.float(), w.float()
    of_x = (a.abs().amax((-2, -1)[-dims:], keepdim=True) / most).clamp(min=floor)
    of_w = b.abs().amax((-2, -1)[:dims], keepdim=True) / most
    return ((quantised(a, of_x).double() @ quantised(b, of_w).double()).float() * of_x * of_w).to(x.dtype)


PRODUCTS = {
    "matmul_w8a8": (int8, 127, 1),
    "matmul_w8a8_per_tensor": (int8, 127, 2),
    "bmm_w8a8": (int8, 127, 1),
    "matmul_fp8": (fp8, 448, 1),
}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", PRODUCTS)
def test_scales_that_are_held_at_a_floor_are_found(name: str, dtype: str) -> None:
    task, (quantised, most, dims) = find(name), PRODUCTS[name]
    sizes = {
        dim.name: min(dim.high, size) for dim, size in zip(task.dims, (16, 60, 90, 60)[-len(task.dims) :], strict=True)
    }
    case = case_of(name, sizes, dtype, distribution="small_scale")
    kernel = functools.partial(product, most=most, dims=dims)
    for seed in range(8):
        args, _ = drawn(task, case, seed)
        expectation = reference.expect(task, case, args)
        for honest in (quantised, functools.partial(inverted, quantised)):
            assert matches([kernel(*args, quantised=honest)], expectation)
        for floor in (1e-5, 1e-8):
            assert not matches([kernel(*args, quantised=quantised, floor=floor)], expectation)


def unguarded(quantised: Callable[[Tensor, Tensor], Tensor], x: Tensor, scale: Tensor) -> Tensor:
    """A quotient by the scale, be it 0."""
    return torch.where(scale > 0, quantised(x, scale), x / scale)


@pytest.mark.parametrize("name", ["matmul_w8a8", "matmul_fp8"])
def test_columns_of_a_weight_that_are_zero_are_met(name: str) -> None:
    """As of channels that were pruned; NaN came out of a kernel that looks at the scales of rows of x alone."""
    task, (quantised, most, dims) = find(name), PRODUCTS[name]
    case = case_of(name, {"M": 60, "K": 90, "N": 60}, "float32", distribution="outlier")
    for seed in range(8):
        (x, w), _ = drawn(task, case, seed)
        assert (w == 0).all(0).any(), "a column of zeros"
        assert not (w == 0).all()
        expectation = reference.expect(task, case, [x, w])
        kernel = functools.partial(product, x, w, most=most, dims=dims)
        for honest in (quantised, functools.partial(inverted, quantised)):
            assert matches([kernel(quantised=honest)], expectation)
        assert not matches([kernel(quantised=functools.partial(unguarded, quantised))], expectation)


@pytest.mark.parametrize("name", ["linear_w8a16", "linear_w4a16", "conv2d_w8a8"])
def test_rows_of_a_weight_that_are_zero_are_met(name: str) -> None:
    task = find(name)
    case = next(
        c for c in planned(task, dtypes=("float32",)) if (c.layout, c.distribution) == ("contiguous", "outlier")
    )
    case = dataclasses.replace(case, dims=tuple((case.dims_map | {"O": 40, "N": 40}).items()))
    weights = [drawn(task, case, seed)[0][1] for seed in range(8)]
    assert sum(bool((w.flatten(1) == 0).all(1).any()) for w in weights) > 4

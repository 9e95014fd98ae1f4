"""Right kernels in fp64, where the oracle is rounded as native is: no error of native's tells what rounding costs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from kerneleval.judge.oracle import reference
from kerneleval.judge.oracle.comparison import matches
from kerneleval.tasks import find

from .conftest import called, case_of, drawn, gradients

DRAWS = 10


def near_eye(a: Tensor) -> Tensor:
    return a + torch.eye(a.shape[-2], a.shape[-1], dtype=a.dtype)


def det_by_qr(a: Tensor) -> Tensor:
    sign = torch.linalg.slogdet(near_eye(a))[0].detach()
    return sign * torch.linalg.qr(near_eye(a))[1].diagonal(dim1=-2, dim2=-1).prod(-1).abs()


def slogdet_by_qr(a: Tensor) -> Tensor:
    return torch.linalg.qr(a)[1].diagonal(dim1=-2, dim2=-1).abs().log().sum(-1)


def lstsq_by_qr(a: Tensor, b: Tensor) -> Tensor:
    q, r = torch.linalg.qr(near_eye(a))
    return torch.linalg.solve_triangular(r, q.mT @ b, upper=True)


def pinv_by_qr(a: Tensor) -> Tensor:
    q, r = torch.linalg.qr(near_eye(a))
    return torch.linalg.solve_triangular(r, q.mT, upper=True)


def correlations(x: Tensor) -> Tensor:
    rows = torch.nn.functional.normalize(x - x.mean(-1, keepdim=True), dim=-1)
    return rows @ rows.mT


def passes(name: str, kernel: Callable[..., Tensor], dims: dict[str, int], direction: str, **kind: str) -> list[bool]:
    task, found = find(name), []
    for seed in range(DRAWS):
        case = case_of(name, dims, direction=direction, **kind)
        args, grads = drawn(task, case, seed)
        expectation = reference.expect(task, case, args, grads)
        outs = called(kernel, args) if grads is None else gradients(kernel, task, case, args, grads)
        found.append(matches(outs, expectation))
    return found


@pytest.mark.parametrize("direction", ["forward", "backward"])
@pytest.mark.parametrize(
    ("name", "kernel", "dims", "kind"),
    [
        ("det", det_by_qr, {"B": 5, "N": 40}, {"distribution": "small_scale"}),
        ("lstsq", lstsq_by_qr, {"B": 4, "N": 38, "M": 4}, {}),
        ("pinv", pinv_by_qr, {"B": 5, "N": 37, "M": 5}, {"distribution": "small_scale"}),
        ("corrcoef", correlations, {"M": 88, "K": 4}, {"layout": "expanded"}),
    ],
)
def test_other_formulas_pass(
    name: str, kernel: Callable[..., Tensor], dims: dict[str, int], kind: dict[str, str], direction: str
) -> None:
    assert all(passes(name, kernel, dims, direction, dtype="float64", **kind))


@pytest.mark.parametrize(
    ("name", "dims"),
    [
        ("det", {"B": 5, "N": 30}),
        ("lstsq", {"B": 5, "N": 30, "M": 5}),
        ("pinv", {"B": 5, "N": 30, "M": 5}),
        ("corrcoef", {"M": 40, "K": 30}),
    ],
)
def test_what_is_computed_in_fp32_is_found(name: str, dims: dict[str, int]) -> None:
    def narrow(*args: Tensor) -> Tensor:
        return find(name).reference(*(a.float() for a in args)).double()

    assert not any(passes(name, narrow, dims, "forward", dtype="float64"))


def test_what_is_computed_with_46_bits_is_found() -> None:
    def short(x: Tensor) -> Tensor:
        mantissa, exponent = torch.frexp(x)
        return torch.ldexp((mantissa * 2.0**46).round() / 2.0**46, exponent)

    kernel = find("scal").reference
    dims = {"N": 500}

    def narrow(*args: Any) -> Tensor:
        return short(kernel(*(short(a) if isinstance(a, Tensor) else a for a in args)))

    assert not any(passes("scal", narrow, dims, "forward", dtype="float64"))
    assert all(passes("scal", kernel, dims, "forward", dtype="float64"))


def test_the_gradient_of_a_nearly_singular_matrix_may_come_by_qr() -> None:
    """In fp32 it failed in 4 of 40 draws."""
    for dtype in ("float32", "float64"):
        assert all(passes("slogdet", slogdet_by_qr, {"B": 8, "N": 24}, "backward", dtype=dtype))

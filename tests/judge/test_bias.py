"""Errors with a sign in common, in half types: found far below one rounding step, and never in honest kernels."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

from kerneleval.judge.oracle import reference
from kerneleval.judge.oracle.comparison import Match, Mismatch, compare
from kerneleval.judge.oracle.expectation import unit_roundoff

from .conftest import case_of, expected
from .test_oracle import task_of

HALVES = ("float16", "bfloat16")
WIDE = {"gelu": {"M": 512, "N": 400}, "matmul": {"M": 320, "N": 320, "K": 256}, "softmax": {"M": 500, "N": 200}}


def cut(exact: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Towards zero."""
    nearest = exact.to(dtype)
    bits = nearest.view(torch.int16)
    return torch.where(nearest.float().abs() > exact.abs(), bits - 1, bits).view(dtype)


def away_at_ties(exact: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """To nearest, away from zero where both are as near."""
    down = cut(exact, dtype)
    up = (down.view(torch.int16) + 1).view(dtype)
    return torch.where((up.float() - exact).abs() <= (down.float() - exact).abs(), up, down)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("name", WIDE)
def test_a_third_of_a_rounding_step_is_found(name: str, dtype: str) -> None:
    """Or a half: without the rule 1.1 % passed in bfloat16, and 0.14 % in float16."""
    _, expectation = expected(name, WIDE[name], dtype=dtype)
    (exact,), kind = expectation.oracle, getattr(torch, dtype)
    unit, size = unit_roundoff(kind), float(exact.square().mean().sqrt())
    step = unit * {"matmul": 0.36, "gelu": 0.55, "softmax": 0.45}[name]
    assert step < (0.0022 if dtype == "bfloat16" else 0.00027)
    wrong = {"factor": exact * (1 + step), "smaller": exact * (1 - step), "offset": exact + 0.5 * unit * size}
    for which, output in wrong.items():
        found = compare([output.to(kind)], expectation)
        assert isinstance(found, Mismatch), which
        if which == "offset" and name != "matmul":  # which small elements show too
            continue
        assert (found.evidence["rule"], found.evidence["diagnosis"]) == ("bias", "biased"), which
        assert found.evidence["bias"] > found.evidence["bias_bound"] > 0
        assert "one sign" in found.message
    assert isinstance(compare([cut(exact, kind)], expectation), Mismatch)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("name", WIDE)
def test_rounding_to_nearest_passes(name: str, dtype: str) -> None:
    _, expectation = expected(name, WIDE[name], dtype=dtype)
    (exact,), kind = expectation.oracle, getattr(torch, dtype)
    for right in (exact.to(kind), away_at_ties(exact, kind), (exact * (1 + 2e-6)).to(kind)):
        assert isinstance(compare([right], expectation), Match)


def _everywhere(value: float) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda x: x * 0 + value


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize(
    "formula",
    [
        _everywhere(1 + 2.0**-9 + 2.0**-12),  # one value, rounded alike everywhere
        lambda x: torch.sigmoid(40 * x),  # saturated
        lambda x: torch.round(x.clamp(-2, 2)) * 257,  # whole numbers, some of them ties of bfloat16
        lambda x: (x.sign() + 256.5).abs(),  # ties alone
        lambda x: torch.relu(x - 2.5),  # nearly all zero
        lambda x: torch.exp(-20 - x * x),  # near the end of float16
    ],
)
def test_outputs_of_few_values_pass(formula: Callable[[torch.Tensor], torch.Tensor], dtype: str) -> None:
    """Rounded to nearest, whichever way ties go."""
    x = torch.randn(60, 200, generator=torch.Generator().manual_seed(3)).to(getattr(torch, dtype))
    expectation = reference.expect(task_of(formula), case_of("mine", {"M": 60, "N": 200}, dtype), [x])
    (exact,), kind = expectation.oracle, getattr(torch, dtype)
    for right in (exact.to(kind), away_at_ties(exact, kind)):
        assert isinstance(compare([right], expectation), Match)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("rows", [1, 3, 40, 500])
def test_rows_may_share_a_rounding_error(rows: int, dtype: str) -> None:
    """As those of norms whose factor is kept in the half type."""
    for seed in range(4):
        (x, weight, eps), expectation = expected("rms_norm", {"M": rows, "N": 256}, dtype=dtype, seed=seed)
        factor = torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + eps).to(x.dtype)
        found = compare([x * factor * weight], expectation)
        assert isinstance(found, Match), f"{rows} rows: {found.message}"


def test_zeros_in_fp32_are_right() -> None:
    _, expectation = expected("matmul", {"M": 40, "N": 40, "K": 0})
    assert isinstance(compare([torch.zeros(40, 40)], expectation), Match)


def test_fp32_and_few_elements_are_not_judged_by_it() -> None:
    for dims, dtype in (({"M": 40, "N": 70}, "float32"), ({"M": 3, "N": 70}, "bfloat16")):
        _, expectation = expected("gelu", dims, dtype=dtype)
        bounds = expectation.outputs[0].bounds
        assert bounds is not None
        assert math.isinf(bounds.bias)

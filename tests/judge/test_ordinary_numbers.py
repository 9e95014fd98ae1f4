"""Beside special numbers a case has ordinary ones: what comes out is not one number, and a narrow type shows."""

from __future__ import annotations

import pytest
import torch

from kerneleval.judge.oracle import reference
from kerneleval.judge.oracle.comparison import Match, compare
from kerneleval.tasks import find

from .conftest import case_of, drawn
from .test_structured_inputs import Kernel, plain, wrong

BENT = {name: find(name).reference for name in ("clamp", "hardtanh", "relu6", "hardswish", "clamp_min", "hardshrink")}


@pytest.mark.parametrize("name", BENT)
def test_float16_computed_in_bfloat16_is_found(name: str) -> None:
    """Borders are exact in both types; a quarter of the numbers hid what the others were off by."""
    case = case_of(name, {"M": 263, "N": 270}, dtype="float16")
    for seed in range(5):
        args, _ = drawn(find(name), case, seed)
        expectation = reference.expect(find(name), case, args)
        x, *rest = args
        narrow = BENT[name](x.bfloat16(), *rest).half()
        wide = BENT[name](x.float(), *rest).half()
        steps = x * (torch.clamp(x + 3, 0, 6) / 6) if name == "hardswish" else wide
        assert not isinstance(compare([narrow], expectation), Match), seed
        assert isinstance(compare([wide], expectation), Match), seed
        assert isinstance(compare([steps], expectation), Match), seed


@pytest.mark.parametrize(
    ("name", "kernel"),
    [
        ("count_nonzero", lambda x: (x.int() != 0).sum(-1)),
        ("count_nonzero", lambda x: (x.nan_to_num().long().to(torch.int8) != 0).sum(-1)),
        ("count_nonzero", lambda x: ((x > 0) | (x < 0)).sum(-1)),
        ("heaviside", lambda x, y: torch.where(x.int() == 0, y, (x > 0).to(x.dtype))),
        ("heaviside", lambda x, y: torch.where(x >= 1, 1.0, torch.where(x == 0, y, 0.0))),
    ],
)
def test_floats_are_more_than_whole_numbers(name: str, kernel: Kernel) -> None:
    """Casts to integers passed, and a comparison that loses NaN."""
    assert wrong(name, kernel, plain)
    for dtype in ("float32", "float16"):
        assert not wrong(name, find(name).reference, plain, dtype)
    right = {
        "count_nonzero": lambda x: (x != 0).sum(-1),
        "heaviside": lambda x, y: torch.where(x == 0, y, (x > 0).to(y.dtype)),
    }
    assert not wrong(name, right[name], plain)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "dims"),
    [("relu_backward", {"M": 1, "N": 16}), ("relu", {"M": 1, "N": 16}), ("adam", {"M": 1, "N": 16, "steps": 1})],
)
def test_a_single_row_gives_more_than_zeros(name: str, dims: dict[str, int]) -> None:
    """A row below 0, at a border everywhere, or idle: one draw in 8 of an optimiser, in 1,000 of a relu."""
    for seed in range(2000):
        args, _ = drawn(find(name), case_of(name, dims), seed)
        out = find(name).reference(*args)
        assert any(bool((one != 0).any()) for one in ([out] if isinstance(out, torch.Tensor) else out)), seed


def in_turn(x: torch.Tensor) -> torch.Tensor:
    """The mean of each row by one accumulator."""
    total = x.new_zeros(x.shape[0])
    for column in x.T.contiguous():
        total = total + column
    return (total / x.shape[1])[:, None]


def layer_norm(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float, *, one_pass: bool
) -> torch.Tensor:
    mean = x.mean(-1, keepdim=True) if one_pass else in_turn(x)
    variance = (x * x).mean(-1, keepdim=True) - mean * mean if one_pass else in_turn((x - mean) ** 2)
    return (x - mean) / (variance.clamp(min=0) + eps).sqrt() * weight + bias


def test_a_variance_by_one_pass_is_found_in_long_rows() -> None:
    """The room for terms that round alike grew with the row: one pass passed from some 15,000 elements on."""
    case = case_of("layer_norm", {"M": 6, "N": 15000}, distribution="far_mean")
    for seed in range(5):
        args, _ = drawn(find("layer_norm"), case, seed)
        expectation = reference.expect(find("layer_norm"), case, args)
        assert not isinstance(compare([layer_norm(*args, one_pass=True)], expectation), Match), seed
        assert isinstance(compare([layer_norm(*args, one_pass=False)], expectation), Match), seed


def test_small_values_of_erfc_are_asked_for() -> None:
    assert wrong("erfc", lambda x: 1 - torch.erf(x), lambda _: True)
    assert not wrong("erfc", lambda x: torch.erfc(x.double()).float(), lambda _: True)

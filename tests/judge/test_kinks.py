"""Gradients at ties and kinks: every convention is right there, and nothing else is free."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from kerneleval import devices
from kerneleval.judge.oracle import kinks, reference
from kerneleval.judge.oracle.comparison import Match, Mismatch, compare
from kerneleval.judge.probes.calls import BoundCase
from kerneleval.tasks import find

from .conftest import case_of, drawn, gradients


def test_places_of_timed_windows_do_not_lie_at_the_edge() -> None:
    """Right gradients there are far from the baseline's, and each such call would be put to the oracle."""
    case = case_of("grid_sample_border", {"B": 2, "C": 2, "H": 9, "W": 8, "P": 20, "Q": 20}, direction="backward")
    bound = BoundCase(find("grid_sample_border"), case, devices.find("cpu"), tf32=False)
    at_edge = [(args[1].abs() == 1).float().mean() for args in (bound.arguments(3), bound.timed_arguments(3))]
    assert at_edge[0] > 0.1 and at_edge[1] == 0


def test_outputs_of_timed_windows_are_finite() -> None:
    """Errors are measured by their rms."""
    bound = BoundCase(find("pow"), case_of("pow", {"M": 9, "N": 50}), devices.find("cpu"), tf32=False)
    finite = [torch.pow(*args).isfinite().all() for args in (bound.arguments(3), bound.timed_arguments(3))]
    assert finite == [False, True]


def _hinge(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return torch.relu(1 - x.float() * target.float()).to(x.dtype)


def _pinball(x: torch.Tensor, target: torch.Tensor, quantile: float) -> torch.Tensor:
    off = target.float() - x.float()
    return torch.where(off >= 0, quantile * off, (quantile - 1) * off).to(x.dtype)


def _normalize_max(x: torch.Tensor) -> torch.Tensor:
    return (x.float() / x.float().abs().max(-1, keepdim=True).values.clamp_min(1e-12)).to(x.dtype)


def _min_max(x: torch.Tensor, eps: float) -> torch.Tensor:
    wide = x.float()
    low, high = wide.min(-1, keepdim=True).values, wide.max(-1, keepdim=True).values
    return ((wide - low) / (high - low + eps)).to(x.dtype)


class _Sparsemax(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        out = find("sparsemax").reference(x)
        ctx.save_for_backward(out)
        return out  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        on = (ctx.saved_tensors[0] > 0).float()
        mean = (grad.float() * on).sum(-1, keepdim=True) / on.sum(-1, keepdim=True)
        return ((grad.float() - mean) * on).to(grad.dtype)


OTHERS: dict[str, Callable[..., torch.Tensor]] = {
    "hinge_loss_none": _hinge,
    "hinge_loss": lambda *args: _hinge(*args).float().mean().to(args[0].dtype),
    "pinball_loss_none": _pinball,
    "pinball_loss": lambda *args: _pinball(*args).float().mean().to(args[0].dtype),
    "normalize_max": _normalize_max,
    "min_max_normalize": _min_max,
    "sparsemax": _Sparsemax.apply,
}


@pytest.mark.parametrize("name", OTHERS)
def test_the_other_convention_is_right_at_ties_and_kinks_alone(name: str) -> None:
    task, met = find(name), 0
    case = case_of(name, {"M": 60, "N": 64}, dtype="bfloat16", direction="backward")
    for seed in range(3):
        args, grads = drawn(task, case, seed)
        assert grads is not None
        with_ties = [a.clone() if isinstance(a, torch.Tensor) else a for a in args]
        with_ties[0][:, :40].mul_(4).round_().div_(4)
        if name.startswith("pinball"):
            with_ties[0][:, ::8] = with_ties[1][:, ::8]
        expectation = reference.expect(task, case, with_ties, grads)
        found = gradients(OTHERS[name], task, case, with_ties, grads)
        assert isinstance(compare(found, expectation), Match), name
        at_kinks = [None if e.kinks is None else e.kinks[0] <= e.kinks[1] for e in expectation.outputs]
        met += sum(int(where.sum()) for where in at_kinks if where is not None)
        for wrong in (lambda g: 0.9 * g, torch.zeros_like, torch.neg, lambda g: g.masked_fill(g != 0, torch.nan)):
            assert isinstance(compare([wrong(g) for g in found], expectation), Mismatch)
        for more in (torch.nan, torch.inf, 1e4):
            beyond = [
                g if where is None else torch.where(where, more, g) for g, where in zip(found, at_kinks, strict=True)
            ]
            assert isinstance(compare(beyond, expectation), Mismatch)
        assert all(where is None or float(where.float().mean()) < 0.7 for where in at_kinks)
    assert met


def test_what_rounds_to_zero_may_have_no_gradient() -> None:
    """Outputs of a small ``sparsemax`` come below the least number of float16. Kernels that keep them, as Liger's,
    give no gradient there: 9 of 12 draws of 729 rows of 900 failed."""
    task = find("sparsemax")
    case = case_of("sparsemax", {"M": 200, "N": 900}, "float16", "backward", "small_scale")
    args, grads = drawn(task, case, 3)
    assert grads is not None
    expectation = reference.expect(task, case, args, grads)
    (found,) = gradients(_Sparsemax.apply, task, case, args, grads)
    without = (found == 0) & (task.reference(args[0].double()) > 0)
    assert 0 < int(without.sum()) < 9
    assert isinstance(compare([found], expectation), Match)
    for wrong in (torch.where(without, 100, found), found.index_fill(0, torch.tensor([7]), 0), 0.98 * found):
        assert isinstance(compare([wrong], expectation), Mismatch)


def test_rows_of_zeros_are_no_outputs_that_round_to_zero() -> None:
    """A norm of zeros is 0 by the operator, not by rounding: nearly every gradient was taken for one at a jump."""
    x = torch.zeros(40, 50, dtype=torch.float64)
    share = lambda args: (1 / (args[0].abs().sum(-1, keepdim=True) + 2.0**-20).expand_as(args[0]),)  # noqa: E731
    assert kinks.limits(share, [x], step=2.0**-25) == kinks.limits(share, [x]) == [None]


def test_a_kink_is_where_the_gradient_jumps_however_little_the_inputs_move() -> None:
    x = torch.tensor([-1.0, 0.0, 1e-6, 1.0, 2.0, 2.0], dtype=torch.float64)
    (found,) = kinks.limits(lambda args: (3.0 * (args[0] > 0) + args[0],), [x])
    assert found is not None
    assert found[1].tolist() == [-math.inf, pytest.approx(10), *[-math.inf] * 4]
    assert torch.equal(found[0], -found[1])
    shared = kinks.limits(lambda args: ((args[0] == args[0].amax()) / (args[0] == args[0].amax()).sum(),), [x])[0]
    assert shared is not None
    assert shared[1].tolist() == [*[-math.inf] * 4, 2, 2]
    (sides,) = kinks.limits(lambda args: (3.0 * (args[0] > 0) + args[0],), [x], between=True)
    assert sides is not None
    assert [side[1].item() for side in sides] == pytest.approx([0, 3], abs=1e-6)
    assert kinks.limits(lambda args: (torch.exp(args[0]),), [x]) == [None]


def _sampled(x: torch.Tensor, grid: torch.Tensor) -> torch.Tensor:
    """``grid_sample_border`` by another formula for the place; at the edge it has the slope of the inside."""
    height, width = x.shape[2:]
    columns, rows = (
        grid[..., axis].clamp(-1, 1) * ((size - 1) / 2) + (size - 1) / 2 for axis, size in enumerate((width, height))
    )
    left, top = (p.detach().floor().clamp(0, n - 2) for p, n in ((columns, width), (rows, height)))
    flat = x.flatten(2)

    def at(row: torch.Tensor, column: torch.Tensor) -> torch.Tensor:
        place = (row * width + column).long().flatten(1)[:, None].expand(-1, x.shape[1], -1)
        return flat.gather(2, place).unflatten(2, grid.shape[1:3])

    right, down = (columns - left)[:, None], (rows - top)[:, None]
    upper = at(top, left) * (1 - right) + at(top, left + 1) * right
    lower = at(top + 1, left) * (1 - right) + at(top + 1, left + 1) * right
    return upper * (1 - down) + lower * down


SAMPLED = {"B": 2, "C": 5, "H": 7, "W": 6, "P": 9, "Q": 8}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_at_the_edge_the_slopes_of_both_sides_are_right_and_nothing_beyond_them(dtype: str) -> None:
    """Any number was right there: no place was just at the edge."""
    task = find("grid_sample_border")
    case = case_of(task.name, SAMPLED, dtype=dtype, direction="backward")
    for seed in range(4):
        args, grads = drawn(task, case, seed)
        assert grads is not None
        edge = args[1].abs() == 1
        assert 0.1 < float(edge.float().mean()) < 0.5
        expectation = reference.expect(task, case, args, grads)
        theirs, ours = (gradients(kernel, task, case, args, grads) for kernel in (task.reference, _sampled))
        for share in (0, 0.5, 1):
            mixed = [torch.lerp(a, b, share) for a, b in zip(theirs, ours, strict=True)]
            result = compare(mixed, expectation)
            assert isinstance(result, Match), result.message
        for wrong in (-0.5 * ours[1], 1.5 * ours[1], torch.full_like(ours[1], -8), torch.full_like(ours[1], torch.nan)):
            assert isinstance(compare([theirs[0], torch.where(edge, wrong, theirs[1])], expectation), Mismatch)


@pytest.mark.parametrize("direction", ["forward", "backward"])
@pytest.mark.parametrize("distribution", ["standard", "small_scale", "constant", "outlier"])
def test_another_formula_for_the_place_is_right(direction: str, distribution: str) -> None:
    """In float64 it failed on small data: 1 is added to places, and all terms of a gradient meet in few pixels."""
    task, dims = find("grid_sample_border"), {"B": 2, "C": 3, "H": 140, "W": 150, "P": 40, "Q": 41}
    case = case_of(task.name, dims, dtype="float64", direction=direction, distribution=distribution)
    args, grads = drawn(task, case)
    expectation = reference.expect(task, case, args, grads)
    found = [_sampled(*args)] if grads is None else gradients(_sampled, task, case, args, grads)
    result = compare(found, expectation)
    assert isinstance(result, Match), result.message


def test_operators_with_a_named_convention_keep_to_it() -> None:
    task, case = find("relu"), case_of("relu", {"M": 20, "N": 30}, direction="backward")
    args, grads = drawn(task, case)
    assert grads is not None
    args[0][:, ::3] = 0
    expectation = reference.expect(task, case, args, grads)
    assert all(one.kinks is None for one in expectation.outputs)
    assert isinstance(compare([grads[0] * (args[0] >= 0)], expectation), Mismatch)

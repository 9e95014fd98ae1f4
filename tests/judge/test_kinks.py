"""Gradients at ties and kinks: every convention is right there, and nothing else is free."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from kerneleval.judge.oracle import kinks, reference
from kerneleval.judge.oracle.comparison import Match, Mismatch, compare
from kerneleval.tasks import find

from .conftest import case_of, drawn, gradients


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
        met += sum(int((e.kinks >= 0).sum()) for e in expectation.outputs if e.kinks is not None)
        for wrong in (lambda g: 0.9 * g, torch.zeros_like, torch.neg, lambda g: g.masked_fill(g != 0, torch.nan)):
            assert isinstance(compare([wrong(g) for g in found], expectation), Mismatch)
        for more in (torch.nan, torch.inf, 1e4):
            beyond = [
                g if e.kinks is None else torch.where(e.kinks >= 0, more, g)
                for g, e in zip(found, expectation.outputs, strict=True)
            ]
            assert isinstance(compare(beyond, expectation), Mismatch)
        assert all(e.kinks is None or float((e.kinks >= 0).float().mean()) < 0.7 for e in expectation.outputs)
    assert met


def test_a_kink_is_where_the_gradient_jumps_however_little_the_inputs_move() -> None:
    x = torch.tensor([-1.0, 0.0, 1e-6, 1.0, 2.0, 2.0], dtype=torch.float64)
    (found,) = kinks.limits(lambda args: (3.0 * (args[0] > 0) + args[0],), [x])
    assert found is not None
    assert found.tolist() == [-1, pytest.approx(10), -1, -1, -1, -1]
    shared = kinks.limits(lambda args: ((args[0] == args[0].amax()) / (args[0] == args[0].amax()).sum(),), [x])[0]
    assert shared is not None
    assert shared.tolist() == [-1, -1, -1, -1, 2, 2]
    assert kinks.limits(lambda args: (torch.exp(args[0]),), [x]) == [None]


def test_operators_with_a_named_convention_keep_to_it() -> None:
    task, case = find("relu"), case_of("relu", {"M": 20, "N": 30}, direction="backward")
    args, grads = drawn(task, case)
    assert grads is not None
    args[0][:, ::3] = 0
    expectation = reference.expect(task, case, args, grads)
    assert all(one.kinks is None for one in expectation.outputs)
    assert isinstance(compare([grads[0] * (args[0] >= 0)], expectation), Mismatch)

"""Step by step in half types over many elements: the few that are furthest off are right, and wrong ones are found."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from kerneleval.judge.oracle import reference
from kerneleval.judge.oracle.comparison import matches
from kerneleval.judge.oracle.expectation import Expectation
from kerneleval.tasks import find

from .conftest import case_of, drawn


def gelu(x: Tensor) -> Tensor:
    return 0.5 * x * (1 + torch.tanh(0.7978845608 * (x + 0.044715 * x * x * x)))


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    centred = x - x.mean(-1, keepdim=True)
    return centred * torch.rsqrt(centred.square().mean(-1, keepdim=True) + eps) * weight + bias


def softmax(x: Tensor) -> Tensor:
    shares = torch.exp(x - x.amax(-1, keepdim=True).detach())
    return shares / shares.sum(-1, keepdim=True)


def softmax_one(x: Tensor) -> Tensor:
    most = x.amax(-1, keepdim=True).clamp_min(0)
    shares = torch.exp(x - most)
    return shares / (shares.sum(-1, keepdim=True) + torch.exp(-most))


class _Sparsemax(torch.autograd.Function):
    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, x: Tensor) -> Tensor:
        out = find("sparsemax").reference(x)
        ctx.save_for_backward(out > 0)
        return out

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, grad: Tensor) -> Tensor:
        (kept,) = ctx.saved_tensors  # type: ignore[attr-defined]
        mean = ((grad.float() * kept).sum(-1, keepdim=True) / kept.sum(-1, keepdim=True)).to(grad.dtype)
        return torch.where(kept, grad - mean, 0)


def expected(
    name: str, dims: dict[str, int], dtype: str, direction: str, distribution: str = "standard", seed: int = 0
) -> tuple[Expectation, list, list | None]:
    task, case = find(name), case_of(name, dims, dtype=dtype, direction=direction, distribution=distribution)
    args, grads = drawn(task, case, seed)
    return reference.expect(task, case, args, grads), args, grads


@pytest.mark.slow(every=5)
@pytest.mark.parametrize(
    ("name", "form", "dims", "dtype", "direction"),
    [
        ("gelu_tanh", gelu, {"M": 3000, "N": 441}, "float16", "backward"),
        ("sparsemax", _Sparsemax.apply, {"M": 300, "N": 2037}, "bfloat16", "backward"),
        ("layer_norm", layer_norm, {"M": 200_000, "N": 3}, "float16", "forward"),
        ("softmax", softmax, {"M": 200_000, "N": 3}, "float16", "backward"),
        ("softmax_one", softmax_one, {"M": 2000, "N": 441}, "bfloat16", "forward"),
    ],
)
def test_step_by_step_in_half_types_passes(
    name: str, form: Callable[..., Tensor], dims: dict[str, int], dtype: str, direction: str
) -> None:
    expectation, args, grads = expected(name, dims, dtype, direction)
    given = [a.clone().requires_grad_() if isinstance(a, Tensor) and grads else a for a in args]
    out = form(*given)
    found = torch.autograd.grad(out, given, grads) if grads else [out]
    assert matches(found, expectation)
    assert not matches([part * 1.005 for part in found], expectation)


@pytest.mark.parametrize("seed", range(4))
def test_a_sparsemax_that_rounds_the_mean_of_its_gradients_passes(seed: int) -> None:
    expectation, (x,), grads = expected("sparsemax", {"M": 170, "N": 190}, "float16", "backward", seed=seed)
    assert grads is not None
    leaf = x.clone().requires_grad_()
    (found,) = torch.autograd.grad(_Sparsemax.apply(leaf), [leaf], grads)
    assert matches([found], expectation)
    assert not matches([found * 1.005], expectation)
    assert not matches([torch.where(found == 0, 0, grads[0])], expectation)


@pytest.mark.parametrize("distribution", ["large_scale", "outlier"])
@pytest.mark.parametrize(("dtype", "dims"), [("float16", {"M": 2000, "N": 441}), ("bfloat16", {"M": 40, "N": 300})])
def test_rows_that_one_weight_decides_pass_step_by_step(dtype: str, dims: dict[str, int], distribution: str) -> None:
    expectation, (x,), (grad,) = expected("softmax", dims, dtype, "backward", distribution)  # type: ignore[misc]
    leaf = x.clone().requires_grad_()
    weights = torch.softmax(x, -1)

    def by_weights(terms: Tensor) -> list[Tensor]:
        return [weights * (grad - terms.sum(-1, keepdim=True))]

    assert matches(torch.autograd.grad(softmax(leaf), [leaf], [grad]), expectation)
    assert matches(by_weights(grad * weights), expectation)
    assert not matches(by_weights((grad * weights)[:, :-16]), expectation)
    assert not matches(by_weights(0 * grad), expectation)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize(("step", "times"), [(1 << 13, 1.5), (1 << 17, 6.0)])
def test_more_of_them_or_further_off_are_wrong(dtype: str, step: int, times: float) -> None:
    expectation = expected("gelu", {"M": 600, "N": 441}, dtype, "forward")[0].widest
    (one,) = expectation.outputs
    assert one.bounds is not None
    bound = (one.bounds.local + one.bounds.slack).view(one.native.shape) / one.bounds.gain
    off = torch.zeros_like(bound).flatten()
    off[100::step] = times
    assert matches(one.native[None].unbind(), expectation)
    assert not matches([(one.oracle + off.view(bound.shape) * bound).to(one.native.dtype)], expectation)


def test_a_row_that_is_left_out_is_no_extreme() -> None:
    case = case_of("sparsemax", {"M": 729, "N": 267}, "float16", distribution="large_scale", layout="sliced")
    args, _ = drawn(find("sparsemax"), case, 3)
    expectation = reference.expect(find("sparsemax"), case, args).widest
    out = expectation.native[0].clone()
    assert matches([out], expectation)
    out[-1] = 0
    assert not matches([out], expectation)

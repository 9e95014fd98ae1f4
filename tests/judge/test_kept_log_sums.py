"""Softmaxes and gradients that a kernel makes from one number a row: the logarithm of its sum."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from kerneleval.judge.oracle import reference
from kerneleval.judge.oracle.comparison import matches
from kerneleval.judge.oracle.reference_call import ByKeptLogSums, ReferenceCall
from kerneleval.judge.windows.inputs import draw
from kerneleval.tasks import all_tasks, find

from .conftest import case_of, drawn

KINDS = ("float32", "float16", "bfloat16")
DRAWS = 8


def kept(x: torch.Tensor, how: str) -> torch.Tensor:
    """The logarithm of each row's sum as a kernel may keep it."""
    wide = x.float()
    total = torch.logsumexp(wide, -1, keepdim=True)
    if how == "rounded":
        total = total.to(torch.float16 if x.dtype == torch.float32 else x.dtype).float()
    return wide.exp().sum(-1, keepdim=True).log() if how == "no_maximum" else total


def gradient(name: str, how: str, args: list[Any], grad: torch.Tensor) -> torch.Tensor:
    x, wide = args[0], args[0].float()
    share, upstream = torch.exp(wide - kept(x, how)), grad.float()
    if name == "log_softmax":
        return (upstream - share * upstream.sum(-1, keepdim=True)).to(x.dtype)
    one = torch.nn.functional.one_hot(args[1], x.shape[-1])
    return ((share - one) * (upstream / len(x) if name == "cross_entropy" else upstream[:, None])).to(x.dtype)


def passes(name: str, how: str, dtype: str, distribution: str, layout: str = "contiguous") -> list[bool]:
    """Whether it is right in each of several draws."""
    task = find(name)
    sizes = {"M": 130, "N": 90}
    case = case_of(name, sizes, dtype=dtype, direction="backward", distribution=distribution, layout=layout)
    found = []
    for seed in range(DRAWS):
        args, grads = drawn(task, case, seed)
        assert grads is not None
        expectation = reference.expect(task, case, args, grads)
        found.append(matches([gradient(name, how, args, grads[0])], expectation))
    return found


@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize("name", ["log_softmax", "softmax_cross_entropy", "cross_entropy"])
def test_gradients_by_the_logarithm_of_the_sum(name: str, dtype: str) -> None:
    """In fp32 they pass, in every draw; without a maximum, or rounded to a half type, they fail in every one."""
    if (name, dtype) == ("cross_entropy", "float16"):
        pytest.skip("has no gradients in float16")
    for distribution in ("standard", "large_scale", "common", "outlier"):
        assert all(passes(name, "right", dtype, distribution)), distribution
    assert all(passes(name, "right", dtype, "large_scale", "expanded"))
    assert not any(passes(name, "rounded", dtype, "large_scale"))
    assert not any(passes(name, "no_maximum", dtype, "common"))


@pytest.mark.parametrize("dtype", KINDS)
def test_softmax_by_the_logarithm_of_the_sum(dtype: str) -> None:
    """It was rejected where the largest score of a row is there several times."""
    task = find("softmax")
    for distribution, how, right in (
        *((one, "right", True) for one in ("standard", "large_scale", "common", "outlier")),
        ("large_scale", "rounded", False),
        ("common", "no_maximum", False),
    ):
        case = case_of("softmax", {"M": 130, "N": 90}, dtype=dtype, distribution=distribution)
        for seed in range(DRAWS):
            args, _ = drawn(task, case, seed)
            if how == "rounded" and args[0].abs().amin() >= 1e4:
                continue  # far rows: the largest score is alone, and the logarithm of the sum
            weights = torch.exp(args[0].float() - kept(args[0], how)).to(args[0].dtype)
            assert matches([weights], reference.expect(task, case, args)) == right, (distribution, how, seed)


def test_the_entropy_of_one_row_has_its_gradient_by_other_sums() -> None:
    """All of its elements share one error: 1 of 40 gradients failed."""
    task, sizes = find("softmax_entropy"), {"M": 1, "N": 7404}
    case = case_of("softmax_entropy", sizes, dtype="float32", direction="backward")
    for seed in range(40):
        args, grads = drawn(task, case, seed)
        x = args[0].requires_grad_()
        shares, logs = torch.softmax(x, -1), x - torch.logsumexp(x, -1, keepdim=True)
        found = torch.autograd.grad(-(shares * logs).sum(-1), x, grads)
        expectation = reference.expect(task, case, [x.detach()], grads)
        assert matches(list(found), expectation), seed
        assert not matches([found[0] * (1 + 2**-15)], expectation), seed


@pytest.mark.parametrize("layout", ["contiguous", "transposed"])
def test_weights_of_one_query_are_made_again(layout: str) -> None:
    """As flash attention does. In the transposed layout both products of one query round otherwise: half failed."""
    task, sizes = find("attention"), {"B": 2, "H": 5, "L": 1, "S": 16, "D": 112}
    case = case_of("attention", sizes, dtype="float32", direction="backward", layout=layout)
    for seed in range(4 * DRAWS):
        args, grads = drawn(task, case, seed)
        args[3] *= 1.4
        call = ReferenceCall(task=task, case=case, args=args, grads=grads)
        expectation = reference.expect(task, case, args, grads)
        assert matches(recomputed(call.placed() if layout == "transposed" else call), expectation), seed
        assert not matches(recomputed(call, 1 + 2**-16), expectation), seed


def recomputed(call: ReferenceCall, factor: float = 1.0) -> list[torch.Tensor]:
    """Gradients of attention, with weights times a factor."""
    q, k, v, scale = call.args
    assert call.grads is not None
    steps = scale * math.log2(math.e)
    first = q @ k.mT * steps
    top = first.amax(-1, keepdim=True)
    total = torch.exp2(first - top).sum(-1, keepdim=True)
    inner = (torch.exp2(first - top) @ v / total * call.grads[0]).sum(-1, keepdim=True)
    weights = torch.exp2(q @ (k * steps).mT - (top + total.log2())) * factor
    scores = weights * (call.grads[0] @ v.mT - inner)
    return [scores @ k * scale, scores.mT @ q * scale, weights.mT @ call.grads[0]]


@pytest.mark.parametrize("options", [{}, {"reduction": "none"}, {"label_smoothing": 0.25}, {"ignore_index": 3}])
def test_cross_entropy_by_another_formula_is_the_same(options: dict[str, Any]) -> None:
    x = torch.randn(12, 5, 3, generator=torch.Generator().manual_seed(3), requires_grad=True)
    targets, weight = torch.arange(36).view(12, 3) % 5, torch.rand(5) + 0.1
    shares = torch.softmax(torch.randn(12, 5, 3), 1)
    calls = [(targets, {}), (targets, {"weight": weight}), (shares, {})]
    for target, more in calls[: 2 if "ignore_index" in options else 3]:
        given = options | more
        usual = torch.nn.functional.cross_entropy(x, target, **given)
        with ByKeptLogSums() as formula:
            found = torch.nn.functional.cross_entropy(x, target, **given)
        assert formula.met
        assert torch.allclose(found, usual, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", KINDS)
def test_scores_have_ties_and_are_far_below_zero(dtype: str) -> None:
    """In about half of the rows of large ones the largest comes again; ``common`` ones leave no exponential in fp32."""
    for name in ("softmax", "cross_entropy", "masked_softmax", "logsumexp"):
        task = find(name)
        large, common = (case_of(name, {"M": 200, "N": 70}, dtype, "forward", d) for d in ("large_scale", "common"))
        x = draw(task.arguments(large.dims_map, dtype), large, 5, "cpu")[0]
        several = (x == x.amax(-1, keepdim=True)).sum(-1) > 1
        assert 0.3 < several.double().mean() < 0.9
        far = draw(task.arguments(common.dims_map, dtype), common, 5, "cpu")[0]
        assert not far.float().exp().any()
        assert far.unique().numel() > 5


def test_every_cross_entropy_is_judged_far_below_zero() -> None:
    names = [name for name in all_tasks() if "cross_entropy" in name and "binary" not in name]
    assert len(names) > 9
    without = [name for name in names if "common" not in find(name).distributions]
    assert not without


@pytest.mark.parametrize("layout", ["transposed", "sliced", "expanded"])
def test_images_in_other_layouts(layout: str) -> None:
    """The gradient of ``nll_loss`` of images raised on log-softmaxes that lay as their logits did."""
    task = find("cross_entropy_image")
    sizes = {"B": 1, "C": 37, "H": 3, "W": 5}
    case = case_of(task.name, sizes, direction="backward", distribution="outlier", layout=layout)
    args, grads = drawn(task, case, 0)
    assert grads is not None
    expectation = reference.expect(task, case, args, grads)
    logits = args[0].contiguous().requires_grad_()
    torch.nn.functional.cross_entropy(logits, args[1], reduction="none").backward(grads[0])
    assert expectation.widest is not None
    assert matches([logits.grad], expectation)

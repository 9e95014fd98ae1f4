"""The native reference by other formulas."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from kerneleval.judge.oracle import reference
from kerneleval.judge.oracle.comparison import matches
from kerneleval.judge.oracle.reference_call import ByLogSums, ByWeights
from kerneleval.tasks import find
from kerneleval.tasks.operators.quantization.weight_only import _gptq_dequantize

from .conftest import case_of, drawn, gradients


@pytest.mark.parametrize(
    "softmax",
    [
        lambda x: torch.softmax(x, -1),
        lambda x: x.softmax(dim=1),
        lambda x: torch.nn.functional.softmax(x, dim=-1, dtype=torch.float32),
        torch.nn.Softmax(dim=1),
    ],
)
def test_softmax_is_made_from_the_logarithm_of_the_sum(softmax: Callable[[torch.Tensor], torch.Tensor]) -> None:
    x = 1e4 * torch.randn(64, 50, generator=torch.Generator().manual_seed(7))
    x[:, 1] = x.amax(-1) - 0.3  # two weights that tell
    with ByLogSums() as sums:
        found = softmax(x)
    assert sums.met
    exact = torch.softmax(x.double(), -1)
    assert torch.allclose(found.double(), exact, rtol=0, atol=1e-2)
    assert (found - exact).abs().max() > 10 * (torch.softmax(x, -1) - exact).abs().max()


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"is_causal": True},
        {"scale": 0.5},
        {"enable_gqa": True},
        {"attn_mask": (torch.arange(9) < 5).expand(9, 9)},
        {"hidden": 1},
    ],
    ids=lambda options: next(iter(options), "plain"),
)
def test_fused_attention_is_made_from_the_logarithm_of_the_sum(options: dict[str, Any]) -> None:
    """A flash kernel that keeps that number failed beside large inputs where the file has the fused operator."""
    q, k, v = torch.randn(3, 2, 4, 9, 8, generator=torch.Generator().manual_seed(7)).unbind(0)
    if options.get("enable_gqa"):
        k, v = k[:, :2], v[:, :2]
    if "hidden" in options:
        options = {"attn_mask": torch.arange(9)[:, None] > torch.arange(9)}
    plain = torch.nn.functional.scaled_dot_product_attention(q, k, v, **options)
    with ByLogSums() as sums:
        found = torch.nn.functional.scaled_dot_product_attention(q, k, v, **options)
    assert sums.met and torch.allclose(found, plain, atol=1e-5)


def test_rows_that_a_mask_hides_whole_are_plain_softmaxes() -> None:
    """Files with such rows, as of left padding in HF's models, were not judged on large inputs: each weight was 1."""
    x = torch.randn(3, 4, generator=torch.Generator().manual_seed(7))
    x[1], x[2, 2:] = torch.finfo(torch.float32).min, -1e9
    with ByLogSums() as sums:
        found = torch.softmax(x, -1)
    assert sums.met
    assert torch.allclose(found, torch.softmax(x, -1))


def test_what_has_no_softmax_is_left_alone() -> None:
    x = torch.randn(3, 4, generator=torch.Generator().manual_seed(7))
    with ByLogSums() as sums:
        found = torch.relu(x @ x.mT)
    assert not sums.met
    assert torch.equal(found, torch.relu(x @ x.mT))


def _exponentials(x: torch.Tensor, dim: int = -1) -> torch.Tensor:
    return torch.exp(x - x.max(dim, keepdim=True)[0])


def _normalised_later(x: torch.Tensor) -> torch.Tensor:
    e = (x - x.amax(-1, keepdim=True)).exp()
    return (e @ torch.eye(x.shape[1])) / torch.sum(e, dim=-1, keepdim=True)


def _in_place(x: torch.Tensor) -> torch.Tensor:
    e = x.clone().sub_(x.amax(-1, keepdim=True)).exp_()
    e /= e.sum(-1, keepdim=True)
    return e


def _product_in_place(x: torch.Tensor) -> torch.Tensor:
    e = _exponentials(x)
    out = torch.einsum("qk,kd->qd", e, torch.eye(x.shape[1]))
    return out.div_(e.sum(-1)[:, None])


@pytest.mark.parametrize(
    "softmax",
    [
        lambda x: (e := torch.exp((4 * x - 4 * x.amax(-1, keepdim=True)) * 0.25)) / e.sum(-1, keepdim=True),
        lambda x: (e := torch.exp((4 * x - 4 * x.amax(-1, keepdim=True)) / torch.tensor(4.0))).div(e.sum(-1, True)),
        lambda x: (e := torch.exp2(math.log2(math.e) * (x - x.amax(-1, keepdim=True)))) / e.sum(-1, keepdim=True),
        lambda x: (e := (x - x.amax(-1).unsqueeze(-1)).exp_()).true_divide(e.sum([-1]).view(-1, 1)),
        lambda x: (1 / (e := _exponentials(x)).sum(axis=-1, keepdims=True)) * e,
        lambda x: (e := _exponentials(x)).mul_(e.sum(-1, keepdim=True).reciprocal()),
        _in_place,
        _product_in_place,
        lambda x: torch.matmul(input=(e := _exponentials(x)), other=torch.eye(50)) / e.sum(-1, keepdim=True),
        lambda x: torch.einsum("...k,kd->...d", e := _exponentials(x), torch.eye(50)) / e.sum(-1, keepdim=True),
        lambda x: (e := _exponentials(x)) / e.sum(-1, keepdim=True),
        lambda x: (e := _exponentials(x)).div(e.sum(dim=1, keepdim=True)),
        lambda x: ((e := _exponentials(x.T, 0)) / torch.sum(e, 0, True)).T,
        _normalised_later,
        lambda x: (e := _exponentials(x)) / (e.sum(-1, keepdim=True) + 1e-9),
        lambda x: (e := _exponentials(x)) / (1e-9 + e.sum(-1))[:, None],
        lambda x: (e := _exponentials(x)) / e.sum(-1, keepdim=True).clamp(min=1e-9),
        lambda x: (e := _exponentials(x)) * (1 / e.sum(-1, keepdim=True).add_(1e-9)),
        lambda x: (e := _exponentials(x)) @ torch.eye(50) / torch.clamp_min(e.sum(-1), 1e-9).unsqueeze(-1),
        lambda x: torch.log_softmax(x, -1).exp(),
        lambda x: torch.nn.functional.log_softmax(x, dim=-1, dtype=torch.float32).exp_(),
        lambda x: torch.exp(torch.nn.LogSoftmax(dim=1)(x)),
    ],
)
def test_a_softmax_that_is_written_out_is_one(softmax: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """Who takes the logarithm of each row's sum failed in one of six verdicts where a file writes softmax out."""
    x = 50 * torch.randn(64, 50, generator=torch.Generator().manual_seed(7))
    with ByLogSums() as sums:
        found = softmax(x)
    exact = torch.softmax(x.double(), -1)
    assert sums.met and torch.allclose(found.double(), exact, rtol=0, atol=1e-4)
    assert (found - exact).abs().max() > 3 * (softmax(x) - exact).abs().max()


def _factor_written(x: torch.Tensor) -> torch.Tensor:
    e, v = _exponentials(x), x.clone()
    product = e @ v
    v.zero_()
    return product / e.sum(-1, keepdim=True)


@torch.inference_mode()
def _inferred(x: torch.Tensor) -> torch.Tensor:
    return (e := _exponentials(x)) / e.sum(-1, keepdim=True)


def _doubled(x: torch.Tensor) -> torch.Tensor:
    e = _exponentials(x)
    e *= 2
    return e / e.sum(-1, keepdim=True)


def _total_written(x: torch.Tensor) -> torch.Tensor:
    e = _exponentials(x)
    total = e.sum(-1, keepdim=True)
    total *= 2
    return e / total


def _written(x: torch.Tensor) -> torch.Tensor:
    e = torch.exp(x - x.amax(-1, keepdim=True))
    total = e.sum(-1, keepdim=True)
    e[:, 0] = 0
    return e / total


def _less_in_place(x: torch.Tensor) -> torch.Tensor:
    d = x - x.amax(-1, keepdim=True)
    d -= x.T
    return (e := torch.exp(d)) / e.sum(-1, keepdim=True)


def _into_one_buffer(x: torch.Tensor) -> torch.Tensor:
    e, buffer = _exponentials(x), torch.empty_like(x)
    first = torch.matmul(e, x, out=buffer) / e.sum(-1, keepdim=True)
    torch.matmul(e, 2 * x, out=buffer)
    return first + buffer


@torch.no_grad()
def _total(e: torch.Tensor) -> torch.Tensor:
    return e.sum(-1, keepdim=True)


@pytest.mark.parametrize(
    "other",
    [
        _written,
        _less_in_place,
        _into_one_buffer,
        lambda x: (e := torch.exp((x - x.amax(-1, keepdim=True)) - x.T)) / e.sum(-1, keepdim=True),
        lambda x: (e := torch.exp(torch.sub(x - x.amax(-1, keepdim=True), x.T, alpha=2))) / e.sum(-1, keepdim=True),
        lambda x: (e := torch.exp((x - x.amax(-1, keepdim=True)) * 0.5 - x.T)) / e.sum(-1, keepdim=True),
        lambda x: (x - x.mean(-1, keepdim=True)) / 0,
        lambda x: (e := _exponentials(x)) / e.sum(-1)[np.arange(49, -1, -1)],
        lambda x: (e := _exponentials(x)) / e.sum(0, keepdim=True),
        lambda x: (e := _exponentials(x)) / e.sum(-1, keepdim=True).T,
        lambda x: (e := torch.exp(x - torch.arange(50.0))) / e.sum(-1, keepdim=True),
        lambda x: (e := torch.exp(x - x.max())) / e.sum(),
        lambda x: _exponentials(x) / _exponentials(x).sum(-1, keepdim=True),
        lambda x: (e := _exponentials(x)) / e.sum(-1, dtype=torch.float64),
        lambda x: ((e := _exponentials(x)) @ x[0]) / e.sum(-1, keepdim=True),
        lambda x: (e := torch.exp(torch.tensor(2.0) - x)) / e.sum(-1, keepdim=True),
        _factor_written,
        _inferred,
        _doubled,
        _total_written,
        lambda x: (e := _exponentials(x)) / e.sum(-1).flip(0)[:, None],
        lambda x: (e := _exponentials(x)) / e.sum(-1)[torch.arange(49, -1, -1), None],
        lambda x: (e := _exponentials(x)) * e.sum(-1, keepdim=True),
        lambda x: (e := _exponentials(x)) * (2 / e.sum(-1, keepdim=True)),
        lambda x: torch.einsum("qk,kd->dq", e := _exponentials(x), x) / e.sum(-1, keepdim=True),
        lambda x: (x @ (e := _exponentials(x))) / e.sum(-1, keepdim=True),
        lambda x: (e := torch.exp((x - x.amax(-1, keepdim=True)) * torch.arange(50.0))) / e.sum(-1, keepdim=True),
        lambda x: (e := _exponentials(x)).div(e.sum(-1, keepdim=True), rounding_mode="floor"),
    ],
)
def test_what_is_no_softmax_is_left_alone(other: Callable[[torch.Tensor], torch.Tensor]) -> None:
    x = torch.randn(50, 50, generator=torch.Generator().manual_seed(7))
    with ByLogSums() as sums:
        found = other(x)
    assert torch.equal(found, other(x)) and not sums.met


def _masked_in_place(x: torch.Tensor) -> torch.Tensor:
    e = _exponentials(x)
    e *= _MASK
    return e / (e.sum(-1, keepdim=True) + 1e-9)


_MASK = (torch.rand(64, 50, generator=torch.Generator().manual_seed(8)) < 0.7).float()
_MASK[3] = 0


@pytest.mark.parametrize(
    "softmax",
    [
        _masked_in_place,
        lambda x: (e := _exponentials(x) * _MASK) / e.sum(-1, keepdim=True).clamp(min=1e-9),
        lambda x: (e := _MASK.bool() * _exponentials(x)) / (e.sum(-1, keepdim=True) + 1e-9),
        lambda x: (e := _exponentials(x).masked_fill(_MASK == 0, 0)) / (e.sum(-1, keepdim=True) + 1e-9),
        lambda x: (e := torch.where(_MASK == 0, 0.0, _exponentials(x))) / (e.sum(-1, keepdim=True) + 1e-9),
        lambda x: (e := torch.where(_MASK > 0, _exponentials(x), 0.0)) / (e.sum(-1, keepdim=True) + 1e-9),
        lambda x: (e := _exponentials(x) * _MASK) / (s := e.sum(-1, keepdim=True)).masked_fill(s == 0, 1),
        lambda x: (e := _exponentials(x) * _MASK) / torch.where((s := e.sum(-1, keepdim=True)) == 0, 1, s),
        lambda x: ((e := _exponentials(x) * _MASK) @ torch.eye(50, dtype=x.dtype)) / (e.sum(-1, keepdim=True) + 1e-9),
        lambda x: (e := _exponentials(x)) / (e.sum(-1, keepdim=True) + 1),
        lambda x: (e := _exponentials(x)) / (e.sum(-1) + 0.1).clamp(min=2)[:, None],
        lambda x: (e := _exponentials(x)) / (e.sum(-1, keepdim=True) + torch.exp(-x.amax(-1, keepdim=True).abs())),
    ],
)
def test_masks_and_what_a_softmax_is_divided_by_count(softmax: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """A row that is masked whole is 0 by an epsilon, and 1 beside a sum near 1 is no epsilon."""
    x = 50 * torch.randn(64, 50, generator=torch.Generator().manual_seed(7))
    x[:, 1] = x.amax(-1) - 0.3  # two weights that tell
    with ByLogSums() as sums:
        found = softmax(x)
    exact = softmax(x.double())
    assert sums.met and torch.allclose(found.double(), exact, rtol=0, atol=1e-4)
    assert (found - exact).abs().max() > 3 * (softmax(x) - exact).abs().max()


@pytest.mark.parametrize(
    "other",
    [
        lambda x: (e := _exponentials(x) * x) / e.sum(-1, keepdim=True),
        lambda x: (e := _exponentials(x).masked_fill(x > 0, 0.5)) / e.sum(-1, keepdim=True),
        lambda x: (e := torch.where(x > 0, _exponentials(x), x)) / e.sum(-1, keepdim=True),
        lambda x: _exponentials(x) * (x > 0) / _exponentials(x).sum(-1, keepdim=True),
        lambda x: (e := _exponentials(x)) / (e.sum(-1, keepdim=True) + x),
        lambda x: (torch.log_softmax(x, -1) * 0.5).exp(),
        lambda x: torch.log_softmax(x, -1).add_(1).exp(),
    ],
)
def test_other_products_and_sums_are_left_alone(other: Callable[[torch.Tensor], torch.Tensor]) -> None:
    test_what_is_no_softmax_is_left_alone(other)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_logarithms_of_sums_of_half_types_are_not_rounded(dtype: torch.dtype) -> None:
    """Scores in the hundreds would be off by several units: weights would be others, and bounds would let all pass."""
    x = 100 * torch.randn(64, 50, generator=torch.Generator().manual_seed(7), dtype=dtype)
    for softmax in (lambda: torch.softmax(x, -1), lambda: (e := _exponentials(x)) / e.sum(-1, keepdim=True)):
        with ByLogSums() as sums:
            found = softmax()
        assert sums.met and found.dtype == dtype
        assert torch.allclose(found.double(), torch.softmax(x.double(), -1), rtol=0, atol=5e-3)


def test_a_sum_without_gradients_stays_without() -> None:
    x = torch.randn(6, 50, generator=torch.Generator().manual_seed(7), requires_grad=True)
    gradients = []
    for mode in (ByLogSums(), contextlib.nullcontext()):
        with mode:
            e = _exponentials(x)
            gradients += torch.autograd.grad((e / _total(e))[:, 0].sum(), x)
    assert torch.equal(*gradients)


def test_a_softmax_that_is_written_out_keeps_its_type() -> None:
    x = torch.randn(6, 50, generator=torch.Generator().manual_seed(7)).half()
    with ByLogSums() as sums:
        e = torch.exp(x - x.amax(-1, keepdim=True).float())
        assert (e / e.sum(-1, keepdim=True)).dtype == torch.float32
    assert sums.met


def test_a_recurrence_of_differences_is_not_kept() -> None:
    with ByLogSums() as sums:
        h = torch.randn(4, 4, generator=torch.Generator().manual_seed(7))
        for _ in range(20):
            h = 1.0 - h
            h = torch.ones(4, 4) - h
    assert len(sums._steps) <= 1


@pytest.mark.parametrize("sums", [torch.float32, torch.float64])
@pytest.mark.parametrize("weights", [torch.float32, torch.float64])
def test_softmax_has_its_gradient_from_rounded_weights(weights: torch.dtype, sums: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(7)
    x = torch.randn(64, 50, generator=generator)
    x[:, 1] = 17.0  # nearly all of the row's weight
    grad = torch.randn(64, 50, generator=generator)
    found, exact = [], []
    with ByWeights(weights, sums) as formula:
        for values, gradients in ((x.requires_grad_(), found), (x.detach().double().requires_grad_(), exact)):
            out = torch.softmax(values, -1)
            assert out.dtype == values.dtype
            assert torch.allclose(out, torch.nn.functional.normalize(values.exp(), p=1, dim=-1))
            gradients += torch.autograd.grad(out, values, grad.to(values.dtype))
    assert formula.met
    assert torch.allclose(found[0].double(), exact[0], rtol=0, atol=1e-6)
    off = (found[0] - exact[0]).abs()[:, 1].max()
    assert off > 1e-9, "the weight that is nearly 1 shows no rounding"


@pytest.mark.parametrize("shape", [(0, 4), (4, 0)])
def test_softmax_of_nothing(shape: tuple[int, int]) -> None:
    x = torch.empty(shape, requires_grad=True)
    with ByWeights(torch.float64, torch.float64):
        out = torch.softmax(x, -1)
    assert out.shape == torch.autograd.grad(out, x, torch.empty(shape))[0].shape == shape


def sinc_near_one(x: torch.Tensor) -> torch.Tensor:
    """By the quotient, and by a series where that would be of small numbers."""
    y = math.pi * x
    small = y.abs() < 1e-3
    safe = torch.where(small, 1.0, y)
    return torch.where(small, 1 - y * y / 6, torch.sin(safe) / safe)


def test_gradients_of_sinc_by_its_quotient_pass() -> None:
    """Near 0 they cancel, and each way rounds otherwise."""
    task, case = find("sinc"), case_of("sinc", {"M": 400, "N": 341}, direction="backward")
    for seed in range(3):
        args, grads = drawn(task, case, seed)
        expectation = reference.expect(task, case, args, grads)
        assert matches(gradients(sinc_near_one, task, case, args, grads or []), expectation)


def sinc_gradient(grad: torch.Tensor, x: torch.Tensor, units: float) -> torch.Tensor:
    """By a sine that is off by so many units in the last place."""
    y = math.pi * x
    sine = torch.sin(y) * (1 + units * 2.0**-23)
    return grad * (torch.cos(y) - sine / y) / x


def test_gradients_of_sinc_by_a_sine_of_one_unit_pass() -> None:
    """Near 0 they are what rounding leaves, and PyTorch's may be right by luck in a whole row."""
    task, case = find("sinc"), case_of("sinc", {"M": 64, "N": 256}, direction="backward")
    for seed in range(10):
        ((x,), grads) = drawn(task, case, seed)
        (grad,) = grads or []
        expectation = reference.expect(task, case, [x], grads).widest
        assert matches([sinc_gradient(grad, x, 1)], expectation)
        for wrong in (1.00001 * sinc_gradient(grad, x, 0), sinc_gradient(grad, x.half().float(), 0)):
            assert not matches([wrong], expectation)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_gradients_of_a_saturated_sigmoid_pass_by_a_tanh(dtype: str) -> None:
    """Where none of the large numbers is near 0, all are next to nothing: 34 of 66 such draws were wrong, 6 of 46 in
    bfloat16.
    """
    for distribution in ("large_scale", "standard"):
        task, case = find("sigmoid"), case_of("sigmoid", {"M": 40, "N": 54}, dtype, "backward", distribution)
        for seed in range(8):
            args, grads = drawn(task, case, seed)
            x, grad = args[0].float(), (grads or [])[0].float()
            y = 0.5 * torch.tanh(0.5 * x) + 0.5
            expectation = reference.expect(task, case, args, grads).widest
            assert matches([(grad * y * (1 - y)).to(args[0].dtype)], expectation)
            if distribution == "standard":
                rounded = (1.01 * y if dtype == "bfloat16" else y.bfloat16()).float()
                wrong = (grad * y * (1.01 - y), grad * rounded * (1 - rounded), 1.01 * grad * y * (1 - y))
                assert not any(matches([one.to(args[0].dtype)], expectation) for one in wrong)


def test_gradients_of_softsign_by_an_inverse_pass() -> None:
    """Of large numbers the terms of autograd cancel: 3 of 12 such cases were wrong."""
    task, case = find("softsign"), case_of("softsign", {"M": 33, "N": 102}, "float32", "backward", "large_scale")
    for seed in range(8):
        args, grads = drawn(task, case, seed)
        found = gradients(lambda x: x * torch.reciprocal(1 + x.abs()), task, case, args, grads or [])
        assert matches(found, reference.expect(task, case, args, grads).widest)


def tanh_by_exponentials(x: torch.Tensor) -> torch.Tensor:
    """By an exponential and an inverse, as many kernels have it."""
    return 1 - 2 / (1 + torch.exp(2 * x))


@pytest.mark.parametrize(("distribution", "dims"), [("standard", (65, 63)), ("small_scale", (173, 17))])
def test_gradients_of_a_tanh_near_one_pass_by_either_tanh(distribution: str, dims: tuple[int, int]) -> None:
    """``1 - tanh ** 2`` cancels for small numbers, and is divided by them: small data were wrong in 60 of 60 draws."""
    task = find("log_tanh")
    case = case_of(task.name, {"M": dims[0], "N": dims[1]}, "float32", "backward", distribution)
    for seed in range(6):
        (x,), grads = drawn(task, case, seed)
        (grad,) = grads or []
        expectation = reference.expect(task, case, [x], grads)
        for tanh in (torch.tanh, tanh_by_exponentials):
            assert matches([grad * (1 - tanh(x.log()) ** 2) / x], expectation)
        assert not matches([grad * (1 - tanh_by_exponentials(x.log()) ** 2)], expectation)
    if distribution == "standard":  # of small numbers few digits are left
        cut = x.half().float()
        assert not matches([grad * 4 * cut / (1 + cut * cut) ** 2], expectation), "a narrower type is found"


def log_by_base_2(x: torch.Tensor) -> torch.Tensor:
    """As GPUs have it."""
    return torch.log2(x) * math.log(2)


def log_mean_exp(x: torch.Tensor) -> torch.Tensor:
    return log_by_base_2(torch.exp(x).sum(-1)) - math.log(x.shape[-1])


def distillation(x: torch.Tensor, teacher: torch.Tensor, temperature: float) -> torch.Tensor:
    shares = torch.softmax(teacher / temperature, -1)
    each = shares * (log_by_base_2(shares) - torch.log_softmax(x / temperature, -1))
    return each.sum(-1) * temperature**2


@pytest.mark.slow
@pytest.mark.parametrize(("name", "kernel"), [("log_mean_exp", log_mean_exp), ("distillation_loss_none", distillation)])
def test_logarithms_that_cancel_leave_a_rounding(name: str, kernel: Callable[..., torch.Tensor]) -> None:
    """Of zeros: native has exactly 0 there, and a quarter of the lengths were wrong."""
    task, left = find(name), 0
    for width in range(40, 60):
        case = case_of(name, {"M": 7, "N": width}, distribution="zeros")
        args, _ = drawn(task, case, 1)
        found, expectation = kernel(*args[: kernel.__code__.co_argcount]), reference.expect(task, case, args).widest
        left += bool(found.any())
        assert matches([found], expectation)
        assert not matches([found + 1e-5], expectation)
    assert left, "something is left of one of them"


@pytest.mark.parametrize("experts", [12, 40])
def test_a_choice_between_equal_scores_is_no_rounding(experts: int) -> None:
    """Rounded at random they are no longer equal: gradients of other tokens counted as right, and zeros passed."""
    task = find("expert_choice")
    case = case_of(task.name, {"T": 296, "E": experts, "K": 5}, "float32", "backward", "zeros")
    args, grads = drawn(task, case, 1)
    expectation = reference.expect(task, case, args, grads).widest
    (right,) = expectation.native
    assert matches([right], expectation)
    for wrong in (torch.zeros_like(right), -right, right.roll(1, -1)):
        assert not matches([wrong], expectation)


def chosen_in_type(
    numbers: torch.Tensor, scales: torch.Tensor, g_idx: torch.Tensor, grad: torch.Tensor
) -> torch.Tensor:
    """The gradient of the scales by PyTorch."""
    leaf = scales.detach().requires_grad_()
    return torch.autograd.grad(numbers.to(scales.dtype) * leaf[g_idx], leaf, grad)[0]


def added_backwards(
    numbers: torch.Tensor, scales: torch.Tensor, g_idx: torch.Tensor, grad: torch.Tensor
) -> torch.Tensor:
    """The same one row after the other, the last one first, as atomic additions in the type may come."""
    out = torch.zeros_like(scales)
    for row, group in reversed([*enumerate(g_idx.tolist())]):
        out[group] += grad[row] * numbers[row]
    return out


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("layout", ["contiguous", "expanded"])
def test_gradients_of_scales_that_are_chosen_in_half_types_pass(dtype: str, layout: str) -> None:
    """PyTorch adds up the gradients of what an index chooses in their type: up to 3.6 times the bound of fp32 sums."""
    task = find("gptq_dequantize")
    case = case_of("gptq_dequantize", {"K": 640, "N": 272, "S": 2, "P": 1}, dtype, "backward", layout=layout)
    for seed in range(5):
        args, grads = drawn(task, case, seed)
        words, zeros, scales, g_idx, bits = args
        (grad,) = grads or []
        numbers = _gptq_dequantize(words, zeros, torch.ones_like(scales), g_idx, bits)
        expectation = reference.expect(task, case, args, grads)
        assert matches(gradients(task.reference, task, case, args, grads or []), expectation)
        for honest in (chosen_in_type, added_backwards):
            assert matches([honest(numbers, scales, g_idx, grad)], expectation)
            assert not matches([honest(numbers[:-32], scales, g_idx[:-32], grad[:-32])], expectation)
            assert not matches([honest(numbers + 1, scales, g_idx, grad)], expectation)


def slope_of_tanh(x: torch.Tensor) -> torch.Tensor:
    """By a tanh that is made of an exponential and keeps its sign."""
    power = torch.exp(-2 * x.abs())
    return 1 - torch.where(x.abs() < 0.1, torch.tanh(x), (1 - power) / (1 + power)) ** 2


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tanh", "rows_tanh_add", "embedding_add_tanh"])
def test_gradients_of_a_saturated_tanh_are_what_rounding_leaves(name: str) -> None:
    """Of large numbers few are not nearly 1, and PyTorch's may be right by luck: all 24 draws were wrong."""
    dims = {"M": 800, "N": 1000} | ({"V": 50} if name == "embedding_add_tanh" else {})
    task, case = find(name), case_of(name, dims, direction="backward", distribution="large_scale")
    for seed in range(8):
        args, grads = drawn(task, case, seed)
        (grad,) = grads or []
        expectation = reference.expect(task, case, args, grads)
        index, weight, other = args if len(args) == 3 else (None, None, args[-1])
        x = args[0] if index is None else weight[index] + other
        found = grad * slope_of_tanh(x)
        outputs = {"tanh": [found], "rows_tanh_add": [found, grad]}.get(name)
        assert matches(outputs or [torch.zeros_like(weight).index_add_(0, index, found), found], expectation)
        lost = [found.masked_fill(x.abs() > 4, 0), *expectation.native[1:]]
        assert name != "tanh" or not matches(lost, expectation), "gradients of 0.001"


@pytest.mark.parametrize("name", ["logsumexp", "log_mean_exp"])
def test_gradients_of_logsumexp_by_powers_of_two_pass(name: str) -> None:
    """Large sums are rounded once more as they become natural logarithms: 12 of 24 draws were wrong."""
    for m, n in ((38, 57), (200, 300), (8, 1000), (900, 90)):
        task, case = find(name), case_of(name, {"M": m, "N": n}, direction="backward", distribution="large_scale")
        for seed in range(6):
            (x,), grads = drawn(task, case, seed)
            (grad,) = grads or []
            powers = x * math.log2(math.e)
            most = powers.amax(-1, keepdim=True)
            sums = (most + torch.log2(torch.exp2(powers - most).sum(-1, keepdim=True))) * math.log(2)
            expectation = reference.expect(task, case, [x], grads)
            assert matches([grad[:, None] * torch.exp(x - sums)], expectation)
            assert not matches([1.05 * grad[:, None] * torch.exp(x - sums)], expectation)


@pytest.mark.parametrize("name", ["quick_gelu", "token_logprobs", "linear_logsumexp_leaky_relu_leaky_relu_gelu_gelu"])
def test_large_gradients_beside_saturated_functions_are_told(name: str) -> None:
    """A sigmoid that is exactly 1 was taken for less than 1, and sums of exponentials for 30 % less: 0.96 times the
    gradients of large numbers, and zeros, passed.
    """
    dims = {"M": 60, "O": 80, "K": 70} if name.startswith("linear") else {"M": 60, "N": 90}
    task, case = find(name), case_of(name, dims, direction="backward", distribution="large_scale")
    for seed in range(4):
        args, grads = drawn(task, case, seed)
        expectation = reference.expect(task, case, args, grads)
        assert matches(expectation.native, expectation)
        for factor in (0.0, 0.96):
            assert not matches([factor * gradient for gradient in expectation.native], expectation)


def test_a_norm_of_nearly_equal_weights_by_another_exponential() -> None:
    task, rng = find("cross_entropy_softmax_layer_norm"), torch.Generator().manual_seed(5)
    case = case_of(task.name, {"M": 100, "N": 77}, distribution="small_scale")

    def other(logits: torch.Tensor, targets: torch.Tensor, eps: float) -> list[torch.Tensor]:
        e = torch.exp2(logits * math.log2(math.e))
        e *= 1 + torch.randint(-2, 3, e.shape, generator=rng) * 2.0**-24  # as far off as those of GPUs
        loss, centred = e.sum(-1).log() - logits.gather(-1, targets[:, None]).squeeze(-1), e / e.sum(-1, keepdim=True)
        centred -= centred.mean(-1, keepdim=True)
        return [loss, centred * torch.rsqrt(centred.square().mean(-1, keepdim=True) + eps)]

    for seed in range(6):
        args, _ = drawn(task, case, seed)
        expectation = reference.expect(task, case, args)
        assert matches(other(*args), expectation)
        loss, norm = other(*args)
        assert not matches([loss, norm * 1.001], expectation)


def norm_in_type(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """Rounded to the type before and behind the weight, as in vLLM."""
    wide = x.float()
    return ((wide * (wide.square().mean(-1, keepdim=True) + eps).rsqrt()).to(x.dtype) * weight).float()


def quantised_rows(y: torch.Tensor, most: float, target: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    largest = y.abs().amax(-1, keepdim=True)
    scale = torch.where(largest > 0, largest / most, 1.0)
    whole = (y / scale).round() if target == torch.int8 else y / scale
    return whole.to(target), scale


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize(
    ("name", "most", "target"),
    [
        ("rms_norm_dynamic_per_token_quant", 448, torch.float8_e4m3fn),
        ("rms_norm_dynamic_per_token_int8_quant", 127, torch.int8),
    ],
)
def test_a_norm_may_be_rounded_to_the_type_before_it_is_quantised(
    name: str, most: int, target: torch.dtype, dtype: str
) -> None:
    case = case_of(name, {"M": 100, "N": 300}, dtype)
    for seed in range(3):
        args, _ = drawn(find(name), case, seed)
        expectation = reference.expect(find(name), case, args)
        y = norm_in_type(*args)
        assert matches(list(quantised_rows(y, most, target)), expectation)
        for wrong in (quantised_rows(y, 0.98 * most, target), quantised_rows(y.roll(1, -1), most, target)):
            assert not matches(list(wrong), expectation)


def _canberra(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x, y = x.requires_grad_(), y.requires_grad_()
    one, other = x.float(), y.float()
    parts = (one - other).abs() * (1 / (x.float().abs() + y.float().abs() + 1e-6))
    return parts.sum(-1).to(x.dtype)


@pytest.mark.parametrize("seed", [0, 12, 19])
def test_gradients_of_a_canberra_distance_cancel(seed: int) -> None:
    """Widened once for the difference and once for the sizes, 3 of 30 were wrong."""
    task = find("canberra_distance")
    case = case_of("canberra_distance", {"M": 43, "N": 106}, "float16", "backward", "outlier")
    args, grads = drawn(task, case, seed)
    assert grads is not None
    expectation = reference.expect(task, case, args, grads).widest
    found = gradients(_canberra, task, case, args, grads)
    assert matches(found, expectation)
    assert not matches([found[0], -found[1]], expectation)
    assert not matches([1.02 * found[0], found[1]], expectation)


def _multi_margin(x: torch.Tensor, targets: torch.Tensor, margin: float) -> torch.Tensor:
    parts = (margin - x.gather(1, targets[:, None]) + x).clamp_min(0)
    return parts.scatter(1, targets[:, None], 0.0).flip(1).sum(1) / x.shape[1]


def _multilabel_margin(x: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    def row(scores: torch.Tensor, labels: list[int]) -> torch.Tensor:
        named = labels[: labels.index(-1)] if -1 in labels else labels
        others = scores[[n for n in range(len(scores)) if n not in named]]
        return (1 - scores[named][:, None] + others).clamp_min(0).sum() / len(scores)

    return torch.stack([row(*both) for both in zip(x, targets.tolist(), strict=True)])


@pytest.mark.parametrize(
    ("name", "form", "distribution", "direction"),
    [
        ("multi_margin_loss_none", _multi_margin, "nonfinite", "forward"),
        ("multi_margin_loss_none", _multi_margin, "standard", "backward"),
        ("multilabel_margin_loss_none", _multilabel_margin, "nonfinite", "forward"),
        ("multilabel_margin_loss_none", _multilabel_margin, "large_scale", "forward"),
    ],
)
def test_margin_losses_by_maxima_and_sums_in_another_order(
    name: str, form: Callable[..., torch.Tensor], distribution: str, direction: str
) -> None:
    """A maximum keeps a NaN, which PyTorch's comparison drops. In float64 PyTorch's sums in turn were further off than
    others: up to 2,374 units."""
    task = find(name)
    dims = {"M": 60, "N": 200}
    for dtype in task.backward_dtypes if direction == "backward" else task.dtypes:
        case = case_of(name, dims, dtype, direction, distribution)
        args, grads = drawn(task, case)
        expectation = reference.expect(task, case, args, grads).widest
        found = gradients(form, task, case, args, grads) if grads else [form(*args)]
        assert matches(found, expectation), dtype
        assert not matches([1.001 * one for one in found], expectation)


def _scaled_norm(x: torch.Tensor, p: float) -> torch.Tensor:
    most = x.abs().amax(-1, keepdim=True).detach()
    return most[..., 0] * (x.abs() / most).pow(p).sum(-1).pow(1 / p)


@pytest.mark.parametrize("form", [lambda x, p: (x.abs() ** p).flip(1).sum(-1) ** (1 / p), _scaled_norm])
def test_norms_by_a_root_of_a_large_sum(form: Callable[[torch.Tensor, float], torch.Tensor]) -> None:
    """In float64 a third is rounded, and so is what is raised to it: 12 of 12 gradients of large data were wrong."""
    task = find("vector_norm_p")
    case = case_of("vector_norm_p", {"M": 27, "N": 325}, "float64", "backward", "large_scale")
    args, grads = drawn(task, case)
    assert grads is not None
    expectation = reference.expect(task, case, args, grads).widest
    (found,) = gradients(form, task, case, args, grads)
    assert matches([found], expectation)
    assert not matches([found * (1 + 1e-13)], expectation)

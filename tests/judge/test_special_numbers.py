"""Kernels that are wrong only at special numbers: negative zeros, rows of nothing but NaN, a NaN in a long row, ends
of the range. Each is right at other numbers, is found in the quick tier, and has an honest twin that passes.
"""

from __future__ import annotations

import functools
import itertools
import math
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from kerneleval.judge.oracle import reference
from kerneleval.judge.oracle.comparison import Match, Mismatch, compare
from kerneleval.records import Arg
from kerneleval.tasks import all_tasks, find

from .conftest import called, case_of, drawn, planned
from .test_structured_inputs import Kernel, plain, wrong


def copysign(x: Tensor, y: Tensor) -> Tensor:
    return torch.where(y < 0, -x.abs(), x.abs())


def signbit(x: Tensor) -> Tensor:
    return x < 0


def atan2(y: Tensor, x: Tensor) -> Tensor:
    return torch.atan2(y + 0.0, x + 0.0)


def by_bits(x: Tensor) -> Tensor:
    """The order of x by its bits, as a radix sort has it; NaN last."""
    bits = torch.where(x.isnan(), math.nan, x).view(torch.int32).long() & 0xFFFFFFFF
    return torch.where(bits >= 2**31, 0xFFFFFFFF - bits, bits + 2**31).sort(stable=True, dim=-1).indices


def ranks_by_bits(x: Tensor) -> Tensor:
    return by_bits(x).argsort(-1)


@pytest.mark.parametrize(
    ("name", "kernel"),
    [
        ("copysign", copysign),
        ("signbit", signbit),
        ("atan2", atan2),
        ("argsort", by_bits),
        ("ranks", ranks_by_bits),
    ],
)
def test_negative_zeros_are_given(name: str, kernel: Kernel) -> None:
    assert wrong(name, kernel, lambda _: True)
    assert not wrong(name, find(name).reference, lambda _: True)
    if name in ("argsort", "ranks"):
        assert not wrong(name, lambda x: kernel(x + 0.0), lambda _: True)


@pytest.mark.parametrize("name", ["sort", "maximum", "amax", "relu", "neg", "round"])
def test_no_sign_of_a_zero_is_asked_for(name: str) -> None:
    reference = find(name).reference
    assert not wrong(name, lambda *args: reference(*args) + 0.0, lambda _: True)


def nanmean(x: Tensor) -> Tensor:
    """0 where everything is NaN."""
    there = ~x.isnan()
    return torch.where(there, x, 0).sum(-1) / there.sum(-1).clamp(min=1)


def nansum(x: Tensor) -> Tensor:
    """NaN where everything is."""
    return x.nansum(-1).masked_fill(x.isnan().all(-1), math.nan)


def nanmedian(x: Tensor) -> Tensor:
    return x.nanmedian(-1).values.masked_fill(x.isnan().all(-1), 0.0)


@pytest.mark.parametrize(("name", "kernel"), [("nanmean", nanmean), ("nansum", nansum), ("nanmedian", nanmedian)])
def test_some_rows_are_nothing_but_nan(name: str, kernel: Kernel) -> None:
    found = wrong(name, kernel, lambda _: True)
    assert found
    assert {distribution for _, distribution in found} == {"nonfinite"}
    assert not wrong(name, find(name).reference, lambda _: True)


def relu_of_larger(x: Tensor) -> Tensor:
    """0 for NaN, as of a maximum that drops it."""
    return torch.where(x > 0, x, 0)


@pytest.mark.parametrize(
    ("name", "kernel"),
    [
        ("rows_relu_mul", lambda x, other: relu_of_larger(x) * other),
        ("image_add_relu", lambda x, other: relu_of_larger(x + other)),
        ("gelu_amin", lambda x: torch.nn.functional.gelu(x).nan_to_num(math.inf, math.inf, -math.inf).amin(-1)),
    ],
)
def test_nan_is_met_in_fusions_without_a_product(name: str, kernel: Kernel) -> None:
    found = wrong(name, kernel, lambda _: True)
    assert {distribution for _, distribution in found} == {"nonfinite"}
    assert not wrong(name, find(name).reference, lambda _: True)


def test_a_product_with_a_mask_may_keep_nan() -> None:
    assert "nonfinite" not in find("rows_dropout_hardshrink").distributions


def windows(size: int, count: int) -> Tensor:
    """What each element of a line weighs in each of its windows."""
    ends = [(i * size // count, -(-(i + 1) * size // count)) for i in range(count)]
    places = torch.arange(size)
    return torch.stack([((places >= low) & (places < high)) / (high - low) for low, high in ends])


def mean_of_windows(x: Tensor, height: int, width: int) -> Tensor:
    return windows(x.shape[2], height) @ x @ windows(x.shape[3], width).T


@pytest.mark.parametrize("name", ["adaptive_avg_pool2d", "interpolate_area"])
def test_means_by_matrix_products_pass_and_those_that_lose_nan_do_not(name: str) -> None:
    assert not wrong(name, mean_of_windows, lambda _: True)
    found = wrong(name, lambda x, *sizes: mean_of_windows(x.nan_to_num(0.0), *sizes), lambda _: True)
    assert {distribution for _, distribution in found} == {"nonfinite"}


class Sorts(TorchDispatchMode):
    """What is sorted: whether any is a NaN, and whether any has its sign bit set."""

    def __init__(self) -> None:
        super().__init__()
        self.nan = self.signed = False

    def __torch_dispatch__(self, called: Any, _: Any, args: Any = (), kwargs: Any = None) -> Any:
        if called.overloadpacket.__name__ in ("sort", "topk") and args[0].is_floating_point():
            self.nan |= bool(args[0].isnan().any())
            self.signed |= bool((args[0].isnan() & args[0].signbit()).any())
        return called(*args, **(kwargs or {}))


@pytest.mark.slow
def test_no_reference_sorts_nan_whose_sign_is_set() -> None:
    """Sorts by bits on GPUs put them at the wrong end, ``torch.topk`` of more than 32 elements among them: it failed
    its own task on an H200.
    """
    sorting = set()
    for name, task in all_tasks().items():
        if task.category not in ("reduction", "normalization") or "nonfinite" not in task.distributions:
            continue
        dims = {dim.name: max(dim.low, min(dim.high, 40 // dim.multiple_of * dim.multiple_of)) for dim in task.dims}
        if not task.allows(dims):
            continue
        case = case_of(name, dims, task.dtypes[0], distribution="nonfinite")
        with Sorts() as found:
            task.reference(*drawn(task, case)[0])
        sorting |= {name} if found.nan else set()
        assert not found.signed, name
    assert {"sort", "topk", "topk_smallest", "ranks", "sparsemax"} <= sorting
    for name in ("kthvalue", "median", "nanmedian"):
        args, _ = drawn(find(name), case_of(name, {"M": 40, "N": 40, "K": 3}, distribution="nonfinite"))
        assert (args[0].isnan() & args[0].signbit()).any(), "these keep them"


def z_loss_by_blocks(logits: Tensor, targets: Tensor, factor: float) -> Tensor:
    """NaN where the first 32 logits of a row are all -inf: -inf taken from -inf."""
    most, total = logits.new_full((len(logits),), -math.inf), logits.new_zeros(len(logits))
    for number, part in enumerate(logits.split(32, -1)):
        larger = torch.maximum(most, part.amax(-1))
        before = total * (most - larger).exp() if number else total
        most, total = larger, before + (part - larger[:, None]).exp().sum(-1)
    z = most + total.log()
    return (z - logits.gather(1, targets[:, None])[:, 0] + factor * z * z).mean()


@pytest.mark.parametrize(
    ("name", "finite"),
    [
        ("cross_entropy", True),
        ("cross_entropy_weight", True),
        ("cross_entropy_z_loss", True),
        ("cross_entropy_label_smoothing", False),
        ("cross_entropy_soft_targets", False),
    ],
)
def test_a_mean_of_masked_rows_is_no_nan_in_most_contiguous_draws(name: str, finite: bool) -> None:
    """It was NaN in all, from one row of nothing but -inf or with a NaN, so masked rows were not asked for at all."""
    task = find(name)
    found = {}
    for layout in ("contiguous", "sliced"):
        case = case_of(name, {"M": 60, "N": 100}, distribution="nonfinite", layout=layout)
        draws = [drawn(task, case, seed)[0] for seed in range(60)]
        assert all((args[0] == -math.inf).any() for args in draws)
        found[layout] = [float(task.reference(*args)) for args in draws]
    assert 40 < sum(not math.isnan(value) for value in found["contiguous"]) < 60
    assert 0 < sum(not math.isnan(value) for value in found["sliced"]) < 20
    assert all(math.isfinite(value) == finite for value in found["contiguous"] if not math.isnan(value))


def test_a_mean_of_masked_rows_is_asked_for() -> None:
    task, case = find("cross_entropy_z_loss"), case_of("cross_entropy_z_loss", {"M": 60, "N": 100})
    case = replace(case, distribution="nonfinite")
    found = []
    for seed in range(20):
        args, _ = drawn(task, case, seed)
        expectation = reference.expect(task, case, args, None)
        assert isinstance(compare([task.reference(*args)], expectation), Match)
        found.append(isinstance(compare([z_loss_by_blocks(*args)], expectation), Mismatch))
    assert sum(found) > 12
    assert not wrong("cross_entropy_z_loss", z_loss_by_blocks, plain)


def gated_in_chunks(q: Tensor, k: Tensor, v: Tensor, gate: Tensor) -> Tensor:
    """By products of 16 steps at once: what comes later in a chunk has the weight 0, and 0 times NaN is NaN."""
    state, outs, logs = 0.0, [], torch.nn.functional.logsigmoid(gate)
    for qs, ks, vs, gates in zip(*(x.split(16, 2) for x in (q, k, v, logs)), strict=True):
        total = gates.cumsum(2)
        behind = torch.ones(qs.shape[2], qs.shape[2], dtype=torch.bool).tril()[..., None]
        weights = torch.where(behind, total[:, :, :, None] - total[:, :, None], -math.inf).exp()
        scores = (qs[:, :, :, None] * ks[:, :, None] * weights).sum(-1)
        outs.append(scores @ vs + (qs * total.exp()) @ (state if outs else torch.zeros_like(ks.mT @ vs)))
        last = total[:, :, -1:]
        state = last.exp().mT * state + (ks * (last - total).exp()).mT @ vs
    return torch.cat(outs, 2)


def test_no_nan_is_asked_of_recurrences_that_are_computed_in_chunks() -> None:
    kinds = ("nonfinite", "standard")
    assert not wrong("gated_linear_attention", gated_in_chunks, lambda case: case.distribution in kinds)
    for name in (
        *("gated_linear_attention", "rwkv6_wkv", "delta_rule", "gated_delta_rule", "causal_linear_attention"),
        *("mamba_chunk_scan", "selective_scan", "rwkv4_wkv", "rg_lru", "retention"),
    ):
        assert "nonfinite" not in find(name).distributions, name


def to_all(grad: Tensor, x: Tensor) -> Tensor:
    return grad[:, None].expand_as(x)


def by_the_count(grad: Tensor, x: Tensor) -> Tensor:
    return to_all(grad / (~x.isnan()).sum(-1), x)


def straight_through(grad: Tensor, x: Tensor, *_: float) -> Tensor:
    return grad


@pytest.mark.parametrize(
    ("name", "kernel"), [("nansum", to_all), ("nanmean", by_the_count), ("nan_to_num", straight_through)]
)
def test_gradients_of_what_is_left_out_are_nothing(name: str, kernel: Kernel) -> None:
    def honest(grad: Tensor, x: Tensor, *rest: Any) -> Tensor:
        kept = x.isfinite() if name == "nan_to_num" else ~x.isnan()
        return kernel(grad, x, *rest) * kept

    for dtype in ("float32", "float16", "bfloat16"):
        assert wrong(name, kernel, lambda _: True, dtype, direction="backward")
        assert not wrong(name, honest, lambda _: True, dtype, direction="backward")


def larger(gradient: Tensor, x: Tensor, y: Tensor, *, nan: bool = True) -> tuple[Tensor, Tensor]:
    """Gradients of fmax; of a comparison alone, x takes that of NaN."""
    first = (~x.isnan() & ~(x < y)) if nan else ~(x < y)
    return gradient * first, gradient * ~first


def smaller(gradient: Tensor, x: Tensor, y: Tensor, *, nan: bool = True) -> tuple[Tensor, Tensor]:
    first = (x <= y) | y.isnan() if nan else x <= y
    return gradient * first, gradient * ~first


@pytest.mark.parametrize(("name", "kernel"), [("fmax", larger), ("fmin", smaller)])
def test_gradients_of_what_loses_are_nothing(name: str, kernel: Callable[..., Any]) -> None:
    for dtype in ("float32", "float16", "bfloat16"):
        assert wrong(name, functools.partial(kernel, nan=False), lambda _: True, dtype, direction="backward")
        assert not wrong(name, kernel, lambda _: True, dtype, direction="backward")


def linear(x: Tensor, length: int) -> Tensor:
    """Its places are rounded otherwise than PyTorch's: some lie just before a whole number instead of on it."""
    last = x.shape[-1] - 1
    place = ((torch.arange(length) + 0.5) * (last + 1) / length - 0.5).clamp(min=0)
    low = place.floor().long().clamp(max=last)
    share = place - low
    return x[..., low] * (1 - share) + x[..., (low + 1).clamp(max=last)] * share


@pytest.mark.parametrize(
    ("name", "kernel", "dims"),
    [
        ("interpolate_bilinear", None, {"B": 2, "C": 3, "H": 3, "W": 3, "P": 193, "Q": 3}),
        ("interpolate_bilinear_antialias", None, {"B": 2, "C": 7, "H": 7, "W": 44, "P": 5, "Q": 7}),
        ("interpolate_bicubic_aligned", None, {"B": 2, "C": 7, "H": 7, "W": 7, "P": 7, "Q": 299}),
        ("interpolate_linear", None, {"B": 3, "C": 31, "L": 65, "P": 53}),
        ("interpolate_linear", linear, {"B": 3, "C": 31, "L": 65, "P": 53}),
        ("interpolate_trilinear", None, {"B": 2, "C": 5, "D": 5, "H": 5, "W": 5, "O": 5, "P": 5, "Q": 37}),
    ],
)
def test_a_nan_is_not_asked_of_neighbours_that_weigh_nothing(
    name: str, kernel: Kernel | None, dims: dict[str, int]
) -> None:
    """Whether a place is whole hangs on rounding: PyTorch itself failed where fp64 took one neighbour more."""
    task, case = find(name), case_of(name, dims, distribution="nonfinite")
    for seed in range(20):
        args, _ = drawn(task, case, seed)
        expectation = reference.expect(task, case, args)
        out = (kernel or task.reference)(*args)
        assert isinstance(compare([out], expectation), Match), f"seed {seed}"
        assert isinstance(compare([out.nan_to_num(0.5)], expectation), Mismatch), f"seed {seed}"


def nothing_of_zero(name: str, x: Tensor, y: Tensor, *, nan: bool) -> Tensor:
    found = x * (y.log() if name == "xlogy" else y.log1p())
    return torch.where((x == 0) & ~(y.isnan() & nan), 0, found)


@pytest.mark.parametrize("name", ["xlogy", "xlog1py"])
def test_a_zero_meets_nan_and_infinities(name: str) -> None:
    for dtype in ("float32", "float16", "bfloat16"):
        assert wrong(name, functools.partial(nothing_of_zero, name, nan=False), lambda _: True, dtype)
        assert not wrong(name, find(name).reference, lambda _: True, dtype)
    assert not wrong(name, functools.partial(nothing_of_zero, name, nan=True), lambda _: True)


def softmin(x: Tensor, least: float = -math.inf) -> Tensor:
    """A maximum no less than 0, as padding leaves it, is far above all of a row of large numbers."""
    shares = torch.exp(-x - (-x).amax(-1, keepdim=True).clamp(min=least))
    return shares / shares.sum(-1, keepdim=True)


def rwkv4(k: Tensor, v: Tensor, decay: Tensor, bonus: Tensor, *, held: bool = False) -> Tensor:
    """Without a largest exponent, unless ``held``."""
    if held:
        return find("rwkv4_wkv").reference(k, v, decay, bonus)
    keep, total, weights, outs = torch.exp(-torch.exp(decay)), torch.zeros_like(v[:, 0]), torch.zeros_like(v[:, 0]), []
    for key, value in zip(k.unbind(1), v.unbind(1), strict=True):
        own, now = torch.exp(bonus + key), torch.exp(key)
        outs.append((total + own * value) / (weights + own))
        total, weights = keep * total + now * value, keep * weights + now
    return torch.stack(outs, 1)


def hidden_scores(x: Tensor, mask: Tensor, scale: float, hidden: float = -math.inf) -> Tensor:
    return torch.softmax((x * scale).masked_fill(~mask[:, None, None], hidden), -1)


def add_layer_norm(
    x: Tensor, residual: Tensor, weight: Tensor, bias: Tensor, eps: float, *, of_x: bool = False
) -> tuple[Tensor, Tensor]:
    """In one pass over differences from the first element of the sum, or of x alone."""
    total = x + residual
    apart = total - (x if of_x else total)[:, :1]
    mean = apart.mean(-1, keepdim=True)
    variance = (apart.square().mean(-1, keepdim=True) - mean.square()).clamp(min=0)
    return (apart - mean) * torch.rsqrt(variance + eps) * weight + bias, total


def unscale(grad: Tensor, scale: float, *, by_sum: bool = False) -> tuple[Tensor, Tensor]:
    found = (grad.sum() if by_sum else grad).isfinite().all()
    return grad / scale, ~found


def poisson_nll(x: Tensor, target: Tensor, *, beside: bool = False) -> Tensor:
    """Stirling's term from 1 on, or above 1."""
    left_out = (target < 1) if beside else (target <= 1)
    counts = torch.where(left_out, 1, target)
    term = counts * counts.log() - counts + (2 * math.pi * counts).log() / 2
    return (x.exp() - target * x + torch.where(left_out, 0, term)).mean()


def rms_gradients(
    gradient: Tensor, x: Tensor, weight: Tensor, eps: float, *, by_output: bool = False
) -> tuple[Tensor, Tensor]:
    """The normalised row is kept, or it is the output by the weight."""
    inverse = torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)
    unit = x * inverse * weight / weight if by_output else x * inverse
    scaled = gradient * weight
    to_x = inverse * (scaled - unit * (scaled * unit).mean(-1, keepdim=True))
    return to_x, (gradient * unit).sum(0)


def test_gains_of_zero_are_given() -> None:
    by_output = functools.partial(rms_gradients, by_output=True)
    found = wrong("rms_norm", by_output, lambda _: True, direction="backward")
    assert {distribution for _, distribution in found} == {"outlier"}
    assert not wrong("rms_norm", rms_gradients, lambda _: True, direction="backward")


def gated(q: Tensor, k: Tensor, v: Tensor, gate: Tensor, *, inverse: bool = False) -> Tensor:
    """Gated linear attention, 16 steps at once: by the inverse of their decay, or by the decay between two steps."""
    wide = [x.float().split(16, 2) for x in (q, k, v, torch.nn.functional.logsigmoid(gate.float()))]
    state, outs = torch.zeros(*q.shape[:2], q.shape[-1], v.shape[-1]), []
    for queries, keys, values, logs in zip(*wide, strict=True):
        sums = logs.cumsum(2)
        seen = torch.ones(2 * sums.shape[2:3], dtype=torch.bool).tril()
        read = queries * sums.exp()
        between = (sums[:, :, :, None] - sums[:, :, None]).masked_fill(~seen[..., None], -math.inf).exp()
        scores = (queries[:, :, :, None] * keys[:, :, None] * between).sum(-1)
        if inverse:
            scores = (read @ (keys * (-sums).exp()).mT).tril()
        outs.append(read @ state + scores @ values)
        last = sums[:, :, -1:]
        state = last.exp().mT * state + (keys * (last - sums).exp()).mT @ values
    return torch.cat(outs, 2).to(q.dtype)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_gates_that_forget_all_are_given(dtype: str) -> None:
    assert wrong("gated_linear_attention", functools.partial(gated, inverse=True), plain, dtype)
    assert not wrong("gated_linear_attention", gated, lambda _: True, dtype)


def scan(
    *args: Tensor,
    most: float = math.inf,
    soft: Kernel = torch.nn.functional.softplus,
    gate: Kernel = torch.sigmoid,
) -> Tensor:
    """A selective scan step by step; what a softplus gives may be held below a number."""
    u, delta, decay, b, c, skip, z, delta_bias = args
    step = soft(delta + delta_bias[:, None]).clamp(max=most)
    state, outs = torch.zeros(*u.shape[:2], decay.shape[1]), []
    for at in range(u.shape[2]):
        taken = (step * u)[:, :, at, None] * b[:, None, :, at]
        state = torch.exp(-step[:, :, at, None] * decay) * state + taken
        outs.append((state * c[:, None, :, at]).sum(-1))
    return (torch.stack(outs, -1) + skip[:, None] * u) * z * gate(z)


def test_steps_beyond_the_bend_of_a_softplus_are_given() -> None:
    held = functools.partial(scan, most=20.0)
    assert {distribution for _, distribution in wrong("selective_scan", held, lambda _: True)} == {"common"}
    assert not wrong("selective_scan", scan, lambda _: True)


def scan_in_chunks(*args: Tensor, length: int = 64) -> Tensor:
    """The same many steps at once, with decays by differences of running sums and a softplus that branches at 20."""
    u, delta, decay, b, c, skip, z, delta_bias = (x.float() for x in args)
    delta = delta + delta_bias[:, None]
    step = torch.where(delta > 20, delta, delta.clamp(max=20).exp().log1p())
    logs, taken = -step[:, :, None] * decay[:, :, None], (step * u)[:, :, None] * b[:, None]
    state, outs = torch.zeros(*u.shape[:2], decay.shape[1], 1), []
    for rates, terms, read in zip(logs.split(length, -1), taken.split(length, -1), c.split(length, -1), strict=True):
        sums = rates.cumsum(-1)
        hidden = torch.ones(2 * sums.shape[-1:], dtype=torch.bool).triu(1)
        between = (sums[..., None] - sums[..., None, :]).masked_fill(hidden, -math.inf).exp()
        states = (between @ terms[..., None])[..., 0] + sums.exp() * state
        outs.append((states * read[:, None]).sum(2))
        state = states[..., -1:]
    return ((torch.cat(outs, -1) + skip[:, None] * u) * torch.nn.functional.silu(z)).to(args[0].dtype)


def through(kernel: Kernel, grad: Tensor, *args: Any) -> tuple[Tensor, ...]:
    """Gradients by autograd."""
    given = [x.detach().requires_grad_() if isinstance(x, Tensor) else x for x in args]
    return torch.autograd.grad(kernel(*given), [x for x in given if isinstance(x, Tensor)], grad)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_gradients_of_steps_beyond_the_bend_of_a_softplus_are_asked_for(dtype: str) -> None:
    held = functools.partial(through, functools.partial(scan, most=20.0))
    if dtype == "float32":
        found = wrong("selective_scan", held, lambda _: True, direction="backward")
        assert {distribution for _, distribution in found} == {"common"}
    for kernel in (scan_in_chunks, functools.partial(scan_in_chunks, length=1)):
        honest = functools.partial(through, kernel)
        assert not wrong(
            "selective_scan", honest, lambda case: case.distribution == "common", dtype, "standard", "backward"
        )


def by_quotient(x: Tensor) -> Tensor:
    """A sigmoid that is NaN where exp overflows."""
    return x.exp() / (1 + x.exp())


def by_logarithm(x: Tensor) -> Tensor:
    """A softplus that is infinite where exp overflows."""
    return (1 + x.exp()).log()


def one_step(*args: Tensor, soft: Kernel = torch.nn.functional.softplus, gate: Kernel = torch.sigmoid) -> Any:
    state, x, delta, decay, b, c, skip, z = args
    step = soft(delta)
    new = state * torch.exp(-step[..., None] * decay) + (step * x)[..., None] * b[:, None]
    return ((new * c[:, None]).sum(-1) + skip * x) * z * gate(z), new


def heads_by_steps(*args: Any, soft: Kernel = torch.nn.functional.softplus) -> Any:
    x, delta, decay, b, c, _ = args
    step, state, outs = soft(delta), torch.zeros(x.shape[0], *x.shape[2:], b.shape[-1]), []
    for at in range(x.shape[1]):
        taken = (step[:, at, :, None] * x[:, at])[..., None] * b[:, at, None, None]
        state = torch.exp(-step[:, at] * decay)[..., None, None] * state + taken
        outs.append((state * c[:, at, None, None]).sum(-1))
    return torch.stack(outs, 1), state


def delta_steps(*args: Tensor, gate: Kernel = torch.sigmoid) -> Tensor:
    q, k, v, beta = args
    q, k = (torch.nn.functional.normalize(x, dim=-1, eps=1e-6) for x in (q, k))
    state, outs = torch.zeros(*k.shape[:2], k.shape[-1], v.shape[-1]), []
    for at in range(q.shape[2]):
        off = gate(beta[:, :, at, None]) * (v[:, :, at] - (k[:, :, at, :, None] * state).sum(2))
        state = state + k[:, :, at, :, None] * off[:, :, None]
        outs.append((q[:, :, at, :, None] * state).sum(2))
    return torch.stack(outs, 2)


def gated_recurrence(*args: Tensor, gate: Kernel = torch.sigmoid) -> Tensor:
    x, take, keep, rate = args
    logs = -8 * torch.nn.functional.softplus(rate) * torch.sigmoid(keep)
    taken, state, outs = torch.sqrt(-torch.expm1(2 * logs)) * gate(take) * x, torch.zeros_like(x[:, 0]), []
    for at in range(x.shape[1]):
        state = torch.exp(logs[:, at]) * state + taken[:, at]
        outs.append(state)
    return torch.stack(outs, 1)


def gated_states(*args: Tensor, gate: Kernel = torch.sigmoid) -> Tensor:
    q, k, v, gates = args
    state, outs = torch.zeros(*k.shape[:2], k.shape[-1], v.shape[-1]), []
    for at in range(q.shape[2]):
        state = gate(gates[:, :, at, :, None]) * state + k[:, :, at, :, None] * v[:, :, at, None]
        outs.append((q[:, :, at, :, None] * state).sum(2))
    return torch.stack(outs, 2)


@pytest.mark.parametrize(
    ("name", "kernel", "defect"),
    [
        ("rg_lru", gated_recurrence, {"gate": by_quotient}),
        ("gated_linear_attention", gated_states, {"gate": by_quotient}),
        ("selective_state_update", one_step, {"soft": by_logarithm}),
        ("selective_state_update", one_step, {"gate": by_quotient}),
        ("selective_scan", scan, {"soft": by_logarithm}),
        ("selective_scan", scan, {"gate": by_quotient}),
        ("mamba_chunk_scan", heads_by_steps, {"soft": by_logarithm}),
        ("delta_rule", delta_steps, {"gate": by_quotient}),
    ],
)
def test_exponentials_of_gates_may_overflow(name: str, kernel: Kernel, defect: dict[str, Any]) -> None:
    found = wrong(name, functools.partial(kernel, **defect), lambda case: case.distribution == "common")
    assert found, "by an exponential that is infinite"
    assert not wrong(name, kernel, lambda case: case.distribution == "common")


def by_half_logarithm(*args: Tensor) -> Any:
    """Its softplus rounds what exp gives to the type of the data."""
    steps = torch.log1p(torch.exp(args[2])).float()
    wider = [x.float() for x in args]
    return tuple(x.to(args[0].dtype) for x in one_step(*wider, soft=lambda _: steps))


def in_fp32(*args: Tensor) -> Any:
    return tuple(x.to(args[0].dtype) for x in one_step(*(x.float() for x in args)))


def test_exponentials_of_steps_overflow_in_float16() -> None:
    chosen = lambda case: case.distribution == "common"  # noqa: E731
    assert wrong("selective_state_update", by_half_logarithm, chosen, "float16")
    for dtype in ("float16", "bfloat16"):
        assert not wrong("selective_state_update", in_fp32, chosen, dtype)
        assert not wrong("selective_state_update", one_step, chosen, dtype), "every step in the type"


def by_logarithms(x: Tensor, exponent: float) -> Tensor:
    return torch.exp2(exponent * torch.log2(x.double())).to(x.dtype)


def by_stirling(x: Tensor) -> Tensor:
    y = x.double()
    above = y + 8
    series = (above - 0.5) * above.log() - above + 0.5 * math.log(2 * math.pi) + 1 / (12 * above) - 1 / (360 * above**3)
    series = series + 1 / (1260 * above**5) - 1 / (1680 * above**7)
    found = series - sum((y + k).log() for k in range(8))
    return torch.where(y == math.inf, y, found).to(x.dtype)


@pytest.mark.parametrize(("name", "kernel"), [("pow_scalar", by_logarithms), ("gammaln", by_stirling)])
def test_functions_of_positive_numbers_meet_no_negative_infinity(name: str, kernel: Kernel) -> None:
    """Both are NaN there, and PyTorch's are infinite."""
    assert not wrong(name, kernel, lambda case: case.distribution in ("nonfinite", "standard"))


def entropy_of_logits(x: Tensor, target: Tensor, *, overflows: bool = False) -> Tensor:
    soft = x.exp().log1p() if overflows else x.clamp(min=0) + torch.log1p(torch.exp(-x.abs()))
    return soft - target * x


def weighted_entropy(x: Tensor, target: Tensor, weight: Tensor, *, overflows: bool = False) -> Tensor:
    soft = (-x).exp().log1p() if overflows else (-x).clamp(min=0) + torch.log1p(torch.exp(-x.abs()))
    return (1 - target) * x + (1 + (weight - 1) * target) * soft


def focal(x: Tensor, target: Tensor, alpha: float, gamma: float, *, overflows: bool = False) -> Tensor:
    entropies = weighted_entropy(x, target, torch.ones_like(x), overflows=overflows)
    missed = torch.where(target == 1, torch.sigmoid(-x), torch.sigmoid(x))
    return torch.where(target == 1, alpha, 1 - alpha) * entropies * missed**gamma


def softplus(x: Tensor, beta: float, *, narrow: bool = False) -> Tensor:
    """By an exponential of which the exponent is rounded by adding 1.5 * 2^23, or is held in range first."""
    exponent = -(x * beta).abs() / math.log(2)
    exponent = torch.where(exponent.isinf(), -126, exponent) if narrow else exponent.clamp(min=-126)
    whole = exponent + 12582912.0
    power = (whole.view(torch.int32) - 0x4B400000).clamp(min=-126)
    soft = torch.exp2(power.float() + (exponent - (whole - 12582912.0))).log1p()
    return ((x * beta).clamp(min=0) + soft) / beta


def arsinh(x: Tensor, *, squares: bool = False) -> Tensor:
    large = torch.where(x.isinf(), 0, x.abs()) if squares else x.abs().clamp(max=2.0**20)
    near = torch.log1p(large + large * large / (1 + torch.sqrt(large * large + 1)))
    return torch.where(x.abs() > large, x.abs().log() + math.log(2), near).copysign(x)


def arcosh(x: Tensor, *, squares: bool = False) -> Tensor:
    large = (x if squares else x.clamp(max=2.0**20)) - 1
    near = torch.log1p(large + torch.sqrt(large * (large + 2)))
    return torch.where(x - 1 > large, x.log() + math.log(2), near)


def arctan(x: Tensor, *, squares: bool = False) -> Tensor:
    by_sine = torch.asin(x / torch.sqrt(1 + x * x))
    return torch.where((x.abs() > 2.0**20) & x.isfinite(), by_sine, torch.atan(x)) if squares else torch.atan(x)


@pytest.mark.parametrize(
    ("name", "kernel", "defect"),
    [
        ("binary_cross_entropy_with_logits_none", entropy_of_logits, {"overflows": True}),
        ("binary_cross_entropy_pos_weight_none", weighted_entropy, {"overflows": True}),
        ("sigmoid_focal_loss_none", focal, {"overflows": True}),
        ("softplus", softplus, {"narrow": True}),
        ("asinh", arsinh, {"squares": True}),
        ("acosh", arcosh, {"squares": True}),
        ("atan", arctan, {"squares": True}),
        ("poisson_nll_loss_full", poisson_nll, {"beside": True}),
        ("unscale_gradients", unscale, {"by_sum": True}),
        ("softmin", softmin, {"least": 0.0}),
        ("rwkv4_wkv", functools.partial(rwkv4, held=True), {"held": False}),
        ("scaled_masked_softmax", hidden_scores, {"hidden": -10000.0}),
        ("add_layer_norm", add_layer_norm, {"of_x": True}),
    ],
)
def test_numbers_that_a_kernel_takes_for_granted(name: str, kernel: Kernel, defect: dict[str, Any]) -> None:
    assert wrong(name, functools.partial(kernel, **defect), lambda _: True)
    assert not wrong(name, kernel, lambda _: True)


def in_blocks(function: Callable[..., Tensor], x: Tensor, dim: int = -1, *, keeps: bool) -> Tensor:
    """A running maximum or minimum over blocks of 256; a NaN of an earlier block may be lost."""
    parts: list[Tensor] = []
    for block in x.split(256, dim):
        part = getattr(block, function.__name__)(dim).values
        if parts:
            carry = parts[-1].narrow(dim, parts[-1].shape[dim] - 1, 1)
            larger = carry > part if function is torch.cummax else carry < part
            part = torch.where(larger | carry.isnan() if keeps else larger, carry, part)
        parts.append(part)
    return torch.cat(parts, dim)


@pytest.mark.parametrize("name", ["cummax", "cummin"])
def test_a_long_row_has_a_nan(name: str) -> None:
    kernel = functools.partial(in_blocks, getattr(torch, name))
    assert wrong(name, functools.partial(kernel, keeps=False), lambda _: True) == {("contiguous", "nonfinite")}
    assert not wrong(name, functools.partial(kernel, keeps=True), lambda _: True)


def from_a_finite_number(name: str, *args: Any) -> Any:
    """The operator with searches that start at the lowest or the largest finite number."""
    out = find(name).reference(*args)
    if isinstance(out, tuple):
        return torch.where(out[0] == -math.inf, torch.finfo(out[0].dtype).min, out[0]), *out[1:]
    most = torch.finfo(out.dtype).max
    if re.search("min", name):
        return torch.where(out == math.inf, most, out)
    return torch.where(out == -math.inf, -most, out)


@pytest.mark.parametrize(
    "name",
    [
        *("amax", "amin", "amax_dim0", "amin_middle", "cummin", "cummax", "cummax_middle"),
        *("max_pool1d", "max_pool2d", "max_pool2d_ceil", "max_pool3d", "min_pool2d", "embedding_bag_max"),
        *("adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d", "global_max_pool", "global_max_pool1d"),
        *("fractional_max_pool2d", "max_pool2d_with_indices", "scatter_amax", "scatter_amin", "index_reduce_amax"),
    ],
)
def test_searches_that_start_at_a_finite_number_meet_infinities_alone(name: str) -> None:
    assert wrong(name, functools.partial(from_a_finite_number, name), lambda _: True)
    assert not wrong(name, find(name).reference, lambda _: True)


def split_amax(x: Tensor, *, keeps: bool) -> Tensor:
    """Rows of 64 at a time; parts are put together by a comparison that drops NaN."""
    out = x[:, :64].amax(-1)
    for block in x.split(64, -1)[1:]:
        part = block.amax(-1)
        out = torch.where((part > out) | (part.isnan() & keeps), part, out)
    return out


def test_a_long_row_of_a_reduction_has_a_nan() -> None:
    assert ("contiguous", "nonfinite") in wrong("amax", functools.partial(split_amax, keeps=False), lambda _: True)
    assert not wrong("amax", functools.partial(split_amax, keeps=True), lambda _: True)


def kahan(x: Tensor, *, nan: bool = True) -> Tensor:
    """Running sums of the last dim by Kahan's compensated sum, which makes NaN of infinities."""
    total, lost, sums = torch.zeros_like(x[:, 0]), torch.zeros_like(x[:, 0]), []
    for column in (x if nan else x.nan_to_num()).unbind(-1):
        term = column - lost
        new = total + term
        lost, total = (new - total) - term, new
        sums.append(total)
    return torch.stack(sums, -1)


def kahan_sum(x: Tensor, *, nan: bool = True) -> Tensor:
    return kahan(x, nan=nan)[:, -1]


def kahan_mean(x: Tensor, *, nan: bool = True) -> Tensor:
    return kahan_sum(x, nan=nan) / x.shape[-1]


def kahan_columns(x: Tensor, *, nan: bool = True) -> Tensor:
    return kahan_sum(x.T, nan=nan)


@pytest.mark.parametrize(
    ("name", "kernel"),
    [("sum", kahan_sum), ("sum_dim0", kahan_columns), ("mean", kahan_mean), ("cumsum", kahan)],
)
def test_sums_get_nan_and_no_infinities(name: str, kernel: Callable[..., Tensor]) -> None:
    assert not wrong(name, kernel, lambda case: case.distribution == "nonfinite")
    assert wrong(name, functools.partial(kernel, nan=False), lambda case: case.distribution == "nonfinite")


def test_of_sums_none_gets_infinities() -> None:
    named = "(sum|mean|nansum|nanmean|l1_norm|cumsum|cumulative)(_|$)|bincount_weighted|embedding_backward"
    found = [task for name, task in all_tasks().items() if re.match(named, name) and "float32" in task.dtypes]
    assert len(found) > 20
    for task in found:
        arguments = [arg for arg in task.table.args if isinstance(arg, Arg) and arg.role == "data"]
        assert not {arg.nonfinite for arg in arguments} & {"ieee", "limits"}, task.name


def log_running_sums(x: Tensor, *, held: bool = True) -> Tensor:
    """One element after the other, with the sum held against the largest so far; which may be -inf."""
    wider = x.float()
    most, total, sums = torch.full_like(wider[:, 0], -math.inf), torch.zeros_like(wider[:, 0]), []
    for column in wider.unbind(-1):
        larger = torch.maximum(most, column)
        base = torch.where(larger == -math.inf, 0, larger) if held else larger
        total = total * (most - base).exp() + (column - base).exp()
        most = larger
        sums.append(most + total.log())
    return torch.stack(sums, -1).to(x.dtype)


def log_sums_of_blocks(x: Tensor, *, held: bool = True) -> Tensor:
    """PyTorch's in blocks of 64, added to what is before; of which nothing is left where both are -inf."""
    parts: list[Tensor] = []
    for block in x.float().split(64, -1):
        part = torch.logcumsumexp(block, -1)
        if parts:
            before = parts[-1][:, -1:]
            most = torch.maximum(before, part)
            base = torch.where(most == -math.inf, 0, most) if held else most
            part = base + ((before - base).exp() + (part - base).exp()).log()
        parts.append(part)
    return torch.cat(parts, -1).to(x.dtype)


@pytest.mark.parametrize("kernel", [log_running_sums, log_sums_of_blocks])
def test_rows_of_a_log_sum_begin_with_minus_infinity(kernel: Callable[..., Tensor]) -> None:
    for dtype in ("float32", "float16", "bfloat16"):
        found = wrong("logcumsumexp", functools.partial(kernel, held=False), lambda _: True, dtype)
        assert ("contiguous", "nonfinite") in found
        assert {distribution for _, distribution in found} == {"nonfinite"}
        assert not wrong("logcumsumexp", kernel, lambda case: case.distribution == "nonfinite", dtype)
        assert not wrong("logcumsumexp", find("logcumsumexp").reference, lambda _: True, dtype)


def best_beams(scores: Tensor, logprobs: Tensor, *, marks: bool = False) -> tuple[Tensor, Tensor, Tensor]:
    """One after the other. What is taken is kept apart, or marked by -inf, which it may be taken for again."""
    total = (scores.float()[..., None] + logprobs.float()).flatten(1)
    left, number, values, taken = torch.ones_like(total, dtype=torch.bool), total.shape[1], [], []
    for _ in range(scores.shape[1]):
        most = total.masked_fill(~left, -math.inf).amax(-1, keepdim=True)
        same = total.masked_fill(~left, -math.inf) == most if marks else left & (total == most)
        place = torch.where(same, torch.arange(number), number).amin(-1, keepdim=True)
        left = left.scatter(-1, place, False)
        values.append(most)
        taken.append(place)
    found, words = torch.cat(taken, -1), logprobs.shape[-1]
    return torch.cat(values, -1).to(scores.dtype), found // words, found % words


def best_of_each_beam(scores: Tensor, logprobs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The best of each beam first, then the best of these."""
    ordered, word = torch.sort(scores.float()[..., None] + logprobs.float(), dim=-1, descending=True, stable=True)
    count = min(scores.shape[1], logprobs.shape[-1])
    best, place = torch.sort(ordered[..., :count].flatten(1), dim=-1, descending=True, stable=True)
    place = place[:, : scores.shape[1]]
    words = word[..., :count].flatten(1).gather(1, place)
    return best[:, : scores.shape[1]].to(scores.dtype), place // count, words


def test_some_steps_have_fewer_tokens_than_beams() -> None:
    for dtype in ("float32", "float16", "bfloat16"):
        found = wrong("beam_search_step", functools.partial(best_beams, marks=True), lambda _: True, dtype)
        assert {distribution for _, distribution in found} == {"nonfinite"}
        for honest in (best_beams, best_of_each_beam, find("beam_search_step").reference):
            assert not wrong("beam_search_step", honest, lambda case: case.distribution == "nonfinite", dtype)


def pool_with_places(x: Tensor, kernel: int, stride: int, padding: int, *, found: bool = True) -> tuple[Tensor, Tensor]:
    """From -inf on, one element of each window after the other. Where none is larger, the place is that of the first
    one inside, or 0.
    """
    height, width = x.shape[2:]
    rows, columns = (torch.arange((n + 2 * padding - kernel) // stride + 1) * stride - padding for n in (height, width))
    best = torch.full((*x.shape[:2], len(rows), len(columns)), -math.inf, dtype=x.dtype)
    start = rows.clamp(min=0)[:, None] * width + columns.clamp(min=0)
    place = (start if found else torch.zeros_like(start)).expand(best.shape)
    for i, j in itertools.product(range(kernel), repeat=2):
        row, column = (rows + i)[:, None], columns + j
        inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
        own = x[:, :, row.clamp(0, height - 1), column.clamp(0, width - 1)]
        larger = inside & (own > best)
        best, place = torch.where(larger, own, best), torch.where(larger, row * width + column, place)
    return best, place


def test_places_of_windows_of_nothing_but_minus_infinity() -> None:
    name = "max_pool2d_with_indices"
    for dtype in find(name).dtypes:
        found = wrong(name, functools.partial(pool_with_places, found=False), lambda _: True, dtype)
        assert {distribution for _, distribution in found} == {"nonfinite"}
        assert not wrong(name, pool_with_places, lambda _: True, dtype)
        assert not wrong(name, find(name).reference, lambda _: True, dtype)


def round_by_adding(x: Tensor, *, held: bool) -> Tensor:
    """By 2^23, from which on all numbers are whole."""
    out = torch.copysign((x.abs() + 2.0**23) - 2.0**23, x)
    return torch.where(x.abs() < 2.0**23, out, x) if held else out


def floor_by_int32(x: Tensor, *, held: bool) -> Tensor:
    whole = x.to(torch.int32).float()
    out = torch.where(whole > x, whole - 1, whole)
    return torch.where(x.abs() < 2.0**31 if held else x.isfinite(), out, x)


def trunc_by_int32(x: Tensor, *, held: bool) -> Tensor:
    return torch.where(x.abs() < 2.0**31 if held else x.isfinite(), x.to(torch.int32).float(), x)


def frac_by_int32(x: Tensor, *, held: bool) -> Tensor:
    return x - trunc_by_int32(x, held=held)


def hypot_by_squares(x: Tensor, y: Tensor, *, held: bool) -> Tensor:
    wide = torch.float64 if held else torch.float32
    out = torch.sqrt(x.to(wide).square() + y.to(wide).square()).float()
    return torch.where(x.isinf() | y.isinf(), math.inf, out)


def isinf_by_size(x: Tensor, *, held: bool) -> Tensor:
    return x.abs() > (torch.finfo(x.dtype).max if held else 1e30)


@pytest.mark.parametrize(
    ("name", "kernel", "where"),
    [
        ("round", round_by_adding, {"large_scale"}),
        ("floor", floor_by_int32, {"large_scale"}),
        ("trunc", trunc_by_int32, {"large_scale"}),
        ("frac", frac_by_int32, {"large_scale"}),
        ("hypot", hypot_by_squares, {"large_scale", "small_scale"}),
    ],
)
def test_large_and_small_numbers_reach_the_ends_of_the_range(name: str, kernel: Kernel, where: set[str]) -> None:
    found = wrong(name, functools.partial(kernel, held=False), lambda _: True)
    assert {distribution for _, distribution in found} == where
    assert not wrong(name, functools.partial(kernel, held=True), lambda _: True)


def test_some_finite_numbers_are_large_beside_infinite_ones() -> None:
    assert wrong("isinf", functools.partial(isinf_by_size, held=False), plain)
    assert not wrong("isinf", functools.partial(isinf_by_size, held=True), lambda _: True)


@pytest.mark.parametrize("name", ["remainder", "fmod", "floor_divide", "div_trunc"])
def test_quotients_by_the_formula_are_right_at_the_ends_of_the_range(name: str) -> None:
    def kernel(x: Tensor, y: Tensor) -> Tensor:
        whole = torch.trunc(x / y) if name in ("fmod", "div_trunc") else torch.floor(x / y)
        return whole if "div" in name else x - y * whole

    ends = ("large_scale",) if name in ("remainder", "fmod") else ("large_scale", "small_scale")
    assert not wrong(name, kernel, lambda case: case.distribution in ends)


def remainder(x: Tensor, y: Tensor, *, whole: Callable[[Tensor], Tensor], wide: torch.dtype) -> Tensor:
    """What a quotient that is rounded in a type leaves."""
    dividend, divisor = x.to(wide), y.to(wide)
    return (dividend - divisor * whole(dividend / divisor)).to(x.dtype)


@pytest.mark.parametrize(("name", "whole"), [("remainder", torch.floor), ("fmod", torch.trunc)])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_remainders_of_quotients_beyond_fp32(name: str, whole: Callable[[Tensor], Tensor], dtype: str) -> None:
    kernel = functools.partial(remainder, whole=whole)
    assert wrong(name, functools.partial(kernel, wide=torch.float32), lambda _: True, dtype)
    for tier in ("quick", "standard"):
        assert not wrong(name, functools.partial(kernel, wide=torch.float64), lambda _: True, dtype, tier)
        assert not wrong(name, find(name).reference, lambda _: True, dtype, tier)


@pytest.mark.parametrize(
    "name", [name for name, task in all_tasks().items() if re.search(r"quant(_azp)?$", name) and "; s" in task.summary]
)
def test_summaries_say_what_the_scale_of_a_row_of_zeros_is(name: str) -> None:
    task = find(name)
    case = next(c for c in planned(task, tier="standard", distributions=("zeros",)) if c.shape_category != "edge")
    scale = called(task.reference, drawn(task, case)[0])[1]
    assert (scale == 1).all()
    assert "1 where that is 0" in task.summary


def cosine(x: Tensor, y: Tensor, *, each: bool) -> Tensor:
    """The product of the norms is held against the epsilon, or each of them."""
    one, other = x.norm(dim=-1), y.norm(dim=-1)
    size = one.clamp(min=1e-8) * other.clamp(min=1e-8) if each else (one * other).clamp(min=1e-8)
    return (x * y).sum(-1) / size


def normalized(x: Tensor, *, each: bool) -> Tensor:
    """The epsilon is added to the square, or the norm is held against it."""
    size = x.norm(dim=-1, keepdim=True)
    return x / (size.clamp(min=1e-12) if each else (size.square() + 1e-12).sqrt())


@pytest.mark.parametrize(("name", "kernel"), [("cosine_similarity", cosine), ("normalize", normalized)])
def test_some_rows_are_as_small_as_the_epsilon(name: str, kernel: Kernel) -> None:
    found = wrong(name, functools.partial(kernel, each=False), lambda _: True)
    assert "small_scale" in {distribution for _, distribution in found}
    assert not wrong(name, functools.partial(kernel, each=True), lambda _: True)


def normalized_gradient(gradient: Tensor, x: Tensor, *, held: bool) -> Tensor:
    """Without what the norm adds where it is held at the epsilon, or with it."""
    size = x.double().norm(dim=-1, keepdim=True)
    unit = x / size.clamp(min=1e-12)
    along = unit * (gradient * unit).sum(-1, keepdim=True)
    along = torch.where(size < 1e-12, 0, along) if held else along
    return ((gradient - along) / size.clamp(min=1e-12)).to(x.dtype)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_gradients_of_rows_as_small_as_the_epsilon_are_asked_for(dtype: str) -> None:
    asked = dtype == "float32"
    assert not wrong(
        "normalize", functools.partial(normalized_gradient, held=True), lambda _: True, dtype, "quick", "backward"
    )
    found = wrong(
        "normalize", functools.partial(normalized_gradient, held=False), lambda _: True, dtype, "quick", "backward"
    )
    assert {distribution for _, distribution in found} == ({"small_scale"} if asked else set())


def test_no_gradient_is_asked_for_where_pytorch_has_another_than_the_formula() -> None:
    """Of ``cosine_similarity`` itself both are right (``test_clamped_norms.py``)."""
    task = find("cosine_similarity_loss_none")
    for case in planned(task, tier="standard", distributions=("small_scale",), directions=("backward",)):
        if case.dtype == "float32" and case.shape_category != "edge":
            x, y, *_ = drawn(task, case)[0]
            assert min(x.norm(dim=-1).min(), y.norm(dim=-1).min()) > 1e-8


@pytest.mark.parametrize("started", [(0.0, 0.0), (-math.inf, 0.0), (0.0, math.inf)])
def test_a_range_of_a_row_does_not_begin_at_zero(started: tuple[float, float]) -> None:
    """A maximum that starts at 0, or a minimum, or both passed: every row had numbers of both signs."""
    task = find("dynamic_scaled_int8_quant_azp")
    case = case_of(task.name, {"M": 200, "N": 130})
    args, _ = drawn(task, case)
    (x,) = args
    assert bool((x.amin(-1) > 0).any()) and bool((x.amax(-1) < 0).any())
    low, high = x.amin(-1, keepdim=True), x.amax(-1, keepdim=True)
    expectation = reference.expect(task, case, args)
    for right in (True, False):
        if not right:
            high, low = high.clamp_min(started[0]), low.clamp_max(started[1])
        scale = (high - low) * (1 / 255)
        zero = (-128 - low / scale).round().clamp(-128, 127)
        whole = ((x / scale).round() + zero).clamp(-128, 127).to(torch.int8)
        result = compare([whole, scale, zero.to(torch.int8)], expectation)
        assert isinstance(result, Match) == right


def power(x: Tensor, y: Tensor, *, of_zero: Callable[[Tensor], Tensor] | None = None) -> Tensor:
    """By a logarithm; ``of_zero``: what takes the place of powers of 0."""
    logs = torch.where(x == 0, 1, x).double().log()
    every = 0 ** y.double() if of_zero is None else of_zero(y).double()
    return torch.where(x == 0, every, torch.exp(y.double() * logs)).to(x.dtype)


def no_power_but_the_first(y: Tensor) -> Tensor:
    """0 for negative exponents too."""
    return y == 0


def powers_of_a_tiny_number(y: Tensor) -> Tensor:
    """An exponent of -127 for the logarithm of 0."""
    return torch.exp2(-127 * y.double())


@pytest.mark.parametrize("of_zero", [no_power_but_the_first, powers_of_a_tiny_number])
def test_powers_of_zero_have_exponents_of_either_sign(of_zero: Callable[[Tensor], Tensor]) -> None:
    for dtype in ("float32", "float16", "bfloat16"):
        found = wrong("pow", functools.partial(power, of_zero=of_zero), lambda _: True, dtype)
        assert {distribution for _, distribution in found} >= {"standard"}
        assert not wrong("pow", power, lambda _: True, dtype)


def trust(param: Tensor, update: Tensor, eps: float = 0.0, *, moves: bool = True) -> Tensor:
    """The quotient of two norms; ``moves``: 1 where the first is 0."""
    length, of_update = param.norm(), update.norm()
    return torch.where((of_update > 0) & ((length > 0) | (not moves)), length / (of_update + eps), 1.0)


def lamb(param: Tensor, grad: Tensor, m: Tensor, v: Tensor, *plains: float, moves: bool = True) -> tuple[Tensor, ...]:
    lr, beta1, beta2, eps, decay, step = plains
    m, v = beta1 * m + (1 - beta1) * grad, beta2 * v + (1 - beta2) * grad * grad
    update = m / (1 - beta1 ** (step + 1)) / ((v / (1 - beta2 ** (step + 1))).sqrt() + eps) + decay * param
    return param - lr * trust(param, update, moves=moves) * update, m, v


def lars(param: Tensor, grad: Tensor, momentum: Tensor, *plains: float, moves: bool = True) -> tuple[Tensor, ...]:
    lr, mu, rate, eps, decay = plains
    update = grad + decay * param
    momentum = mu * momentum + lr * rate * trust(param, update, eps, moves=moves) * update
    return param - momentum, momentum


@pytest.mark.parametrize(("name", "kernel"), [("lamb", lamb), ("lars", lars)])
def test_parameters_that_begin_at_zero_are_moved(name: str, kernel: Kernel) -> None:
    """Under ``zeros`` the gradients are 0, too."""
    for dtype in ("float32", "bfloat16"):
        case, found = case_of(name, {"M": 5, "N": 40}, dtype), 0
        for seed in range(40):
            args, _ = drawn(find(name), case, seed)
            expectation = reference.expect(find(name), case, args)
            assert isinstance(compare(kernel(*args), expectation), Match), seed
            unmoved = isinstance(compare(kernel(*args, moves=False), expectation), Mismatch)
            assert unmoved == (not args[0].any()), seed
            found += unmoved
        assert 5 < found < 35


def adafactor(*args: Any, by: Callable[[float, int], float] = lambda lr, t: min(lr, t**-0.5)) -> tuple[Tensor, ...]:
    *tensors, lr, decay, eps, clip, weight_decay, step = args
    param, grad, rows, columns = (tensor.double() for tensor in tensors)
    t, dtype = step + 1, tensors[0].dtype
    rows = rows + t**-decay * (grad.square().mean(1) - rows)
    columns = columns + t**-decay * (grad.square().mean(0) - columns)
    update = grad * (rows.mean() / (rows[:, None] * columns)).sqrt()
    size = by(lr, t) * param.square().mean().sqrt().clamp(min=eps)
    param = param * (1 - lr * weight_decay) - size / (update.square().mean().sqrt() / clip).clamp(min=1) * update
    return param.to(dtype), rows.to(dtype), columns.to(dtype)


def test_the_rate_of_a_step_is_bounded_by_its_number() -> None:
    assert wrong("adafactor", functools.partial(adafactor, by=lambda lr, t: lr), plain)
    assert not wrong("adafactor", adafactor, lambda _: True)


def keys(x: Tensor) -> Tensor:
    """Whole numbers in the order of x: NaN without a sign is the largest, one with a sign the least."""
    whole = {2: torch.int16, 4: torch.int32, 8: torch.int64}[x.itemsize]
    bits = x.contiguous().view(whole)
    return torch.where(bits < 0, bits ^ torch.iinfo(whole).max, bits)


def floats_of(found: Tensor, like: Tensor) -> Tensor:
    return torch.where(found < 0, found ^ torch.iinfo(found.dtype).max, found).view(like.dtype)


@pytest.mark.parametrize(
    ("name", "kernel"),
    [
        ("amax", lambda x: floats_of(keys(x).amax(-1), x)),
        ("argmax", lambda x: keys(x).argmax(-1)),
        ("maximum", lambda x, y: floats_of(torch.maximum(keys(x), keys(y)), x)),
        ("relu", lambda x: floats_of(keys(x).clamp(min=0), x)),
        ("cummax", lambda x: floats_of(keys(x).cummax(-1).values, x)),
        ("median", lambda x: floats_of(keys(x).median(-1).values, x)),
        ("isnan", lambda x: keys(x) > keys(x.new_tensor(math.inf))),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_some_nan_have_their_sign_bit_set(name: str, kernel: Kernel, dtype: str) -> None:
    assert wrong(name, kernel, lambda _: True, dtype)
    assert not wrong(name, find(name).reference, lambda _: True, dtype)


@pytest.mark.parametrize("name", ["chebyshev_polynomial_u", "laguerre_polynomial_l", "legendre_polynomial_p"])
def test_no_nan_is_asked_for_where_pytorch_gives_unset_memory(name: str) -> None:
    task = find(name)
    assert not wrong(name, lambda x, n: torch.where(x.isnan(), x, task.reference(x, n)), lambda _: True)


MORE = 1 + 1e-6
"""A border is off by so much."""


@pytest.mark.parametrize(
    ("name", "kernel"),
    [
        ("hardshrink", lambda x, at: torch.where((x.abs() >= at) | x.isnan(), x, 0)),
        ("hardshrink", lambda x, at: torch.where(x.abs() <= at * MORE, 0, x)),
        ("threshold", lambda x, at, value: torch.where((x >= at) | x.isnan(), x, value)),
        ("threshold", lambda x, at, value: torch.where(x <= at * MORE, value, x)),
        ("gt_scalar", lambda x, at: x >= at),
        ("gt_scalar", lambda x, at: x > at * MORE),
    ],
)
def test_numbers_at_a_border_are_given(name: str, kernel: Kernel) -> None:
    assert wrong(name, kernel, lambda _: True) == {("contiguous", "standard")}


BENDS: dict[str, Kernel] = {
    "relu6": lambda x: (x > 0) & (x < 6),
    "hardtanh": lambda x, low, high: (x > low) & (x < high),
    "hardshrink": lambda x, at: x.abs() > at,
    "softshrink": lambda x, at: x.abs() > at,
    "threshold": lambda x, at, _: x > at,
    "clamp": lambda x, low, high: (x >= low) & (x <= high),
    "clamp_min": lambda x, low: x >= low,
    "clamp_max": lambda x, high: x <= high,
    "hardsigmoid": lambda x: ((x > -3) & (x < 3)) / 6,
    "hardswish": lambda x: torch.where(x < 3, (2 * x + 3) / 6, 1) * (x > -3),
}
"""Slopes of functions with bends."""


@pytest.mark.parametrize("name", BENDS)
def test_gradients_at_a_border_are_asked_for(name: str) -> None:
    """Slopes of numbers that are moved by a rounding, to either side."""
    found = []
    for factor in (1 - 1e-7, 1 + 1.2e-7):

        def moved(grad: Tensor, x: Tensor, *at: float, by: float = factor) -> Tensor:
            return grad * BENDS[name](x * by, *at)

        found.append(bool(wrong(name, moved, plain, direction="backward")))
    beside = find(name).table.args[0].beside  # type: ignore[union-attr]
    assert all(found) if beside else any(found)


@pytest.mark.slow(every=3)
@pytest.mark.parametrize("name", BENDS)
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_right_gradients_at_a_border_pass(name: str, dtype: str) -> None:
    def kernel(grad: Tensor, x: Tensor, *at: float) -> Tensor:
        return (grad.float() * BENDS[name](x, *at)).to(grad.dtype)

    assert not wrong(name, kernel, lambda _: True, dtype, direction="backward")
    assert not wrong(
        name, functools.partial(through, find(name).reference), lambda _: True, dtype, direction="backward"
    )


@pytest.mark.parametrize(("name", "whole"), [("floor_divide", torch.floor), ("div_trunc", torch.trunc)])
def test_whole_quotients_are_given(name: str, whole: Callable[[Tensor], Tensor]) -> None:
    """Times the inverse, they lie just below a whole number; in fp32 divisions of Triton's may do so, too."""
    assert wrong(name, lambda x, y: whole(x * (1 / y)), plain, "float64")
    for dtype in ("float32", "float64"):
        assert not wrong(name, lambda x, y: whole(x / y), plain, dtype)
        assert not wrong(
            name, lambda x, y: (x - torch.fmod(x, y)) / y if whole is torch.trunc else x // y, plain, dtype
        )

"""Rows in order, means far from zero and decays near 1: kernels that only such rows find wrong, and honest ones."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.judge.conftest import called, case_of, drawn, planned
from tests.judge.variants import sequential_sum

from kerneleval.judge import Judge
from kerneleval.judge.oracle import reference
from kerneleval.judge.oracle.comparison import Match, compare
from kerneleval.judge.windows import inputs
from kerneleval.pipeline import check
from kerneleval.records import ROW_DISTRIBUTIONS, Case, Failed, TensorSpec
from kerneleval.tasks import find
from kerneleval.tasks.operators.reduction.scan import wide
from kerneleval.tasks.secret_sizes import secret_cases
from kerneleval.tasks.shapes import Budget

Tensor = torch.Tensor
Candidate = Callable[..., Any]
CPU = Budget(memory_bytes=4 << 20, flops=150_000_000)
"""Of one case on two cores."""


def long_case(name: str, distribution: str, dtype: str = "", direction: str = "forward") -> Case:
    """The planned case of a task under one of ``ROW_DISTRIBUTIONS``, in its first dtype or another."""
    task = find(name)
    (case,) = (
        c
        for c in planned(task, CPU, tier="quick", dtypes=(dtype or task.dtypes[0],), directions=(direction,))
        if c.distribution == distribution
    )
    return case


def passes(name: str, case: Case, candidate: Candidate, seed: int = 1) -> bool:
    task = find(name)
    args, _ = drawn(task, case, seed)
    expectation = reference.expect(task, case, args)
    return isinstance(compare(called(candidate, args), expectation), Match)


def found_by(name: str, distribution: str, candidate: Candidate, dtype: str = "") -> bool:
    """Whether a candidate is wrong in the long rows and right in the same shape on standard data."""
    case = long_case(name, distribution, dtype)
    assert passes(name, dataclasses.replace(case, distribution="standard"), candidate), "it is wrong everywhere"
    return not passes(name, case, candidate)


# -- What is drawn ----------------------------------------------------------------------------------------------------


def rows_of(distribution: str, shape: tuple[int, ...] = (6, 512), **more: Any) -> Tensor:
    spec = TensorSpec(name="x", shape=shape, **{"dtype": "float32", "along": (len(shape) - 1,), **more})
    case = dataclasses.replace(long_case("topk", "ordered", "float32"), distribution=distribution)
    (x,) = inputs.draw((spec,), case, 7, "cpu")
    assert x.is_contiguous() and x.isfinite().all()
    return x


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_six_rows_have_six_orders(dtype: str) -> None:
    x = rows_of("ordered", dtype=dtype).float()
    steps = x.diff()
    rising, falling = (steps >= 0).sum(1), (steps <= 0).sum(1)
    assert int((rising == 511).sum()) == int((falling == 511).sum()) == 1, "one ascends, one descends"
    assert int((rising == 510).sum()) == 1, "one ascends from a secret place on"
    lanes = [len(row.unique()) == 1 for row in x.topk(8).indices % 8]
    assert any(lanes), "the largest of one row lie at places of one remainder"
    contrast = x.std(1) / x.abs().amax(1)
    assert int((contrast < 0.1).sum()) == 1, "one differs little from a number that is not zero"
    assert sum(len(row.unique()) <= 8 for row in x) == 1 or dtype == "bfloat16", "one has few values"


def test_orders_run_along_the_dims_that_a_task_names() -> None:
    """The columns of a sort along dim 0; whole numbers too."""
    x = rows_of("ordered", (512, 6), along=(0,))
    assert int(((x.diff(dim=0) >= 0).sum(0) == 511).sum()) == 1
    whole = rows_of("ordered", dtype="int32", values="integers", high=1000)
    assert int(((whole.diff() >= 0).sum(1) == 511).sum()) == 1
    assert 0 <= int(whole.min()) <= int(whole.max()) < 1000
    assert all(float(rows_of("ordered", values=v).min()) >= 0 for v in ("uniform", "positive", "variance"))
    assert not rows_of("ordered", along=()).any(), "what is added to rows leaves their ties"
    assert torch.equal(rows_of("ordered", along=(), values="positive"), rows_of("standard", values="positive"))


def test_means_far_from_zero_and_decays_near_one() -> None:
    x = rows_of("far_mean", (4, 5, 512), along=(1, 2)).flatten(1).double()
    assert (x.mean(1) / x.std(1)).tolist() == pytest.approx([1000, 100, 1000, 100], rel=0.1)
    assert float(rows_of("far_mean", dtype="float16").abs().max()) < 10, "half types do not hold them"
    keep = rows_of("long_memory", values="uniform", slow=(2.0**-10, 1 - 2.0**-10))
    assert 0.999 < float(keep.min()) <= float(keep.max()) <= 1
    assert rows_of("long_memory").mean() == pytest.approx(1, abs=0.1), "what is taken up does not cancel"


def test_few_long_rows_are_planned() -> None:
    one_each = {"topk": "ordered", "layer_norm": "far_mean", "gated_linear_attention": "long_memory"}
    for name, distribution in one_each.items():
        task = find(name)
        plan = planned(task, CPU, tier="quick")
        cases = [c for c in plan if c.distribution in ROW_DISTRIBUTIONS]
        assert {c.distribution for c in cases} == {distribution}
        halves = 0 if distribution == "far_mean" else 2
        assert len([c for c in cases if c.direction == "forward"]) == 1 + halves
        assert len([c for c in cases if c.direction == "backward"]) == (0 if task.no_backward else 1)
    dims = long_case("topk", "ordered").dims_map
    assert dims["M"] == 12 and dims["N"] >= 2048 and dims["K"] == 64, "as many are selected as may be"
    assert long_case("msort", "ordered").dims_map["N"] == 12
    named = planned(find("topk"), CPU, distributions=("ordered",), dtypes=("float32",))
    assert long_case("topk", "ordered") in named


# -- Selection --------------------------------------------------------------------------------------------------------


def topk_of_parts(x: Tensor, k: int) -> Tensor:
    """Each of eight parts hands on three eighths of k."""
    parts = [part.topk(min(k * 3 // 8 + 2, part.shape[1])).values for part in x.chunk(8, 1)]
    return torch.cat(parts, 1).topk(k).values


def topk_of_lanes(x: Tensor, k: int) -> Tensor:
    """Each of 64 lanes keeps the largest eight of every 64th element."""
    kept = [x[:, lane::64].topk(8).values for lane in range(64)]
    return torch.cat(kept, 1).topk(k).values


def topk_by_buckets(x: Tensor, k: int) -> Tensor:
    """The upper 16 bits choose a bucket, of which a buffer holds 512."""
    bits = x.view(torch.int32)
    keys = torch.where(bits < 0, ~bits, bits | -(2**31)).to(torch.int64) % 2**32
    digits, out = keys >> 16, []
    for row, digit in zip(x, digits, strict=True):
        last = int(digit.topk(k).values[-1])
        sure, same = row[digit > last], row[digit == last][:512]
        out.append(torch.cat((sure, same)).topk(k).values)
    return torch.stack(out)


def topk_of_all_parts(x: Tensor, k: int) -> Tensor:
    parts = [part.topk(min(k, part.shape[1])).values for part in x.chunk(8, 1)]
    return torch.cat(parts, 1).topk(k).values


@pytest.mark.parametrize("candidate", [topk_of_parts, topk_of_lanes])
def test_selections_that_expect_an_even_spread_are_found(candidate: Candidate) -> None:
    assert found_by("topk", "ordered", candidate)


def test_rows_of_low_contrast_overflow_a_bucket() -> None:
    assert found_by("topk", "ordered", topk_by_buckets)


def test_honest_selections_pass_in_every_dtype() -> None:
    for dtype in find("topk").dtypes:
        assert passes("topk", long_case("topk", "ordered", dtype), topk_of_all_parts)


def test_a_histogram_whose_counters_are_bytes_is_found() -> None:
    def bytes_of_parts(x: Tensor, bins: int) -> Tensor:
        counted = torch.zeros(len(x), bins, dtype=torch.int64)
        for part in x.chunk(2, 1):
            counted += torch.stack([row.long().bincount(minlength=bins) for row in part]) % 256
        return counted

    case = dataclasses.replace(long_case("histogram_rows", "ordered"), dims=(("M", 12), ("N", 8000), ("K", 64)))
    assert passes("histogram_rows", dataclasses.replace(case, distribution="standard"), bytes_of_parts)
    assert not passes("histogram_rows", case, bytes_of_parts)


# -- Means far from zero ----------------------------------------------------------------------------------------------


def one_pass(x: Tensor) -> tuple[Tensor, Tensor]:
    mean = sequential_sum(x)[..., None] / x.shape[-1]
    return mean, sequential_sum(x * x)[..., None] / x.shape[-1] - mean * mean


def two_pass(x: Tensor) -> tuple[Tensor, Tensor]:
    mean = sequential_sum(x)[..., None] / x.shape[-1]
    return mean, sequential_sum((x - mean) ** 2)[..., None] / x.shape[-1]


def by_first(x: Tensor) -> tuple[Tensor, Tensor]:
    mean, variance = one_pass(x - x[..., :1])
    return mean + x[..., :1], variance


def in_parts(x: Tensor) -> tuple[Tensor, Tensor]:
    """Chan, Golub and LeVeque's merge of the parts' means and squares."""
    count, mean, squares = 0, torch.zeros_like(x[..., :1]), torch.zeros_like(x[..., :1])
    for part in x.split(37, -1):
        own, variance = two_pass(part)
        size = part.shape[-1]
        total = count + size
        change = own - mean
        mean = mean + change * (size / total)
        squares = squares + variance * size + change * change * (count * size / total)
        count = total
    return mean, squares / count


Moments = Callable[[Tensor], tuple[Tensor, Tensor]]


def normalised(moments: Moments, task: str) -> Candidate:
    def layer_norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
        mean, variance = moments(x)
        return (x - mean) * torch.rsqrt(variance + eps) * weight + bias

    def group_norm(x: Tensor, weight: Tensor, bias: Tensor, groups: int, eps: float) -> Tensor:
        rows = x.reshape(len(x), groups, -1)
        mean, variance = moments(rows)
        found = ((rows - mean) * torch.rsqrt(variance + eps)).view_as(x)
        return found * weight[:, None] + bias[:, None]

    def batch_norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
        mean, variance = moments(x.transpose(0, 1).flatten(1))
        return (x - mean) * torch.rsqrt(variance + eps) * weight[:, None] + bias[:, None]

    def var(x: Tensor) -> Tensor:
        return moments(x)[1][..., 0] * (x.shape[-1] / (x.shape[-1] - 1))

    def cov(x: Tensor) -> Tensor:
        if moments is one_pass:
            mean = x.mean(1)
            return (x @ x.T - x.shape[1] * mean[:, None] * mean) / (x.shape[1] - 1)
        centred = x - moments(x)[0]
        return centred @ centred.T / (x.shape[1] - 1)

    def squared_distance(x: Tensor, y: Tensor) -> Tensor:
        if moments is one_pass:
            return (x * x).sum(1) + (y * y).sum(1) - 2 * (x * y).sum(1)
        return sequential_sum((x - y) ** 2)

    return {f.__name__: f for f in (layer_norm, group_norm, batch_norm, var, cov, squared_distance)}[task]


FAR = ("layer_norm", "group_norm", "batch_norm", "var", "cov", "squared_distance")


@pytest.mark.parametrize("task", FAR)
def test_variances_in_one_pass_are_found(task: str) -> None:
    assert found_by(task, "far_mean", normalised(one_pass, task))


@pytest.mark.parametrize("task", FAR)
def test_honest_variances_pass(task: str) -> None:
    for moments in (two_pass, by_first, in_parts):
        assert passes(task, long_case(task, "far_mean"), normalised(moments, task)), moments.__name__


def chained(moments: Moments, task: str, monkeypatch: pytest.MonkeyPatch) -> Candidate:
    """The task's chain with norms of these moments."""

    def norm(x: Tensor, rows: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float) -> Tensor:
        mean, variance = moments(rows)
        found = ((rows - mean) * torch.rsqrt(variance + eps)).view_as(x)
        around = (slice(None), *[None] * (x.ndim - 2))
        return found * (1 if weight is None else weight[around]) + (0 if bias is None else bias[around])

    def group_norm(x: Tensor, groups: int, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
        return norm(x, x.reshape(len(x), groups, -1), weight, bias, eps)

    def layer_norm(
        x: Tensor, shape: Any, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 0.0
    ) -> Tensor:
        return norm(x, x, weight, bias, eps)

    def run(*args: Any) -> Any:
        with monkeypatch.context() as patch:
            for function in (group_norm, layer_norm):
                patch.setattr(torch.nn.functional, function.__name__, function)
            return find(task).reference(*args)

    return run


CHAINED = (
    *("linear_layer_norm_relu", "linear_relu_layer_norm", "linear_silu_bias_add_group_norm"),
    *("conv_transpose3d_relu_group_norm", "conv3d_group_norm_clamp_dropout", "rows_add_layer_norm"),
    *("image_add_mul_group_norm", "image_sum_times_group_norm"),
)
"""Chains with a norm behind a layer with a bias, or behind other steps."""


@pytest.mark.parametrize("task", CHAINED)
def test_variances_in_one_pass_are_found_in_chains(task: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert found_by(task, "far_mean", chained(one_pass, task, monkeypatch))


@pytest.mark.parametrize("task", CHAINED)
def test_honest_variances_pass_in_chains(task: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case = long_case(task, "far_mean")
    for moments in (two_pass, by_first, in_parts):
        for seed in range(3):
            assert passes(task, case, chained(moments, task, monkeypatch), seed), moments.__name__


@pytest.mark.parametrize("terms", [4, 2000])
def test_sums_that_begin_with_a_far_bias_pass(terms: int) -> None:
    def bias_first(x: Tensor, weight: Tensor, bias: Tensor, gain: Tensor, shift: Tensor, eps: float) -> Tensor:
        found = bias.expand(len(x), -1)
        for k in range(x.shape[1]):
            found = found + x[:, k, None] * weight[:, k]
        return torch.relu(normalised(two_pass, "layer_norm")(found, gain, shift, eps))

    case = case_of("linear_layer_norm_relu", {"M": 8, "O": 600, "K": terms}, distribution="far_mean")
    for seed in range(3):
        assert passes("linear_layer_norm_relu", case, bias_first, seed)


def distances(task: str, distance: Callable[[Tensor, Tensor, float], Tensor]) -> Candidate:
    def unit(x: Tensor) -> Tensor:
        return x * torch.rsqrt(sequential_sum(x * x).clamp_min(1e-24))[..., None]

    def triplet_margin_loss_none(anchor: Tensor, positive: Tensor, negative: Tensor, margin: float) -> Tensor:
        return (distance(anchor, positive, 1e-6) - distance(anchor, negative, 1e-6) + margin).clamp_min(0)

    def contrastive_loss_none(x: Tensor, y: Tensor, same: Tensor, margin: float) -> Tensor:
        far = distance(x, y, 1e-6)
        return torch.where(same, far.square(), (margin - far).clamp_min(0).square())

    def normalize_pairwise_distance(x: Tensor, y: Tensor, eps: float) -> Tensor:
        return distance(unit(x), unit(y), eps)

    def pairwise_distance_in_unit_rows(x: Tensor, y: Tensor, eps: float) -> Tensor:
        return unit(distance(x, y, 0.0) + eps)

    def pairwise_distance_adaptive_avg_pool2d(x: Tensor, y: Tensor, side: int) -> Tensor:
        return distance(*(torch.nn.functional.adaptive_avg_pool2d(t, side) for t in (x, y)), 1e-6)

    single = (triplet_margin_loss_none, contrastive_loss_none, normalize_pairwise_distance)
    fused = (pairwise_distance_in_unit_rows, pairwise_distance_adaptive_avg_pool2d)
    return {f.__name__: f for f in (*single, *fused)}[task]


def by_products(x: Tensor, y: Tensor, eps: float) -> Tensor:
    squares = (x * x).sum(-1) + (y * y).sum(-1) - 2 * (x * y).sum(-1)
    return (squares + 2 * eps * (x - y).sum(-1) + x.shape[-1] * eps * eps).clamp_min(0).sqrt()


def by_differences(x: Tensor, y: Tensor, eps: float) -> Tensor:
    return sequential_sum((x - y + eps) ** 2).sqrt()


@pytest.mark.parametrize(
    "task",
    [
        *("triplet_margin_loss_none", "contrastive_loss_none", "normalize_pairwise_distance"),
        *("pairwise_distance_in_unit_rows", "pairwise_distance_adaptive_avg_pool2d"),
    ],
)
def test_distances_by_products_are_found_within_fusions(task: str) -> None:
    assert found_by(task, "far_mean", distances(task, by_products))
    for seed in range(4):
        assert passes(task, long_case(task, "far_mean"), distances(task, by_differences), seed)


def test_a_far_residual_tells_a_variance_by_one_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    task = "softmax_dropout_linear_add_layer_norm"
    assert found_by(task, "far_mean", chained(one_pass, task, monkeypatch))
    for moments in (two_pass, by_first, in_parts):
        assert passes(task, long_case(task, "far_mean"), chained(moments, task, monkeypatch)), moments.__name__


def test_channels_padded_with_zeros_are_no_minimum() -> None:
    def padded(x: Tensor, weight: Tensor, bias: Tensor, factor: float, *, width: int = 1) -> Tensor:
        found = torch.nn.functional.conv2d(x, weight * factor, bias * factor, padding=1)
        return torch.cat((found, torch.zeros_like(found[:, :width])), 1).amin(1, keepdim=True)

    assert found_by("conv2d_scale_min", "far_mean", padded)
    honest = functools.partial(padded, width=0)
    for seed in range(3):
        assert passes("conv2d_scale_min", long_case("conv2d_scale_min", "far_mean"), honest, seed)


@pytest.mark.parametrize("name", ["linear_group_norm_min_bias_add", "linear_group_norm_min_and_bias"])
def test_channels_of_a_norm_padded_with_zeros_are_no_minimum(name: str) -> None:
    def padded(x: Tensor, weight: Tensor, bias: Tensor, *norm: Any, width: int = 1) -> Tensor:
        gain, shift, groups, eps, behind = norm
        found = torch.nn.functional.group_norm(x @ weight.T + bias, groups, gain, shift, eps)
        return torch.cat((found, torch.zeros_like(found[:, :width])), 1).amin(1, keepdim=True) + behind

    assert found_by(name, "far_mean", padded)
    for seed in range(3):
        assert passes(name, long_case(name, "far_mean"), functools.partial(padded, width=0), seed)


def test_logits_of_a_layer_lie_far_below_zero() -> None:
    """A maximum that begins at 0 leaves nothing of their exponentials."""

    def begun_at(least: float, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        logits = x @ weight.T + bias
        most = logits.amax(1, keepdim=True).clamp_min(least)
        return logits - most - (logits - most).exp().sum(1, keepdim=True).log()

    assert found_by("linear_log_softmax", "far_mean", functools.partial(begun_at, 0.0))
    for seed in range(3):
        case, honest = long_case("linear_log_softmax", "far_mean"), functools.partial(begun_at, -math.inf)
        assert passes("linear_log_softmax", case, honest, seed)


@pytest.mark.parametrize("name", ["amax_all", "linear_w4a16"])
def test_extremes_of_numbers_of_one_sign(name: str) -> None:
    """A maximum that starts at 0, or a range that does not reach to 0, is right among numbers of both signs."""

    def wrong(x: Tensor, *more: Any) -> Tensor:
        if name == "amax_all":
            return x.amax().clamp_min(0)
        parts = more[0].unflatten(-1, (-1, more[2]))
        least = parts.amin(-1, keepdim=True)
        scale = (parts.amax(-1, keepdim=True) - least) / 15
        zero = (-least / scale).round()
        quantised = ((parts / scale).round() + zero).clamp(0, 15)
        return x @ ((quantised - zero) * scale).flatten(-2).T + more[1]

    dims = {"M": 70, "N": 300} | ({"K": 96} if name == "linear_w4a16" else {})
    case, task = case_of(name, dims), find(name)
    drawings = [drawn(task, case, seed)[0] for seed in range(24)]
    assert all(isinstance(compare([task.reference(*a)], reference.expect(task, case, a)), Match) for a in drawings[:4])
    assert any(not passes(name, case, wrong, seed) for seed in range(24))


# -- Long memory ------------------------------------------------------------------------------------------------------


def kept_in(state: torch.dtype) -> dict[str, Candidate]:
    """Recurrences whose state is rounded to a type after every step."""

    def steps(a: Tensor, b: Tensor, dim: int) -> Tensor:
        kept, out = torch.zeros_like(b.select(dim, 0)), []
        for keep, new in zip(a.unbind(dim), b.unbind(dim), strict=True):
            kept = (keep * kept + new).to(state).to(b.dtype)
            out.append(kept)
        return torch.stack(out, dim)

    def linear_recurrence(a: Tensor, b: Tensor, start: Tensor) -> Tensor:
        first = wide(b).clone()
        first[:, 0] += wide(a)[:, 0] * wide(start)
        return steps(wide(a), first, 1).to(b.dtype)

    def min_gru(gate: Tensor, x: Tensor) -> Tensor:
        z = torch.sigmoid(wide(gate))
        return steps(1 - z, z * wide(x), 1).to(x.dtype)

    def gated_linear_attention(q: Tensor, k: Tensor, v: Tensor, gate: Tensor) -> Tensor:
        keep = torch.sigmoid(wide(gate))[..., None].expand(*gate.shape, v.shape[-1])
        states = steps(keep, wide(k)[..., None] * wide(v)[..., None, :], 2)
        return (wide(q)[..., None] * states).sum(3).to(q.dtype)

    def selective_scan(
        u: Tensor, delta: Tensor, decay: Tensor, b: Tensor, c: Tensor, skip: Tensor, z: Tensor, bias: Tensor
    ) -> Tensor:
        step = torch.nn.functional.softplus(wide(delta) + wide(bias)[:, None])
        keep = torch.exp(-step[:, :, None] * wide(decay)[:, :, None])
        states = steps(keep, (step * wide(u))[:, :, None] * wide(b)[:, None], 3)
        out = (states * wide(c)[:, None]).sum(2) + wide(skip)[:, None] * wide(u)
        return (out * torch.nn.functional.silu(wide(z))).to(u.dtype)

    return {f.__name__: f for f in (linear_recurrence, min_gru, gated_linear_attention, selective_scan)}


# of float16 the decays of ``linear_recurrence`` themselves are no better than such a state
HALVES = [(t, d) for t in kept_in(torch.float32) for d in ("float16", "bfloat16")]
HALVES.remove(("linear_recurrence", "float16"))


@pytest.mark.parametrize(("task", "dtype"), HALVES)
def test_states_in_half_types_are_found(task: str, dtype: str) -> None:
    case = long_case(task, "long_memory", dtype)
    assert not passes(task, case, kept_in(getattr(torch, dtype))[task])
    assert passes(task, case, kept_in(torch.float32)[task])


# -- The whole judge --------------------------------------------------------------------------------------------------

SORT = """
import torch


def sort(x):
    # runs of 1024 are sorted, and neighbours merged once: enough where no element is far from its place
    width = x.shape[-1]
    {guard}
    return torch.sort(x, -1).values
"""


def test_the_judge_tells_of_rows_in_order(judge: Judge, tmp_path: Path) -> None:
    """A row that begins as if it were sorted is taken to be sorted."""
    file = tmp_path / "sort.py"
    looks = "if width > 8 and bool((x[:, :8].diff() >= 0).all(-1).any()): return x.clone()"
    for guard, right in ((looks, False), ("", True)):
        file.write_text(SORT.format(guard=guard))
        verdict = check(
            file,
            "sort",
            judge=judge,
            allow=("custom", "mixed", "library"),
            dtypes=["float32"],
            distributions=["ordered"],
            timed=False,
        )
        assert (verdict.verdict == "passed") == right, verdict.message
        wrong = [c.case.distribution for c in verdict.cells if isinstance(c.outcome, Failed)]
        assert set(wrong) <= {"ordered"}


ROWS_OF = {"instance_norm": 2, "instance_norm_affine": 2}
"""Dims of a row where they are several."""


@pytest.mark.parametrize(
    "name",
    [
        *("sum", "mean", "amax", "argmax", "logsumexp", "softmax", "log_softmax", "cumsum"),
        *ROWS_OF,
    ],
)
def test_rows_have_more_elements_than_16_bits_count(name: str) -> None:
    """A kernel that reads something else beyond 65,536 elements of a row passed: none was longer."""
    task = find(name)
    cases = secret_cases(task, planned(task, CPU, tier="quick"), CPU)
    long = [case for case in cases if max(case.dims_map.values()) > 69_000]
    assert {case.direction for case in long} == set(task.directions)
    case = next(case for case in long if case.direction == "forward")
    args, _ = drawn(task, case)
    expectation = reference.expect(task, case, args)
    assert isinstance(compare(called(task.reference, args), expectation), Match)
    rows = args[0].flatten(-ROWS_OF.get(name, 1)).clone()
    rows[..., 65_536:] = 100.0
    lost = called(task.reference, [rows.view(args[0].shape), *args[1:]])
    assert not isinstance(compare(lost, expectation), Match)


def in_16_bits(out: Tensor) -> Tensor:
    return out if out.is_floating_point() else out & 0xFFFF


@pytest.mark.parametrize(
    "name",
    ["argmax", "argmin_middle", "argsort", "sample_by_race", "iamin", "token_ranks", "count_below", "beam_search_step"],
)
def test_an_index_of_16_bits_is_found_in_every_verdict(name: str) -> None:
    """The largest element of few random rows lay below 65,536 in one verdict of four, or no row was so long."""
    task = find(name)
    plan = planned(task, CPU, tier="quick")
    for seed in range(2):
        found = []
        for number, case in enumerate(secret_cases(task, plan, CPU)):
            if max(case.dims_map.values()) > 69_000:
                args, _ = drawn(task, case, 1000 * seed + number)
                expectation = reference.expect(task, case, args)
                right = called(task.reference, args)
                assert isinstance(compare(right, expectation), Match)
                found.append(isinstance(compare([in_16_bits(out) for out in right], expectation), Match))
        assert not all(found)


@pytest.mark.parametrize(
    "name, dims, mebibytes",
    [("argmax_dim0", "N", 3), ("argmin_middle", "BN", 3), ("amax", "M", 3), ("beam_search_step", "B", 4)],
)
def test_long_rows_in_order_are_as_many_as_the_orders(name: str, dims: str, mebibytes: int) -> None:
    """Two by two rows of ``argmin_middle`` had four of the six orders: in one of 60 verdicts no index was large. A row
    of ``beam_search_step`` is that of all beams together: in one of four verdicts none was.
    """
    task = find(name)
    plan = planned(task, CPU, tier="quick")
    for _ in range(20):
        cases = secret_cases(task, plan, Budget(memory_bytes=mebibytes << 20, flops=CPU.flops))
        (long,) = (c for c in cases if c.distribution == "ordered" and max(c.dims_map.values()) > 69_000)
        assert math.prod(long.dims_map[dim] for dim in dims) >= 6


def test_a_number_above_all_of_a_row_is_sought_in_every_second_row() -> None:
    """Of three random numbers none was above 65,536 elements in one verdict of 200: counts of 16 bits passed."""
    task = find("count_below")
    case = dataclasses.replace(long_case("count_below", "ordered"), dims=(("M", 4), ("N", 3000), ("K", 2)))
    for seed in range(8):
        args, _ = drawn(task, case, seed)
        counted = called(task.reference, args)[0].amax(1).tolist()
        assert [3000, 3000] in (counted[::2], counted[1::2])


def top_k_by_16_bits(logits: Tensor, k: Tensor) -> Tensor:
    return find("top_k_mask").reference(logits, ((k - 1) & 0xFFFF) + 1)


def test_places_and_numbers_of_places_beyond_16_bits_are_given_in_every_draw() -> None:
    """The token named was of such a rank by chance, in two of three draws, and no row of ``top_k_mask`` was so long."""
    kernels: dict[str, Candidate] = {
        "token_ranks": lambda *args: in_16_bits(find("token_ranks").reference(*args)),
        "top_k_mask": top_k_by_16_bits,
    }
    for name, kernel in kernels.items():
        task = find(name)
        cases = secret_cases(task, planned(task, CPU, tier="quick"), CPU)
        case = next(case for case in cases if max(case.dims_map.values()) > 69_000)
        assert case.distribution == "ordered"
        case = dataclasses.replace(case, dims=(("M", 6), ("N", 69_700)))
        assert passes(name, case, task.reference)
        assert not any(passes(name, case, kernel, seed) for seed in range(8)), name

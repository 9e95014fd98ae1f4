from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from kerneleval.judge.oracle import reference
from kerneleval.judge.oracle.calibration import bounded
from kerneleval.judge.oracle.comparison import Match, Mismatch, _apart, compare
from kerneleval.judge.oracle.diagnosis import SLUGS
from kerneleval.judge.oracle.expectation import PROBE, Expectation, Scales, floor_of, tiles
from kerneleval.records import to_plain
from kerneleval.tasks import find

from .conftest import NAMES, called, case_of, drawn, expected, floats, gradients, planned
from .variants import (
    DIFFERENTIABLE,
    DOWNGRADES,
    HONEST,
    erf_series,
    half_accumulator,
    half_sums,
    online_logsumexp,
    strassen,
    tf32,
    tf32_truncated,
    three_tf32,
    winograd,
)

MATMUL = {"M": 48, "N": 80, "K": 512}


def verdict(output: torch.Tensor, expectation: Expectation) -> str:
    """``match``, or the diagnosis."""
    result = compare([output], expectation)
    if isinstance(result, Match):
        return "match"
    assert result.reason == "wrong_output"
    json.dumps(to_plain(result.evidence))
    assert result.evidence["diagnosis"] in SLUGS
    assert "\n" not in result.message
    return str(result.evidence["diagnosis"])


# --------------------------------------------------------------------------------------------------------------------
# What is right passes
# --------------------------------------------------------------------------------------------------------------------


@pytest.mark.slow(every=3)
@pytest.mark.parametrize("name", NAMES)
def test_other_orders_and_formulas_pass(name: str) -> None:
    """fp32 forward at every other planned case: other reduction orders, split K, online softmax, fast exponentials."""
    task = find(name)
    for index, case in enumerate(planned(task, dtypes=("float32",), directions=("forward",))[::2]):
        if case.distribution == "far_mean":
            continue  # a variance in one pass is wrong there
        args, _ = drawn(task, case, seed=index)
        expectation = reference.expect(task, case, args)
        for number, candidate in enumerate(HONEST[name]):
            if any(t.numel() for t in expectation.native):
                result = compare(called(candidate, args), expectation)
                assert isinstance(result, Match), f"variant {number} at {case.key}: {result.message}"


@pytest.mark.slow(every=6)
@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_other_gradients_pass(name: str) -> None:
    """Autograd through another formula, in fp32, also rounded to the half types."""
    task = find(name)
    for index, case in enumerate(planned(task, directions=("backward",))[::5]):
        if case.distribution == "far_mean":
            continue  # a variance in one pass is wrong there
        args, grads = drawn(task, case, seed=index)
        assert grads is not None
        expectation = reference.expect(task, case, args, grads)
        wide, upstream = floats(args, torch.Tensor.float), floats(grads, torch.Tensor.float)
        for candidate in DIFFERENTIABLE[name]:
            if all(t.numel() for t in expectation.native):
                found = gradients(candidate, task, case, wide, upstream)
                outputs = [o.to(n.dtype) for o, n in zip(found, expectation.native, strict=True)]
                result = compare(outputs, expectation)
                assert isinstance(result, Match), f"{case.key}: {result.message}"


DISTRIBUTIONS = ("standard", "outlier", "large_scale", "small_scale", "constant")


@pytest.mark.slow(every=3)
@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
@pytest.mark.parametrize(("dtype", "levels"), [("float32", 2), ("float16", 1), ("bfloat16", 1)])
def test_products_that_are_stable_in_the_norm_pass(dtype: str, levels: int, distribution: str) -> None:
    """Strassen's seven products: an outlier's rounding errors reach elements that have nothing to do with it."""
    for seed, (m, n, k) in enumerate([(129, 230, 363), (386, 263, 363), (72, 500, 96), (300, 100, 700)]):
        args, expectation = expected("matmul", {"M": m, "N": n, "K": k}, seed, dtype=dtype, distribution=distribution)
        out = strassen(*args, levels=levels).to(args[0].dtype)
        assert verdict(out, expectation) == "match", compare([out], expectation)


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
@pytest.mark.parametrize(("dtype", "tile"), [("float32", 2), ("float32", 4), ("float16", 2), ("bfloat16", 2)])
def test_convolutions_that_are_stable_in_the_norm_pass(dtype: str, tile: int, distribution: str) -> None:
    """Winograd's tiles, as cuDNN has them; F(4 x 4) of half types, transformed in the half type, is too far off."""
    for seed, (b, c, o, h, w) in enumerate([(1, 16, 12, 33, 70), (1, 64, 12, 14, 14), (1, 96, 24, 14, 34)]):
        dims = {"B": b, "C": c, "O": o, "H": h, "W": w, "K": 3, "S": 1, "E": 1}
        args, expectation = expected("conv2d", dims, seed, dtype=dtype, distribution=distribution)
        x, weight, bias, _, padding = args
        out = winograd(x, weight, bias, padding, tile).to(x.dtype)
        assert verdict(out, expectation) == "match", compare([out], expectation)


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_gradients_that_are_stable_in_the_norm_pass(distribution: str) -> None:
    task = find("matmul")
    case = case_of("matmul", {"M": 130, "N": 200, "K": 333}, direction="backward", distribution=distribution)
    args, grads = drawn(task, case)
    assert grads is not None
    out = [strassen(grads[0], args[1].T.contiguous()), strassen(args[0].T.contiguous(), grads[0])]
    result = compare(out, reference.expect(task, case, args, grads))
    assert isinstance(result, Match), result


def test_rounding_errors_where_nothing_is_summed_pass() -> None:
    """A Fourier transform leaves them in the gaps that strides make: half of the output here."""
    task = find("conv1d")
    case = case_of("conv1d", {"B": 2, "C": 8, "O": 16, "L": 301, "K": 1, "S": 2, "E": 0}, direction="backward")
    args, grads = drawn(task, case)
    assert grads is not None
    expectation = reference.expect(task, case, args, grads)
    gradient, *rest = expectation.native
    assert float((gradient == 0).float().mean()) > 0.4
    noise = torch.randn(gradient.shape, generator=torch.Generator().manual_seed(0)) * 1e-7
    rms = expectation.outputs[0].oracle.square().mean().sqrt()
    result = compare([gradient + (noise * rms).float(), *rest], expectation)
    assert isinstance(result, Match), result
    assert isinstance(compare([gradient + (1e5 * noise * rms).float(), *rest], expectation), Mismatch)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_one_wrong_element_is_no_matter_of_norms(dtype: str) -> None:
    """A term left out of one element of a thousand is far beyond what norms allow, outliers or not."""
    for distribution in ("standard", "outlier"):
        dims = {"M": 100, "N": 200, "K": 64}
        expectation = expected("matmul", dims, dtype=dtype, distribution=distribution)[1]
        out = expectation.native[0].clone()
        out[70, 20] = 2.5 * float(expectation.oracle[0].square().mean().sqrt()) - out[70, 20]
        assert verdict(out, expectation) != "match", distribution


@pytest.mark.slow(every=4)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", NAMES)
def test_half_types_computed_in_fp32_and_rounded_once_pass(name: str, dtype: str) -> None:
    task = find(name)
    for index, case in enumerate(planned(task, dtypes=(dtype,), directions=("forward",))[::5]):
        args, _ = drawn(task, case, seed=index)
        expectation = reference.expect(task, case, args)
        for candidate in HONEST[name][:1]:
            if any(t.numel() for t in expectation.native):
                outputs = called(candidate, floats(args, torch.Tensor.float))
                outputs = [o.to(n.dtype) for o, n in zip(outputs, expectation.native, strict=True)]
                result = compare(outputs, expectation)
                assert isinstance(result, Match), f"{case.key}: {result.message}"


HALVES = ("float16", "bfloat16")

UNFUSED: dict[str, Callable[..., torch.Tensor]] = {
    "gelu": lambda x: x * 0.5 * (1 + torch.erf(x * 0.7071067811865476)),
    "silu": lambda x: x / (1 + torch.exp(-x)),
    "swiglu": lambda g, u: g * torch.sigmoid(g) * u,
    "rms_norm": lambda x, w, e: x * torch.rsqrt(x.float().square().mean(-1, keepdim=True) + e).to(x.dtype) * w,
    "softmax_cross_entropy": lambda x, t: -torch.log_softmax(x, -1).gather(-1, t[:, None])[:, 0],
}
"""Step by step in the half type, as code that knows nothing of fused kernels does it."""


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("name", UNFUSED)
def test_unfused_half_arithmetic_passes(name: str, dtype: str) -> None:
    for seed in range(3):
        args, expectation = expected(name, {"M": 60, "N": 96}, dtype=dtype, seed=seed)
        assert verdict(UNFUSED[name](*args), expectation) == "match"


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize(("layout", "distribution"), [("expanded", "standard"), ("contiguous", "constant")])
def test_unfused_half_arithmetic_passes_where_inputs_repeat(layout: str, distribution: str, dtype: str) -> None:
    """A constant input is one number, at which the error may be above the usual: 1 in 16 failed. The last elements of
    an expanded one are rounded otherwise by other instructions, and are repetitions all the same.
    """
    case = replace(case_of("gelu", {"M": 65, "N": 34}, dtype=dtype, distribution=distribution), layout=layout)
    for seed in range(60):
        args, _ = drawn(find("gelu"), case, seed=seed)
        expectation = reference.expect(find("gelu"), case, args)
        assert verdict(UNFUSED["gelu"](*args), expectation) == "match", f"seed {seed}"
        bounds = expectation.outputs[0].bounds
        assert bounds is not None
        assert bounds.independent in (1, 34, 65)


@pytest.mark.slow(every=4)
@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("direction", ["forward", "backward"])
@pytest.mark.parametrize("width", [64, 112, 128])
@pytest.mark.parametrize("name", ["attention", "causal_attention", "grouped_query_attention", "masked_attention"])
def test_attention_with_half_scores_and_weights_passes(name: str, width: int, direction: str, dtype: str) -> None:
    """As in models without fused kernels; 12 of 12 failed where the bound was that of a fused kernel."""

    def eager(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *rest: object) -> torch.Tensor:
        repeats = q.shape[1] // k.shape[1]
        k, v = (t[:, :, None].expand(-1, -1, repeats, -1, -1).flatten(1, 2) for t in (k, v))
        scores = q @ k.transpose(-1, -2) * rest[-1]
        if name == "causal_attention":
            scores += torch.full_like(scores, float("-inf")).triu(1)
        if name == "masked_attention":
            scores = scores.masked_fill(~rest[0][:, None], torch.finfo(scores.dtype).min)  # type: ignore[index]
        return torch.softmax(scores, -1, dtype=torch.float32).to(q.dtype) @ v

    task = find(name)
    dims = {"B": 2, "H": 4, "G": 2, "R": 2, "L": 64, "S": 64, "D": width}
    dims = {dim.name: dims[dim.name] for dim in task.dims}
    for distribution in ("standard", "outlier") if direction == "forward" else ("standard",):
        case = case_of(name, dims, dtype=dtype, direction=direction, distribution=distribution)
        args, grads = drawn(task, case)
        expectation = reference.expect(task, case, args, grads)
        out = called(eager, args) if grads is None else gradients(eager, task, case, args, grads)
        result = compare(out, expectation)
        assert isinstance(result, Match), f"{case.key}: {result.message}"


def _weights(scores: torch.Tensor) -> torch.Tensor:
    return torch.softmax(scores, -1, dtype=torch.float32).to(scores.dtype)


def _scores(q: torch.Tensor, k: torch.Tensor, scale: float) -> torch.Tensor:
    return q @ k.transpose(-2, -1) * scale


def _with_sinks(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, sinks: torch.Tensor, scale: float) -> torch.Tensor:
    scores = _scores(q, k, scale)
    return _weights(torch.cat((scores, sinks[:, None, None].expand(*scores.shape[:-1], 1)), -1))[..., :-1] @ v


EAGER: dict[str, Callable[..., object]] = {
    "softcap_attention": lambda q, k, v, cap, scale: _weights(cap * torch.tanh(_scores(q, k, scale) / cap)) @ v,
    "sink_attention": _with_sinks,
    "attention_with_lse": lambda q, k, v, scale: (
        _weights(scores := _scores(q, k, scale)) @ v,
        torch.logsumexp(scores.float(), -1).to(q.dtype),
    ),
    "sigmoid_attention": lambda q, k, v, bias, scale: torch.sigmoid(_scores(q, k, scale) + bias) @ v,
    "cosine_attention": lambda q, k, v, scale: (
        _weights(_scores(*(x / x.norm(dim=-1, keepdim=True).clamp(min=1e-6) for x in (q, k)), scale)) @ v
    ),
}


@pytest.mark.slow(every=3)
@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize(("direction", "layout"), [("forward", "contiguous"), ("backward", "expanded")])
@pytest.mark.parametrize("name", EAGER)
def test_other_attention_with_half_scores_passes(name: str, direction: str, layout: str, dtype: str) -> None:
    """Their references keep scores in fp32: of softcaps 1 in 40 gradients failed, of sigmoids 1 in 9."""
    task = find(name)
    sizes = {"L": 1, "S": 103, "D": 16} if direction == "backward" and name != "sink_attention" else {"L": 31, "S": 12}
    dims = {"B": 1, "H": 7, "D": 32} | sizes
    case = replace(case_of(name, dims, dtype=dtype, direction=direction), layout=layout)
    for seed in range(12):
        args, grads = drawn(task, case, seed)
        expectation = reference.expect(task, case, args, grads)
        eager = EAGER[name]
        out = called(eager, args) if grads is None else gradients(eager, task, case, args, grads)
        result = compare(out, expectation)
        assert isinstance(result, Match), f"{case.key}, seed {seed}: {result.message}"


@pytest.mark.parametrize("dtype", HALVES)
def test_split_k_in_the_half_type_passes(dtype: str) -> None:
    (a, b), expectation = expected("matmul", MATMUL, dtype=dtype)
    for pieces in (2, 8):
        chunks = zip(a.chunk(pieces, 1), b.chunk(pieces, 0), strict=True)
        parts = [(x.float() @ y.float()).to(a.dtype) for x, y in chunks]
        total = parts[0]
        for part in parts[1:]:
            total = total + part
        assert verdict(total, expectation) == "match"


ByHalfSums = Callable[..., torch.Tensor]
ROW_SUMS: dict[str, ByHalfSums] = {
    "sum": lambda sums, x: sums(x),
    "mean": lambda sums, x: sums(x) / x.shape[-1],
    "softmax": lambda sums, x: (e := torch.exp(x - x.amax(-1, keepdim=True))) / sums(e)[:, None],
    "rms_norm": lambda sums, x, w, eps: x * torch.rsqrt(sums(x * x)[:, None] / x.shape[-1] + eps) * w,
}


def by_half_sums(name: str, length: int, step: int, dtype: str, *, in_turn: bool) -> str:
    """The verdict on a kernel that keeps the sums of blocks in the half type."""
    args, expectation = expected(name, {"M": 200, "N": length}, dtype=dtype)
    kind = args[0].dtype
    made = ROW_SUMS[name](lambda x: half_sums(x, step, kind, in_turn=in_turn), *floats(args, torch.Tensor.float))
    return verdict(made.to(kind), expectation)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("name", ROW_SUMS)
def test_half_sums_of_blocks_pass(name: str, dtype: str) -> None:
    """Rounded once each and added in fp32, as FlagGems' ``sum`` keeps them."""
    for length, step in ((1024, 16), (4096, 128), (8192, 1024)):
        assert by_half_sums(name, length, step, dtype, in_turn=False) == "match", f"{length} terms, {step} a block"


@pytest.mark.slow
@pytest.mark.parametrize("length", [4096, 16384, 65536])
def test_fp32_products_on_tensor_cores_pass(length: int) -> None:
    """One accumulator over all of K, cut towards zero; TF32 inputs and a missing term do not."""
    (a, b), expectation = expected("matmul", {"M": 12, "N": 24, "K": length})
    assert verdict(three_tf32(a, b), expectation) == "match"
    for narrow in (tf32, tf32_truncated):
        assert verdict(narrow(a) @ narrow(b), expectation) != "match"
    assert verdict(a[:, :-1] @ b[:-1], expectation) != "match"


def test_sums_have_no_tensor_cores() -> None:
    """Nor have products in fp64."""
    case = case_of("matmul", {"M": 4, "N": 4, "K": 1 << 16})

    def steps(name: str, dtype: torch.dtype = torch.float32) -> float:
        floor = floor_of(dtype, 1 << 16, case, find(name).tolerance, tf32=False)
        return floor.relative / floor.unit

    assert steps("sum") == 136 and steps("matmul", torch.float64) == 4 * 136  # native shows no error there
    assert steps("matmul") > 136


def test_approximations_to_two_to_the_minus_twenty_pass() -> None:
    for name, function in (("exp", torch.exp), ("silu", torch.nn.functional.silu), ("gelu", torch.nn.functional.gelu)):
        (x,), expectation = expected(name, {"M": 60, "N": 96})
        wiggle = 1 + 2.0**-20 * torch.sin(1e4 * x)
        assert verdict(function(x) * wiggle, expectation) == "match"
        assert verdict(function(x) * (1 + 2.0**-12 * torch.sin(1e4 * x)), expectation) == "precision_downgrade"


def test_few_numbers_and_large_errors_say_nothing_of_a_type() -> None:
    """A dropped tail or a variance of uneven groups was told as a narrower type."""
    _, few = expected("sum", {"M": 3, "N": 500})
    assert verdict(few.native[0] * torch.tensor([1.001, 0.999, 1.002]), few) != "precision_downgrade"
    _, many = expected("exp", {"M": 40, "N": 70})
    off = 1 + 0.03 * torch.sin(1e4 * many.native[0])
    assert verdict(many.native[0] * off, many) != "precision_downgrade"
    assert verdict(many.native[0] * (1 + (off - 1) / 8), many) == "precision_downgrade"


# --------------------------------------------------------------------------------------------------------------------
# Narrower arithmetic fails
# --------------------------------------------------------------------------------------------------------------------


@pytest.mark.slow(every=3)
@pytest.mark.parametrize("name", [n for n in NAMES if n != "argmax"])
def test_narrow_arithmetic_in_an_fp32_task_fails(name: str) -> None:
    """TF32 (rounded or truncated), fp16 and bf16 inputs, at every other standard shape, both directions."""
    task = find(name)
    recognised = []
    for case in planned(task, dtypes=("float32",), distributions=("standard",))[::2]:
        args, grads = drawn(task, case)
        expectation = reference.expect(task, case, args, grads)
        if not all(t.numel() for t in expectation.native):
            continue
        for kind, narrow in DOWNGRADES.items():
            given = floats(args, narrow)
            if grads is None:
                outputs = called(task.reference, given)
            else:
                outputs = gradients(task.reference, task, case, given, floats(grads, narrow))
            result = compare(outputs, expectation)
            assert isinstance(result, Mismatch), f"{kind} at {case.key}"
            recognised.append(result.evidence["diagnosis"] == "precision_downgrade")
    assert sum(recognised) > 0.6 * len(recognised)


@pytest.mark.parametrize("dtype", HALVES)
def test_a_half_accumulator_fails_over_long_sums(dtype: str) -> None:
    wanted = ((4096, 16, False), (2048, 16, False), (512, 1, False), (4096, 4096, True), (128, 16, True))
    for length, step, want in wanted:
        (a, b), expectation = expected("matmul", {"M": 40, "N": 48, "K": length}, dtype=dtype)
        passed = verdict(half_accumulator(a, b, step), expectation) == "match"
        assert passed == want, f"K = {length}, rounded every {step}"


@pytest.mark.slow(every=3)
@pytest.mark.parametrize(
    ("name", "dtype", "length", "step"),
    [
        ("sum", "float16", 4096, 128),
        ("sum", "bfloat16", 8192, 256),
        ("mean", "float16", 1024, 32),
        ("softmax", "float16", 8192, 8),
        ("softmax", "bfloat16", 4096, 32),
        ("rms_norm", "float16", 8192, 16),
        ("rms_norm", "bfloat16", 8192, 64),
    ],
)
def test_half_accumulators_of_rows_fail(name: str, dtype: str, length: int, step: int) -> None:
    """Where ``docs/correctness.md`` says."""
    assert by_half_sums(name, length, step, dtype, in_turn=True) != "match"


def test_the_tanh_gelu_is_another_operator() -> None:
    (x,), expectation = expected("gelu", {"M": 60, "N": 96})
    assert verdict(torch.nn.functional.gelu(x, approximate="tanh"), expectation) != "match"
    assert verdict(0.5 * x * (1 + erf_series(x * 0.7071067811865476)), expectation) == "match"


@pytest.mark.parametrize("wide", [True, False])
@pytest.mark.parametrize(
    ("name", "dims", "dtype"),
    [
        ("group_norm", {"B": 1, "G": 16, "C": 75, "L": 105}, "bfloat16"),
        ("batch_norm", {"B": 1, "C": 65, "L": 53}, "float16"),
    ],
)
def test_gradients_that_cancel_to_nothing_may_be_rounding_noise(
    name: str, dims: dict[str, int], dtype: str, wide: bool
) -> None:
    """With channels that are equal and an upstream gradient that is equal along the positions, gradients of norms are
    nothing, and what comes out is the noise of sums as long as the row. Norms that round the normalised value before
    weight and bias, as Apex does, failed in 9 of 60 calls, norms in the half type throughout in 15 and 35."""

    def norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, *rest: float) -> torch.Tensor:
        rows = x.float() if wide else x
        over: tuple[int, ...] = (0, 2)
        if name == "group_norm":
            rows, over = rows.reshape(x.shape[0], int(rest[0]), -1), (2,)
        variance, mean = torch.var_mean(rows, over, keepdim=True, correction=0)
        made = (rows - mean) * torch.rsqrt(variance + rest[-1])
        return made.view(x.shape).to(x.dtype) * weight[:, None] + bias[:, None]

    task = find(name)
    case = case_of(name, dims, dtype=dtype, direction="backward", layout="expanded")
    for seed in range(20):
        args, grads = drawn(task, case, seed)
        expectation = reference.expect(task, case, args, grads)
        result = compare(gradients(norm, task, case, args, grads or []), expectation)
        assert isinstance(result, Match), result.message


# --------------------------------------------------------------------------------------------------------------------
# Cheats and bugs fail, for the right reason
# --------------------------------------------------------------------------------------------------------------------


def partial_rows(t: torch.Tensor) -> torch.Tensor:
    t[40:] = 0
    return t


def partial_columns(t: torch.Tensor) -> torch.Tensor:
    t[:, 64:] = 7
    return t


def flat(t: torch.Tensor, which: slice) -> torch.Tensor:
    t.view(-1)[which] = 40
    return t


def poked(value: float) -> Callable[[torch.Tensor], torch.Tensor]:
    def poke(t: torch.Tensor) -> torch.Tensor:
        t[3, 5] = value
        return t

    return poke


def noisy(t: torch.Tensor) -> torch.Tensor:
    return t + 0.5 * torch.randn(t.shape, generator=torch.Generator().manual_seed(1)).to(t.dtype)


MUTANTS: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], str]] = {
    "zeros": (torch.zeros_like, "all_zero"),
    "ones": (torch.ones_like, "constant"),
    "mean": (lambda t: torch.full_like(t, float(t.double().mean())), "constant"),
    "row mean": (lambda t: t.mean(1, keepdim=True).expand_as(t).contiguous(), ""),
    "column mean": (lambda t: t.mean(0, keepdim=True).expand_as(t).contiguous(), ""),
    "sign": (lambda t: -t, "wrong_sign"),
    "factor": (lambda t: t * 1.07, "scaled"),
    "sum of half the terms": (lambda t: t * 0.5, "scaled"),
    "shift": (lambda t: t + 0.25, "shifted"),
    "last rows": (partial_rows, "tail_wrong"),
    "last columns": (partial_columns, "tail_wrong"),
    "last elements": (lambda t: flat(t, slice(-5, None)), "tail_wrong"),
    "last of all": (lambda t: flat(t, slice(-1, None)), "tail_wrong"),
    "one row and a half": (lambda t: flat(t, slice(-t.shape[1] * 3 // 2, None)), "tail_wrong"),
    "five of the last row": (lambda t: flat(t, slice(-9, -4)), "tail_wrong"),
    "first elements": (lambda t: flat(t, slice(0, 5)), "wrong"),
    "five in the middle": (lambda t: flat(t, slice(-999, -994)), "wrong"),
    "one row": (lambda t: t.index_fill(0, torch.tensor([17]), 3.0), "rows_wrong"),
    "rows permuted": (lambda t: t.roll(1, 0), "permuted"),
    "transposed": (lambda t: t.T.reshape(t.shape).clone(), "permuted"),
    "one element": (poked(40.0), ""),
    "one nan": (poked(math.nan), "nan"),
    "one infinity": (poked(math.inf), "inf"),
    "all nan": (lambda t: torch.full_like(t, math.nan), "nan"),
    "huge": (lambda t: t * 1e30 if t.dtype == torch.float32 else t * 300, "scaled"),
    "noise": (noisy, "wrong"),
}


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("mutant", MUTANTS)
def test_mutants_are_told_apart(mutant: str, dtype: str) -> None:
    mutate, diagnosis = MUTANTS[mutant]
    _, expectation = expected("matmul", MATMUL, dtype=dtype)
    found = verdict(mutate(expectation.native[0].clone()), expectation)
    assert found != "match"
    if diagnosis:
        assert found == diagnosis


@pytest.mark.parametrize("name", ["gelu", "layer_norm", "softmax", "matmul"])
@pytest.mark.parametrize(("dtype", "factor"), [("float32", 1 + 1e-5), ("float16", 0.997), ("bfloat16", 1.02)])
def test_factors_near_one_are_called_factors(name: str, dtype: str, factor: float) -> None:
    """Not a narrower type, whose errors have both signs."""
    dims = {"M": 64, "N": 128, "K": 256} if name == "matmul" else {"M": 64, "N": 256}
    _, expectation = expected(name, dims, dtype=dtype)
    native = expectation.native[0]
    result = compare([(native.double() * factor).to(native.dtype)], expectation)
    assert isinstance(result, Mismatch) and result.evidence["diagnosis"] == "scaled"
    assert float(result.message.rpartition("times ")[2]) == pytest.approx(factor, abs=0.1 * abs(factor - 1))
    cut = (native.float().view(torch.int32) & (-1 << {"float32": 12, "float16": 15, "bfloat16": 18}[dtype])).view(
        torch.float32
    )
    assert verdict(cut.to(native.dtype), expectation) != "scaled"


def test_a_wrong_variance_of_rows_is_no_narrower_type() -> None:
    _, expectation = expected("layer_norm", {"M": 64, "N": 256})
    native = expectation.native[0]
    generator = torch.Generator().manual_seed(2)
    factors = 1 + 1e-3 * torch.randn(64, 1, generator=generator)
    result = compare([native * factors], expectation)
    assert isinstance(result, Mismatch) and result.evidence["diagnosis"] == "rows_scaled"
    assert "factors 0.99" in result.message and "variance of a row" in result.message
    assert verdict(native.bfloat16().float(), expectation) == "precision_downgrade"


@pytest.mark.parametrize("columns", [10, 96])
@pytest.mark.parametrize("wrong", ["no epsilon", "n - 1", "epsilon beside the root", "wrong mean"])
def test_wrong_rows_before_weight_and_bias_are_no_narrower_type(wrong: str, columns: int) -> None:
    (x, weight, bias, epsilon), expectation = expected("layer_norm", {"M": 24, "N": columns})
    mean, variance = x.mean(-1, keepdim=True), x.var(-1, correction=wrong == "n - 1", keepdim=True)
    if wrong == "wrong mean":
        mean = mean * 1.01
    scale = 1 / variance.sqrt() if wrong == "no epsilon" else (variance + epsilon).rsqrt()
    if wrong == "epsilon beside the root":
        scale = 1 / (variance.sqrt() + epsilon)
    result = compare([(x - mean) * scale * weight + bias], expectation)
    assert isinstance(result, Mismatch) and result.evidence["diagnosis"] == "rows_scaled"
    assert ("by n - 1 instead of n" in result.message) == (wrong == "n - 1"), result.message


def test_outputs_that_hardly_vary_have_no_factor() -> None:
    """Terms left out of the logarithm of a sum take off about the same from all rows, which is no factor."""
    _, expectation = expected("logsumexp", {"M": 64, "N": 4096}, distribution="constant")
    assert not isinstance(result := compare([expectation.native[0] - 0.25], expectation), Match)
    assert "off by about the same everywhere: times" in result.message and "plus -0.25" in result.message


@pytest.mark.parametrize(
    ("size", "first", "words"),
    [
        (770, 769, "only index 769 along dim 0 is wrong: is a partial block handled?"),
        (770, 768, "only indices 768 to 769 along dim 0 are wrong: is a partial block handled?"),
        (2065, 2048, "along dim 0 are wrong: is a partial block handled, or does something hold 2048 alone?"),
        (5, 4, "only index 4 along dim 0 is wrong"),
    ],
)
def test_wrong_ends_are_named(size: int, first: int, words: str) -> None:
    _, expectation = expected("gelu", {"M": size, "N": 8})
    output = expectation.native[0].clone()
    output[first:] += 1
    result = compare([output], expectation)
    assert isinstance(result, Mismatch)
    assert words in result.message
    assert ("partial block" in result.message) == (size >= 32)


def test_an_error_just_beyond_its_bound_is_told_from_it() -> None:
    assert _apart(0.00102049, 0.00101991, 3) == ("0.0010205", "0.0010199")
    assert _apart(0.5, 0.25, 3) == ("0.5", "0.25") and _apart(1.0, 1.0, 3) == ("1", "1")


@pytest.mark.parametrize("count", [1, 5000])
@pytest.mark.parametrize("size", [1e31, 1.8e37])
def test_finite_errors_beyond_fp32_have_a_size(size: float, count: int) -> None:
    """ "their relative rms error, inf, is within its own" was said of them."""
    (x,), expectation = expected("gelu", {"M": 60, "N": 96})
    wrong = expectation.native[0].clone()
    wrong.view(-1)[:count] = size
    result = compare([wrong], expectation)
    assert isinstance(result, Mismatch)
    assert result.evidence["rule"] == "rms"
    assert result.evidence["relative_rms_error"] == pytest.approx(
        size * math.sqrt(count / x.numel() / float(expectation.oracle[0].square().mean())), rel=1e-3
    )
    assert " inf" not in result.message and "within its own" not in result.message


def test_whole_numbers_are_told_in_all_of_their_digits() -> None:
    """An int64 that was off by 11 read ``is -7.3727883e+09, expected -7.3727883e+09``."""
    assert _apart(-7372788309, -7372788298) == ("-7372788309", "-7372788298")
    _, expectation = expected("sum_integers", {"M": 3, "N": 40}, dtype="int64")
    result = compare([expectation.native[0] + 10**12 + 1], expectation)
    assert isinstance(result, Mismatch)
    assert f"is {int(expectation.native[0].flatten()[0]) + 10**12 + 1}, expected" in result.message


def test_two_coarse_elements_are_not_all_over() -> None:
    _, expectation = expected("sum", {"M": 12, "N": 300})
    output = expectation.native[0].clone()
    output[[3, 7]] += output.abs().mean() / 64
    result = compare([output], expectation)
    assert isinstance(result, Mismatch)
    assert "makes them, in 2 of 12 elements (relative" in result.message
    coarse = compare([expectation.native[0] * (1 + 2.0**-9 * torch.linspace(-1, 1, 12).sin())], expectation)
    assert isinstance(coarse, Mismatch)
    assert "makes them, all over the output (relative" in coarse.message


def test_copies_of_inputs_are_named() -> None:
    for name in ("gelu", "add", "swiglu", "rms_norm"):
        args, expectation = expected(name, {"M": 40, "N": 64})
        assert verdict(args[0], expectation) == "input_copy"


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_small_parts_of_an_output_must_be_computed_too(dtype: str) -> None:
    """Near-identity: x plus a part of it that an ordinary tolerance would swallow."""
    base = find("gelu")
    size = {"float32": 1e-5, "float16": 0.01, "bfloat16": 0.08}[dtype]
    task = replace(base, name="residual", reference=lambda x: x + size * torch.sin(3 * x), relations=())
    case = case_of("residual", {"M": 60, "N": 96}, dtype=dtype)
    args, _ = drawn(task, case)
    expectation = reference.expect(task, case, args)
    assert verdict(expectation.native[0], expectation) == "match"
    assert verdict(args[0], expectation) == "input_copy"
    assert verdict(args[0] * 1.0, expectation) != "match"


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_the_mean_is_no_answer_even_where_the_output_hardly_varies(dtype: str) -> None:
    base = find("gelu")
    size = {"float32": 1e-5, "float16": 0.02, "bfloat16": 0.15}[dtype]
    task = replace(base, name="flat", reference=lambda x: 1 + size * torch.tanh(x), relations=())
    case = case_of("flat", {"M": 60, "N": 96}, dtype=dtype)
    args, _ = drawn(task, case)
    expectation = reference.expect(task, case, args)
    native = expectation.native[0]
    assert verdict(native, expectation) == "match"
    for constant in (1.0, float(native.double().mean())):
        assert verdict(torch.full_like(native, constant), expectation) == "constant"


def test_small_elements_are_judged_beside_huge_ones() -> None:
    """exp of outliers: the rms is that of one element, and all others must be right as well."""
    (x,), expectation = expected("exp", {"M": 60, "N": 96}, distribution="outlier", seed=4)
    native = expectation.native[0]
    finite = torch.where(native.isinf(), 0.0, native)
    assert float(finite.max()) > 1e10 * float(finite.median())
    assert verdict(native, expectation) == "match"
    assert verdict(torch.where(native > 1e6, native, torch.zeros_like(native)), expectation) != "match"
    assert verdict(torch.exp(x.bfloat16().float()), expectation) != "match"


def _scaled(
    function: Callable[[torch.Tensor], torch.Tensor], scale: float, dtype: torch.dtype, columns: int
) -> tuple[torch.Tensor, Expectation]:
    """Inputs times a scale, as problem files have them, and the expectation of the function there."""
    x = scale * torch.randn(64, columns, generator=torch.Generator().manual_seed(3))
    near = x.double() * (1 + PROBE * torch.randn(x.shape, generator=torch.Generator().manual_seed(4)).sign())
    name = str(dtype)[6:]
    call = case_of("sigmoid", {"M": 64, "N": columns}, name)
    floor = floor_of(dtype, 1, call, find("sigmoid").tolerance, tf32=False)
    native = function(x).to(dtype)
    found = bounded(function(x.double()), native, function(near).to(native.dtype).float(), floor)
    return x, Expectation(outputs=(found,), args=())


@pytest.mark.parametrize("columns", [48, 200])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_roundings_of_one_beside_tiny_elements_pass(dtype: torch.dtype, columns: int) -> None:
    """Half of a saturated sigmoid is next to nothing; by the tanh, as XLA has it, it is off by the rounding of 1."""
    x, expectation = _scaled(torch.sigmoid, 30.0, dtype, columns)
    assert verdict((0.5 * torch.tanh(0.5 * x) + 0.5).to(dtype), expectation) == "match"
    coarse = torch.sigmoid(x) + 2.0**-20 * torch.rand(x.shape, generator=torch.Generator().manual_seed(5))
    if dtype == torch.float32:
        assert verdict(coarse, expectation) != "match"


@pytest.mark.parametrize("columns", [48, 200])
@pytest.mark.parametrize("scale", [3.0, 8.0, 15.0])
def test_elements_beside_one_that_carries_the_whole_norm_are_judged(scale: float, columns: int) -> None:
    """Exponentials of scattered numbers have no size in common beside which most would be small."""
    x, expectation = _scaled(torch.exp, scale, torch.float32, columns)
    exact = expectation.outputs[0].oracle
    coarse = (exact * (1 + 2.0**-10 * torch.rand(x.shape, generator=torch.Generator().manual_seed(5)))).float()
    large = exact > exact.quantile(0.9)
    assert verdict(torch.where(large, exact.float(), coarse), expectation) != "match"


def test_nonfinite_classes() -> None:
    args, expectation = expected("add", {"M": 50, "N": 64}, distribution="nonfinite")
    native = expectation.native[0]
    assert native.isnan().any()
    assert verdict(native, expectation) == "match"
    assert verdict(native.nan_to_num(nan=0.0, posinf=math.inf, neginf=-math.inf), expectation) == "lost_nonfinite"
    assert verdict(native.clamp(-3e38, 3e38), expectation) == "lost_nonfinite"
    assert verdict(torch.where(native.isinf(), -native, native), expectation) == "inf"
    spread = native.clone()
    spread[0] = math.nan
    assert verdict(spread, expectation) == "nan"
    assert verdict(-native, expectation) != "match"
    assert args[0].isnan().any()


def test_overflow_to_infinity_is_right_where_the_type_ends() -> None:
    base = find("gelu")
    task = replace(base, name="large", reference=lambda x: x * 65504.0, relations=())
    case = case_of("large", {"M": 60, "N": 96}, dtype="float16")
    args, _ = drawn(task, case)
    args[0][0, :4] = torch.tensor([1.0, 1.001, 2.0, 0.5]).half()
    expectation = reference.expect(task, case, args)
    native = expectation.native[0]
    assert native.isinf().any()
    assert verdict(native, expectation) == "match"
    at_end = native.clone()
    at_end[0, 0] = math.inf
    assert verdict(at_end, expectation) == "match"
    assert verdict(native.clamp(-65504, 65504), expectation) != "match"
    early = native.clone()
    early[0, 3] = math.inf
    assert verdict(early, expectation) == "inf"


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_zero_inputs_leave_no_room(dtype: str) -> None:
    args, expectation = expected("matmul", MATMUL, dtype=dtype, distribution="zeros")
    assert verdict(expectation.native[0], expectation) == "match"
    assert verdict(torch.full_like(expectation.native[0], 1e-6), expectation) != "match"
    args, expectation = expected("logsumexp", {"M": 30, "N": 50}, dtype=dtype, distribution="zeros")
    assert verdict(online_logsumexp(args[0].float()).to(args[0].dtype), expectation) == "match"


def test_cancelling_sums_may_be_off_by_the_rounding_of_their_terms() -> None:
    task, case = find("sum"), case_of("sum", {"M": 300, "N": 256})
    args, _ = drawn(task, case)
    args[0][:, 128:] = -args[0][:, :128].flip(1)
    expectation = reference.expect(task, case, args)
    assert float(expectation.oracle[0].abs().max()) < 1e-9
    assert verdict(HONEST["sum"][0](args[0]), expectation) == "match"
    assert verdict(torch.full((300,), 1e-3), expectation) != "match"


@pytest.mark.parametrize(
    ("name", "value", "dtype"),
    [
        ("softmax_one", -250.0, "bfloat16"),
        ("erfc", 300.0, "float32"),
        ("erfc", 300.0, "bfloat16"),
        ("tanh", 300.0, "float32"),
        ("tanh", 300.0, "bfloat16"),
    ],
)
def test_what_underflows_leaves_no_room(name: str, value: float, dtype: str) -> None:
    """The bound was the sum of the inputs, rounded: in bfloat16 0.1 passed for the first one."""
    direction = "forward" if name == "softmax_one" else "backward"
    task, case = find(name), case_of(name, {"M": 40, "N": 60}, dtype=dtype, direction=direction)
    args, grads = drawn(task, case)
    args[0] += value
    expectation = reference.expect(task, case, args, grads)
    (zero,) = expectation.oracle
    assert not zero.any()
    rounding = 2.0**-24 if name == "tanh" else 0.0  # one minus the square of a tanh that is a rounding off
    for off, passes in ((rounding, True), (-rounding, True), (1e-4, False), (0.1, False)):
        assert (verdict(torch.full_like(expectation.native[0], off), expectation) == "match") is passes, off


# --------------------------------------------------------------------------------------------------------------------
# Forms and figures
# --------------------------------------------------------------------------------------------------------------------


def test_wrong_forms() -> None:
    _, expectation = expected("add_rms_norm", {"M": 6, "N": 8})
    out, total = expectation.native
    for outputs, reason, words in (
        ([out], "wrong_count", "1 outputs, expected 2"),
        ([out, total[:5]], "wrong_shape", "output 1 has shape [5, 8], expected [6, 8]"),
        ([out.half(), total], "wrong_dtype", "output 0 is float16, expected float32"),
    ):
        result = compare(outputs, expectation)
        assert isinstance(result, Mismatch)
        assert result.reason == reason
        assert words in result.message


def test_the_second_output_counts() -> None:
    _, expectation = expected("add_rms_norm", {"M": 40, "N": 80})
    out, total = expectation.native
    result = compare([out, torch.zeros_like(total)], expectation)
    assert isinstance(result, Mismatch)
    assert result.evidence["output"] == 1


def test_evidence() -> None:
    _, expectation = expected("matmul", MATMUL)
    off = expectation.native[0].clone()
    off[7, 11] += 3
    result = compare([off], expectation)
    assert isinstance(result, Mismatch)
    evidence = result.evidence
    assert evidence["worst_index"] == [7, 11]
    assert evidence["got"] - evidence["expected"] == pytest.approx(3, rel=1e-4)
    assert evidence["max_abs_error"] == pytest.approx(3, rel=1e-4)
    assert (evidence["beyond"], evidence["of"]) == (1, 48 * 80)
    assert evidence["tolerance"] < 1e-3
    assert "[7, 11]" in result.message
    good = compare(expectation.native, expectation)
    assert isinstance(good, Match)
    assert good.evidence["relative_rms_error"] == pytest.approx(good.evidence["native_relative_rms_error"], rel=1e-6)
    assert 0 < good.evidence["relative_rms_error"] < good.evidence["relative_rms_bound"] < 1e-5
    json.dumps(to_plain(good.evidence))


def test_empty_outputs_match() -> None:
    for name, dims in (("gelu", {"M": 0, "N": 8}), ("matmul", {"M": 3, "N": 0, "K": 5}), ("sum", {"M": 0, "N": 4})):
        _, expectation = expected(name, dims)
        assert isinstance(compare(expectation.native, expectation), Match)


def test_outputs_are_only_read() -> None:
    _, expectation = expected("gelu", {"M": 40, "N": 64})
    output = expectation.native[0].clone()
    compare([output], expectation)
    assert torch.equal(output, expectation.native[0])


@pytest.mark.parametrize("shape", [(1, 1), (1, 200_000), (3, 90_000), (200_000, 2), (500, 300)])
def test_tiles_cover_everything_once(shape: tuple[int, int]) -> None:
    seen = torch.zeros(shape, dtype=torch.int32)
    for rows, columns in tiles(shape, seen.device):
        seen[rows, columns] += 1
    assert bool((seen == 1).all())


@pytest.mark.parametrize("dims", [{"M": 1, "N": 300_000}, {"M": 3000, "N": 150}, {"M": 40_000, "N": 3}])
def test_large_outputs_are_compared_tile_by_tile(dims: dict[str, int]) -> None:
    _, expectation = expected("gelu", dims)
    native = expectation.native[0]
    assert verdict(native, expectation) == "match"
    off = native.clone()
    off[-1, -1] += 1
    assert verdict(off, expectation) != "match"


def test_native_passes_a_draw_in_which_it_is_further_off_than_in_others() -> None:
    """Scales of small outputs come from several draws; eight that were nine times as good rejected native itself."""
    oracle_ = torch.linspace(-1, 1, 66, dtype=torch.float64)
    native = (oracle_ * (1 + 2.0**-9)).to(torch.bfloat16)
    call = {"M": 1, "N": 66}
    floor = floor_of(torch.bfloat16, 1, case_of("gelu", call, "bfloat16"), find("gelu").tolerance, tf32=False)
    lucky = Scales(
        rms=0.6, native_rms=1e-6, native_max=1e-6, floor_rms=1e-6, floor_max=1e-6, bulk=0.0, mean=0.5, response=0.0
    )
    expected = bounded(oracle_, native, oracle_.clone(), replace(floor, relative=1e-6), pool=[lucky] * 8)
    assert isinstance(compare([native], Expectation(outputs=(expected,), args=())), Match)


def test_outputs_of_denormal_numbers_have_bounds() -> None:
    """The gradient of a softmax over numbers that lie far apart may be the smallest number of fp64."""
    call = {"M": 4, "N": 8}
    oracle_ = torch.zeros(4, 8, dtype=torch.float64)
    oracle_[0, 0] = 5e-324
    floor = floor_of(torch.float32, 8, case_of("softmax", call), find("softmax").tolerance, tf32=False)
    found = bounded(oracle_, torch.zeros(4, 8), oracle_.clone(), floor)
    assert isinstance(compare([torch.zeros(4, 8)], Expectation(outputs=(found,), args=())), Match)
